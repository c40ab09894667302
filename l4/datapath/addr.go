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

// noAddr is a multicast address that is no group's. It stands for an IPv4-mapped address in an IPv6 header, which must
// not be taken for the IPv4 address (RFC 4942 2.2): nothing is found by it, and as a source it is a martian.
var noAddr = addr{^uint64(0), ^uint64(0)}

// wireAddr6 returns an address of an IPv6 header.
func wireAddr6(b []byte) addr {
	if a := addr6(b); !a.is4() {
		return a
	}
	return noAddr
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

// A packet from outside whose source is an address of the gateway is forged, or came back by a loop of routes. A reply to
// it returns to the gateway and is forwarded again: one datagram with the source of a service circulates for ever. RFC
// 1812 5.3.7 has routers drop such packets, which Linux calls martians.
//
// A martian opens no connection and gets no answer. So the test is made where no connection is known, and before answers
// and ICMP errors. A packet of a known connection needs none: its source was tested when the connection opened, and is
// tested again when the own addresses have changed (Sources.Mark).

// SetOwn enters the addresses that only the gateway itself sends from: service and SNAT addresses, those that connections
// still have included, and machine, the addresses of the kernel and of a host in the same process. broadcasts are the
// directed broadcasts of their networks, which no host sends from (RFC 1122 3.2.1.3).
func (s *Snapshot) SetOwn(machine, broadcasts map[netip.Addr]bool) {
	var all []indexSlot
	add := func(a addr) { all = append(all, indexSlot{a, tagOf(kindLocal, 0, 0), 0}) }
	for i := range s.VIPs {
		if v := &s.VIPs[i]; !v.Free() {
			add(v.addr)
		}
	}
	for _, a := range s.SNATs() {
		add(addrOf(a))
	}
	for _, set := range []map[netip.Addr]bool{machine, broadcasts} {
		for a := range set {
			add(addrOf(a))
		}
	}
	s.own = newIndex(all)
}

// martian reports whether no packet from outside has an honest source a.
func (s *Snapshot) martian(a addr) bool {
	if _, own := s.own.find(a, tagOf(kindLocal, 0, 0)); own {
		return true
	}
	return a.martian() || s.Tunnel.holds(a)
}
