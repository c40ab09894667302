package interop

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
)

// The environment of TestSuricataVerify.
const (
	verifyFolder = "MILLRACE_SURICATA_VERIFY"      // a copy of github.com/OISF/suricata-verify
	verifyPage   = "MILLRACE_SURICATA_VERIFY_PAGE" // the file for a line about each test
)

// verifyCase is a test.yaml as far as it is read.
type verifyCase struct {
	Requires map[string]any `yaml:"requires"`
	Pcap     any            `yaml:"pcap"`
	Args     []string       `yaml:"args"`
	Command  string         `yaml:"command"`
	Checks   []struct {
		Filter *verifyFilter `yaml:"filter"`
	} `yaml:"checks"`
}

type verifyFilter struct {
	Count    int            `yaml:"count"`
	Match    map[string]any `yaml:"match"`
	Requires map[string]any `yaml:"requires"`
	Lt       int            `yaml:"lt-version"`
}

// verifyOutcome is the outcome of a test of the suite.
type verifyOutcome struct {
	kind   string // of verifyKinds
	reason string
}

// evaderTests are responses of HTTP that are malformed in some way each, which Suricata's parser reads as one browser or another.
const evaderTests = "http-evader/"

// The kinds of outcomes. Equal: each alert that is checked occurs as often as in Suricata.
const (
	verifyEqual     = "equal"
	verifyNumber    = "equal but for numbers of alerts"
	verifyDifferent = "different"
	verifyRefused   = "a rule is refused by name"
	verifyOther     = "not about alerts of rules on a capture"
)

// TestSuricataVerify runs Suricata's own tests: those with a capture, rules that load, and expected alerts of them.
func TestSuricataVerify(t *testing.T) {
	folder := os.Getenv(verifyFolder)
	if folder == "" {
		t.Skip(verifyFolder + " is not set: make interop-suricata-verify")
	}
	counts, evader, reasons := map[string]int{}, map[string]int{}, map[string]int{}
	var page strings.Builder
	err := filepath.WalkDir(filepath.Join(folder, "tests"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "test.yaml" {
			return err
		}
		dir := filepath.Dir(path)
		name, _ := filepath.Rel(filepath.Join(folder, "tests"), dir)
		v := runVerify(t, dir)
		if strings.HasPrefix(name, evaderTests) {
			evader[v.kind]++
		} else {
			counts[v.kind]++
		}
		if v.kind == verifyRefused {
			reasons[v.reason]++
		}
		fmt.Fprintf(&page, "%s\t%s\t%s\n", v.kind, name, v.reason)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%5d  %s; of http-evader %d", counts[kind], kind, evader[kind])
	}
	names := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int { return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b)) })
	for _, name := range names {
		t.Logf("%5d  refused for %s", reasons[name], name)
	}
	if path := os.Getenv(verifyPage); path != "" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	comparable := counts[verifyEqual] + counts[verifyNumber] + counts[verifyDifferent]
	if same := counts[verifyEqual] + counts[verifyNumber]; comparable == 0 || same*100 < comparable*90 {
		t.Errorf("in %d of %d comparable tests the same rules match", same, comparable)
	}
}

// runVerify runs one test of the suite.
func runVerify(t *testing.T, dir string) verifyOutcome {
	var c verifyCase
	text, err := os.ReadFile(filepath.Join(dir, "test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return verifyOutcome{verifyOther, "its YAML is not read"}
	}
	checks := expectedAlerts(&c)
	file := verifyCapture(dir, c.Pcap)
	switch {
	case c.Command != "" || c.Requires["lt-version"] != nil || c.Pcap == false:
		return verifyOutcome{verifyOther, "another program, or an older version"}
	case len(checks) == 0:
		return verifyOutcome{verifyOther, "no alert of a rule is expected"}
	case file == "":
		return verifyOutcome{verifyOther, "no capture"}
	}
	cfg := signature.Default()
	if vars, err := os.ReadFile(filepath.Join(dir, "suricata.yaml")); err == nil {
		_ = cfg.ParseVars("suricata.yaml", string(vars)) // many have no variables
	}
	cfg.Read = func(_, name string) (string, error) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
		return string(b), err
	}
	rules, config := "test.rules", inspect.Config{}
	args := strings.Fields(strings.Join(c.Args, " "))
	for i, a := range args {
		value, group := strings.CutPrefix(a, "vars.address-groups.")
		switch {
		case i > 0 && args[i-1] == "-S":
			rules = filepath.Base(a)
		case group:
			_ = cfg.Set(value)
		case strings.Contains(a, "midstream=true"):
			config.Midstream = true
		case a == "--simulate-ips":
			config.Inline, config.Block = true, true
		}
	}
	list, refused := verifyRules(filepath.Join(dir, rules), cfg)
	if refused.kind != "" {
		return refused
	}
	compiled, err := inspect.Compile(list)
	if err != nil {
		return verifyOutcome{verifyOther, "rules with one sid"}
	}
	alerts, err := verifyAlerts(compiled, config, file)
	if err != nil {
		return verifyOutcome{verifyOther, "a capture that is not read: " + err.Error()}
	}
	return compareVerify(checks, alerts)
}

