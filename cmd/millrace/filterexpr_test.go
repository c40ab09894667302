package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

func TestFilterExprShowsTheForms(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"udp", "any\n  all\n    pkt[12:2] == 0x800\n    pkt[23:1] == 0x11\n  all\n    pkt[12:2] == 0x86dd\n"},
		{"--cbpf arp", "(000) ldh      [12]\n(001) jeq      #0x806           jt 2\tjf 3\n(002) ret      #262144\n(003) ret      #0\n"},
		{"--code --link RAW ip", "{ 0x30, 0, 0, 0x00000000 },\n{ 0x54, 0, 0, 0x000000f0 },\n{ 0x15, 0, 1, 0x00000040 },\n{ 0x6, 0, 0, 0x00040000 },\n{ 0x6, 0, 0, 0x00000000 },\n"},
		{"--xdp arp", "   0: r6 = *(u32 *)(r1 +0)\n"},
	} {
		code, out, err := run(append([]string{"filter", "expr"}, strings.Fields(tc.args)...)...)
		if code != exitOK || err != "" || !strings.HasPrefix(out, tc.want) {
			t.Errorf("%s: code %d, %q, %q, want %q", tc.args, code, err, out, tc.want)
		}
	}
}

func TestFilterExprErrorsShowWhere(t *testing.T) {
	code, _, err := run("filter", "expr", "tcp prt 80")
	if want := "column 5: found \"prt\", expected \"and\", \"or\" or the end; did you mean \"port\"?\n  tcp prt 80\n      ^^^"; code != exitUsage || !strings.Contains(err, want) {
		t.Errorf("code %d, %q, want %q", code, err, want)
	}
	if code, _, err := run("filter", "expr", "--link", "EN11MB", "tcp"); code != exitUsage || !strings.Contains(err, `unknown link type "EN11MB"`) {
		t.Errorf("code %d, %q", code, err)
	}
}

// What match writes, match finds again; replay with the expression reads as many packets.
func TestFilterMatchCountsAndWrites(t *testing.T) {
	file := testpcaps.File(t, "http.pcap")
	saved := filepath.Join(t.TempDir(), "o.pcap")
	code, out, err := run("filter", "match", "--write", saved, "tcp dst port 80", file)
	if code != exitOK || err != "" {
		t.Fatalf("code %d, %q", code, err)
	}
	want := strings.TrimPrefix(out, file+": ")
	matches, _, _ := strings.Cut(want, " of ")
	if matches == "0" {
		t.Fatalf("nothing matches: %q", out)
	}
	_, out, _ = run("filter", "match", "--json", "ip or ip6", saved)
	if !strings.Contains(out, `"packets": `+matches+",\n  \"matches\": "+matches) {
		t.Errorf("%q, want %s packets", out, matches)
	}
	_, out, err = run("replay", "--json", "--filter", "tcp dst port 80", file)
	if !strings.Contains(out, `"packets": `+matches+",") {
		t.Errorf("replay: %q %q, want %s packets", out, err, matches)
	}
}
