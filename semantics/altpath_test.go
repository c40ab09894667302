package semantics

import (
	"slices"
	"strings"
	"testing"
)

func TestAlternatePaths(t *testing.T) {
	for in, want := range map[string]string{
		"/a%2Fb": "/a/b", "/a\\b": "/a/b", "/a;x=1/b": "/a/b", "/a%3Bx/b": "/a;x/b /a/b", "/a%252Fb": "/a%2Fb /a/b", "/a%25252Fb": "/a%252Fb /a%2Fb /a/b",
		"/a%2F%2Fb": "/a/b", "/a;": "/a", "/a%2Fb;x": "/a%2Fb /a/b;x /a/b", "/a%5Cb;x": "/a%5Cb /a\\b;x /a/b;x /a\\b /a/b", "/a;b\\c": "/a;b/c /a /a/c",
		"/": "", "/a/b": "", "/a%20b": "", "/a%2Bb": "", "/%C3%A9": "", "/a%2520b": "/a%20b", "/%2561dmin": "/admin", "/adm%252569n": "/adm%2569n /admin", "/a%25zz": "", "/a%25": "", "/100%25": "", "/a:b@c": "", "/a..b": "", "/...": "",
	} {
		got, ok := AlternatePaths(in)
		if !ok || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, %v; want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{
		"/a%2F..%2Fb", "/a%5C..%5Cb", "/a/..;/b", "/a/.;x/b", "/a/%252E%252E/b", "/a/..%2Fb", "/%5C..", "/..;/a", "/a%2F..", "/a%2F.", "/a\\..", "/a%25252F..", "/a%2500",
	} {
		if got, ok := AlternatePaths(in); ok {
			t.Errorf("%s: %q, %v", in, got, ok)
		}
	}
}

func TestHasDotSegments(t *testing.T) {
	for path, want := range map[string]bool{
		"/": false, "/a.b": false, "/...": false, "/.a": false, "/a/.%61": false, "/%2e%2e%2e": false, "//": false, "/%zz": false,
		"/.": true, "/..": true, "/a/../b": true, "/a/%2e": true, "/%2E./b": true, "/a/.%2e": true, "/./": true,
	} {
		if got := HasDotSegments(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
