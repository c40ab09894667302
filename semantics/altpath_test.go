package semantics

import "testing"

func TestAlternatePath(t *testing.T) {
	for in, want := range map[string]string{
		"/a%2Fb": "/a/b", "/a%2F..%2Fb": "/b", "/a%5C..%5Cb": "/b", "/a\\b": "/a/b", "/a/..;/b": "/b", "/a;x=1/b": "/a/b", "/a%3Bx/b": "/a/b",
		"/a/%252E%252E/b": "/b", "/a%252Fb": "/a/b", "/a%25252Fb": "/a/b", "/a/..%2Fb": "/b", "/%5C..": "", "/..;/a": "", "/a%2F%2Fb": "/a/b", "/a;": "/a",
	} {
		if got, differs := AlternatePath(in); got != want || !differs {
			t.Errorf("%s: %q, %v; want %q", in, got, differs, want)
		}
	}
	for _, in := range []string{"/", "/a/b", "/a%20b", "/a%2Bb", "/%C3%A9", "/a%2520b", "/a:b@c", "/a..b", "/..."} {
		if got, differs := AlternatePath(in); differs {
			t.Errorf("%s: %q", in, got)
		}
	}
}
