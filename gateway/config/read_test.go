package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// listed is a package as `go list` describes it.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// readers are the packages that act on a configuration.
func readers(t *testing.T) (list []listedPackage, exports map[string]string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly", ".", "../daemon", "../health", "../resolve", "../defence", "../../l4/control", "../../l4/inspection", "../../l7/control")
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, wrong.String())
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, exports
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			list = append(list, p)
		}
	}
}

// fieldsOf collects the exported fields below a type of this package or of the health checks, as "Type.Field".
func fieldsOf(typ reflect.Type, to map[string]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldsOf(typ.Elem(), to)
	case reflect.Struct:
		if !strings.Contains(typ.PkgPath(), "/gateway/") || typ.Name() == "Problem" {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if name := typ.Name() + "." + f.Name; f.IsExported() && !to[name] {
				to[name] = true
				fieldsOf(f.Type, to)
			}
		}
	}
}

// onlyChecks are the files of this package that read keys and compare them, which is no effect.
var onlyChecks = regexp.MustCompile(`^(check|schema|decode|effects|needs|diff|listeners|pools|routes|doc)`)

// TestEveryFieldOfTheConfigurationIsRead finds fields that a key fills and nothing reads: the key would be accepted and have no effect.
func TestEveryFieldOfTheConfigurationIsRead(t *testing.T) {
	fields := map[string]bool{}
	fieldsOf(reflect.TypeFor[Config](), fields)
	delete(fields, "Persistence.By") // it has one value
	if len(fields) < 200 {
		t.Fatalf("only %d fields", len(fields))
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	list, exports := readers(t)
	fset := token.NewFileSet()
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for _, p := range list {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}
		if _, err := conf.Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatalf("%s: %v", p.ImportPath, err)
		}
		for i, f := range files {
			if p.Dir == here && onlyChecks.MatchString(p.GoFiles[i]) {
				continue
			}
			removeRead(f, info, fields)
		}
	}
	for name := range fields {
		t.Errorf("nothing reads %s", name)
	}
}

// removeRead removes fields that a file reads: by name, or by a conversion of the whole struct.
func removeRead(f *ast.File, info *types.Info, fields map[string]bool) {
	written := map[ast.Expr]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				written[to] = n.Tok == token.ASSIGN
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && !written[n] {
				delete(fields, typeName(s.Recv())+"."+s.Obj().Name())
			}
		case *ast.CallExpr:
			if of := info.Types[n.Fun]; of.IsType() && len(n.Args) == 1 {
				if st, ok := info.TypeOf(n.Args[0]).Underlying().(*types.Struct); ok {
					for i := range st.NumFields() {
						delete(fields, typeName(info.TypeOf(n.Args[0]))+"."+st.Field(i).Name())
					}
				}
			}
		}
		return true
	})
}

// typeName returns the name of a type, or of what it points to, if it is one of the configuration.
func typeName(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != nil && strings.Contains(n.Obj().Pkg().Path(), "/gateway/") {
		return n.Obj().Name()
	}
	return ""
}
