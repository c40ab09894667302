package route

import "testing"

func TestAmbiguousPaths(t *testing.T) {
	tab := table(t, Rule{"admin", Match{Path: Path{Value: "/admin"}}}, Rule{"exact", Match{Path: Path{PathExact, "/k/exact"}}}, Rule{"all", Match{}})
	for path, want := range map[string]bool{
		"/": false, "/a%2Fb": false, "/admin/a%2Fb": false, "/a;x/b": false, "/%2Fadmin": true, "/admin%2Fx": true, "/admin;x": true, "/admin\\x": true,
		"/k%2Fexact": true, "/k/exact;x": true, "/a%2F..%2Fb": true, "/a/..;/b": true, "/b%2F..%2Fadmin/..;/": true,
		"/%2561dmin": true, "/adm%2569n/delete": true, "/%252561dmin": true, "/a%2561": false, "/100%25": false, "/admin/100%2520": false, "/k/%2565xact": true,
	} {
		r := &Request{Path: path}
		if got := tab.Ambiguous(r, tab.Find(r)); got != want || r.Path != path {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	for raw, want := range map[string]struct {
		path string
		is   bool
	}{
		"/a": {"/a", false}, "/a//b": {"/a/b", false}, "/%61": {"/a", false}, "/a/%2e/b": {"/a/b", true}, "/a/../b": {"/b", true},
		"/k//exact": {"/k/exact", true}, "/%6b/exact": {"/k/exact", true}, "//admin": {"/admin", true},
	} {
		r := &Request{Path: want.path}
		if got := tab.AmbiguousRaw(r, tab.Find(r), raw); got != want.is || r.Path != want.path {
			t.Errorf("%s: %v, want %v", raw, got, want.is)
		}
	}
}
