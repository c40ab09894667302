package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/wire"
)

// sample is a capture with something of everything, whose counts are known.
func sample(t *testing.T) string {
	tcp := segment{"192.0.2.1", "198.18.0.1", wire.ProtoTCP, 40000, 80, 10}
	back := segment{"198.18.0.1", "192.0.2.1", wire.ProtoTCP, 80, 40000, 100}
	dns := segment{"192.0.2.1", "198.18.0.53", wire.ProtoUDP, 5000, 53, 30}
	other := segment{"192.0.2.1", "198.18.0.53", wire.ProtoUDP, 5001, 53, 30}

	badIP := tcp.frame()
	badIP[24] ^= 1
	badL4 := dns.frame()
	badL4[len(badL4)-1] ^= 1
	short := tcp.frame()[:40] // cut in the TCP header
	broken := tcp.frame()
	broken[14] = 0x41 // a header of 4 bytes
	arp := append(make([]byte, 12), 0x08, 0x06)
	arp = append(arp, make([]byte, 28)...)
	vlan := append(append(tcp.frame()[:12:12], 0x81, 0, 0, 5), tcp.frame()[12:]...)
	return record(t, "sample.pcap", tcp.frame(), back.frame(), dns.frame(), other.frame(),
		badIP, badL4, short, broken, arp, vlan)
}

func TestReplayCountsEveryPacketOfACapture(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(rules, []byte("pass udp from any port 5000 to any\ndrop to port 53\ndrop gre\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run("replay", "--json", "--rules", rules, sample(t))
	if code != exitOK {
		t.Fatal(errs)
	}
	var rep replay.Report
	decode(t, out, &rep)
	want := replay.Part{
		Sum: replay.Sum{
			Packets: 10, Bytes: 64 + 154 + 72 + 72 + 64 + 72 + 40 + 64 + 42 + 68, IPv4: 8, Flows: 3, VLAN: 1,
			Protocols:        map[string]uint64{"tcp": 5, "udp": 3, "arp": 1, "ipv4": 1},
			Sizes:            map[string]uint64{"0-63": 2, "64-127": 7, "128-255": 1},
			IPChecksumErrors: 1, L4ChecksumErrors: 1, L4Unverified: 1, Malformed: 1, Truncated: 1,
		},
		Passed:  7,
		Dropped: map[string]uint64{"malformed": 1, "truncated": 1, "rule": 1},
	}
	got := rep.Total
	if got.Seconds <= 0 || got.Mpps <= 0 || got.NsPacket < got.EngineNs || got.EngineNs <= 0 {
		t.Errorf("%v s, %v Mpps, %v ns, engine %v ns", got.Seconds, got.Mpps, got.NsPacket, got.EngineNs)
	}
	got.Seconds, got.Mpps, got.BitRate, got.NsPacket, got.EngineNs = 0, 0, 0, 0, 0
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(replay.Part{}, replay.Sum{})); diff != "" {
		t.Errorf("total (-want +got):\n%s", diff)
	}
	hits := []replay.Hits{
		{Line: 1, Text: "pass udp from any port 5000 to any", Packets: 2},
		{Line: 2, Text: "drop to port 53", Packets: 1},
		{Line: 3, Text: "drop gre"},
	}
	for i := range hits {
		hits[i].File = rules
	}
	if diff := cmp.Diff(hits, rep.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if rep.Engine.Name != "cpu" || rep.Output != nil || rep.Stopped || len(rep.Files) != 1 || rep.Files[0].Records.Read != 10 {
		t.Errorf("report %+v", rep)
	}
}

func TestLoopLimitAndSeveralFilesAddUp(t *testing.T) {
	file := sample(t)
	for _, tc := range []struct {
		args    []string
		packets uint64
		flows   uint64
		mode    string
	}{
		{[]string{file, file}, 20, 3, "stream"},
		{[]string{"--loop", "7", file}, 70, 3, "resident"},
		{[]string{"--limit", "13", file, file}, 13, 3, "stream"},
		{[]string{"--limit", "10", file, file}, 10, 3, "stream"},
		{[]string{"--limit", "25", "--loop", "9", file}, 25, 3, "resident"},
		{[]string{"--rate", "2000pps", file}, 10, 3, "stream"},
		{[]string{"--rate", "3x", file}, 10, 3, "stream"},
	} {
		code, out, errs := run(append([]string{"replay", "--json"}, tc.args...)...)
		var rep replay.Report
		decode(t, out, &rep)
		if code != exitOK || rep.Total.Packets != tc.packets || rep.Total.Flows != tc.flows || rep.Files[0].Mode != tc.mode {
			t.Errorf("%v: code %d %s: %d packets, %d flows, %s; want %d, %d, %s",
				tc.args, code, errs, rep.Total.Packets, rep.Total.Flows, rep.Files[0].Mode, tc.packets, tc.flows, tc.mode)
		}
		dropped := uint64(0)
		for _, n := range rep.Total.Dropped {
			dropped += n
		}
		if rep.Total.Packets != rep.Total.Passed+dropped {
			t.Errorf("%v: %d packets are not %d passed + %d dropped", tc.args, rep.Total.Packets, rep.Total.Passed, dropped)
		}
	}
}

func TestUnreadableFilesAreReportedAndTheOthersReplayed(t *testing.T) {
	good := sample(t)
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cut, junk, can := filepath.Join(dir, "cut.pcap"), filepath.Join(dir, "junk.pcap"), filepath.Join(dir, "can.pcap")
	unsupported := append([]byte(nil), whole...)
	unsupported[20] = 227 // LINKTYPE_CAN_SOCKETCAN
	for path, b := range map[string][]byte{cut: whole[:len(whole)-1], junk: []byte("not a capture"), can: unsupported} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := run("replay", cut, junk, "/nonexistent.pcap", can, good)
	if code != exitFailure {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{
		cut + ": record 10 at offset", "editcap IN OUT", junk + ": header", "editcap -F pcapng",
		"open /nonexistent.pcap: no such file", can + ": link type",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in:\n%s", want, errs)
		}
	}
	if !strings.Contains(out, "19, ") { // 9 of the one that is cut, and 10
		t.Errorf("the packets that can be read are not counted:\n%s", out)
	}
	code, out, errs = run("replay", "--json", "--verify", cut, good)
	var v replay.Verification
	decode(t, out, &v)
	if code != exitFailure || v.Packets != 19 || v.Count != 0 || !strings.Contains(errs, "truncated") {
		t.Errorf("verify: code %d, %+v, %s", code, v, errs)
	}
}

func TestReplaySummaryIsAsRecorded(t *testing.T) {
	_, out, _ := run("replay", sample(t))
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "time") && !strings.HasPrefix(line, "engine") {
			kept = append(kept, line)
		}
	}
	golden(t, "replay.txt", strings.Join(kept, ""))
}

