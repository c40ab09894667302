package layers

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// phrases are the words by which comments leave the field's English: doc comments begin with what the thing does or holds,
// and code does not speak. The first two hold for every comment, the third for doc comments of exported names, which
// readers meet first.
var (
	beginnings = regexp.MustCompile(`^\w+ (?:is|are) (?:what|how|why)\b`)
	anywhere   = regexp.MustCompile(`(?i)\b(?:of ours|nobody|told|becomes of|their sisters|as far as it goes)\b`)
	exported   = regexp.MustCompile(`\b(?:says|tells|gives)\b`)
)

// mostPhrases is how many of them are left. It only falls.
const mostPhrases = 50

func TestCommentsUseTheFieldsWords(t *testing.T) {
	var found []string
	for _, f := range sources(t) {
		if f.test || below([]string{"bench", "internal/testkit"}, f.dir) {
			continue
		}
		for _, group := range f.ast.Comments {
			text := group.Text()
			for range anywhere.FindAllString(text, -1) {
				found = append(found, f.path+": "+firstLine(text))
			}
			if beginnings.MatchString(text) {
				found = append(found, f.path+": "+firstLine(text))
			}
		}
		for _, doc := range exportedDocs(f.ast) {
			for range exported.FindAllString(doc.Text(), -1) {
				found = append(found, f.path+": "+firstLine(doc.Text()))
			}
		}
	}
	if len(found) > mostPhrases {
		t.Errorf("%d phrases, want at most %d:\n%s", len(found), mostPhrases, strings.Join(found, "\n"))
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// exportedDocs returns the doc comments of exported declarations.
func exportedDocs(f *ast.File) (docs []*ast.CommentGroup) {
	add := func(doc *ast.CommentGroup, names ...*ast.Ident) {
		for _, n := range names {
			if doc != nil && n.IsExported() {
				docs = append(docs, doc)
				return
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Doc, d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(d.Doc, s.Name)
				case *ast.ValueSpec:
					add(s.Doc, s.Names...)
				}
			}
		}
	}
	return docs
}
