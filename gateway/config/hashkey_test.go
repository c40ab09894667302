package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const minimal = `
devices: [{name: gw0}]
snat: 198.18.2.1
services:
  - name: web
    address: 198.18.1.1:80
    backends: [{address: 198.18.2.11:80}]
`

func TestTheHashKeyIsReadFromItsFile(t *testing.T) {
	dir := t.TempDir()
	key := strings.Repeat("0a", 16)
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		want       HashKey
		wrong      string // "" is none
	}{
		{"one line", key + "\n", 0o600, HashKey{Key: []byte(strings.Repeat("\n", 16))}, ""},
		{"without a line end, read only", key, 0o400, HashKey{Key: []byte(strings.Repeat("\n", 16))}, ""},
		{"another before", strings.Repeat("0B", 64) + "\r\n " + key + " \n\n", 0o600, HashKey{Key: []byte(strings.Repeat("\v", 64)), Before: []byte(strings.Repeat("\n", 16)), Changed: true}, ""},
		{"none before", key + "\nnone\n", 0o600, HashKey{Key: []byte(strings.Repeat("\n", 16)), Changed: true}, ""},
		{"readable to a group", key, 0o640, HashKey{Key: []byte(strings.Repeat("\n", 16))}, ""},
		{"writable to a group", key, 0o660, HashKey{}, "has mode 0660"},
		{"readable to all", key, 0o604, HashKey{}, "has mode 0604"},
		{"empty", "", 0o600, HashKey{}, "line 1: 0 octets"},
		{"short", key[2:], 0o600, HashKey{}, "line 1: 15 octets; 16 to 64 are allowed"},
		{"long", strings.Repeat("0a", 65), 0o600, HashKey{}, "line 1: 65 octets"},
		{"not hexadecimal", "geheim" + key, 0o600, HashKey{}, "line 1: not hexadecimal"},
		{"wrong before", key + "\ngeheim\n", 0o600, HashKey{}, "line 2: not hexadecimal"},
		{"three lines", key + "\n" + key + "\n" + key, 0o600, HashKey{}, "has 3 lines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(dir, "key")
			_ = os.Remove(file)
			if err := errors.Join(os.WriteFile(file, []byte(tc.text), 0o600), os.Chmod(file, tc.mode)); err != nil {
				t.Fatal(err)
			}
			yaml := filepath.Join(dir, "gw.yaml")
			if err := os.WriteFile(yaml, []byte("hash_key_file: key"+minimal), 0o644); err != nil {
				t.Fatal(err)
			}
			c, err := Load(yaml)
			if tc.wrong != "" {
				e := new(Error)
				if !errors.As(err, &e) || !strings.Contains(err.Error(), tc.wrong) || !strings.Contains(err.Error(), "gw.yaml:1:16") {
					t.Fatalf("%v, want %q", err, tc.wrong)
				}
				if strings.Contains(err.Error(), "0a0a") || strings.Contains(err.Error(), "geheim") {
					t.Errorf("the error shows the key: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := c.HashKey
			if string(got.Key) != string(tc.want.Key) || string(got.Before) != string(tc.want.Before) || got.Changed != tc.want.Changed {
				t.Errorf("key %x, before %x, changed %v", got.Key, got.Before, got.Changed)
			}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
				if text := fmt.Sprintf(verb, got); strings.Contains(text, "0a") || strings.Contains(text, "10") {
					t.Errorf("%s shows the key: %s", verb, text)
				}
			}
		})
	}
	if _, err := Parse("gw.yaml", []byte("hash_key_file: ''"+minimal)); err == nil {
		t.Error("an empty name is taken")
	}
}

// The source port of an SNAT address is known to the gateway alone that chose it, so no other picks the connection up.
func TestPickupNeedsTheClientsAddress(t *testing.T) {
	for _, tc := range []struct {
		keys string
		ok   bool
	}{
		{"    unknown: pickup\n", false},
		{"    source: gateway\n    unknown: pickup\n", false},
		{"    source: client\n    unknown: pickup\n", true},
		{"    source: gateway\n    unknown: auto\n", true},
	} {
		_, err := Parse("gw.yaml", []byte(strings.Replace(minimal, "    backends", tc.keys+"    backends", 1)))
		if tc.ok != (err == nil) {
			t.Errorf("%s: %v", tc.keys, err)
		}
		if tc.ok {
			continue
		}
		for _, want := range []string{"with `source: gateway` (SNAT)", "set `source: client`", "unknown: pickup\n"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", tc.keys, err, want)
			}
		}
	}
}

func TestKeysOfTheSelectionThatContradict(t *testing.T) {
	for _, tc := range []struct{ keys, want string }{
		{"    balance: least_connections\n    persistence: {}\n", "persistence is by the hash"},
		{"    balance: least_connections\n    source: client\n    unknown: pickup\n", "least_connections"},
		{"    persistence: {by: server}\n", "by"},
		{"    persistence: {prefix4: 33}\n", "prefix4"},
		{"    persistence: {prefix6: 0}\n", "prefix6"},
		{"    when_full: queue\n", "when_full"},
		{"    balance: random\n", "balance"},
	} {
		_, err := Parse("gw.yaml", []byte(strings.Replace(minimal, "    backends", tc.keys+"    backends", 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.keys, err, tc.want)
		}
	}
	c, err := Parse("gw.yaml", []byte(strings.Replace(minimal, "    backends", "    persistence: {prefix4: 24}\n    backends", 1)))
	if err != nil || *c.Services[0].Persistence != (Persistence{By: "client", Prefix4: 24, Prefix6: 64}) {
		t.Errorf("%+v, %v", c, err)
	}
}
