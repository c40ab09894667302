package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The token is in a file of one line that others may not read, and is long enough. Errors show no part of it.
func TestTheTokenOfTheDashboardIsReadFromAFile(t *testing.T) {
	const token = "0123456789abcdefghijklmnopqrstuv"
	for _, c := range []struct {
		name, keys, text string
		mode             os.FileMode
		want             string // error; "" is none
	}{
		{"good", "listen: '127.0.0.1:1', hosts: [gw.example, a_b.example], token_file: t", token + "\n", 0o600, ""},
		{"without a line's end", "listen: '127.0.0.1:1', token_file: t", token, 0o640, ""},
		{"none", "listen: '127.0.0.1:1'", "", 0, ""},
		{"short", "listen: '127.0.0.1:1', token_file: t", token[1:], 0o600, "a token of 31 characters; 32 to 1024 are allowed"},
		{"two lines", "listen: '127.0.0.1:1', token_file: t", token + "\n" + token, 0o600, "is one line"},
		{"spaces", "listen: '127.0.0.1:1', token_file: t", token + " x", 0o600, "printable"},
		{"readable", "listen: '127.0.0.1:1', token_file: t", token, 0o644, "everybody may read"},
		{"missing", "listen: '127.0.0.1:1', token_file: other", "", 0o600, "the token cannot be used"},
		{"no page", "token_file: t", token, 0o600, "admin.token_file has no effect: it is about the dashboard"},
		{"no page for hosts", "hosts: gw.example", token, 0o600, "admin.hosts has no effect"},
		{"a port", "listen: '127.0.0.1:1', hosts: 'gw.example:80'", token, 0o600, "not the name of a host"},
		{"capitals", "listen: '127.0.0.1:1', hosts: GW.example", token, 0o600, "not the name of a host"},
		{"a name", "listen: 'gw.example:1'", token, 0o600, "listen must be an IP address and a port"},
		{"the metrics", "listen: '127.0.0.1:9'", token, 0o600, "are both 127.0.0.1:9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "t"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "t"), c.mode); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "gw.yaml")
			if err := os.WriteFile(file, []byte("admin: {"+c.keys+"}\nmetrics: {listen: '127.0.0.1:9'}\n"+kinds["answers"]), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := Load(file)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), token[:8])):
				t.Errorf("%v, want %q", err, c.want)
			case c.want == "" && string(cfg.AdminToken()) != strings.TrimSuffix(c.text, "\n"):
				t.Errorf("the token is %q", cfg.AdminToken())
			}
		})
	}
}
