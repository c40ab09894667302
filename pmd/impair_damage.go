package pmd

import (
	"slices"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const maxCorruptBits = 64

// flip inverts CorruptBits different bits of the packet, or all of a shorter one.
func (l *link) flip(d []packet.Desc) {
	_, bytes := packet.Count(d)
	total := bytes * 8
	if total == 0 {
		return
	}
	l.count.corrupted.Add(1)
	var done [maxCorruptBits]uint64
	for i := range min(uint64(l.CorruptBits), total) {
		bit := l.random.Uint64N(CauseBits, total)
		for slices.Contains(done[:i], bit) {
			bit = (bit + 1) % total
		}
		done[i] = bit
		l.flipBit(d, bit)
	}
}

func (l *link) flipBit(d []packet.Desc, bit uint64) {
	for i := range d {
		if n := uint64(d[i].Len) * 8; bit >= n {
			bit -= n
			continue
		}
		l.arena.Bytes(&d[i])[bit/8] ^= 1 << (bit % 8)
		return
	}
}

// markCE sets Congestion Experienced in an ECN-capable IPv4 or IPv6 packet behind Ethernet and its
// tags (RFC 3168 5, 23.1) and reports whether it did. A packet that says Not-ECT, or CE already, is
// left as it is.
func markCE(b []byte) bool {
	etherType, off, ok := wire.Network(b)
	if !ok {
		return false
	}
	switch p := b[off:]; etherType {
	case wire.EtherTypeIPv4:
		return wire.IPv4(p).ValidHeader() && wire.IPv4(p).MarkCE()
	case wire.EtherTypeIPv6:
		return wire.IPv6(p).ValidHeader() && wire.IPv6(p).MarkCE()
	}
	return false
}
