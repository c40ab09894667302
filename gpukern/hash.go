package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// DefaultHashKey is the key that Microsoft publishes with its verification vectors for receive-side
// scaling. Who fears crafted collisions gives Config.HashKey random bytes.
var DefaultHashKey = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// hasher computes Toeplitz hashes by table: one entry for each value of each of the 36 bytes that
// an IPv6 tuple has. IPv4 tuples use the first twelve rows, 12 KiB.
type hasher struct {
	row [36][256]uint32
}

// init fills the tables for key: bit i of the input, from the left, adds the 32 bits of the key
// from bit i on.
func (h *hasher) init(key *[40]byte) {
	for i := range h.row {
		window := uint64(key[i])<<32 | uint64(key[i+1])<<24 | uint64(key[i+2])<<16 | uint64(key[i+3])<<8 | uint64(key[i+4])
		for v := range 256 {
			var sum uint32
			for bit := range 8 {
				if v>>(7-bit)&1 != 0 {
					sum ^= uint32(window >> (8 - bit))
				}
			}
			h.row[i][v] = sum
		}
	}
}

// hash is the stage that writes Hash: Toeplitz over source, destination and ports, with the two
// ends put in ascending order first, so that both directions of a flow hash alike. (A key that is
// symmetric by itself repeats every 16 bits and can produce no more than 65536 different hashes.)
// Ports count where there are any, but not in fragments, so that all fragments of a datagram hash
// alike; the hash of absent ports is that of the addresses alone.
func hash(w *tuple.Chunk, b *packet.Batch, h *hasher) {
	for k := range w.N {
		d, t := &b.D[w.At[k]], &w.Tuple[k]
		if t.Known == tuple.None {
			continue
		}
		ports := t.Ports
		if d.Flags&packet.FlagFragment != 0 {
			ports = 0
		}
		if d.Flags&packet.FlagIPv4 != 0 {
			d.Hash = h.sum4(t.SrcHi|uint64(ports>>16), t.DstHi|uint64(ports&0xffff))
			continue
		}
		d.Hash = h.sum6(t, ports)
	}
}

// sum4 hashes two ends of a flow, each an address in the upper half and a port in the lower.
func (h *hasher) sum4(a, b uint64) uint32 {
	a, b = min(a, b), max(a, b)
	return h.word(0, uint32(a>>32)) ^ h.word(4, uint32(b>>32)) ^ h.word(8, uint32(a<<16)|uint32(b))
}

// sum6 is sum4 for the addresses of t.
func (h *hasher) sum6(t *tuple.Tuple, ports uint32) uint32 {
	src, dst := 0, 16
	if t.After(ports) {
		src, dst = 16, 0
		ports = ports>>16 | ports<<16
	}
	return h.quad(src, t.SrcHi) ^ h.quad(src+8, t.SrcLo) ^
		h.quad(dst, t.DstHi) ^ h.quad(dst+8, t.DstLo) ^ h.word(32, ports)
}

// word hashes four bytes of the input, the first of them at index i.
func (h *hasher) word(i int, v uint32) uint32 {
	r := h.row[i : i+4 : i+4]
	return r[0][v>>24] ^ r[1][v>>16&255] ^ r[2][v>>8&255] ^ r[3][v&255]
}

// quad hashes eight bytes of the input.
func (h *hasher) quad(i int, v uint64) uint32 {
	return h.word(i, uint32(v>>32)) ^ h.word(i+4, uint32(v))
}

// Hasher computes the hash that engines with its key write to Desc.Hash, for callers that have no packet
// yet: which loop will a flow belong to? It is 36 KiB of tables and may be shared.
type Hasher struct{ h hasher }

// NewHasher returns a Hasher. A key of all zeros is DefaultHashKey.
func NewHasher(key [40]byte) *Hasher {
	if key == ([40]byte{}) {
		key = DefaultHashKey
	}
	h := new(Hasher)
	h.h.init(&key)
	return h
}

// Flow4 returns the hash of packets between two ends over IPv4, in either direction.
func (h *Hasher) Flow4(a, b [4]byte, aPort, bPort uint16) uint32 {
	return h.h.sum4(uint64(binary.BigEndian.Uint32(a[:]))<<32|uint64(aPort), uint64(binary.BigEndian.Uint32(b[:]))<<32|uint64(bPort))
}

// Flow6 is Flow4 over IPv6.
func (h *Hasher) Flow6(a, b [16]byte, aPort, bPort uint16) uint32 {
	t := tuple.Tuple{
		SrcHi: binary.BigEndian.Uint64(a[:]), SrcLo: binary.BigEndian.Uint64(a[8:]),
		DstHi: binary.BigEndian.Uint64(b[:]), DstLo: binary.BigEndian.Uint64(b[8:]),
	}
	return h.h.sum6(&t, uint32(aPort)<<16|uint32(bPort))
}
