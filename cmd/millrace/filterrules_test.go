package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/app/rulefile"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
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
		"r.rules:8:41: \"contnt\" is not a keyword", "        1  log\n", "list bad: 2 prefixes", "5 access rules, 1 group\n1 of 2 inspection rules load (50.0 %), 0 disabled\n1 file, 4 errors: 3 lines are wrong, 1 not supported\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != exitConfig {
		t.Errorf("exit code %d", code)
	}
	var r rulefile.Check
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
	var r rulefile.Check
	if _, out, _ = run("filter", "check", "--json", path); json.Unmarshal([]byte(out), &r) != nil || len(r.Errors) < 4 {
		t.Fatal(out)
	}
	if !slices.IsSortedFunc(r.Errors, func(a, b rulefile.Error) int { return a.Line - b.Line }) {
		t.Errorf("%+v", r.Errors)
	}
}

func TestFilterCheckLenientTakesUnsupportedRulesForLeftOut(t *testing.T) {
	path := ruleFile(t, "log tcp\nallow tcp\n")
	if code, _, _ := run("filter", "check", path); code != exitConfig {
		t.Errorf("exit code %d", code)
	}
	if code, out, _ := run("filter", "check", "--lenient", path); code != exitOK || !strings.Contains(out, "1 access rule, 0 groups\n1 file, 1 error: 0 lines are wrong, 1 not supported\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestReplayShowsTheAlertsOfFlows(t *testing.T) {
	capture := testpcaps.File(t, "http.pcap")
	path := ruleFile(t, "allow tcp\nalert http any any -> any any (msg:\"a \x1b[31mrequest\"; http.method; content:\"GET\"; sid:77;)\n")
	var want int
	_, lines, _ := run("filter", "inspect", "--quiet", path, capture)
	if want = strings.Count(lines, "\n"); want == 0 {
		t.Fatal("filter inspect has no alert")
	}
	code, out, err := run("replay", "--rules", path, "--classify", capture)
	for _, s := range []string{fmt.Sprintf("sid 77     %d alerts: \"a \\x1b[31mrequest\"\n", want), "by 1 rule:", "x sid 77]\n", "rule 1"} {
		if code != exitOK || !strings.Contains(out, s) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, s, out, err)
		}
	}
	code, out, _ = run("replay", "--rules", path, "--classify=1000", "--json", capture)
	var rep replay.Report
	decode(t, out, &rep)
	found := 0
	for _, f := range rep.Conversations.List {
		for _, h := range f.Alerts {
			found += int(h.Alerts)
		}
	}
	if code != exitOK || found != want || int(rep.Inspected.Hits[0].Alerts) != want {
		t.Errorf("exit code %d, %d alerts of %d: %+v", code, found, want, rep.Inspected)
	}
	code, out, _ = run("replay", "--rules", path, "--eve", capture)
	if n := strings.Count(out, `"signature_id":77`); code != exitOK || n == 0 || n != strings.Count(out, `"alerted":true`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// A file of nothing but inspection rules is one for replay too, and wrong or unsupported rules are errors.
func TestReplayReadsInspectionRules(t *testing.T) {
	capture := testpcaps.File(t, "http.pcap")
	path := ruleFile(t, "alert tcp $OURS any -> any any (flags:S; sid:1;)\nalert tcp any any -> any any (asn1:1; sid:2;)\n")
	for args, want := range map[string]int{"": exitConfig, "--lenient": exitConfig, "--set OURS=any": exitConfig, "--lenient --set OURS=any": exitOK} {
		code, out, err := run(append(append([]string{"replay", "--rules", path}, strings.Fields(args)...), capture)...)
		if code != want || code == exitOK && !strings.Contains(out, "sid 1 ") {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, err)
		}
	}
	path = ruleFile(t, "alert tcp any any -> any any (flags:S; sid:1;)\n")
	for _, args := range [][]string{{"--verify"}, {"--loop", "2"}} {
		if code, _, err := run(append(append([]string{"replay", "--rules", path}, args...), capture)...); code != exitUsage || !strings.Contains(err, "leave --loop and --verify out") {
			t.Errorf("%v: exit code %d: %s", args, code, err)
		}
	}
	if code, _, err := run("replay", "--rules", ruleFile(t, "permit tcp\n"), capture); code != exitConfig || !strings.Contains(err, "a rule begins with allow") {
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

// The errors that are printed are those that the total counts, and a rule with several errors is one that is wrong.
func TestFilterCheckCountsErrorsAndLines(t *testing.T) {
	const twice = "alert tcp any any -> any any (contnt:\"a\"; \\\n  noxase; sid:1;)\nalert tcp any any -> any any (asn1:1; lua:x; sid:2;)\n"
	for _, c := range []struct {
		text   string
		errors int
		want   string
	}{
		{"allow tcp\n", 0, "1 access rule, 0 groups\n1 file, no errors\n"},
		{"deny tpc\ndeny tpc\n", 2, "0 access rules, 0 groups\n1 file, 2 errors: 2 lines are wrong, 0 not supported\n"},
		{twice, 4, "0 of 2 inspection rules load (0.0 %), 0 disabled\n1 file, 4 errors: 1 line is wrong, 1 not supported\n"},
		{"allow udp\ndeny tpc\n" + twice, 5, "1 access rule, 0 groups\n0 of 2 inspection rules load (0.0 %), 0 disabled\n1 file, 5 errors: 2 lines are wrong, 1 not supported\n"},
		{"# nothing\n", 0, "1 file, no errors\n"},
	} {
		_, out, _ := run("filter", "check", ruleFile(t, c.text))
		if n := strings.Count(out, "^\n"); !strings.HasSuffix(out, c.want) || n != c.errors {
			t.Errorf("%d errors in\n%s, want %d and\n%s", n, out, c.errors, c.want)
		}
	}
}

// A capture or a program that is named in the place of rules is one error, whichever reader meets it.
func TestFilterCheckRejectsABinaryFileOnce(t *testing.T) {
	for _, text := range []string{"\xd4\xc3\xb2\xa1\x02\x00(\n;;\n)(\n", "deny tcp\n\x00\x01\nlog\nlog\n", "a\x00\nalert \n"} {
		code, out, _ := run("filter", "check", ruleFile(t, text))
		if n := strings.Count(out, "this is a binary file, not rules\n"); code != exitConfig || n != 1 || !strings.HasSuffix(out, "1 file, 1 error: 1 line is wrong, 0 not supported\n") {
			t.Errorf("exit code %d for %q:\n%s", code, text, out)
		}
	}
	path := ruleFile(t, "list bad file \"bad.prefixes\"\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "bad.prefixes"), []byte("x\ny\n\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := run("filter", "check", path); !strings.HasPrefix(out, "/") || !strings.Contains(out, "bad.prefixes:3:1: a NUL byte: this is a binary file, not prefixes\n") || strings.Count(out, "\n") != 4 {
		t.Error(out)
	}
	for _, flag := range []string{"--patterns", "--routes"} {
		path := ruleFile(t, "x\ny\x00\n")
		if code, _, err := run("replay", flag, path, "x.pcap"); code != exitConfig || strings.Count(err, "\n") != 2 || !strings.Contains(err, "this is a binary file, not "+flag[2:]) {
			t.Errorf("%s: exit code %d: %s", flag, code, err)
		}
	}
}

// The line of an error is shown as it is, without what a terminal would obey, and the caret stands below its character.
func TestFilterCheckShowsLettersOfAllLanguages(t *testing.T) {
	_, out, _ := run("filter", "check", ruleFile(t, "deny \"é\" \x1b[31m\nalert tcp any any -> any any (msg:\"é\xff日\"; contént:\"a\"; sid:1;)\n"))
	for _, want := range []string{
		"    deny \"é\" \ufffd[31m\n         ^\n",
		"    alert tcp any any -> any any (msg:\"é\ufffd日\"; contént:\"a\"; sid:1;)\n                                             ^\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTimesAreRoundedToThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 7: "7ns", 41_234: "41.2µs", 999_999: "1ms", 1_234_567: "1.23ms", 83*time.Second + 456*time.Millisecond: "1m23.5s"} {
		if got := rounded(d).String(); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
