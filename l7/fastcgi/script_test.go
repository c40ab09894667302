package fastcgi

import (
	"errors"
	"strings"
	"testing"
)

// site is the files of a test: a blog with a front controller.
var site = map[string]bool{
	"index.php": true, "login.php": true, "admin/index.php": true, "upload/photo.jpg": true, "lib/a.b/tool.php": true, "x.PHP": true, "a b.php": true, ".git/hook.php": true,
	".well-known/check.php": true, "dir.php/inner.php": true,
}

func lookup(name string) (bool, error) { return site[name], nil }

func TestScriptsOfPaths(t *testing.T) {
	plain := Scripts{Extensions: []string{".php"}, Index: "index.php"}
	front := plain
	front.Fallback = "/index.php"
	none := Scripts{Extensions: []string{".php", ".phar"}}
	for _, c := range []struct {
		s      *Scripts
		exists Finder
		path   string
		want   string // the script and, behind a blank, the rest; "" is none
	}{
		{&plain, lookup, "/", "/index.php"},
		{&plain, lookup, "/login.php", "/login.php"},
		{&plain, lookup, "/login.php/a/b", "/login.php /a/b"},
		{&plain, lookup, "/login.php/", "/login.php /"},
		{&plain, lookup, "/admin/", "/admin/index.php"},
		{&plain, lookup, "/admin", "folder"},
		{&plain, lookup, "/missing.php", ""},
		{&plain, lookup, "/missing/", ""},
		{&plain, lookup, "/missing", ""},
		{&plain, lookup, "/upload/", ""},
		{&plain, lookup, "/login.php/x.php", "/login.php /x.php"},
		{&plain, lookup, "/a%20b.php", "/a b.php"},
		{&plain, lookup, "/login.php/a%20b", "/login.php /a b"},
		{&plain, lookup, "/lib/a.b/tool.php", "/lib/a.b/tool.php"},
		{&plain, lookup, "/x.PHP", "/x.PHP"},
		{&plain, lookup, "/login.PHP", ""},
		// what PHP must never run
		{&plain, lookup, "/upload/photo.jpg/x.php", ""},
		{&plain, lookup, "/upload/photo.jpg/.php", ""},
		{&plain, lookup, "/upload/photo.jpg%00.php", ""},
		{&plain, lookup, "/upload/photo.jpg%0a.php", ""},
		{&plain, lookup, "/upload/photo.jpg%2fx.php", ""},
		{&plain, lookup, "/.git/hook.php", ""},
		{&plain, lookup, "/%2e%2e/login.php", ""},
		{&plain, lookup, "/a/../login.php", ""},
		{&plain, lookup, "/login.php/../../etc", ""},
		{&plain, lookup, "/login.php%2fx", ""},
		{&plain, lookup, "login.php", ""},
		{&plain, lookup, "", ""},
		{&plain, lookup, "/login.ph%", ""},
		{&plain, lookup, "/login.ph%7", ""},
		{&plain, lookup, "/login.ph%zz", ""},
		{&plain, lookup, "/.well-known/check.php", "/.well-known/check.php"},
		{&plain, lookup, "/x/.well-known/check.php", ""},
		{&plain, lookup, "*", ""},
		{&front, lookup, "/", "/index.php"},
		{&front, lookup, "/2026/hello", "/index.php"},
		{&front, lookup, "/2026/hello/", "/index.php"},
		{&front, lookup, "/admin/", "/admin/index.php"},
		{&front, lookup, "/missing.php", "/index.php"},
		{&front, lookup, "/upload/photo.jpg/x.php", "/index.php"},
		{&front, lookup, "/a%2Fb", "/index.php"},
		{&front, lookup, "/admin", "folder"},
		{&front, lookup, "/.git/hook.php", "/index.php"},
		// without a look at the files
		{&plain, nil, "/missing.php/a", "/missing.php /a"},
		{&plain, nil, "/missing/", "/missing/index.php"},
		{&plain, nil, "/missing", ""},
		{&plain, nil, "/upload/photo.jpg/x.php", ""},
		{&plain, nil, "/upload/photo.jpg/", ""},
		{&plain, nil, "/lib/a.b/tool.php", ""},
		{&plain, nil, "/v1/a.php/x.jpg/y.php", "/v1/a.php /x.jpg/y.php"},
		{&front, nil, "/2026/", "/index.php"},
		{&front, nil, "/admin/x.php", "/admin/x.php"},
		{&front, nil, "/upload/photo.jpg/x.php", "/index.php"},
		{&none, nil, "/", ""},
		{&none, nil, "/a.phar/x", "/a.phar /x"},
		{&none, lookup, "/admin", ""},
		{&none, lookup, "/admin/", ""},
	} {
		got, err := c.s.Find(c.path, c.exists)
		text := strings.TrimSpace(got.Name + " " + got.Info)
		switch {
		case err == ErrFolder:
			text = "folder"
		case err != nil && err != ErrNoScript:
			t.Errorf("%s: %v", c.path, err)
		case (err == ErrNoScript) != (got.Name == ""):
			t.Errorf("%s: %+v, %v", c.path, got, err)
		}
		if text != c.want {
			t.Errorf("%s (fallback %q, looked up %v): %q, want %q", c.path, c.s.Fallback, c.exists != nil, text, c.want)
		}
	}
}

// An error of the disk is no answer: neither the fallback nor another file may run for it.
func TestErrorsOfLookupsAreReturned(t *testing.T) {
	wait := errors.New("wait")
	s := Scripts{Extensions: []string{".php"}, Index: "index.php", Fallback: "/index.php"}
	for _, path := range []string{"/a.php", "/a/", "/a"} {
		if got, err := s.Find(path, func(string) (bool, error) { return false, wait }); !errors.Is(err, wait) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

// FuzzFind holds the rule that keeps uploads from running: what is found is there or the fallback, and below the root.
func FuzzFind(f *testing.F) {
	f.Add("/upload/photo.jpg/x.php")
	f.Add("/login.php/a%2fb")
	f.Fuzz(func(t *testing.T, path string) {
		s := Scripts{Extensions: []string{".php"}, Index: "index.php"}
		for _, exists := range []Finder{lookup, nil} {
			got, err := s.Find(path, exists)
			if err != nil {
				continue
			}
			if !strings.HasPrefix(got.Name, "/") || strings.Contains(got.Name+"/", "/../") || strings.Contains(got.Name, "\x00") || !s.IsScript(got.Name) ||
				got.Info != "" && got.Info[0] != '/' || exists != nil && !site[got.Name[1:]] || strings.HasPrefix(got.Name, "/.git") {
				t.Errorf("%q: %+v", path, got)
			}
		}
	})
}
