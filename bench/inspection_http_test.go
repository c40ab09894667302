package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway/config"
)

// TestRulesOfTheRowOnHTTP: those of a folder, whose networks are any, and else as many synthetic ones. The gateway takes either.
func TestRulesOfTheRowOnHTTP(t *testing.T) {
	folder := t.TempDir()
	const rule = `alert http $EXTERNAL_NET any -> $HOME_NET any (msg:"m"; http.uri; content:"/x"; sid:7;)` + "\n"
	if err := os.WriteFile(filepath.Join(folder, "a.rules"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		folder, what string
		rules        int
		fails        bool
	}{
		"folder":    {folder, "1 rules of MILLRACE_RULES", 1, false},
		"synthetic": {"", "15000 synthetic rules", 15000, false},
		"empty":     {t.TempDir(), "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MILLRACE_RULES", c.folder)
			b := &l4Bench{dir: t.TempDir()}
			path, what, err := b.httpRules()
			if c.fails {
				if err == nil {
					t.Error("a folder without rules is taken")
				}
				return
			}
			if err != nil || what != c.what {
				t.Fatalf("%q, %v", what, err)
			}
			text, err := os.ReadFile(path)
			if err != nil || strings.Count(string(text), "\n") != c.rules || strings.Contains(string(text), "drop ") {
				t.Errorf("%d lines, %v", strings.Count(string(text), "\n"), err)
			}
			g := usual("afxdp")
			g.Rules, g.Home = path, true
			file, err := g.write(b.dir, "g")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(file); err != nil {
				t.Error(err)
			}
		})
	}
}
