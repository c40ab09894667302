package semantics

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestNormalizePath(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a": "/a", "/a/b/": "/a/b/", "/a//b": "/a/b", "//": "/", "/a/./b": "/a/b", "/a/.": "/a/", "/a/..": "/",
		"/a/b/../c": "/a/c", "/a/b/..": "/a/", "/a/...": "/a/...", "/a/.b": "/a/.b", "/.a/b": "/.a/b",
		"/%61%2d%7E": "/a-~", "/%2f": "/%2F", "/a%2fb": "/a%2Fb", "/%2e%2E/": "", "/a/%2e%2e/b": "/b", "/a/.%2e/b": "/b", "/%2e": "/",
		"/a/..//..": "", "/..": "", "/a/../..": "", "/%c3%a9": "/%C3%A9", "/a b": "/a b", "/%20": "/%20", "/a;x=1/../b": "/b",
		"/a\\..\\b": "/a\\..\\b", "/%5c": "/%5C", "/a/b/c/./../../g": "/a/g", "/mid/content=5/../6": "/mid/6",
		"/%2561": "/%2561", // encoded twice: decoded once it is %61, and must not become a
	} {
		got, _, err := NormalizePath(nil, in)
		if want == "" {
			if !errors.Is(err, ErrAbove) {
				t.Errorf("%s: %q, %v; want %v", in, got, err, ErrAbove)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]error{
		"/%": ErrPercent, "/%4": ErrPercent, "/%zz": ErrPercent, "/%4g": ErrPercent, "/a%00b": ErrNUL, "/a\x00": ErrNUL,
	} {
		if got, _, err := NormalizePath(nil, in); !errors.Is(err, want) {
			t.Errorf("%q: %q, %v; want %v", in, got, err, want)
		}
	}
	if out, buf, err := NormalizePath([]byte("x"), "/a/../b"); out != "/b" || string(buf) != "x/b" || err != nil {
		t.Errorf("appended: %q, %q, %v", out, buf, err)
	}
}

// The form is a fixed point, has no segment that is left to resolve, and is what net/url resolves.
func FuzzNormalizePath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2e/a", "/a//./b/..", "/%2F/%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") {
			return
		}
		out, _, err := NormalizePath(nil, path)
		if err != nil {
			return
		}
		again, _, err := NormalizePath(nil, out)
		if err != nil || again != out {
			t.Fatalf("%q: %q, and then %q, %v", path, out, again, err)
		}
		for s := range strings.SplitSeq(out[1:], "/") {
			if s == "." || s == ".." || s == "" && !strings.HasSuffix(out, "/") {
				t.Fatalf("%q: segment %q of %q", path, s, out)
			}
		}
		if strings.ContainsAny(path, "%") || strings.Contains(path, "//") {
			return
		}
		ref := (&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: path})
		if ref.Path != out && ref.Path != out+"/" {
			t.Fatalf("%q: %q, net/url: %q", path, out, ref.Path)
		}
	})
}

func TestSplitTarget(t *testing.T) {
	for in, want := range map[string][2]string{"/a": {"/a", ""}, "/a?": {"/a", "?"}, "/a?b?c": {"/a", "?b?c"}, "*": {"*", ""}} {
		if path, query := SplitTarget(in); path != want[0] || query != want[1] {
			t.Errorf("%s: %q %q", in, path, query)
		}
	}
}
