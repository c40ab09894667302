package inspection

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inspectJoined gives a loop datagrams of size bytes that a driver has joined into one packet, which opens a connection.
func inspectJoined(l *Loop, six bool, size int, payload string) packet.Verdict {
	const headroom = 64
	mac := wire.MAC{2, 0, 0, 0, 0, 1}
	d := packet.Desc{Off: headroom, L3: 14, L4: 34, Flags: packet.FlagIPv4 | packet.FlagL4ChecksumOK | packet.FlagOffload, Proto: wire.ProtoUDP}
	frame := make([]byte, headroom, 4096)
	if six {
		d.L4, d.Flags = 54, packet.FlagIPv6|packet.FlagL4ChecksumOK|packet.FlagOffload
		frame = wire.AppendEthernet(frame, mac, mac, wire.EtherTypeIPv6)
		frame = wire.AppendIPv6(frame, &wire.IPv6Header{PayloadLen: wire.UDPLen + len(payload), HopLimit: 64, NextHeader: wire.ProtoUDP, Src: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}, Dst: [16]byte{0x20, 1, 0xd, 0xb8, 15: 2}})
	} else {
		frame = wire.AppendEthernet(frame, mac, mac, wire.EtherTypeIPv4)
		frame = wire.AppendIPv4(frame, &wire.IPv4Header{PayloadLen: wire.UDPLen + len(payload), TTL: 64, Proto: wire.ProtoUDP, Src: [4]byte{192, 0, 2, 1}, Dst: [4]byte{198, 18, 1, 1}})
	}
	d.Payload = d.L4 + wire.UDPLen
	frame = append(wire.AppendUDP(frame, 4000, 53, len(payload)), payload...)
	d.Len = uint16(len(frame) - headroom)
	a := &packet.Arena{Mem: frame, Shift: 12}
	a.SetOffload(&d, &packet.Offload{GSO: packet.GSOUDP, SegmentSize: uint16(size)})
	v, _ := l.Inspect(&datapath.Inspected{Arena: a, Chain: []packet.Desc{d}, Service: "dns", Policy: 1, FromClient: true, Opens: true})
	return v
}

// matchesOf returns how often rules have matched, by sid.
func matchesOf(i *Inspector) map[uint32]uint64 {
	got := map[uint32]uint64{}
	for _, r := range i.Status(10).Rules {
		got[r.SID] = r.Matches
	}
	return got
}

