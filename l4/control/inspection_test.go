package control

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// guarded is a world whose services are inspected.
type guarded struct {
	*world
	i        *inspection.Inspector
	dir      string
	source   string // services
	verdicts []inspection.Verdict
}

// guard makes a world of services, and inspection with these policies and rules.
func guard(t testing.TB, services, policies, rules string) *guarded {
	t.Helper()
	s := &guarded{dir: t.TempDir(), source: services}
	s.write("a.rules", rules)
	cfg := s.parse(t, policies)
	i, err := inspection.Open(cfg, inspection.Options{
		Wall:      func(now clock.Time) time.Time { return time.Unix(0, int64(now)) },
		OnVerdict: func(v *inspection.Verdict) { s.verdicts = append(s.verdicts, *v) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	i.SetLoops(1)
	s.i = i
	s.world = newWorldWith(t, cfg, hopsOf(cfg))
	s.h.SetInspector(i.Loop(0).Inspect)
	s.g.opt.Policy = i.Number
	if err := s.g.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *guarded) write(name, text string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		panic(err)
	}
}

func (s *guarded) parse(t testing.TB, policies string) *config.Config {
	t.Helper()
	src := s.source + "\ninspection:\n  alerts: {file: alerts.json}\n  packets: {file: alerts.pcapng}\n" + policies
	if strings.Contains(policies, "rules:") {
		src += "  variables: HOME_NET=any\n"
	}
	cfg, err := config.Parse(filepath.Join(s.dir, "gw.yaml"), []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// alerts closes the files and returns "sid action" of each alert.
func (s *guarded) alerts() (list []string) {
	s.t.Helper()
	if err := s.i.Close(); err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "alerts.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var a inspection.Alert
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			s.t.Fatal(err)
		}
		what := a.Anomaly
		if a.Rule != nil {
			what = fmt.Sprint(a.Event, " ", a.Rule.SID)
		}
		list = append(list, what+" "+a.Action)
	}
	return list
}

func (s *guarded) wantAlerts(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.alerts()); diff != "" {
		s.t.Error(diff)
	}
}

const (
	preventAll = "  policies: [{name: p, mode: prevent, rules: a.rules}]\n"
	detectAll  = "  policies: [{name: p, rules: a.rules}]\n"
	dropEvil   = "drop ip any any -> any any (msg:\"m\"; content:\"evil bytes\"; sid:1;)\n"

	guardedClient = "198.18.9.9:40000"
	guardedWeb    = "198.18.1.1:80"
	guardedDNS    = "198.18.1.1:53"
)

// handshake opens a TCP connection and returns the SYN as the backend has it.
func (s *guarded) handshake(src string) []byte {
	s.t.Helper()
	syn := client(src, guardedWeb, "S")
	syn.payload = ""
	at := s.expect(0, syn.bytes(), 1)
	back := answer(at, "SA")
	back.payload = ""
	s.expect(1, back.bytes(), 0)
	ack := client(src, guardedWeb, "A")
	ack.payload = ""
	s.expect(0, ack.bytes(), 1)
	return at
}

// data is a segment of the client.
func data(src string, seq uint32, payload string) []byte {
	c := client(src, guardedWeb, "AP")
	c.seq, c.payload = firstSeq+seq, payload
	return c.bytes()
}

func TestInspectionOfSegments(t *testing.T) {
	for _, mode := range []string{preventAll, detectAll} {
		s := guard(t, fill(""), mode, dropEvil)
		prevent := mode == preventAll
		want := packet.Forward
		if prevent {
			want = packet.DropInspection
		}
		at := s.handshake(guardedClient)
		s.expect(0, data(guardedClient, 3, "il by"), 1) // ahead of what comes before it
		s.expect(0, data(guardedClient, 8, "te"), 1)
		if r := s.send(0, data(guardedClient, 0, "ev")); r.verdict != packet.Forward {
			t.Fatalf("%v", r.verdict)
		}
		s.expect(0, data(guardedClient, 2, " "), 1) // the text is "ev il byte"
		if r := s.send(0, data(guardedClient, 10, "evil by")); r.verdict != packet.Forward {
			t.Fatalf("%v", r.verdict)
		}
		if r := s.send(0, data(guardedClient, 17, "tes")); r.verdict != want {
			t.Fatalf("the segment that completes the match: %v, want %v", r.verdict, want)
		}
		for name, p := range map[string][]byte{"sent again": data(guardedClient, 17, "tes"), "a later one": data(guardedClient, 20, "more")} {
			if r := s.send(0, p); r.verdict != want {
				t.Errorf("%s: %v, want %v", name, r.verdict, want)
			}
		}
		back := answer(at, "A")
		if r := s.send(1, back.bytes()); r.verdict != want {
			t.Errorf("an answer: %v, want %v", r.verdict, want)
		}
		if n := s.g.Status().Services[0].Dropped["inspection"]; prevent != (n == 4) {
			t.Errorf("%d drops of the service", n)
		}
		s.handshake("198.18.9.9:40001")
		s.expect(0, data("198.18.9.9:40001", 0, "fine"), 1)
		action := map[bool]string{true: "drop", false: "alert"}[prevent]
		if len(s.verdicts) != 1 || s.verdicts[0].Client != netip.MustParseAddr("198.18.9.9") || s.verdicts[0].Action.String() != action || s.verdicts[0].Service != "web" {
			t.Errorf("verdicts %+v", s.verdicts)
		}
		st := s.i.Status(10)
		if r := st.Rules[0]; r.SID != 1 || r.Matches != 1 || r.Alerts != 1 || r.Drops != map[bool]uint64{true: 1}[prevent] {
			t.Errorf("%+v", r)
		}
		if p := st.Policies[0]; p.Blocked != map[bool]uint64{true: 3}[prevent] || p.Dropped != map[bool]uint64{true: 1}[prevent] || p.Packets < 10 {
			t.Errorf("%+v", p)
		}
		s.wantAlerts("alert 1 " + action)
	}
}

func TestInspectionOfAnswers(t *testing.T) {
	s := guard(t, fill(""), preventAll, "drop tcp 198.18.1.1 80 -> any any (msg:\"m\"; flow:to_client; content:\"from the backend\"; sid:1;)\n")
	at := s.handshake(guardedClient)
	s.refused(1, answer(at, "A").bytes(), packet.DropInspection)
	if v := s.verdicts[0]; v.Source != netip.MustParseAddr("198.18.1.1") || v.Client != netip.MustParseAddr("198.18.9.9") {
		t.Errorf("%+v", v)
	}
	s.wantAlerts("alert 1 drop")
}

// Packets that the receiver discards are not inspected, so that they hide nothing.
func TestInspectionOfForgedSegments(t *testing.T) {
	for _, mode := range []string{preventAll, detectAll} {
		s := guard(t, fill(""), mode, dropEvil)
		s.handshake(guardedClient)
		far := data(guardedClient, 1<<20, "evil bytes")
		bad := data(guardedClient, 0, "harmless..")
		bad[len(bad)-1]++ // the checksum is wrong
		if mode == preventAll {
			s.refused(0, far, packet.DropSequence)
			s.refused(0, bad, packet.DropL4Checksum)
			s.refused(0, data(guardedClient, 0, "evil bytes"), packet.DropInspection)
		} else {
			s.expect(0, far, 1)
			s.expect(0, bad, 1)
			s.expect(0, data(guardedClient, 0, "evil bytes"), 1)
		}
		if d := s.i.Status(1).Policies[0].Discarded; d != 2 {
			t.Errorf("%d discarded", d)
		}
		if n := len(s.alerts()); n != 1 {
			t.Errorf("%d alerts", n)
		}
	}
}

func TestInspectionOfOverlaps(t *testing.T) {
	for name, want := range map[string]packet.Verdict{"drop": packet.DropInspection, "pass": packet.Forward} {
		s := guard(t, fill(""), "  policies: [{name: p, mode: prevent, rules: a.rules, overlaps: "+name+"}]\n", dropEvil)
		s.handshake(guardedClient)
		s.expect(0, data(guardedClient, 0, "some text"), 1)
		if r := s.send(0, data(guardedClient, 0, "same text")); r.verdict != want {
			t.Errorf("%s: %v", name, r.verdict)
		}
		s.expect(0, data(guardedClient, 0, "some text"), 1)
		action := map[string]string{"drop": "drop", "pass": "alert"}[name]
		s.wantAlerts("stream overlap differs " + action)
	}
}

func TestInspectionOfDatagrams(t *testing.T) {
	s := guard(t, fill(""), preventAll, dropEvil+"reject udp any any -> any any (msg:\"r\"; content:\"reject\"; sid:2;)\n")
	udp := func(src, payload string) []byte {
		c := client(src, guardedDNS, "")
		c.payload = payload
		return c.bytes()
	}
	s.expect(0, tag(udp(guardedClient, "fine"), wire.EtherTypeVLAN, 7), 1)
	s.refused(0, tag(udp(guardedClient, "some evil bytes"), wire.EtherTypeVLAN, 7), packet.DropInspection)
	s.refused(0, udp(guardedClient, "fine"), packet.DropInspection)

	list := split(udp("198.18.9.9:40001", strings.Repeat("x", 44)+"evil bytes"+strings.Repeat("y", 50)), 56, 9)
	s.expect(0, list[0], 1)
	s.refused(0, list[1], packet.DropInspection) // it completes the datagram

	if r := s.send(0, udp("198.18.9.9:40002", "reject")); r.verdict != packet.Forward || r.port != 0 || r.p[23] != wire.ProtoICMP {
		t.Errorf("verdict %v to %d, %x", r.verdict, r.port, r.p)
	}
	s.refused(0, udp("198.18.9.9:40002", "fine"), packet.DropInspection)
	s.wantAlerts("alert 1 drop", "alert 1 drop", "alert 2 reject")
}

// A match in a tunnel drops its packet and blocks the flow in the tunnel, not the tunnel.
func TestInspectionOfTunnels(t *testing.T) {
	s := guard(t, strings.Replace(fill(""), "198.18.1.1:53", "198.18.1.1:4789", 1), preventAll, dropEvil)
	vxlan := func(src, payload string) []byte {
		inner := client(src, "192.0.2.1:9", "")
		inner.payload = payload
		outer := client(guardedClient, "198.18.1.1:4789", "")
		outer.payload = "\x08\x00\x00\x00\x00\x00\x07\x00" + string(inner.bytes())
		return outer.bytes()
	}
	s.expect(0, vxlan("192.0.2.7:1", "fine"), 1)
	r := s.send(0, vxlan("192.0.2.7:1", "evil bytes"))
	if r.verdict != packet.DropInspection {
		t.Fatalf("%v", r.verdict)
	}
	if len(s.verdicts) == 0 || !s.verdicts[len(s.verdicts)-1].Inner || s.verdicts[0].Client != netip.MustParseAddr("198.18.9.9") {
		t.Errorf("%+v", s.verdicts)
	}
}

// A large packet has its payload in several frames or outside of them.
func TestInspectionOfLargePackets(t *testing.T) {
	s := guard(t, fill(""), preventAll, dropEvil)
	s.handshake(guardedClient)
	p := data(guardedClient, 0, strings.Repeat("x", 600)+"evil bytes"+strings.Repeat("y", 600))
	b := s.batch(0, p[:500], p[500:656], p[656:])
	b.D[0].Flags, b.D[1].Flags = packet.FlagMore, packet.FlagMore
	s.run(b)
	if b.D[0].Verdict != packet.DropInspection {
		t.Errorf("in three frames: %v", b.D[0].Verdict)
	}
	s.handshake("198.18.9.9:40001")
	if r, _ := s.large(0, data("198.18.9.9:40001", 0, strings.Repeat("x", 700)+"evil bytes"), 500); r.verdict != packet.DropInspection {
		t.Errorf("a packet that the device cuts: %v", r.verdict)
	}
}

func TestPoliciesAreForServicesAndDevices(t *testing.T) {
	for _, c := range []struct {
		policy  string
		web, ns packet.Verdict
	}{
		{"services: [web]", packet.DropInspection, packet.Forward},
		{"services: [dns], devices: [gw0]", packet.Forward, packet.DropInspection},
		{"devices: gw1", packet.Forward, packet.Forward},
		{"devices: [gw1, gw0]", packet.DropInspection, packet.DropInspection},
	} {
		s := guard(t, fill(""), "  policies: [{name: p, mode: prevent, rules: a.rules, "+c.policy+"}]\n", dropEvil)
		s.handshake(guardedClient)
		if r := s.send(0, data(guardedClient, 0, "evil bytes")); r.verdict != c.web {
			t.Errorf("%s: web %v", c.policy, r.verdict)
		}
		u := client(guardedClient, guardedDNS, "")
		u.payload = "evil bytes"
		if r := s.send(0, u.bytes()); r.verdict != c.ns {
			t.Errorf("%s: dns %v", c.policy, r.verdict)
		}
	}
}

func TestAccessRules(t *testing.T) {
	for _, mode := range []string{"prevent", "detect"} {
		s := guard(t, fill(""), detectAll, dropEvil)
		s.write("a.access", "pass from 198.18.9.9 to any\ndrop udp from 198.18.9.0/24 to any port 53\n")
		cfg := s.parse(t, "  policies: [{name: p, mode: "+mode+", access: a.access}]\n")
		if err := s.i.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		want := packet.Forward
		if mode == "prevent" {
			want = packet.DropRule
		}
		for range 2 {
			if r := s.send(0, client("198.18.9.8:40000", guardedDNS, "").bytes()); r.verdict != want {
				t.Errorf("%s: %v", mode, r.verdict)
			}
			s.expect(0, client("198.18.9.9:40000", guardedDNS, "").bytes(), 1)
		}
		drops := map[string]uint64{"prevent": 2}[mode]
		if r := s.i.Status(10).Rules; len(r) != 2 || r[1].Matches != 2 || r[1].Drops != drops || r[1].ID() != "access:2" {
			t.Errorf("%+v", r)
		}
		s.wantAlerts("access 2 " + map[string]string{"prevent": "drop", "detect": "alert"}[mode])
	}
}

// A rate, of a line or of each source, lets so many packets pass; marks count; what is captured is in the pcapng, also where
// it is dropped. A reload keeps buckets and counters. With detect a rate alerts alone.
func TestAccessRulesLimitMarkAndCapture(t *testing.T) {
	const rules = `list near file "near.txt"
group dns 198.18.1.1
rate 10pps burst 3 per source udp from list near to group dns port 53,5353 name "per source"
rate 10pps burst 5 udp to group dns port 53 name "all others"
mark 7 capture tcp
`
	for _, mode := range []string{"prevent", "detect"} {
		prevent := mode == "prevent"
		s := guard(t, fill(""), detectAll, "alert tcp any any -> any any (content:\"marked\"; sid:1;)\n")
		s.write("near.txt", "198.18.9.0/24\n")
		s.write("a.access", rules)
		policy := "  policies: [{name: p, mode: " + mode + ", access: a.access, rules: a.rules}]\n"
		reload := func() {
			t.Helper()
			if err := s.i.Reload(s.parse(t, policy)); err != nil {
				t.Fatal(err)
			}
		}
		reload()
		passes := func(source string, n int) (passed int) {
			for range n {
				switch r := s.send(0, client(source+":40000", guardedDNS, "").bytes()); {
				case r.verdict == packet.Forward:
					passed++
				case r.verdict != packet.DropRateLimit:
					t.Fatalf("%s: %v", mode, r.verdict)
				}
			}
			return passed
		}
		want := func(what string, got, n, all int) {
			t.Helper()
			if !prevent {
				n = all
			}
			if got != n {
				t.Errorf("%s, %s: %d of %d pass, want %d", mode, what, got, all, n)
			}
		}
		want("a source", passes("198.18.9.8", 5), 3, 5)
		want("another source", passes("198.18.9.9", 2), 2, 2)
		reload()
		want("it, after a reload", passes("198.18.9.9", 5), 1, 5)
		want("sources that are not in the list", passes("198.18.7.1", 4)+passes("198.18.7.2", 4), 5, 8)
		s.after(200 * time.Millisecond)
		want("a source after the time of two packets", passes("198.18.9.8", 5), 2, 5)
		s.handshake(guardedClient)
		s.expect(0, data(guardedClient, 0, "marked"), 1)
		st := s.i.Status(10)
		if m := st.Policies[0].Marked; len(m) != 1 || m[7] != 3 || st.Policies[0].Captured != 3 || st.Policies[0].Access != 4 {
			t.Errorf("%s: marks %v, %d captured, %d access rules", mode, m, st.Policies[0].Captured, st.Policies[0].Access)
		}
		drops := map[bool][2]uint64{true: {9, 3}}[prevent]
		if r := st.Rules; len(r) != 4 || r[0].Msg != "per source" || r[0].Action != "rate" || r[0].Matches != 17 || r[0].Alerts != 1 || r[0].Drops != drops[0] ||
			r[1].Msg != "all others" || r[1].Matches != 8 || r[1].Alerts != 1 || r[1].Drops != drops[1] || r[2].Matches != 3 || r[2].Action != "pass" {
			t.Errorf("%s: %+v", mode, r)
		}
		action := map[bool]string{true: "drop", false: "alert"}[prevent]
		s.wantAlerts("access 1 "+action, "access 3 "+action, "alert 1 alert")
		if text, _ := os.ReadFile(filepath.Join(s.dir, "alerts.json")); strings.Count(string(text), `"mark":7`) != 1 {
			t.Errorf("%s: marks of alerts: %s", mode, text)
		}
		if b, _ := os.ReadFile(filepath.Join(s.dir, "alerts.pcapng")); strings.Count(string(b), "p access:4 mark 7 capture tcp") != 3 {
			t.Errorf("%s: the capture has %q", mode, b)
		}
	}
}

// A connection that is inspected stays with the loop.
func TestInspectedConnectionsStayOutOfTheKernel(t *testing.T) {
	was := kernelFlows
	kernelFlows = true
	defer func() { kernelFlows = was }()
	for policies, want := range map[string]bool{preventAll: false, "  policies: [{name: p, services: dns, rules: a.rules}]\n": true} {
		s := guard(t, fill(""), policies, dropEvil)
		at := s.handshake(guardedClient)
		for i := range 20 {
			s.send(0, data(guardedClient, uint32(4*i), "fine"))
			s.send(1, answer(at, "A").bytes())
		}
		s.after(time.Second)
		if got := s.g.Status().Kernel; (got != nil && got.Entered > 0) != want {
			t.Errorf("%s: %+v", policies, got)
		}
	}
}

// The rules of a reload that has errors are not used, and every error has its place.
func TestABrokenFileLeavesTheRules(t *testing.T) {
	s := guard(t, fill(""), preventAll, dropEvil)
	s.write("a.rules", "drop tcp any any -> any any (msg:\"a\"; contnt:\"x\"; sid:1;)\n\ndrop tcp any any -> any any (content:\"abc\"; asn1:oversize_length 500; sid:2;)\nbad\n")
	err := s.i.Reload(s.parse(t, preventAll))
	ce, ok := err.(*config.Error)
	if !ok {
		t.Fatalf("%v", err)
	}
	var got []string
	for _, p := range ce.Problems {
		got = append(got, fmt.Sprintf("%s:%d:%d %s", filepath.Base(p.File), p.Line, p.Column, p.Hint))
	}
	want := []string{"a.rules:1:39 ", "a.rules:3:45 `lenient: true` leaves out such rules", "a.rules:4:4 "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%v", diff, err)
	}
	s.handshake(guardedClient)
	s.refused(0, data(guardedClient, 0, "evil bytes"), packet.DropInspection)
	s.write("a.rules", dropEvil+"drop tcp any any -> any any (content:\"abc\"; asn1:oversize_length 500; sid:2;)\n")
	if err := s.i.Reload(s.parse(t, "  policies: [{name: p, mode: prevent, rules: a.rules, lenient: true}]\n")); err != nil {
		t.Fatal(err)
	}
	if p := s.i.Status(1).Policies[0]; p.Rules != 1 || len(p.Skipped) != 1 {
		t.Errorf("%+v", p)
	}
	for _, text := range []string{dropEvil + dropEvil, ""} {
		s.write("a.rules", text)
		if err := s.i.Reload(s.parse(t, preventAll)); (err == nil) != (text == "") {
			t.Errorf("%q: %v", text, err)
		}
	}
	os.Remove(filepath.Join(s.dir, "a.rules"))
	if err := s.i.Reload(s.parse(t, preventAll)); err == nil || !strings.Contains(err.Error(), "a.rules") {
		t.Errorf("a missing file: %v", err)
	}
}
