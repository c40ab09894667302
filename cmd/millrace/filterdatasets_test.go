package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// Files of datasets are read from beside the rules that name them, whatever folder the command runs in, by each command that takes
// rules, and in a file of access rules as well.
func TestDatasetsAreReadBesideTheRules(t *testing.T) {
	const rule = `alert http any any -> any any (msg:"host"; http.host; dataset:isset,hosts,type string,load lists/hosts; sid:7;)` + "\n"
	capture := testpcaps.File(t, "http.pcap")
	for _, before := range []string{"", "allow tcp\n"} {
		path := ruleFile(t, before+rule)
		list := filepath.Join(filepath.Dir(path), "lists", "hosts")
		if err := os.Mkdir(filepath.Dir(list), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			values, wrong string
			alerts        bool
		}{
			{"c2VydmVyLmV4YW1wbGU=\n", "", true}, // server.example
			{"# none\nb3RoZXIuZXhhbXBsZQ==\n", "", false},
			{"c2VydmVyLmV4YW1wbGU=\nserver.example\n", `lists/hosts: line 2: "server.example" is not base64`, false},
		} {
			if err := os.WriteFile(list, []byte(c.values), 0o600); err != nil {
				t.Fatal(err)
			}
			want := exitOK
			if c.wrong != "" {
				want = exitConfig
			}
			for _, args := range [][]string{{"filter", "check", path}, {"filter", "inspect", "--quiet", path, capture}, {"replay", "--rules", path, "--classify", capture}} {
				code, out, err := run(args...)
				if code != want || !strings.Contains(out+err, c.wrong) {
					t.Errorf("%v with %q: exit code %d: %s%s", args, c.values, code, out, err)
				}
				if alerts := strings.Contains(out, `"signature_id":7`) || strings.Contains(out, "sid 7 "); args[1] != "check" && alerts != c.alerts {
					t.Errorf("%v with %q: alerts %v, want %v:\n%s", args, c.values, alerts, c.alerts, out)
				}
			}
		}
		if err := os.Remove(list); err != nil {
			t.Fatal(err)
		}
		if code, out, _ := run("filter", "check", path); code != exitConfig || !strings.Contains(out, "lists/hosts: no such file or directory") {
			t.Errorf("without the file: exit code %d: %s", code, out)
		}
	}
}