// verifyRules reads the rules of a test.
func verifyRules(path string, cfg *signature.Config) ([]*signature.Rule, verifyOutcome) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, verifyOutcome{verifyOther, "no rules"}
	}
	f := signature.Parse(filepath.Base(path), string(text), cfg)
	switch {
	case len(f.Missing) > 0:
		return nil, verifyOutcome{verifyRefused, slices.Sorted(maps.Keys(f.Missing))[0]}
	case len(f.Errors) > 0:
		return nil, verifyOutcome{verifyRefused, f.Errors[0].Msg}
	}
	return f.Rules, verifyOutcome{}
}

// alertCheck is the number of alerts of a rule that a test expects, of one packet or of all.
type alertCheck struct {
	sid, packet, count int
}

// expectedAlerts returns the checks that are about alerts of rules alone.
func expectedAlerts(c *verifyCase) (list []alertCheck) {
	for _, check := range c.Checks {
		f := check.Filter
		if f == nil || f.Lt > 0 || f.Requires["lt-version"] != nil || f.Match["event_type"] != "alert" {
			continue
		}
		a := alertCheck{count: f.Count}
		only := true
		for key, value := range f.Match {
			n, isNumber := value.(int)
			switch key {
			case "event_type":
			case "alert.signature_id":
				a.sid, only = n, only && isNumber
			case "pcap_cnt":
				a.packet, only = n, only && isNumber
			default:
				only = false
			}
		}
		if only && a.sid > 0 {
			list = append(list, a)
		}
	}
	return list
}

// verifyCapture returns the capture of a test: the one that it names, or the one in its folder.
func verifyCapture(dir string, named any) string {
	if name, ok := named.(string); ok {
		path := filepath.Join(dir, strings.ReplaceAll(name, "${TEST_DIR}", "."))
		if _, err := os.Stat(path); err == nil {
			return path
		}
		return ""
	}
	for _, ending := range []string{"*.pcap", "*.pcapng"} {
		if found, _ := filepath.Glob(filepath.Join(dir, ending)); len(found) == 1 {
			return found[0]
		}
	}
	return ""
}

// verifyAlerts returns how often each rule matched, by sid and by sid and packet.
func verifyAlerts(rules *inspect.Rules, cfg inspect.Config, file string) (map[alertCheck]int, error) {
	in, err := capture.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	alerts, packet := map[alertCheck]int{}, 0
	e := inspect.New(rules, cfg, func(a *inspect.Alert) {
		if a.Rule != nil && a.Rule.Action != signature.Pass {
			alerts[alertCheck{sid: int(a.Rule.SID)}]++
			alerts[alertCheck{sid: int(a.Rule.SID), packet: packet}]++
		}
	})
	for {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		packet++
		if frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil); err == nil {
			e.Packet(rec.Time, frame)
		}
	}
	packet = 0
	e.Flush()
	return alerts, nil
}

func compareVerify(checks []alertCheck, alerts map[alertCheck]int) verifyOutcome {
	v := verifyOutcome{kind: verifyEqual}
	for _, c := range checks {
		got := alerts[alertCheck{sid: c.sid, packet: c.packet}]
		all := alerts[alertCheck{sid: c.sid}]
		switch {
		case got == c.count:
			continue
		case (got > 0) == (c.count > 0), c.packet > 0 && c.count > 0 && all > 0:
			if v.kind == verifyEqual {
				v = verifyOutcome{verifyNumber, fmt.Sprintf("rule %d: %d alerts instead of %d in packet %d (0: all)", c.sid, got, c.count, c.packet)}
			}
		default:
			return verifyOutcome{verifyDifferent, fmt.Sprintf("rule %d: %d alerts instead of %d", c.sid, got, c.count)}
		}
	}
	return v
}
