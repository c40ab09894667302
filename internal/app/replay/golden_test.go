package replay

import (
	"context"
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

var be = binary.BigEndian

// ether puts an Ethernet header and tags in front of a payload.
func ether(typ uint16, payload []byte, tags ...uint16) []byte {
	b := make([]byte, 12)
	for _, tag := range tags {
		b = be.AppendUint16(be.AppendUint16(b, tag), 7)
	}
	return append(be.AppendUint16(b, typ), payload...)
}

// v4 puts an IPv4 header with options (whole words) and flags in front of a payload.
func v4(proto uint8, from, to netip.AddrPort, frag uint16, options, payload []byte) []byte {
	b := []byte{0x45 + byte(len(options)/4), 0}
	b = be.AppendUint16(b, uint16(20+len(options)+len(payload)))
	b = append(b, 0, 1, byte(frag>>8), byte(frag), 64, proto, 0, 0)
	b = append(append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...), options...)
	be.PutUint16(b[10:], wire.Fold(wire.SumPlain(b, 0)))
	return append(b, payload...)
}

// v6 puts an IPv6 header in front of a payload that begins with header next.
func v6(next uint8, from, to netip.AddrPort, payload []byte) []byte {
	b := be.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(payload)))
	b = append(append(append(b, next, 64), from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	return append(b, payload...)
}

// segment makes a TCP, UDP, ICMP or ICMPv6 header with n bytes behind it and the right checksum.
func segment(proto uint8, from, to netip.AddrPort, n int) []byte {
	b := be.AppendUint16(be.AppendUint16(nil, from.Port()), to.Port())
	at := 2
	switch proto {
	case wire.ProtoTCP:
		b, at = append(b, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0), 16
	case wire.ProtoUDP:
		b, at = append(be.AppendUint16(b, uint16(8+n)), 0, 0), 6
	default:
		b = []byte{8, 0, 0, 0, 0, 1, 0, 1}
	}
	b = append(b, make([]byte, n)...)
	var pseudo []byte
	if proto != wire.ProtoICMP {
		pseudo = append(append(from.Addr().AsSlice(), to.Addr().AsSlice()...), 0, 0, byte(len(b)>>8), byte(len(b)), 0, proto)
	}
	be.PutUint16(b[at:], wire.Fold(wire.SumPlain(b, wire.SumPlain(pseudo, 0))))
	return b
}

// broken returns b with the bits of one byte turned over.
func broken(b []byte, at int) []byte {
	b = append([]byte(nil), b...)
	b[at] ^= 0xff
	return b
}

// zoo is a capture of one packet of each kind, and its report with zooRules, counted by hand.
func zoo() [][]byte {
	const v4type, v6type, vlan, qinq = wire.EtherTypeIPv4, wire.EtherTypeIPv6, wire.EtherTypeVLAN, wire.EtherTypeQinQ
	const tcp, udp, icmp, icmp6 = wire.ProtoTCP, wire.ProtoUDP, wire.ProtoICMP, wire.ProtoICMPv6
	a, b := netip.MustParseAddrPort("198.18.0.1:1000"), netip.MustParseAddrPort("192.0.2.1:80")
	c, d := netip.MustParseAddrPort("[2001:db8::1]:1000"), netip.MustParseAddrPort("[2001:db8::2]:443")
	dns := netip.MustParseAddrPort("192.0.2.53:53")

	web := v4(tcp, a, b, 0, nil, segment(tcp, a, b, 100))
	query := segment(udp, a, dns, 30)
	noSum := append([]byte(nil), query...)
	noSum[6], noSum[7] = 0, 0
	options := []byte{1, 1, 1, 0}
	ext := func(next uint8) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} } // 8 bytes with a PadN in them
	chain := append(append(ext(wire.ProtoDestOpts), ext(tcp)...), segment(tcp, c, d, 5)...)
	frag6 := func(offset uint16) []byte { // with more to come
		return append(be.AppendUint16([]byte{udp, 0}, offset<<3|1), append([]byte{0, 0, 0, 9}, segment(udp, c, d, 8)...)...)
	}
	return [][]byte{
		ether(v4type, web),
		ether(v4type, v4(tcp, b, a, 0, nil, segment(tcp, b, a, 0)), vlan),               // the way back
		ether(v4type, broken(web, 10)),                                                  // IPv4 checksum
		ether(v4type, broken(web, 50)),                                                  // TCP checksum
		ether(v4type, v4(udp, a, dns, 0, nil, query), qinq, vlan),                       // rule on line 1
		ether(v4type, v4(udp, a, dns, 0, nil, noSum)),                                   // rule on line 1; nothing to verify
		ether(v4type, v4(udp, a, dns, 0x2000, nil, query)),                              // rule on line 1; first fragment
		ether(v4type, v4(udp, a, dns, 0x0010, nil, query)),                              // later fragment: no ports, no flow
		ether(v4type, v4(icmp, a, b, 0, options, segment(icmp, a, b, 56))),              // options
		ether(v4type, v4(wire.ProtoESP, a, b, 0, nil, make([]byte, 40))),                // no checksum known
		ether(v6type, v6(wire.ProtoHopByHop, c, d, chain)),                              // rule on line 3
		ether(v6type, v6(tcp, d, c, segment(tcp, d, c, 1300))),                          // the way back
		ether(v6type, v6(wire.ProtoFragment, c, d, frag6(0))),                           // first fragment
		ether(v6type, v6(wire.ProtoFragment, c, d, frag6(4))),                           // later fragment
		ether(v6type, v6(icmp6, c, d, segment(icmp6, c, d, 4))),                         // rule on line 4
		ether(v6type, v6(wire.ProtoIPv6, c, d, make([]byte, 40))),                       // a tunnel
		ether(v6type, broken(v6(icmp6, d, c, segment(icmp6, d, c, 4)), 44)),             // rule on line 4; ICMPv6 checksum
		ether(wire.EtherTypeARP, make([]byte, 28)),                                      //
		ether(46, make([]byte, 46)),                                                     // IEEE 802.3
		{1, 2, 3},                                                                       // truncated: no Ethernet header
		ether(v4type, web)[:60],                                                         // truncated: payload only, passed by the rule on line 2
		ether(v4type, web[:19]),                                                         // truncated: IPv4 header
		ether(v6type, v6(tcp, c, d, nil)),                                               // malformed: no room for TCP
		ether(v4type, broken(web, 0)),                                                   // malformed: version
		ether(v4type, v4(udp, a, dns, 0, nil, broken(query, 4))),                        // malformed: UDP length
		ether(v6type, make([]byte, 60)),                                                 // malformed: version
		ether(v4type, v4(wire.ProtoIPIP, a, b, 0, nil, web), wire.EtherTypeVLAN, 1<<15), // a tag, then not IP
	}
}

