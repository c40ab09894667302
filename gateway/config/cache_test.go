package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// withCache is a file whose rule has a cache.
func withCache(cache, rule string) string {
	return "caches: [{name: a, memory: 4194304" + cache + "}]\n" + strings.Replace(kinds["http"], "matches: [{}],", "matches: [{}], cache: {name: a"+rule+"},", 1)
}

func TestKeysOfCaches(t *testing.T) {
	c, err := Parse("f", []byte(withCache(", max_object: 1000", ", default_ttl: 5s, heuristic_percent: 10, stale_while_revalidate: 1m, stale_if_error: 1h, client_control: ignore, key_headers: [X-A], key_cookies: b, collapse_wait: 0s")))
	if err != nil {
		t.Fatal(err)
	}
	want := RuleCache{
		Name: "a", DefaultTTL: 5 * time.Second, Heuristic: 10, StaleWhileRevalidate: time.Minute, StaleIfError: time.Hour, ClientControl: ClientIgnore,
		KeyHeaders: []string{"x-a"}, KeyCookies: []string{"b"},
	}
	if got := *c.Routes[0].Rules[0].Cache; !reflect.DeepEqual(got, want) || c.Caches[0] != (Cache{"a", 4 << 20, 1000, nil}) {
		t.Errorf("%+v, %+v", got, c.Caches[0])
	}
	if c, err = Parse("f", []byte(strings.Replace(withCache("", ""), "4194304", "2097152", 1))); err != nil || c.Caches[0].MaxObject != 1<<19 {
		t.Errorf("the default of max_object with little memory: %+v, %v", c, err)
	}
	open, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Chmod(open, 0o755), os.Symlink(t.TempDir(), link)); err != nil {
		t.Fatal(err)
	}
	for keys, want := range map[string]CacheDisk{
		"dir: d, bytes: 16777216":                             {"d", 16 << 20, 4 << 20, 1 << 18},
		"dir: d, bytes: 1073741824":                           {"d", 1 << 30, 64 << 20, 1 << 18},
		"dir: d, bytes: 16777216, max_object: 5, objects: 10": {"d", 16 << 20, 5, 10},
	} {
		if c, err = Parse("f", []byte(withCache(", disk: {"+keys+"}", ""))); err != nil || *c.Caches[0].Disk != want {
			t.Errorf("%s: %+v, %v", keys, c, err)
		}
	}
	for _, c := range []struct{ file, want string }{
		{withCache(", disk: {dir: d}", ""), "lacks the key \"bytes\""},
		{withCache(", disk: {bytes: 16777216}", ""), "lacks the key \"dir\""},
		{withCache(", disk: {dir: d, bytes: 1000}", ""), "bytes is 1000; it must lie between 16777216"},
		{withCache(", disk: {dir: d, bytes: 16777216, objects: 0}", ""), "objects is 0"},
		{withCache(", disk: {dir: d, bytes: 16777216, max_object: 4194305}", ""), "max_object 4194305 is too large for bytes 16777216"},
		{withCache(", disk: {dir: d, bytes: 16777216}}, {name: b, memory: 4194304, disk: {dir: ./d/, bytes: 16777216}", ""), "the folder \"./d/\" is that of cache a"},
		{withCache(", disk: {dir: d, bytes: 16777216}}, {name: b, memory: 4194304, disk: {dir: d/00, bytes: 16777216}", ""), "the folder \"d/00\" is within that of"},
		{withCache(", disk: {dir: "+open+", bytes: 16777216}", ""), "(mode 0755)"},
		{withCache(", disk: {dir: "+link+", bytes: 16777216}", ""), "is not a folder"},
		{withCache(", disk: {dir: /dev/null, bytes: 16777216}", ""), "is not a folder"},
		{withCache(", max_object: 2000000", ""), "max_object 2000000 is too large for memory 4194304"},
		{strings.Replace(withCache("", ""), "4194304", "1000", 1), "memory is 1000; it must lie between 1048576"},
		{strings.Replace(withCache("", ""), ", memory: 4194304", "", 1), "lacks the key \"memory\""},
		{strings.Replace(withCache("", ""), "cache: {name: a}", "cache: {name: b}", 1), "unknown cache \"b\""},
		{strings.Replace(withCache("", ""), "cache: {name: a}", "cache: {}", 1), "lacks the key \"name\""},
		{withCache("}, {name: b, memory: 4194304", ""), "cache \"b\" has no effect: nothing uses it"},
		{withCache("}, {name: a, memory: 4194304", ""), "cache \"a\" is already on line 1"},
		{withCache("", ", key_headers: 'a b'"), "\"a b\" is not a name of a field"},
		{withCache("", ", key_cookies: 'a b'"), "\"a b\" is not a name of a cookie"},
		{withCache("", ", heuristic_percent: 101"), "heuristic_percent is 101"},
		{withCache("", ", client_control: no"), "client_control"},
		{"caches: [{name: a, memory: 4194304}]\n" + strings.Replace(kinds["answers"], "matches: [{}],", "matches: [{}], cache: {name: a},", 1), "cache has no effect: the rule answers by itself"},
		{"caches: [{name: a, memory: 4194304}]\n" + oneService, "caches is for listeners, and there are none"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}