// Datagrams that a driver has joined into one packet are inspected one by one, in both families and whatever frames they lie in.
func TestJoinedDatagramsAreInspectedOneByOne(t *testing.T) {
	const rules = `alert udp any any -> any 53 (msg:"whole"; content:"needle"; startswith; dsize:10; sid:1;)
drop udp any any -> any 53 (msg:"end"; content:"evil"; endswith; dsize:<10; sid:2;)
alert udp any any -> any 53 (msg:"across"; content:"Acrosstwo"; sid:3;)
`
	for _, six := range []bool{false, true} {
		i, _ := opened(t, rules, "drop from 192.0.2.9\n", "alerts.json")
		l, want := i.Loop(0), map[uint32]uint64{}
		for _, c := range []struct {
			payload string
			size    int
			verdict packet.Verdict
			matches []uint32
		}{
			{"0123456789needle0123Acro0123ssstwo6789needle4567", 10, packet.Forward, []uint32{1}},
			{"AcrosstwoAcrosstwo", 6, packet.Forward, nil},                                    // AcrosstwoAc|... is cut
			{"0123456789012345evil" + "needle0123" + "abcd", 10, packet.Forward, []uint32{1}}, // ten bytes, no match of rule 2
			{"needle0123" + "0123456789" + "evil", 10, packet.DropInspection, []uint32{1, 2}}, // the last one drops all
			{"needle0123" + "0123456789" + "evil", 10, packet.DropInspection, []uint32{1, 2}}, // of another connection
		} {
			if v := inspectJoined(l, six, c.size, c.payload); v != c.verdict {
				t.Errorf("six %v: %s: %v, want %v", six, c.payload, v, c.verdict)
			}
			for _, sid := range c.matches {
				want[sid]++
			}
			if got := matchesOf(i); !maps.Equal(got, want) {
				t.Errorf("six %v: %s: matches %v, want %v", six, c.payload, got, want)
			}
		}
		if p := i.Status(1).Policies[0]; p.Dropped != 2 || p.Blocked != 0 || p.Packets != 5 {
			t.Errorf("six %v: %+v", six, p)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Only the first of joined datagrams opens their connection: the others follow it.
func TestJoinedDatagramsAreOfOneFlow(t *testing.T) {
	i, _ := opened(t, `alert udp any any -> any 53 (content:"set-"; flowbits:set,x; noalert; sid:1;)
drop udp any any -> any 53 (content:"asks"; flowbits:isset,x; sid:2;)
`, "drop from 192.0.2.9\n", "alerts.json")
	if v := inspectJoined(i.Loop(0), false, 4, "set-asks"); v != packet.DropInspection {
		t.Errorf("the second datagram does not see what the first has set: %v", v)
	}
	if v := inspectJoined(i.Loop(0), false, 4, "asks"+"set-"); v != packet.Forward {
		t.Errorf("a datagram of another connection: %v", v)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// The datagrams behind one that is dropped are dropped with it: they are neither inspected nor counted as blocked.
func TestJoinedDatagramsEndAtTheFirstThatIsDropped(t *testing.T) {
	i, _ := opened(t, evilRule+`alert udp any any -> any 53 (content:"next"; sid:8;)`+"\n", "drop from 192.0.2.9\n", "alerts.json")
	if v := inspectJoined(i.Loop(0), false, 4, "fineevilnext"); v != packet.DropInspection {
		t.Errorf("%v", v)
	}
	if p, m := i.Status(1).Policies[0], matchesOf(i); p.Dropped != 1 || p.Blocked != 0 || m[8] != 0 {
		t.Errorf("%+v, matches %v", p, m)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// The packet of an alert is the datagram that matched, with the lengths and the header checksum of one.
func TestJoinedDatagramsAreCapturedAlone(t *testing.T) {
	for _, six := range []bool{false, true} {
		i, dir := opened(t, evilRule, "drop from 192.0.2.9\n", "alerts.json")
		inspectJoined(i.Loop(0), six, 8, "01234567"+"an evil!"+"89")
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		in, err := capture.Open(filepath.Join(dir, "p.pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		ip, l4 := r.Data[wire.EthernetLen:], wire.UDP(nil)
		if six {
			if n := int(wire.IPv6(ip).PayloadLen()); n != len(ip)-wire.IPv6Len {
				t.Errorf("an IPv6 payload of %d bytes in %d", n, len(ip))
			}
			l4 = wire.UDP(ip[wire.IPv6Len:])
		} else {
			if four := wire.IPv4(ip); int(four.TotalLen()) != len(ip) || !four.ChecksumOK() {
				t.Errorf("an IPv4 packet of %d bytes in %d, checksum good: %v", four.TotalLen(), len(ip), four.ChecksumOK())
			}
			l4 = wire.UDP(ip[wire.IPv4Len:])
		}
		if int(l4.Len()) != wire.UDPLen+8 || string(l4[wire.UDPLen:]) != "an evil!" {
			t.Errorf("six %v: a datagram of %d bytes: %q", six, l4.Len(), l4[wire.UDPLen:])
		}
		if _, err := in.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("six %v: another packet, %v", six, err)
		}
		in.Close()
	}
}

// slowRule has an expression whose steps end before it knows on slowText.
const slowRule = `alert udp any any -> any 53 (content:"aaaa"; pcre:"/(a+)+(a+)+\1\2\1b/"; sid:5;)` + "\n"

var slowText = strings.Repeat("a", 1200)

// A bound that one of joined datagrams meets is one that the packet has met.
func TestJoinedDatagramsMeetABoundTogether(t *testing.T) {
	i, _ := openedAs(t, slowRule, "drop from 192.0.2.9\n", Options{}, func(c *config.Config) { c.Inspection.Policies[0].Mode = config.InspectionDetect })
	if v := inspectJoined(i.Loop(0), false, len(slowText), slowText+"fine"); v != packet.Forward {
		t.Errorf("%v", v)
	}
	if p := i.Status(1).Policies[0]; p.Bounds != 1 || p.Overload != 0 {
		t.Errorf("%+v", p)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}
