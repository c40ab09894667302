package afpacket

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func TestUDPChecksumThatComesToZeroIsSentAsOnes(t *testing.T) {
	p := &received{data: make([]byte, 42), csumStart: 34, csumOffset: 6}
	binary.BigEndian.PutUint16(p.data[34:], 0xffff)
	if !p.fillChecksum() || binary.BigEndian.Uint16(p.data[40:]) != 0xffff {
		t.Errorf("checksum %#x (RFC 768: 0 says that there is none)", p.data[40:])
	}
	for _, q := range []received{{data: p.data, csumStart: 43}, {data: p.data, csumStart: 34, csumOffset: 7}} {
		if q.fillChecksum() {
			t.Errorf("offsets %d+%d of %d bytes were accepted", q.csumStart, q.csumOffset, len(q.data))
		}
	}
}

// segmentOfIPv6 makes a TCP packet of 100 bytes of payload. The zeros in its headers are of no matter here.
func segmentOfIPv6() []byte {
	p := make([]byte, wire.EthernetLen+wire.IPv6Len+32+100)
	binary.BigEndian.PutUint16(p[12:], wire.EtherTypeIPv6)
	ip := p[wire.EthernetLen:]
	ip[0] = 0x60
	wire.IPv6(ip).SetPayloadLen(32 + 100)
	wire.IPv6(ip).SetNextHeader(wire.ProtoTCP)
	ip[wire.IPv6Len+12] = 8 << 4 // data offset
	return p
}

// jumbo makes of a large IPv6 packet what Linux builds beyond 64 KiB: the length lies in a jumbo payload option (RFC 2675 2).
func jumbo(p []byte) []byte {
	opt := []byte{wire.ProtoTCP, 0, jumboOption, 4, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(opt[4:], uint32(len(p)-wire.EthernetLen-wire.IPv6Len+len(opt)))
	q := slices.Insert(slices.Clone(p), wire.EthernetLen+wire.IPv6Len, opt...)
	ip := wire.IPv6(q[wire.EthernetLen:])
	ip.SetPayloadLen(0)
	ip.SetNextHeader(wire.ProtoHopByHop)
	return q
}

// A packet beyond 64 KiB passes in pieces where large packets may pass.
func TestPassageBeyond64KiB(t *testing.T) {
	p := &received{data: make([]byte, 0x12000), size: 0x12000, mss: 1000, gso: packet.GSOTCPv6, partial: true, csumStart: 54, csumOffset: 16}
	if got := p.passage(true); got != passPieces {
		t.Errorf("passage %d, want pieces", got)
	}
	if got := p.passage(false); got != passSegments {
		t.Errorf("passage %d, want segments", got)
	}
}

// Only a jumbo payload option alone, in front of the transport header, is removed.
func TestOtherOptionsStay(t *testing.T) {
	base := jumbo(segmentOfIPv6())
	for name, change := range map[string]func([]byte) []byte{
		"another option":   func(b []byte) []byte { b[56] = 5; return b },
		"a longer header":  func(b []byte) []byte { b[55] = 1; return b },
		"another length":   func(b []byte) []byte { b[57] = 3; return b },
		"a payload length": func(b []byte) []byte { b[19] = 1; return b },
		"destination opts": func(b []byte) []byte { b[20] = wire.ProtoDestOpts; return b },
		"IPv4":             func(b []byte) []byte { b[12], b[13] = 8, 0; return b },
		"cut":              func(b []byte) []byte { return b[:61] },
	} {
		p := &received{data: change(slices.Clone(base)), size: len(base)}
		if p.removeJumbo(); p.size != len(base) {
			t.Errorf("%s: %d bytes were removed", name, len(base)-p.size)
		}
	}
	p := &received{data: base, size: len(base), csumStart: 62, headers: 94}
	p.removeJumbo()
	if !bytes.Equal(p.data[:20], base[jumboLen:][:20]) || len(p.data) != p.size || p.csumStart != 54 || p.headers != 86 || wire.IPv6(p.data[14:]).NextHeader() != wire.ProtoTCP {
		t.Errorf("%+v", p)
	}
}
