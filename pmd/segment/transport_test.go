package segment_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/wire"
)

// datagram returns an IPv4 datagram of UDP with n bytes of payload and a checksum field of any content.
func datagram(n int) []byte {
	p := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, wire.ProtoUDP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2)
	p = append(p, 0x12, 0x34, 0, 80, 0, 0, 0xab, 0xcd)
	binary.BigEndian.PutUint16(p[38:], uint16(8+n))
	for i := range n {
		p = append(p, byte(i*7))
	}
	ip := wire.IPv4(p[14:])
	ip.SetTotalLen(uint16(28 + n))
	ip.FillChecksum()
	return p
}

// plainSum returns the sum of the pseudo-header and the datagram, word by word (RFC 768).
func plainSum(p []byte) uint32 {
	sum := uint32(wire.ProtoUDP) + uint32(len(p)-34)
	for i, c := range p[26:] {
		sum += uint32(c) << (8 * (1 - i&1))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

// TestCompleteChecksumOverPieces completes a datagram that lies in frames of odd and even lengths.
func TestCompleteChecksumOverPieces(t *testing.T) {
	for _, cuts := range [][]int{{}, {42}, {43}, {50, 57}, {51, 100, 101}} {
		p := datagram(301)
		where, ok := segment.FindTransport(p)
		if !ok || where.Proto != wire.ProtoUDP || where.GSO != packet.GSOUDP || where.At != 34 || where.Payload != 42 || where.Checksum != 6 {
			t.Fatalf("%+v, %v", where, ok)
		}
		where.Seed(p)
		arena := packet.Arena{Mem: make([]byte, 8*512), Shift: 9}
		var d []packet.Desc
		for i, at := 0, 0; i <= len(cuts); i++ {
			end := len(p)
			if i < len(cuts) {
				end = cuts[i]
			}
			one := packet.Desc{Off: uint32(i*512 + i), Len: uint16(end - at)}
			copy(arena.Bytes(&one), p[at:end])
			d, at = append(d, one), end
		}
		if !segment.CompleteChecksum(&arena, d, where.At, where.Checksum) {
			t.Fatalf("%v: refused", cuts)
		}
		if got := arena.Gather(nil, d, 1<<16); plainSum(got) != 0xffff || !bytes.Equal(got[42:], p[42:]) {
			t.Errorf("%v: the sum is %#x", cuts, plainSum(got))
		}
	}
}

// TestChecksumOutsideOfTheFirstFrame refuses offsets that a hostile sender has chosen.
func TestChecksumOutsideOfTheFirstFrame(t *testing.T) {
	arena := packet.Arena{Mem: make([]byte, 512), Shift: 9}
	d := []packet.Desc{{Off: 0, Len: 60}}
	for _, c := range [][2]int{{13, 16}, {-1, 16}, {34, 25}, {60, 0}} {
		if segment.CompleteChecksum(&arena, d, c[0], c[1]) {
			t.Errorf("checksum from %d at %d is taken", c[0], c[1])
		}
	}
	if !segment.CompleteChecksum(&arena, d, 34, 24) {
		t.Error("the last two bytes are refused")
	}
}

// TestNoTransport has packets without a transport checksum of their own.
func TestNoTransport(t *testing.T) {
	for name, spoil := range map[string]func(p []byte) []byte{
		"short":         func(p []byte) []byte { return p[:30] },
		"ARP":           func(p []byte) []byte { p[13] = 6; return p },
		"fragment":      func(p []byte) []byte { p[20] = 0x20; wire.IPv4(p[14:]).FillChecksum(); return p },
		"last fragment": func(p []byte) []byte { p[21] = 1; wire.IPv4(p[14:]).FillChecksum(); return p },
		"SCTP":          func(p []byte) []byte { p[23] = 132; wire.IPv4(p[14:]).FillChecksum(); return p },
		"header cut":    func(p []byte) []byte { return p[:40] },
		"IP too short":  func(p []byte) []byte { wire.IPv4(p[14:]).SetTotalLen(27); wire.IPv4(p[14:]).FillChecksum(); return p },
	} {
		if where, ok := segment.FindTransport(spoil(datagram(20))); ok {
			t.Errorf("%s: %+v", name, where)
		}
	}
}
