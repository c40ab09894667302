package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mixedRules = `group web 198.18.0.10, 198.18.0.11
list bad file "bad.prefixes"
deny from list bad
rate 1kpps per source tcp to group web port 80,443
log tcp
permit udp
alert http any any -> any any (msg:"x"; content:"evil"; sid:1;)
alert http any any -> any any (msg:"x"; contnt:"evil"; sid:2;)
`

// ruleFile writes a file of rules and the list that it names.
func ruleFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "r.rules")
	for name, text := range map[string]string{path: text, filepath.Join(dir, "bad.prefixes"): "192.0.2.0/24\n203.0.113.300\n2001:db8::/33\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestFilterCheckReportsAllErrorsOfAMixedFile has rules, a prefix list and inspection rules, each with an error.
func TestFilterCheckReportsAllErrorsOfAMixedFile(t *testing.T) {
	path := ruleFile(t, mixedRules)
	code, out, _ := run("filter", "check", path)
	for _, want := range []string{
		"bad.prefixes:2:1: \"203.0.113.300\" is not an address", "r.rules:5:1: \"log\" is not supported", "r.rules:6:1: a rule begins with",
		"r.rules:8:41: \"contnt\" is not a keyword", "        1  log\n", "list bad: 2 prefixes", "5 rules, 1 group\n", "3 wrong, 1 unsupported",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != exitConfig {
		t.Errorf("exit code %d", code)
	}
	var r RuleCheck
	if _, out, _ = run("filter", "check", "--json", path); json.Unmarshal([]byte(out), &r) != nil || r.Wrong != 3 || r.Unsupported != 1 || len(r.Errors) != 4 ||
		r.Rules != 5 || r.Groups != 1 || r.Missing["log"] != 1 || r.Loaded != 1 || len(r.Lists) != 1 || r.Lists[0].Prefixes != 2 {
		t.Errorf("%+v of\n%s", r, out)
	}
}

// The errors of access rules and of inspection rules come in the order of the lines, whichever they are of.
func TestFilterCheckReportsErrorsByLine(t *testing.T) {
	path := ruleFile(t, "deny tpc\nalert tcp any any -> any any (contnt:\"a\"; sid:1;)\nrate 10 to any\nalert tcp any any -> any any (contnt:\"b\"; sid:2;)\n")
	_, out, _ := run("filter", "check", path)
	at := 0
	for _, want := range []string{"r.rules:1:", "r.rules:2:", "r.rules:3:", "r.rules:4:"} {
		i := strings.Index(out, want)
		if i < at {
			t.Fatalf("%q is not where it belongs in\n%s", want, out)
		}
		at = i
	}
	var r RuleCheck
	if _, out, _ = run("filter", "check", "--json", path); json.Unmarshal([]byte(out), &r) != nil || len(r.Errors) < 4 {
		t.Fatal(out)
	}
	if !slices.IsSortedFunc(r.Errors, func(a, b RuleError) int { return a.Line - b.Line }) {
		t.Errorf("%+v", r.Errors)
	}
}

func TestFilterCheckLenientTakesUnsupportedRulesForLeftOut(t *testing.T) {
	path := ruleFile(t, "log tcp\nallow tcp\n")
	if code, _, _ := run("filter", "check", path); code != exitConfig {
		t.Errorf("exit code %d", code)
	}
	if code, out, _ := run("filter", "check", "--lenient", path); code != exitOK || !strings.Contains(out, "1 rule, 0 groups\n0 wrong, 1 unsupported\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestReplayRefusesWhatItDoesNotEvaluate(t *testing.T) {
	path := ruleFile(t, "allow tcp\nalert http any any -> any any (msg:\"x\"; content:\"evil\"; sid:1;)\n")
	if code, _, err := run("replay", "--rules", path, "x.pcap"); code != exitConfig || !strings.Contains(err, "inspection rules, which replay does not evaluate") {
		t.Errorf("exit code %d: %s", code, err)
	}
	if code, _, err := run("replay", "--capture", "x", "x.pcap"); code != exitUsage || !strings.Contains(err, "name a file with --rules") {
		t.Errorf("exit code %d: %s", code, err)
	}
}

func TestTheExampleOfRulesIsRight(t *testing.T) {
	if code, out, err := run("filter", "check", "../../examples/filter.rules"); code != exitOK || !strings.Contains(out, "list bad: 3 prefixes") {
		t.Errorf("exit code %d: %s%s", code, out, err)
	}
}