func TestReplayWritesToStandardOutputWithTheSummaryBeside(t *testing.T) {
	cmd := program("replay", "--write", "-", sample(t))
	var summary strings.Builder
	cmd.Stderr = &summary
	written, err := cmd.Output()
	if err != nil || !strings.Contains(summary.String(), "written    8 packets") {
		t.Fatalf("%v: %s", err, summary.String())
	}
	path := filepath.Join(t.TempDir(), "out.pcapng")
	if err := os.WriteFile(path, written, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run("replay", "--conversations=2", path)
	if code != exitOK || !strings.Contains(out, "2 of 3 conversations, by bytes") || !strings.Contains(out, "2 packets are in no conversation of this list") {
		t.Errorf("code %d, %s: %s", code, errs, out)
	}
}

func TestRatesHavePrefixes(t *testing.T) {
	for v, want := range map[float64]string{0: "0 pps", 999: "999 pps", 999.6: "1 kpps", 1254: "1.25 kpps", 5e9: "5 Gpps", 3e15: "3e+03 Tpps"} {
		if got := metric(v, "pps"); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestCtrlCEndsAReplayWithItsSummary(t *testing.T) {
	cmd := program("replay", "--json", "--loop", "1000000000", sample(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	time.Sleep(300 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var rep replay.Report
	decode(t, string(text), &rep)
	if !rep.Stopped || rep.Total.Packets == 0 {
		t.Errorf("stopped %v after %d packets", rep.Stopped, rep.Total.Packets)
	}
}

func TestProgressBarIsDrawnOnTerminalsOnly(t *testing.T) {
	var out, errs strings.Builder
	c := &console{out: &out, err: &errs, live: true}
	f := &replayFlags{engine: "cpu", loop: 2, rate: "max", to: endpoint{driver: "auto"}}
	if err := runReplay(t.Context(), c, f, []string{sample(t)}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "replay, lap 2 of 2") {
		t.Errorf("no bar in %q", errs.String())
	}
	if _, _, quiet := run("replay", "--loop", "2", sample(t)); quiet != "" {
		t.Errorf("a bar without a terminal: %q", quiet)
	}
}

// A summary of nothing but zeros would hide what is wrong.
func TestNoSummaryWithoutReadableFiles(t *testing.T) {
	code, out, errs := run("replay", "/nonexistent/x.pcap", t.TempDir())
	if code != exitFailure || out != "" || strings.Count(errs, "millrace: ") != 2 {
		t.Errorf("code %d, printed %q, complained %q", code, out, errs)
	}
}
