package gpukern_test

import (
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TestSinglePacketsAtTheEdgeOfARule are packets that chance makes too seldom, with what the sentences
// of parse.go say about them.
func TestSinglePacketsAtTheEdgeOfARule(t *testing.T) {
	ether := func(b ...byte) []byte { return append(append(make([]byte, 12), 8, 0), b...) }
	ip := func(proto, size byte, payload ...byte) []byte {
		h := []byte{0x45, 0, 0, size, 0, 0, 0, 0, 64, proto, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2}
		sum := wire.Fold(wire.SumPlain(h, 0))
		h[10], h[11] = byte(sum>>8), byte(sum)
		return ether(append(h, payload...)...)
	}
	kernel := newHeadersKernel(t, "gk_headers", Tables{}, new([40]byte))
	const v4 = packet.FlagIPv4 | packet.FlagIPChecksumOK
	for _, tc := range []struct {
		name  string
		p     []byte
		flags packet.Flags
		l4    uint16
	}{
		{"UDP of 7 bytes", ip(wire.ProtoUDP, 28, 0, 1, 0, 2, 0, 7, 0, 0), v4 | packet.FlagMalformed, 0},
		{"UDP of 8 bytes", ip(wire.ProtoUDP, 28, 0, 1, 0, 2, 0, 8, 0, 0), v4 | packet.FlagL4NoChecksum, 34},
		{"ICMP of nothing but zeros", ip(wire.ProtoICMP, 28, make([]byte, 8)...), v4, 34},
		{"ICMP with the checksum of zeros", ip(wire.ProtoICMP, 28, 0, 0, 0xff, 0xff, 0, 0, 0, 0), v4 | packet.FlagL4ChecksumOK, 34},
		{"one byte of IPv4, header of 4 words", ether(0x44), packet.FlagMalformed, 0},
		{"one byte of IPv4, header of 5 words", ether(0x45), packet.FlagTruncated, 0},
		{"nothing behind Ethernet", ether(), packet.FlagTruncated, 0},
		{"an IPv4 packet of 19 bytes", ip(wire.ProtoUDP, 19), packet.FlagMalformed, 0},
		{"an IPv4 packet of 20 bytes", ip(wire.ProtoESP, 20), v4, 0},
		{"an IPv4 packet of 21 bytes", ip(wire.ProtoESP, 21, 1), v4, 34},
		{"an IPv4 packet of 21 bytes, one missing", ip(wire.ProtoESP, 21), v4 | packet.FlagTruncated, 0},
	} {
		c, b := NewCPU(Config{}), kernref.BatchOf(kernref.One(tc.p))
		kernel.same(t, b, OpsHeader, kernref.Lists{})
		agree(t, b, c, kernref.Lists{})
		if d := &b.D[0]; d.Flags != tc.flags || d.L4 != tc.l4 {
			t.Errorf("%s: flags %#04x, L4 %d; want %#04x, %d", tc.name, d.Flags, d.L4, tc.flags, tc.l4)
		}
	}
}

// An empty packet may begin where the arena ends: nothing is loaded there, and the packets before it are read as ever.
func TestEmptyPacketAtTheEndOfTheArena(t *testing.T) {
	full := kernref.BatchOf(kernref.One(make([]byte, 60)))
	b := &packet.Batch{Arena: full.Arena, D: []packet.Desc{full.D[0], {Off: uint32(len(full.Arena.Mem))}}}
	c := NewCPU(Config{Ops: OpParse})
	if err := c.Submit(b); err != nil {
		t.Fatal(err)
	}
	if b.D[0].L3 != 14 || b.D[1].L3 != 0 {
		t.Errorf("L3 at %d and %d, want 14 and 0", b.D[0].L3, b.D[1].L3)
	}
}
