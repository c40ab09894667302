package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listConfigFile is a configuration with lists, in a folder with the given files.
func listConfigFile(t testing.TB, sources string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	const rest = "\ndevices: [{name: gw0}]\nservices: [{name: web, source: client, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}]\n"
	files["gateway.yaml"] = sources + rest
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "gateway.yaml")
}

func TestMistakesInListsAreShown(t *testing.T) {
	files := map[string]string{
		"deny.txt":  "198.18.0.0/15\n  198.18.0.1/24 # bits\nnonsense\n::ffff:198.18.0.1/128\n198.18.0.0/33\n10.0.0.0/8\n",
		"allow.txt": "198.18.0.0/15\n172.16.0.0/12",
	}
	path := listConfigFile(t, "sources:\n  deny: [deny.txt, 172.16.0.0/12]\n  allow:\n    - allow.txt\n    - missing.txt\n    - 192.0.2.0/24\n    - 10.0.0.0/8", files)
	_, err := Load(path)
	var ce *Error
	if !errors.As(err, &ce) {
		t.Fatalf("%v", err)
	}
	got := strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", "")
	want := `gateway.yaml:5:7: the list cannot be read: open missing.txt: no such file or directory
      - missing.txt
        ^
deny.txt:2:3: 198.18.0.1/24 has bits beyond its length
    198.18.0.1/24 # bits
    ^
  write 198.18.0.0/24
deny.txt:3:1: not a prefix: "nonsense"
  nonsense
  ^
  one on each line, such as 198.18.0.0/24, 2001:db8::/64 or one address
deny.txt:4:1: ::ffff:198.18.0.1/128 is an IPv4 address in IPv6 form
  ::ffff:198.18.0.1/128
  ^
  write it as 198.18.0.1
deny.txt:5:1: not a prefix: "198.18.0.0/33"
  198.18.0.0/33
  ^
  one on each line, such as 198.18.0.0/24, 2001:db8::/64 or one address
deny.txt:6:1: 10.0.0.0/8 is already allowed by the configuration
  10.0.0.0/8
  ^
allow.txt:2:1: 172.16.0.0/12 is already denied by the configuration
  172.16.0.0/12
  ^
deny.txt:1:1: 198.18.0.0/15 is already allowed by allow.txt:1
  198.18.0.0/15
  ^`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A file with many mistakes shows the first ones and counts the others.
func TestManyMistakesInListsAreCounted(t *testing.T) {
	path := listConfigFile(t, "sources: {deny: deny.txt}", map[string]string{"deny.txt": strings.Repeat("x\n", 200)})
	_, err := Load(path)
	var ce *Error
	if !errors.As(err, &ce) || len(ce.Problems) != maxListProblems || ce.More != 150 || !strings.HasSuffix(err.Error(), "and 180 more errors (millrace gateway check --all shows all)") {
		t.Errorf("%v", err)
	}
}

// What is no list of prefixes is refused before it takes memory or time.
func TestOddListFilesAreRefused(t *testing.T) {
	for name, sources := range map[string]string{
		"a device": "deny: /dev/zero", "a folder": "deny: /tmp", "a long line": "deny: long.txt",
	} {
		t.Run(name, func(t *testing.T) {
			path := listConfigFile(t, "sources: {"+sources+"}", map[string]string{"long.txt": strings.Repeat("1", maxListLine+1)})
			if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "gateway.yaml:1:17: the list cannot be read") {
				t.Errorf("%v", err)
			}
		})
	}
}
