package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/wire"
)

// withoutGPU skips a test where a GPU can be used.
func withoutGPU(t *testing.T) {
	t.Helper()
	if d, err := cuda.Open(cuda.Options{}); err == nil {
		d.Close()
		t.Skip("there is a GPU here")
	}
}

// A GPU that was asked for and is not there ends the command before it touches anything.
func TestMissingEngineFailsWithReasonAndRemedy(t *testing.T) {
	withoutGPU(t)
	conf := filepath.Join(t.TempDir(), "gw.yaml")
	text := "devices: [{name: lo}]\nsnat: [198.18.2.1]\nengine: cuda\nservices:\n  - name: web\n    address: 198.18.1.1:80\n    backends: [{address: 198.18.2.11:80}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"replay", "--engine", "cuda", sample(t)},
		{"replay", "--engine", "cuda", "--verify", sample(t)},
		{"forward", "--engine", "cuda", "nonexistent0", "nonexistent1"},
		{"gateway", "-c", conf},
		{"bench", "kern", "--engine", "cuda"},
	} {
		code, out, errs := run(args...)
		if code != exitFailure || out != "" || !strings.Contains(errs, "no GPU can be used: cuda: ") || !strings.Contains(errs, "`millrace doctor` says") {
			t.Errorf("%v: code %d, printed %q, %q", args, code, out, errs)
		}
		if strings.Contains(errs, "nonexistent") {
			t.Errorf("%v: an interface was touched: %q", args, errs)
		}
	}
}

func TestAutoReportsWhatWasFoundAndWhatIsUsed(t *testing.T) {
	withoutGPU(t)
	code, out, errs := run("replay", "--engine", "auto", sample(t))
	if code != exitOK || !strings.Contains(errs, "millrace: engine auto: the CPU alone; ") || !strings.Contains(out, "engine     cpu (") {
		t.Errorf("code %d, %q, printed %q", code, errs, out)
	}
	if _, _, errs := run("replay", "--engine", "cpu", sample(t)); errs != "" {
		t.Errorf("cpu prints %q", errs)
	}
}

// texts is a capture with payloads that rules of texts find something in, and addresses that have routes.
func texts(t *testing.T) (capture, patterns, routes string) {
	t.Helper()
	say := func(s string, dst string) []byte {
		g := segment{"192.0.2.1", dst, wire.ProtoUDP, 5000, 4000, len(s)}
		f := g.frame()
		copy(f[len(f)-len(s):], s)
		return f
	}
	capture = record(t, "texts.pcap",
		say("GET /index", "198.18.0.1"), say("get /ADMIN get /admin", "198.18.0.2"), say("nothing", "203.0.113.1"), say(strings.Repeat("abc", 20), "198.19.0.1"))
	dir := t.TempDir()
	patterns, routes = filepath.Join(dir, "patterns"), filepath.Join(dir, "routes")
	for path, text := range map[string]string{
		patterns: "# what to find\n\"GET /\" nocase name \"request\"\n\"ADMIN\" \"|61 64 6d 69 6e|\"\n\"abc\"\n\"zzz\"\n",
		routes:   "198.18.0.0/15 via 7\n198.18.0.2 via 8\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return capture, patterns, routes
}

func TestReplayCountsLiteralsAndNextHops(t *testing.T) {
	file, patterns, routes := texts(t)
	code, out, errs := run("replay", "--json", "--matches", "--patterns", patterns, "--routes", routes, file)
	if code != exitOK {
		t.Fatal(errs)
	}
	var rep replay.Report
	decode(t, out, &rep)
	want := []replay.Hits{
		{Line: 2, Name: "request", Text: `"GET /" nocase name "request"`, Packets: 2, Matches: 3},
		{Line: 3, Text: `"ADMIN" "|61 64 6d 69 6e|"`, Packets: 1, Matches: 2},
		{Line: 4, Text: `"abc"`, Packets: 1, Matches: 16},
		{Line: 5, Text: `"zzz"`},
	}
	if diff := cmp.Diff(want, rep.Patterns); diff != "" {
		t.Errorf("patterns (-want +got):\n%s", diff)
	}
	if rep.MoreMatches != 1 || !strings.Contains(rep.Engine.Ops, "literals") {
		t.Errorf("%d packets with more, ops %s", rep.MoreMatches, rep.Engine.Ops)
	}
	if diff := cmp.Diff(map[string]uint64{"7": 2, "8": 1}, rep.NextHops); diff != "" {
		t.Errorf("next hops (-want +got):\n%s", diff)
	}
	if len(rep.Matches) != 3+2+16+1 || rep.Matches[0] != (replay.PatternMatch{Path: file, Packet: 1, Line: 2, Name: "request", End: 42 + 5}) ||
		rep.Matches[len(rep.Matches)-1].Line != 0 {
		t.Errorf("matches %+v", rep.Matches)
	}
}

func TestReplayListsMatches(t *testing.T) {
	file, patterns, routes := texts(t)
	code, out, errs := run("replay", "--matches", "--patterns", patterns, "--routes", routes, file)
	if code != exitOK || errs != "" {
		t.Fatal(errs)
	}
	for _, want := range []string{
		file + ": packet 1, to byte 47: pattern 2 \"request\"\n" + file + ": packet 2, to byte 47: pattern 2 \"request\"\n" + file + ": packet 2, to byte 52: pattern 3\n",
		": more\n", "pattern 2  3 matches in 2 packets: \"GET /\" nocase", "next hops  7 2, 8 1\n", "more       1 packets have more matches",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

func TestVerifyComparesLiteralsAndNextHops(t *testing.T) {
	file, patterns, routes := texts(t)
	code, out, errs := run("replay", "--json", "--verify", "--patterns", patterns, "--routes", routes, file)
	var v replay.Verification
	decode(t, out, &v)
	if code != exitOK || v.Packets != 4 || v.Count != 0 {
		t.Errorf("code %d, %+v, %s", code, v, errs)
	}
}