const zooRules = `drop udp to any port 53 name "no names"
pass tcp from 198.18.0.0/15 to any port 80,81
drop tcp to 2001:db8::/32 port 443 # from anywhere
drop icmpv6
`

var zooTotal = Part{
	Sum: Sum{
		Packets: 27, Bytes: 3577, IPv4: 12, IPv6: 8,
		Protocols: map[string]uint64{
			"tcp": 8, "udp": 7, "icmp": 1, "esp": 1, "icmpv6": 2, "ipv6 in ip": 1, "arp": 1, "802.3": 1, "cut off": 1,
			"ipv4": 2, "ipv6": 1, "0x8000": 1,
		},
		Sizes: map[string]uint64{"0-63": 7, "64-127": 14, "128-255": 5, "1024-2047": 1},
		Flows: 8, // TCP, ICMP and ESP of a and b; UDP to dns; TCP, UDP, ICMPv6 and a tunnel of c and d
		VLAN:  3, Fragments: 4, Options: 4,
		IPChecksumErrors: 1, L4ChecksumErrors: 2, L4Unverified: 6, Malformed: 4, Truncated: 3,
	},
	Passed:  15,
	Dropped: map[string]uint64{"malformed": 4, "truncated": 2, "rule": 6},
}

var zooHits = []Hits{
	{File: "zoo", Line: 1, Name: "no names", Text: `drop udp to any port 53 name "no names"`, Packets: 3},
	{File: "zoo", Line: 2, Text: "pass tcp from 198.18.0.0/15 to any port 80,81", Packets: 4},
	{File: "zoo", Line: 3, Text: "drop tcp to 2001:db8::/32 port 443", Packets: 1},
	{File: "zoo", Line: 4, Text: "drop icmpv6", Packets: 2},
}

