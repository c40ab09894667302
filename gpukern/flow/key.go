package flow

import (
	"math/bits"
	"net/netip"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
)

// key identifies a flow: its two ends in ascending order (after), and rest. Flows of one end
// with itself have only one direction.
//
//	rest: port of a << 48 | port of b << 32 | protocol << 16 | IPv4 << 8 | known
//
// The family has a bit, because the words of an IPv4 address may be those of an IPv6 address too.
type key struct {
	aHi, aLo, bHi, bLo uint64
	rest               uint64
}

// set fills k for a packet with flags f and returns its direction: 1 when the source is end b. The
// ports of a fragment do not count, so that all fragments of a datagram are of one flow.
func (k *key) set(t *tuple.Tuple, f packet.Flags) (direction uint32) {
	var ports uint32
	rest := uint64(t.Proto)<<16 | uint64(tuple.Addresses)
	if t.Known == tuple.Ports && f&packet.FlagFragment == 0 {
		ports = t.Ports
		rest += uint64(tuple.Ports - tuple.Addresses)
	}
	if f&packet.FlagIPv4 != 0 {
		rest |= 1 << 8
	}
	if t.After(ports) {
		direction = 1
	}
	// Directions come at random: both take the same instructions.
	swap := -uint64(direction)
	hi, lo := (t.SrcHi^t.DstHi)&swap, (t.SrcLo^t.DstLo)&swap
	k.aHi, k.aLo, k.bHi, k.bLo = t.SrcHi^hi, t.SrcLo^lo, t.DstHi^hi, t.DstLo^lo
	k.rest = rest | uint64(bits.RotateLeft32(ports, int(16*direction)))<<32
	return direction
}

// ends returns the two ends, with port 0 where ports are not known.
func (k *key) ends() (a, b netip.AddrPort) {
	v4 := k.rest>>8&1 != 0
	return netip.AddrPortFrom(tuple.Addr(v4, k.aHi, k.aLo), uint16(k.rest>>48)),
		netip.AddrPortFrom(tuple.Addr(v4, k.bHi, k.bLo), uint16(k.rest>>32))
}

// hasher hashes keys of flows with ten secret words, so that a sender who does not know them
// cannot choose flows that collide: NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and
// Secure Message Authentication", 1999), under which two given keys have the same sum with probability
// 2^-32 over the secrets, and then a finalizer that spreads the sum over all bits.
type hasher [10]uint32

// seeded returns a hasher for a seed.
func (h *hasher) seeded(seed uint64) {
	src := random.Source(seed)
	for i := range h {
		h[i] = uint32(src.Uint64() >> 32)
	}
}

// sum hashes k. Multiplications of 32 bits, because GPUs have no others.
func (h *hasher) sum(k *key) uint64 {
	s := h.pair(0, k.aHi) + h.pair(2, k.aLo) + h.pair(4, k.bHi) + h.pair(6, k.bLo) + h.pair(8, k.rest)
	return random.Mix(s)
}

func (h *hasher) pair(i int, v uint64) uint64 {
	return uint64(uint32(v)+h[i]) * uint64(uint32(v>>32)+h[i+1])
}
