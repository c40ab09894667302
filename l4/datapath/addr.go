package datapath

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/wire"
)

// addr is an IPv4 or IPv6 address as two words, the form in which keys are compared and hashed. IPv4 addresses
// stand in their IPv6 form, ::ffff:a.b.c.d (RFC 4291 2.5.5.2), which no packet may carry. wire.Addr has the
// same 16 bytes, but lives in memory: a key made of it and hashed takes twice as long (50 ns against 26), because
// the words are loaded right after they were stored in pieces.
type addr struct{ hi, lo uint64 }

const mapped = 0xffff << 32

func addr4(b []byte) addr { return addr{0, mapped | uint64(binary.BigEndian.Uint32(b))} }

func addr6(b []byte) addr {
	return addr{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

func addrOf(a netip.Addr) addr {
	b := a.As16()
	return addr6(b[:])
}

func (a addr) is4() bool { return a.hi == 0 && a.lo>>32 == 0xffff }

// put writes the address in the form of the header that b lies in: 4 or 16 bytes.
func (a addr) put(b []byte) {
	if len(b) == 4 {
		binary.BigEndian.PutUint32(b, uint32(a.lo))
		return
	}
	binary.BigEndian.PutUint64(b, a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
}

func (a addr) as4() (b [4]byte)   { a.put(b[:]); return b }
func (a addr) as16() (b [16]byte) { a.put(b[:]); return b }

// pseudo returns the sum of the pseudo header of n bytes of proto from a to b.
func (a addr) pseudo(b addr, proto uint8, n int) uint32 {
	return wire.PseudoHeader(a.as16(), b.as16(), proto, uint32(n))
}

// Addr returns the address as the rest of the world knows it.
func (a addr) Addr() netip.Addr {
	var b [16]byte
	a.put(b[:])
	return netip.AddrFrom16(b).Unmap()
}

// diff returns what a checksum over a changes by when b takes its place (RFC 1624). The 0xffff of
// the IPv4 form is a zero in ones' complement, so IPv4 addresses need no case of their own.
func (a addr) diff(b addr) uint16 {
	return wire.AddDiff(diff64(a.hi, b.hi), diff64(a.lo, b.lo))
}

func diff64(a, b uint64) uint16 {
	return wire.AddDiff(wire.Diff32(uint32(a>>32), uint32(b>>32)), wire.Diff32(uint32(a), uint32(b)))
}

// martian reports whether no packet may come from the address.
func (a addr) martian() bool { return wire.Addr(a.as16()).Martian() }

// mum is the mixing step of all hashes here: the two halves of a 128-bit product, folded.
func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// hashKey keys a hash. The table's key is random, so that an attacker cannot choose packets that collide; the
// key of the selection is the same everywhere, so that gateways agree; a configuration may have a secret one, see
// SelectionKey.
type hashKey [3]uint64

func newHashKey(seed *random.Source) hashKey {
	return hashKey{seed.Uint64(), seed.Uint64(), seed.Uint64()}
}

// selection is the key of the hash that picks a slot of a Maglev table: digits of pi. Changing it
// moves flows between gateways of different versions.
var selection = hashKey{0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0}

// sum hashes an address and a word.
func (k *hashKey) sum(a addr, w uint64) uint64 {
	h := mum(a.hi^k[0], a.lo^k[1])
	return mum(h^w, k[2]^bits.RotateLeft64(w, 32)^k[0])
}
