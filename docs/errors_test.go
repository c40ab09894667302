package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sources parses the Go files of a folder and those below it, without tests, and calls see for each.
func sources(t *testing.T, dir string, see func(*ast.File)) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == "testkit" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err == nil {
			see(f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var verb = regexp.MustCompile(`%[-+# 0-9.\[\]]*[a-zA-Z]`)

// textOf returns a literal's text with "..." in place of verbs; "" where it is no text.
func textOf(n ast.Node) string {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(l.Value)
	if err != nil {
		return ""
	}
	return verb.ReplaceAllString(text, "...")
}

// texts returns the literals below a node.
func texts(n ast.Node) (list []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if text := textOf(n); text != "" {
			list = append(list, text)
		}
		return true
	})
	return list
}

// errorPage returns docs/errors.md, and the first cells of its tables by the title of their section.
func errorPage(t *testing.T) (page string, cells map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("errors.md")
	if err != nil {
		t.Fatal(err)
	}
	cells = map[string][]string{}
	title := ""
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			title = rest
		} else if strings.HasPrefix(line, "| `") {
			cells[title] = append(cells[title], strings.Split(line, " | ")[0])
		}
	}
	return string(text), cells
}

var quoted = regexp.MustCompile("`([^`]+)`")

// ofTheKernel are messages of Linux that the programs pass on.
var ofTheKernel = []string{"address already in use", "permission denied"}

// Each message that the page quotes is one of a program.
func TestMessagesOfTheErrorPageExist(t *testing.T) {
	_, cells := errorPage(t)
	var all []string
	sources(t, ".", func(f *ast.File) { all = append(all, texts(f)...) })
	there := func(message string) bool {
		message = strings.TrimSuffix(strings.TrimSuffix(message, "..."), " ")
		for _, text := range append(all, ofTheKernel...) {
			if strings.Contains(text, message) {
				return true
			}
		}
		return false
	}
	found := 0
	for _, title := range []string{"The gateway does not start", "Commands fail", "The log while it runs", "A request gets an error"} {
		for _, cell := range cells[title] {
			for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
				if found++; !there(m[1]) {
					t.Errorf("%s: no program says %q", title, m[1])
				}
			}
		}
	}
	page, _ := errorPage(t)
	_, doctor, _ := strings.Cut(page, "## A check of doctor fails")
	for _, line := range strings.Split(doctor, "\n") {
		if row := strings.Split(line, " | "); len(row) == 3 && strings.HasPrefix(row[1], "`") {
			if found++; !there(strings.Trim(row[1], "`")) {
				t.Errorf("doctor: no program says %s", row[1])
			}
		}
	}
	if found < 60 {
		t.Errorf("%d messages found", found)
	}
}

// quotes reports whether one of the cells of a section quotes a text.
func quotes(cells []string, text string) bool {
	for _, cell := range cells {
		if strings.Contains(cell, "`"+text+"`") {
			return true
		}
	}
	return false
}

// Each exit code, drop reason and failure of a request has a row.
func TestTheErrorPageHasAllCodesAndReasons(t *testing.T) {
	_, cells := errorPage(t)
	need := func(section, what string, least int, list []string) {
		if len(list) < least {
			t.Errorf("%s: %d found, at least %d", what, len(list), least)
		}
		for _, name := range list {
			if !quotes(cells[section], name) {
				t.Errorf("errors.md does not have the %s %s", what, name)
			}
		}
	}
	var codes, failures []string
	sources(t, "cmd/millrace", func(f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && regexp.MustCompile(`^exit[A-Z]`).MatchString(v.Names[0].Name) {
				if l, ok := v.Values[0].(*ast.BasicLit); ok {
					codes = append(codes, l.Value)
				}
			}
			return true
		})
	})
	need("Exit codes", "exit code", 16, codes)
	sources(t, "l7/proxy", func(f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if id, ok := c.Type.(*ast.Ident); !ok || id.Name != "failure" {
				return true
			}
			for _, e := range c.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "name" && textOf(kv.Value) != "" {
					failures = append(failures, textOf(kv.Value))
				}
			}
			return true
		})
	})
	need("A request gets an error", "failure", 30, failures)
	var reasons []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(pagesOf(t, "docs/drop-reasons.md")[filepath.Join("..", "docs", "drop-reasons.md")], -1) {
		reasons = append(reasons, m[1])
	}
	need("Packets are dropped", "drop reason", 35, reasons)
}

// Each statement of doctor that makes a check fail has its text, or its remedy, in the page, and each check with such a statement its
// name.
func TestTheErrorPageHasEachFailureOfDoctor(t *testing.T) {
	page, _ := errorPage(t)
	_, page, _ = strings.Cut(page, "## A check of doctor fails")
	found := 0
	sources(t, "internal/app/doctor", func(f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.AssignStmt, *ast.CompositeLit:
			default:
				return true
			}
			fails := false
			ast.Inspect(n, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				fails = fails || ok && id.Name == "Fail"
				return true
			})
			if !fails {
				return true
			}
			for _, text := range texts(n) {
				if text == "interface" {
					continue // the area
				}
				if found++; !strings.Contains(page, "`"+text+"`") {
					t.Errorf("errors.md does not have %q of doctor", text)
				}
			}
			return false
		})
	})
	if found < 8 {
		t.Errorf("%d texts of failures found", found)
	}
	for _, name := range []string{"release", "AF_XDP socket", "bpf system call", "capabilities", "memlock limit"} {
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("errors.md does not have the check %s", name)
		}
	}
}
