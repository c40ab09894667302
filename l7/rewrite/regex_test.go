package rewrite

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

func TestRegexReplacesWholePaths(t *testing.T) {
	for _, c := range []struct{ pattern, to, path, query, want string }{
		{`/item/(\d+)`, "/items/$1", "/item/42", "", "/items/42"},
		{`/item/(\d+)`, "/items/$1", "/item/42", "?a=b", "/items/42?a=b"},
		{`/item/(\d+)`, "/items/$1", "/item/42/x", "", "-"},
		{`/item/(\d+)`, "/items/$1", "/x/item/42", "", "-"},
		{`/a|/b`, "/c", "/bx", "", "-"},
		{`/a|/b`, "/c", "/b", "", "/c"},
		{`/(?P<user>[^/]+)/(.*)`, "/home/${user}/$2", "/ann/a/b", "", "/home/ann/a/b"},
		{`/(.*)`, "/${1}0/$$1", "/a", "", "/a0/$1"},
		{`/(a)?(b)`, "/x$1$2", "/b", "", "/xb"},
		{`/p/(.*)`, "/index.php?page=$1", "/p/a/b", "", "/index.php?page=a/b"},
		{`/p/(.*)`, "/index.php?page=$1", "/p/x", "?y=z", "/index.php?page=x&y=z"},
		{`/p/(.*)`, "/index.php?page=$1", "/p/x&admin=1;b+c=d", "", "/index.php?page=x%26admin%3D1%3Bb%2Bc%3Dd"},
		{`/p/(.*)`, "/index.php?", "/p/x", "?y", "/index.php?y"},
		{`/p/(.*)`, "/index.php?", "/p/x", "", "/index.php?"},
		{`/(.*)`, "/x/$1", "/a%20b", "", "/x/a%20b"},
		{`(.*)`, "/x$1", "/a", "", "/x/a"},
		// what groups join is a path in its form
		{`/(.)(.*)`, "/a/b/$1./$2", "/.x", "", "/a/x"},
		{`/(.)x(.)/(.*)`, "/$1$2/$3", "/.x./y", "", "!"},
		{`/(.*)/(.*)`, "/$2/$1/", "/a/", "", "/a/"},
		{`/(.*)`, "/$1/../", "/a", "", "invalid"},
		{`/(%2)(E%2E)`, "/a/$1$2", "/%2E%2E", "", "/"},
		{`/a/(%)(.*)`, "/$1", "/a/%20", "", "!"},
		{`/(.*)`, "/a$1", "//b", "", "/a/b"},
	} {
		r, err := NewRegex(c.pattern, c.to)
		if c.want == "invalid" {
			if err == nil {
				t.Errorf("%s to %s: no error", c.pattern, c.to)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s to %s: %v", c.pattern, c.to, err)
			continue
		}
		out, matched, ok := r.Apply([]byte("before"), c.path, c.query)
		got := strings.TrimPrefix(string(out), "before")
		switch {
		case !strings.HasPrefix(string(out), "before"):
			t.Errorf("%s: %q", c.path, out)
		case !ok:
			got = "!"
		case !matched:
			got = "-" + got
		}
		if got != c.want {
			t.Errorf("%s to %s, %s%s: %q, want %q", c.pattern, c.to, c.path, c.query, got, c.want)
		}
	}
}

func TestWrongRegexes(t *testing.T) {
	for _, c := range []struct{ pattern, to string }{
		{"(", "/"},
		{"a)(b", "/"},
		{strings.Repeat("a", maxPattern+1), "/"},
		{"(a{1000}){1000}", "/"},
		{"[a-z]{900}[a-z]{900}", "/"},
		{"/(.*)", "$1"},
		{"/(.*)", "x$1"},
		{"/(.*)", ""},
		{"/(.*)", "//evil.example/$1"},
		{"/(.*)", "/$2"},
		{"/(.*)", "/${x}"},
		{"/(.*)", "/$"},
		{"/(.*)", "/$x"},
		{"/(.*)", "/${1"},
		{"/(.*)", "/${}"},
		{"/(.*)", "/a/../$1"},
		{"/(.*)", "/a#$1"},
		{"/(.*)", "/a?b#$1"},
		{"/(.*)", "/a?b?$1"},
		{"/(.*)", "/a b"},
		{"/(.*)", "/a%zz$1"},
		{"/(.*)", "/a?b c"},
		{"/(.*)", "/" + strings.Repeat("$1", 40)},
		{"/(.*)", "/$99999999999999999999"},
		{"/(.*)", "/a//b$1"},
	} {
		if _, err := NewRegex(c.pattern, c.to); err == nil {
			t.Errorf("%.50q to %.50q: no error", c.pattern, c.to)
		}
	}
}

// A long path takes time that grows with its length alone, and its result is bounded.
func TestRegexesAreBounded(t *testing.T) {
	r, err := NewRegex(`/((a+)+)+b?`, "/"+strings.Repeat("$1", 15))
	if err != nil {
		t.Fatal(err)
	}
	if out, matched, ok := r.Apply(nil, "/"+strings.Repeat("a", 8000)+"c", ""); matched || !ok || len(out) > 0 {
		t.Errorf("matched %v, %v", matched, ok)
	}
	if out, matched, ok := r.Apply(nil, "/"+strings.Repeat("a", 8000), ""); !matched || ok {
		t.Errorf("%d bytes, matched %v, %v", len(out), matched, ok)
	}
	r, err = NewRegex(`/(.*)`, "/?"+strings.Repeat("$1", 15))
	if err != nil {
		t.Fatal(err)
	}
	if out, _, ok := r.Apply(nil, "/"+strings.Repeat("&", 8000), ""); ok || len(out) > 4*maxRewritten {
		t.Errorf("%d bytes, %v", len(out), ok)
	}
}

// FuzzRegex holds that what is made of any path is a path in its form below the root, with a query that has no other parameters.
func FuzzRegex(f *testing.F) {
	f.Add("/a/.x./b", `/(.)x(.)/(.*)`, "/$1$2/$3")
	f.Add("/p/a&b", `/p/(.*)`, "/i?p=$1")
	f.Fuzz(func(t *testing.T, path, pattern, to string) {
		r, err := NewRegex(pattern, to)
		if err != nil {
			return
		}
		path, _, err = semantics.NormalizePath(nil, path)
		if err != nil || path == "" || path[0] != '/' || !semantics.IsTarget(path) || strings.Contains(path, "?") {
			return
		}
		out, matched, ok := r.Apply(nil, path, "")
		if !matched || !ok {
			return
		}
		made, query := semantics.SplitTarget(string(out))
		normal, _, err := semantics.NormalizePath(nil, made)
		if err != nil || normal != made || made[0] != '/' || strings.HasPrefix(made, "//") || !semantics.IsTarget(string(out)) || semantics.HasDotSegments(made) {
			t.Errorf("%q by %q to %q: %q, %v", path, pattern, to, out, err)
		}
		if strings.Count(query, "&") > strings.Count(to, "&") {
			t.Errorf("%q by %q to %q: %q", path, pattern, to, out)
		}
	})
}
