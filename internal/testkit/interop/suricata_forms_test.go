package interop

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/wire"
)

// form is a way to send the packets of captures.
type form struct {
	name  string
	frame func(frame []byte) [][]byte // nil leaves them as they are
}

// apply returns the packets in a form.
func (f *form) apply(list []timed) []timed {
	if f.frame == nil {
		return list
	}
	var out []timed
	for _, p := range list {
		for _, b := range f.frame(p.frame) {
			out = append(out, timed{p.at, b})
		}
	}
	return out
}

// forms are the ones that the two programs are compared on.
var forms = []form{
	{"as captured", nil},
	{"duplicated", func(b []byte) [][]byte { return segments(b, func(n int) [][2]int { return [][2]int{{0, n}, {0, n}} }) }},
	{"split", func(b []byte) [][]byte {
		return segments(b, func(n int) [][2]int { return [][2]int{{0, n / 3}, {n / 3, n / 2}, {n / 2, n}} })
	}},
	{"shuffled", func(b []byte) [][]byte {
		return segments(b, func(n int) [][2]int { return [][2]int{{n / 2, n}, {n / 3, n / 2}, {0, n / 3}} })
	}},
	{"overlapped", func(b []byte) [][]byte {
		return segments(b, func(n int) [][2]int { return [][2]int{{n / 3, n}, {0, 2 * n / 3}, {n / 4, n / 2}} })
	}},
	{"in VXLAN", func(b []byte) [][]byte { return [][]byte{inVXLAN(b)} }},
	{"in two VLAN tags", func(b []byte) [][]byte { return [][]byte{inTags(b)} }},
	{"in PPPoE", func(b []byte) [][]byte { return [][]byte{inPPPoE(b)} }},
	{"in GRE", func(b []byte) [][]byte { return [][]byte{inGRE(b)} }},
}

// segments sends the payload of a TCP segment over IPv4 in pieces; other frames stay as they are.
func segments(b []byte, cut func(n int) [][2]int) [][]byte {
	if len(b) < wire.EthernetLen+wire.IPv4Len || wire.Ethernet(b).EtherType() != wire.EtherTypeIPv4 {
		return [][]byte{b}
	}
	ip := wire.IPv4(b[wire.EthernetLen:])
	if !ip.Valid() || ip.Fragment() || ip.Proto() != wire.ProtoTCP || !wire.TCP(ip.Payload()).Valid() {
		return [][]byte{b}
	}
	tcp := wire.TCP(ip.Payload())
	payload := tcp.Payload()
	if len(payload) < 4 || tcp.Flags().Any(wire.FlagSYN|wire.FlagRST) {
		return [][]byte{b}
	}
	head := wire.EthernetLen + ip.HeaderLen() + tcp.DataOffset()
	var out [][]byte
	for _, c := range cut(len(payload)) {
		if c[0] == c[1] {
			continue
		}
		f := append(bytes.Clone(b[:head]), payload[c[0]:c[1]]...)
		i := wire.IPv4(f[wire.EthernetLen:])
		i.SetTotalLen(uint16(len(f) - wire.EthernetLen))
		i.FillChecksum()
		s := wire.TCP(f[wire.EthernetLen+ip.HeaderLen():])
		s.SetSeq(tcp.Seq() + uint32(c[0]))
		if c[1] < len(payload) {
			s.SetFlags(tcp.Flags() &^ wire.FlagFIN)
		}
		out = append(out, f)
	}
	return out
}

// inVXLAN wraps a frame.
func inVXLAN(b []byte) []byte {
	body := append(wire.AppendVXLAN(nil, 5), b...)
	out := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{4}, wire.EtherTypeIPv4)
	out = wire.AppendIPv4(out, &wire.IPv4Header{Src: [4]byte{198, 18, 0, 1}, Dst: [4]byte{198, 18, 0, 2}, Proto: wire.ProtoUDP, TTL: 64, PayloadLen: wire.UDPLen + len(body)})
	out = wire.AppendUDP(out, 5555, 4789, len(body))
	return append(out, body...)
}

