package interop

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/wire"
)

// addressBytes is the length of the two MAC addresses of a frame.
const addressBytes = 12

// inTags puts two VLAN tags before the type of a frame (IEEE 802.1ad).
func inTags(b []byte) []byte {
	if len(b) < wire.EthernetLen {
		return b
	}
	tags := []byte{0x88, 0xa8, 0, 7, 0x81, 0, 0, 9}
	return slices.Concat(b[:addressBytes], tags, b[addressBytes:])
}

// ipOf returns the type of a frame that has IPv4 or IPv6 behind its header, and its packet without padding.
func ipOf(b []byte) (etherType uint16, ip []byte) {
	if len(b) < wire.EthernetLen {
		return 0, nil
	}
	t, body := wire.Ethernet(b).EtherType(), b[wire.EthernetLen:]
	switch {
	case t == wire.EtherTypeIPv4 && wire.IPv4(body).Valid():
		return t, body[:wire.IPv4(body).TotalLen()]
	case t == wire.EtherTypeIPv6 && wire.IPv6(body).Valid():
		return t, body[:wire.IPv6Len+int(wire.IPv6(body).PayloadLen())]
	}
	return 0, nil
}

// inPPPoE puts a packet in a session of PPPoE (RFC 2516 4).
func inPPPoE(b []byte) []byte {
	t, ip := ipOf(b)
	if ip == nil {
		return b
	}
	proto := uint16(0x0021) // of PPP: IPv4
	if t == wire.EtherTypeIPv6 {
		proto = 0x0057
	}
	out := append(bytes.Clone(b[:addressBytes]), 0x88, 0x64, 0x11, 0, 0, 1)
	out = binary.BigEndian.AppendUint16(out, uint16(2+len(ip)))
	return append(binary.BigEndian.AppendUint16(out, proto), ip...)
}

// inGRE puts a packet in GRE without a key (RFC 2784).
func inGRE(b []byte) []byte {
	t, ip := ipOf(b)
	if ip == nil {
		return b
	}
	out := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{4}, wire.EtherTypeIPv4)
	out = wire.AppendIPv4(out, &wire.IPv4Header{Src: [4]byte{198, 18, 0, 1}, Dst: [4]byte{198, 18, 0, 2}, Proto: 47, TTL: 64, PayloadLen: 4 + len(ip)})
	return append(binary.BigEndian.AppendUint16(append(out, 0, 0), t), ip...)
}

// fragmenter cuts packets of IP. The packets of one capture have identifiers of their own.
type fragmenter struct{ id uint32 }

// cut returns fragments of a packet: cuts are their begins and ends in units of 8 bytes, less than n, which stands for the
// rest. Packets that are fragments or too short stay as they are.
func (f *fragmenter) cut(b []byte, cuts func(n int) [][2]int) [][]byte {
	t, ip := ipOf(b)
	f.id++
	switch {
	case ip == nil:
	case t == wire.EtherTypeIPv4:
		if h := wire.IPv4(ip); !h.Fragment() && len(h.Payload()) > 40 {
			return fragments4(b, h, uint16(f.id), cuts((len(h.Payload())+7)/8))
		}
	default:
		if h := wire.IPv6(ip); len(h.Payload()) > 40 && (h.NextHeader() == wire.ProtoTCP || h.NextHeader() == wire.ProtoUDP) {
			return fragments6(b, h, f.id, cuts((len(h.Payload())+7)/8))
		}
	}
	return [][]byte{b}
}

func fragments4(b []byte, h wire.IPv4, id uint16, cuts [][2]int) (out [][]byte) {
	body := h.Payload()
	for _, c := range cuts {
		from, to := c[0]*8, min(c[1]*8, len(body))
		p := append(bytes.Clone(b[:wire.EthernetLen+h.HeaderLen()]), body[from:to]...)
		ip := wire.IPv4(p[wire.EthernetLen:])
		ip.SetTotalLen(uint16(len(ip)))
		ip.SetID(id)
		ip.SetDontFragment(false)
		ip.SetMoreFragments(to < len(body))
		ip.SetFragmentOffset(from)
		ip.FillChecksum()
		out = append(out, p)
	}
	return out
}

// fragments6 puts a fragment header behind the fixed one (RFC 8200 4.5).
func fragments6(b []byte, h wire.IPv6, id uint32, cuts [][2]int) (out [][]byte) {
	body := h.Payload()
	for _, c := range cuts {
		from, to := c[0]*8, min(c[1]*8, len(body))
		p := append(bytes.Clone(b[:wire.EthernetLen+wire.IPv6Len]), h.NextHeader(), 0)
		more := uint16(0)
		if to < len(body) {
			more = 1
		}
		p = binary.BigEndian.AppendUint16(p, uint16(from)|more)
		p = append(binary.BigEndian.AppendUint32(p, id), body[from:to]...)
		ip := wire.IPv6(p[wire.EthernetLen:])
		ip.SetNextHeader(44)
		ip.SetPayloadLen(uint16(len(ip) - wire.IPv6Len))
		out = append(out, p)
	}
	return out
}

// fragmentForms are the ways to send packets in fragments.
func fragmentForms() []form {
	var f fragmenter
	of := func(name string, cuts func(n int) [][2]int) form {
		return form{name, func(b []byte) [][]byte { return f.cut(b, cuts) }}
	}
	return []form{
		of("in fragments", func(n int) [][2]int { return [][2]int{{0, 3}, {3, n - 1}, {n - 1, n}} }),
		of("in fragments, the last first", func(n int) [][2]int { return [][2]int{{n - 1, n}, {3, n - 1}, {0, 3}} }),
		of("in fragments that overlap", func(n int) [][2]int { return [][2]int{{0, 4}, {3, n - 1}, {n - 2, n}} }),
	}
}
