package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

func TestClassifyNamesTheProtocolsOfFlows(t *testing.T) {
	for file, want := range map[string][2]string{"http.pcap": {"HTTP", ""}, "tls.pcap": {"TLS", "example.test"}, "dns.pcap": {"DNS", ""}, "vlan.pcap": {"", ""}} {
		path := testpcaps.File(t, file)
		code, out, errs := run("replay", "--classify", "--json", path)
		if code != exitOK {
			t.Fatalf("%s: code %d %s", file, code, errs)
		}
		var rep replay.Report
		decode(t, out, &rep)
		var flows uint64
		found := ""
		for _, a := range rep.Conversations.Applications {
			flows += a.Flows
			found += a.Protocol + " "
		}
		if int(flows) != rep.Conversations.Total {
			t.Errorf("%s: %d flows have an application, of %d", file, flows, rep.Conversations.Total)
		}
		if !strings.Contains(found, want[0]) {
			t.Errorf("%s: found %s", file, found)
		}
		for _, c := range rep.Conversations.List {
			if c.Application == nil {
				t.Errorf("%s: %v has no application", file, c)
			} else if want[1] != "" && c.Application.Protocol == want[0] && (c.Application.Name == "" || len(c.Application.JA4) != 36) {
				t.Errorf("%s: %+v", file, *c.Application)
			}
		}
		code, out, errs = run("replay", "--eve", path)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != exitOK || len(lines) != rep.Conversations.Total || !strings.Contains(errs, "packets") {
			t.Errorf("%s: code %d, %d lines for %d flows, %s", file, code, len(lines), rep.Conversations.Total, errs)
		}
		for _, line := range lines {
			var e replay.FlowEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event != "flow" || e.App == "" || e.Flow.PacketsToServer == 0 {
				t.Errorf("%s: %s %v", file, line, err)
			}
		}
		code, out, _ = run("replay", "--classify", path)
		if code != exitOK || !strings.Contains(out, "application") {
			t.Errorf("%s: code %d %s", file, code, out)
		}
	}
	for _, args := range [][]string{{"--classify=-1"}, {"--eve", "--json"}, {"--eve", "--write", "-"}, {"--verify", "--eve"}} {
		if code, _, errs := run(append(append([]string{"replay"}, args...), testpcaps.File(t, "dns.pcap"))...); code != exitUsage {
			t.Errorf("%v: code %d %s", args, code, errs)
		}
	}
}

// A name in a capture cannot change the terminal that it is shown on.
func TestNamesOfCapturesAreShownAsText(t *testing.T) {
	got := applied(&replay.Application{Protocol: "TLS", Name: "a\x1b[31m", Rules: []uint16{2}})
	if got != `TLS "a\x1b[31m" rules [2]` {
		t.Error(got)
	}
}

// A number behind an option without = is taken for a file, and an empty file has no packets: both are said.
func TestClassifyExplainsWrongFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pcap")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{"5": "as in --classify=5", empty: "has no packets", "/nonexistent": "no such file"} {
		code, _, errs := run("replay", "--classify", arg)
		if code != exitFailure || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", arg, code, errs)
		}
		if arg == "/nonexistent" && strings.Contains(errs, "--classify=") {
			t.Error(errs)
		}
	}
}

// TestStartsCountFromTheFirstPacketOfTheRun lists one flow of a capture, and then all: it has the same start.
func TestStartsCountFromTheFirstPacketOfTheRun(t *testing.T) {
	from := time.Unix(1000, 0)
	flow := func(after time.Duration) replay.Conversation {
		return replay.Conversation{Protocol: "tcp", A: netip.MustParseAddrPort("198.18.0.1:1"), B: netip.MustParseAddrPort("198.18.0.2:2"), Start: from.Add(after)}
	}
	for _, list := range [][]replay.Conversation{{flow(3 * time.Second)}, {flow(3 * time.Second), flow(0)}} {
		var out bytes.Buffer
		showConversations(&console{out: &out}, &replay.Conversations{Total: 2, Began: from, List: list})
		if line := strings.Split(out.String(), "\n")[3]; !strings.Contains(line, " 3.000000 ") {
			t.Errorf("%d flows listed: %s", len(list), out.String())
		}
	}
}