// oneSidedFlows returns the TCP connections of which a SYN was seen and nothing from the other end.
func oneSidedFlows(list []timed) map[pair]bool {
	type ends struct{ low, high, answer bool }
	seen := map[pair]ends{}
	for _, p := range list {
		k, fromLow, flags, ok := tcpOf(p.frame)
		if !ok {
			continue
		}
		e := seen[k]
		if fromLow {
			e.low = true
		} else {
			e.high = true
		}
		e.answer = e.answer || flags.Has(wire.FlagSYN|wire.FlagACK)
		seen[k] = e
	}
	one := map[pair]bool{}
	for k, e := range seen {
		if e.low != e.high || !e.answer {
			one[k] = true
		}
	}
	return one
}

// tcpOf returns the ends of a TCP segment behind VLAN tags and VXLAN.
func tcpOf(b []byte) (k pair, fromLow bool, flags wire.TCPFlags, ok bool) {
	etherType, off, ok := wire.Network(b)
	if !ok {
		return k, false, 0, false
	}
	b = b[off:]
	var src, dst netip.Addr
	var body []byte
	var proto uint8
	switch {
	case etherType == wire.EtherTypeIPv4 && wire.IPv4(b).ValidHeader():
		ip := wire.IPv4(b)
		src, dst, proto, body = ip.SrcAddr(), ip.DstAddr(), ip.Proto(), b[ip.HeaderLen():]
	case etherType == wire.EtherTypeIPv6 && wire.IPv6(b).ValidHeader():
		ip := wire.IPv6(b)
		p, at, _, ok := wire.Upper6(b)
		if !ok || at > len(b) {
			return k, false, 0, false
		}
		src, dst, proto, body = ip.SrcAddr(), ip.DstAddr(), p, b[at:]
	default:
		return k, false, 0, false
	}
	if proto == wire.ProtoUDP && len(body) > 30 && binary.BigEndian.Uint16(body[2:]) == 4789 {
		return tcpOf(body[16:])
	}
	if proto != wire.ProtoTCP || len(body) < wire.TCPLen {
		return k, false, 0, false
	}
	t := wire.TCP(body)
	k = pairOf(0, "tcp", src, dst, t.SrcPort(), t.DstPort())
	return k, k.a == netip.AddrPortFrom(src.Unmap(), t.SrcPort()), t.Flags(), true
}

const suricataPageText = `# Inspection: compared with Suricata

` + "`make interop-suricata`" + ` writes this page. Both programs read the same %[2]d rules and the same
captures, all in one file. The other one is %[1]s.
A pair is a rule and two ends that it has matched between. The forms change the TCP segments of
IPv4, or wrap every frame.

| form | pairs of Suricata | of Millrace | both | as many alerts | fewer | more |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
%[3]s
Numbers of alerts differ by design where a rule looks at the bytes of a stream:

- Suricata inspects a stream in chunks of 2560 bytes and reports a rule once per chunk. Millrace
  reports it at the segment that completes it, once for the same bytes.
- Suricata inspects rules with depth or offset on single segments and on the stream, and reports
  both. Millrace reports one of them.
- For the same reason a match whose parts lie further apart than a chunk is found here only.
- Suricata evaluates a rule that has only addresses, one of them negated, on every packet; Millrace
  once for each direction of a flow.

CPU time in ns for a byte of the captures. That of Suricata is its whole process with one worker,
less the time to load the rules: reading the file and writing alerts are included. That of Millrace
is with the packets in memory and the alerts counted.

| form | Suricata | Millrace | ratio |
| --- | ---: | ---: | ---: |
%[4]s
Pairs that only one of them reports:

| form | who, why | pairs | rules |
| --- | --- | ---: | --- |
%[5]s`
