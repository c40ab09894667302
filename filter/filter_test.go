package filter

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// ports compares port ranges, whose fields are not exported.
var ports = cmp.Comparer(func(a, b acl.Ports) bool { return a == b })

var addrs = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestRulesAreReadAsWritten(t *testing.T) {
	any := netip.Prefix{}
	for text, want := range map[string]Rule{
		"drop": {Action: Drop},
		"pass": {Action: Pass},
		"drop tcp to 198.18.0.0/15 port 22": {Action: Drop, Match: acl.Rule{
			Proto: wire.ProtoTCP, Dst: netip.MustParsePrefix("198.18.0.0/15"), DstPorts: acl.PortRange(22, 22),
		}},
		"pass udp from any port 1024-65535 to 2001:db8::53 port 53": {Match: acl.Rule{
			Proto: wire.ProtoUDP, Src: any, SrcPorts: acl.PortRange(1024, 65535),
			Dst: netip.MustParsePrefix("2001:db8::53/128"), DstPorts: acl.PortRange(53, 53),
		}},
		"drop from 192.0.2.7":                    {Action: Drop, Match: acl.Rule{Src: netip.MustParsePrefix("192.0.2.7/32")}},
		"drop proto 89":                          {Action: Drop, Match: acl.Rule{Proto: 89}},
		"drop icmpv6 to any":                     {Action: Drop, Match: acl.Rule{Proto: wire.ProtoICMPv6}},
		"pass to port 80":                        {Match: acl.Rule{DstPorts: acl.PortRange(80, 80)}},
		"pass to ::ffff:192.0.2.0/120":           {Match: acl.Rule{Dst: netip.MustParsePrefix("192.0.2.0/24")}},
		"pass to ::ffff:0.0.0.0/96":              {Match: acl.Rule{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
		"pass to ::fffe:0:0/95":                  {Match: acl.Rule{Dst: netip.MustParsePrefix("::fffe:0:0/95")}},
		"drop from port 0-9 to ::ffff:192.0.2.1": {Action: Drop, Match: acl.Rule{SrcPorts: acl.PortRange(0, 9), Dst: netip.MustParsePrefix("192.0.2.1/32")}},
	} {
		l, err := Parse("rules", "# comment\n\n \t"+strings.ReplaceAll(text, " ", " \t ")+"  # why\r\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want.Text, want.Line, want.File = text, 3, "rules"
		if diff := cmp.Diff([]Rule{want}, l.Rules(), ports, addrs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestMistakesAreShownWhereTheyAre(t *testing.T) {
	for _, tc := range []struct {
		text   string
		column int
		msg    string
	}{
		{"permit tcp", 1, "begins with allow, deny"},
		{"drop tpc", 6, `"tpc" is not a protocol`},
		{"drop proto 0", 12, "not a protocol number"},
		{"drop proto 256", 12, "not a protocol number"},
		{"drop from", 10, "is missing"},
		{"drop from 192.0.2", 11, "not an address"},
		{"drop from fe80::1%eth0", 11, "not an address"},
		{"drop from 192.0.2.1/24", 11, "192.0.2.0/24 is meant"},
		{"drop from 192.0.2.0/33", 11, "not a prefix"},
		{"drop tcp to any port", 21, "not a port"},
		{"drop tcp to any port 65536", 22, "not a port"},
		{"drop tcp to any port 9-8", 22, "above the last"},
		{"drop icmp to any port 8", 18, "no ports"},
		{"drop\ttcp to any from any", 17, "one word too many"},
		{"drop tcp to any to any", 17, "one word too many"},
		{"drop from 192.0.2.1 to 2001:db8::1", 1, "different families"},
	} {
		_, err := Parse("rules.txt", tc.text)
		var s *SyntaxError
		if !errors.As(err, &s) || !errors.Is(err, ErrSyntax) {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if s.Column != tc.column || !strings.Contains(s.Msg, tc.msg) {
			t.Errorf("%s: column %d %q, want %d %q", tc.text, s.Column, s.Msg, tc.column, tc.msg)
		}
	}
}

func TestAllMistakesAreShownAtOnceWithACaret(t *testing.T) {
	_, err := Parse("r", "drop tcp\npermit\npass\n\tdrop udp to nowhere\n")
	want := `r:2:1: a rule begins with allow, deny, pass, drop, redirect, rate, mark or capture, not "permit"
    permit
    ^
r:4:14: "nowhere" is not an address
    	drop udp to nowhere
    	            ^`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

// arena holds packets made by ether, one in each frame.
func batchOf(frames ...[]byte) *packet.Batch {
	b := packet.NewBatch(&packet.Arena{Mem: make([]byte, 2048*len(frames)), Shift: 11}, len(frames))
	for i, f := range frames {
		copy(b.Arena.Mem[i<<11:], f)
		b.Append(packet.Desc{Off: uint32(i << 11), Len: uint16(len(f))})
	}
	return b
}

// udp makes an Ethernet frame with an empty UDP datagram over IPv4.
func udp(src, dst string, sport, dport uint16) []byte {
	f := make([]byte, 42)
	f[12], f[13], f[14], f[17], f[22], f[23] = 8, 0, 0x45, 28, 64, wire.ProtoUDP
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	copy(f[26:], s[:])
	copy(f[30:], d[:])
	f[34], f[35], f[36], f[37], f[39] = byte(sport>>8), byte(sport), byte(dport>>8), byte(dport), 8
	return f
}

func TestTheFirstRuleThatMatchesDecides(t *testing.T) {
	l, err := Parse("rules", `
		pass udp from 192.0.2.1 to any port 53
		drop udp to any port 53
		drop from 192.0.2.9`)
	if err != nil {
		t.Fatal(err)
	}
	b := batchOf(
		udp("192.0.2.1", "198.18.0.1", 9, 53),
		udp("192.0.2.2", "198.18.0.1", 9, 53),
		udp("192.0.2.9", "198.18.0.1", 9, 54),
		udp("192.0.2.2", "198.18.0.1", 9, 54),
	)
	e := gpukern.NewCPU(gpukern.Config{Tables: gpukern.Tables{ACL: l.ACL()}})
	if err := e.Submit(b); err != nil {
		t.Fatal(err)
	}
	f := NewFilter(0, l)
	f.Apply(b)
	want := []struct {
		rule    uint16
		verdict packet.Verdict
	}{{1, packet.Undecided}, {2, packet.DropRule}, {3, packet.DropRule}, {0, packet.Undecided}}
	for i, w := range want {
		if d := b.D[i]; d.Rule != w.rule || d.Verdict != w.verdict {
			t.Errorf("packet %d: rule %d, %v; want rule %d, %v", i, d.Rule, d.Verdict, w.rule, w.verdict)
		}
	}
	if n := testing.AllocsPerRun(100, func() { f.Apply(b) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
}

func TestAnEmptyListPassesEverything(t *testing.T) {
	l, err := Parse("rules", "# nothing\n")
	if err != nil || len(l.Rules()) != 0 {
		t.Fatal(l, err)
	}
	var zero List
	b := batchOf(udp("192.0.2.1", "198.18.0.1", 1, 2))
	NewFilter(0, l).Apply(b)
	NewFilter(0, &zero).Apply(b)
	if b.D[0].Verdict != packet.Undecided || zero.ACL() != nil {
		t.Error("an empty list decided")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("drop tcp from any to 198.18.0.0/15 port 22-23 # x")
	f.Add("pass\tproto 7\nallow\n\tdrop udp to nowhere")
	f.Add("group a 192.0.2.1, 2001:db8::/32\ndeny capture from group a to list b\nlist b 192.0.2.0/24")
	f.Add("rate 10kpps burst 9 per source mark 7 redirect eth1 tcp to any port 1,2-3 name \"x\"")
	f.Add("alert tcp any any -> any any (msg:\"x\"; sid:1;)\ninclude \"f\"\nlog tcp")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("f", text)
		if err != nil {
			_ = err.Error()
			return
		}
		if strings.Contains(text, "group") || strings.Contains(text, "list") {
			return // lines that name others do not read alone
		}
		var again strings.Builder // what was read, written out, reads the same
		for i, r := range l.Rules() {
			if r.Rate.Burst > 0 && r.Rate.PerSecond == 0 || r.Action == Redirect && r.Device == "" {
				t.Fatalf("%q: %+v", text, r)
			}
			if i == 0 || r.Line != l.Rules()[i-1].Line { // a list of ports makes several of one line
				again.WriteString(r.Text + "\n")
			}
		}
		l2, err := Parse("f", again.String())
		if err != nil || len(l2.Rules()) != len(l.Rules()) {
			t.Fatalf("%q read, but written out %q does not: %v", text, again.String(), err)
		}
	})
}
