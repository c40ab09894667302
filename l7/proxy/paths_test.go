package proxy

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/route"
)

// No spelling of a path gets around a rule that denies it.
func TestPathsLeadWhereTheyAreRead(t *testing.T) {
	for path, want := range map[string]string{
		"/private": "403", "/private/case": "403", "/public/../private": "403", "/public/%2e%2e/private": "403", "/%70rivate": "403", "//private": "403", "/./private": "403",
		"/public//../private/": "403", "/private?x": "403", "/private/%2e": "403",
		"/private%2fcase": "400", "/public%2f..%2fprivate": "400", "/public/..%2fprivate": "400", "/public/..;/private": "400", "/public\\..\\private": "400", "/public/..%5cprivate": "400",
		"/public/%252e%252e/private": "400", "/private;x": "400", "/public%2f..%252fprivate": "400", "/;/private": "400", "/public/..%3b/private": "400",
		"/..": "400", "/%2e%2e/private": "400", "/public/..%2f..%2f..": "400", "/%00": "400",
		"/public": "200", "/public%2fcase": "200", "/public;x=1/case": "200", "/a%20b": "200", "/PRIVATE": "200", "/private-not": "200", "/public?a=/../private": "200", "/public/...": "200",
	} {
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			table, err := route.New([]route.Rule{
				{Name: "private", Match: route.Match{Path: route.Path{Value: "/private"}}}, {Name: "all"},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, ln := range tree.Listeners {
				ln.Table, ln.Rules = table, []*Rule{{Name: "private", Response: &Response{Status: 403}}, r.rule}
			}
		})
		if got := r.ask("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%s: %.100q, want %s", path, got, want)
		}
		r.nothingLeft()
	}
}