// untimed compares what does not depend on the machine.
var untimed = cmp.Options{
	cmpopts.IgnoreUnexported(Part{}, Sum{}),
	cmpopts.IgnoreFields(Part{}, "Seconds", "Mpps", "BitRate", "NsPacket", "EngineNs"),
}

// TestEveryKindOfPacketIsCounted replays the zoo streamed, repeated from memory, and to a
// device, which is another place for the packets to wait each time.
func TestEveryKindOfPacketIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zoo.pcap")
	write(t, path, 0, zoo()...)
	rules, err := filter.Parse("zoo", zooRules)
	if err != nil {
		t.Fatal(err)
	}
	arena, pool, err := newPool(1024)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	for _, tc := range []struct {
		mode string
		laps uint64
		cfg  Config
	}{
		{"stream", 1, Config{}},
		{"resident", 3, Config{}},
		{"stream", 1, Config{Out: &slow{pool: pool, count: &pmd.Counters{}}, Pool: pool}},
		{"preload", 3, Config{Out: &slow{pool: pool, count: &pmd.Counters{}}, Pool: pool}},
	} {
		tc.cfg.Files, tc.cfg.Laps, tc.cfg.Rules = []string{path}, int(tc.laps), rules
		rep, err := Run(context.Background(), tc.cfg)
		if err != nil || rep.Files[0].Mode != tc.mode || rep.Stopped {
			t.Errorf("%s x%d: by %s: %v", tc.mode, tc.laps, rep.Files[0].Mode, err)
		}
		want, hits := times(zooTotal, tc.laps), append([]Hits(nil), zooHits...)
		for i := range hits {
			hits[i].Packets *= tc.laps
		}
		if diff := cmp.Diff(want, rep.Total, untimed); diff != "" {
			t.Errorf("%s x%d (-want +got):\n%s", tc.mode, tc.laps, diff)
		}
		if diff := cmp.Diff(rep.Files[0].Part, rep.Total, untimed); diff != "" {
			t.Errorf("%s x%d: the only file is not the total (-file +total):\n%s", tc.mode, tc.laps, diff)
		}
		if diff := cmp.Diff(hits, rep.Rules); diff != "" {
			t.Errorf("%s x%d: rules (-want +got):\n%s", tc.mode, tc.laps, diff)
		}
		if out, ok := tc.cfg.Out.(*slow); ok && uint64(len(out.sent)) != want.Passed {
			t.Errorf("%s x%d: %d packets sent, want %d", tc.mode, tc.laps, len(out.sent), want.Passed)
		}
	}
	if err := ring.Audit(arena, pool); err != nil {
		t.Error(err)
	}
}

// times returns p as n laps of it are counted.
func times(p Part, n uint64) Part {
	s := &p.Sum
	for _, c := range []*uint64{
		&s.Packets, &s.Bytes, &s.IPv4, &s.IPv6, &s.VLAN, &s.Fragments, &s.Options, &s.IPChecksumErrors,
		&s.L4ChecksumErrors, &s.L4Unverified, &s.Malformed, &s.Truncated, &p.Passed,
	} {
		*c *= n
	}
	for _, m := range []*map[string]uint64{&s.Protocols, &s.Sizes, &p.Dropped} {
		grown := map[string]uint64{}
		for k, v := range *m {
			grown[k] = v * n
		}
		*m = grown
	}
	return p
}

// TestEveryKindOfPacketIsVerified shows that the verification of real captures is not empty.
func TestEveryKindOfPacketIsVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zoo.pcap")
	write(t, path, 0, zoo()...)
	rules, err := filter.Parse("zoo", zooRules)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Verify(context.Background(), Config{Files: []string{path, path}, Rules: rules})
	if err != nil || v.Packets != 54 || v.Decoded < 30 || v.Skipped != 0 {
		t.Errorf("%d packets, %d decoded, %d skipped: %v", v.Packets, v.Decoded, v.Skipped, err)
	}
	for _, m := range v.Mismatches {
		t.Errorf("record %d: %s: engine %s, %s %s", m.Record, m.Field, m.Engine, m.By, m.Other)
	}
}
