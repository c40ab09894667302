package layers

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestDocCommentsBeginWithTheName finds doc comments of functions and types that begin with another name, of the one from
// which they were copied, or with none. In tests, which may begin with a sentence, only names of other declarations are
// found.
func TestDocCommentsBeginWithTheName(t *testing.T) {
	for _, f := range sources(t) {
		if ast.IsGenerated(f.ast) {
			continue
		}
		for name, first := range misnamed(f.ast, f.test) {
			t.Errorf("%s: the doc comment of %s begins with %q", f.path, name, first)
		}
	}
}

// misnamed returns the declarations of a file whose doc comments begin with something else, which it returns, too.
func misnamed(f *ast.File, test bool) map[string]string {
	docs := documented(f)
	wrong := map[string]string{}
	for name, text := range docs {
		words := strings.Fields(text)
		if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) && !test {
			words = words[1:]
		}
		if len(words) == 0 {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimRight(words[0], ":,."), "'")
		_, other := docs[first]
		if short := name[strings.LastIndex(name, ".")+1:]; first != short && (!test || other) {
			wrong[name] = first
		}
	}
	return wrong
}

// documented returns the doc comments of functions, methods ("T.M") and types by name; "" is none.
func documented(f *ast.File) map[string]string {
	docs := map[string]string{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil && len(d.Recv.List) > 0 {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			docs[name] = d.Doc.Text()
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && d.Tok == token.TYPE {
					docs[s.Name.Name] = s.Doc.Text()
					if s.Doc == nil && len(d.Specs) == 1 {
						docs[s.Name.Name] = d.Doc.Text()
					}
				}
			}
		}
	}
	return docs
}

func TestMisnamedCommentsAreFound(t *testing.T) {
	for code, want := range map[string]struct{ source, test string }{
		"// Run runs.\nfunc Run() {}":                                      {},
		"// run runs.\nfunc Run() {}":                                      {source: "run"},
		"// A Reader reads.\ntype Reader int":                              {},
		"// Readers read.\ntype Reader int":                                {source: "Readers"},
		"// Reader's methods read.\ntype Reader int":                       {},
		"// It runs.\nfunc (r *T[int]) Run() {}\ntype T[X any] int":        {source: "It"},
		"// other runs.\nfunc run() {}\nfunc other() {}":                   {source: "other", test: "other"},
		"type (\n// B is.\nA int\nB int\n)":                                {source: "B", test: "B"},
		"//go:noinline\nfunc run() {}":                                     {},
		"// Two words come first, in a test.\nfunc TestX(t *testing.T) {}": {source: "Two"},
	} {
		for test, first := range map[bool]string{false: want.source, true: want.test} {
			got := ""
			for _, got = range misnamed(parse(t, "package p\n"+code), test) {
			}
			if got != first {
				t.Errorf("%s (test: %v): found %q, want %q", code, test, got, first)
			}
		}
	}
}
