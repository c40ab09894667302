package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fill is the stage that writes checksums into packets, where the checksum stage would verify them.
func fill(w *tuple.Chunk, b *packet.Batch) {
	for k := range w.N {
		d, t := &b.D[w.At[k]], &w.Tuple[k]
		f := d.Flags
		if f&(packet.FlagMalformed|packet.FlagTruncated) != 0 {
			continue
		}
		p := b.Arena.Bytes(d)
		if f&packet.FlagIPv4 != 0 {
			fillHeader(p[d.L3:])
			f |= packet.FlagIPChecksumOK
		}
		if f&packet.FlagTunnel != 0 && t.Outer != 0 {
			fillHeader(p[t.Outer:])
			f |= packet.FlagIPChecksumOK
		}
		if d.Payload != 0 && f&packet.FlagFragment == 0 && t.Proto != wire.ProtoSCTP {
			if f&packet.FlagOffload == 0 {
				fillTransport(b, int(w.At[k]), t)
			}
			f |= packet.FlagL4ChecksumOK
		}
		d.Flags = f
	}
}

// fillHeader writes the checksum of the IPv4 header at the start of h.
func fillHeader(h []byte) {
	h[10], h[11] = 0, 0
	binary.LittleEndian.PutUint16(h[10:], ^fold(headerSum(h)))
}

// fillTransport writes the transport checksum of the packet whose first descriptor is i.
func fillTransport(b *packet.Batch, i int, t *tuple.Tuple) {
	d := &b.D[i]
	l4 := b.Arena.Bytes(d)[d.L4:]
	field := l4[checksumAt(t.Proto):][:2]
	field[0], field[1] = 0, 0
	n := covered(t, d, l4)
	acc := pseudo(t, n)
	if d.Flags&packet.FlagMore == 0 {
		acc += sum(l4[:n])
	} else {
		acc += sumChain(b, i, n)
	}
	c := ^fold(acc)
	if c == 0 && t.Proto == wire.ProtoUDP {
		c = 0xffff // RFC 768: 0 means that there is none
	}
	binary.LittleEndian.PutUint16(field, c)
}

// checksumAt returns where in its header a transport has the checksum.
func checksumAt(proto uint8) int {
	switch proto {
	case wire.ProtoTCP:
		return 16
	case wire.ProtoUDP:
		return 6
	}
	return 2 // ICMP, ICMPv6
}

// fold reduces a sum to sixteen bits; it is 0 only where all that was added up is 0.
func fold(s uint64) uint16 {
	if r := s % 0xffff; r != 0 || s == 0 {
		return uint16(r)
	}
	return 0xffff
}
