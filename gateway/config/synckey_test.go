package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const withSync = `
devices: [{name: gw0}]
snat: [198.18.2.1]
sync: {listen: "198.18.9.1:3780", peer: "198.18.9.2:3780", index: 0%s}
services:
  - {name: web, address: 198.18.1.1:80, backends: [{address: 198.18.2.11:80}]}
`

// The key of sync is in the configuration or in a file that only its owner may read. Errors show no part of it.
func TestTheKeyOfSyncIsReadFromAFile(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	inline := `, key: "` + hex + `"`
	for _, c := range []struct {
		name, keys, text string
		mode             os.FileMode
		want             string // error; "" is none
	}{
		{"inline", inline, "", 0, ""},
		{"file", ", key_file: sync.key", hex + "\n", 0o600, ""},
		{"both", inline + ", key_file: sync.key", hex, 0o600, "sync has both key and key_file"},
		{"neither", "", "", 0, "sync has neither key_file nor key"},
		{"short", ", key_file: sync.key", hex[2:], 0o600, "31 octets; 32 are allowed"},
		{"two lines", ", key_file: sync.key", hex + "\n" + hex, 0o600, "has 2 lines; one is allowed"},
		{"no hex", ", key_file: sync.key", "xy" + hex[2:], 0o600, "not hexadecimal"},
		{"readable by its group", ", key_file: sync.key", hex, 0o640, ""},
		{"writable by its group", ", key_file: sync.key", hex, 0o660, "has mode 0660"},
		{"readable", ", key_file: sync.key", hex, 0o644, "has mode 0644"},
		{"missing", ", key_file: sync.key", "", 0, "gw.yaml:4:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "gw.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(withSync, "%s", c.keys, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.mode != 0 {
				key := filepath.Join(dir, "sync.key")
				if err := errors.Join(os.WriteFile(key, []byte(c.text), 0o600), os.Chmod(key, c.mode)); err != nil {
					t.Fatal(err)
				}
			}
			cfg, err := Load(file)
			switch {
			case c.want == "" && (err != nil || !bytes.Equal(cfg.Sync.Key, bytes.Repeat([]byte{0xab}, 32))):
				t.Errorf("%v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			case c.want != "" && c.mode != 0 && c.name != "both" && strings.Contains(err.Error(), "abab"):
				t.Errorf("the key shows up: %v", err)
			}
		})
	}
	a, b := &Config{Sync: &Sync{Key: []byte("k"), KeyFile: "a"}}, &Config{Sync: &Sync{Key: []byte("k"), KeyFile: "b"}}
	if key := NeedsRestart(a, b); key != "" {
		t.Errorf("a file that has moved: %s", key)
	}
	if b.Sync.Key = []byte("x"); NeedsRestart(a, b) != "sync" {
		t.Error("another key needs no restart")
	}
}
