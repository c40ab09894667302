package gpukern

import (
	"net/netip"
	"sync"
)

// Tuple is what the rules of one packet are looked up by.
type Tuple = tuple

// NewTuple returns the tuple of a packet whose ports are known. Both addresses are of one family.
func NewTuple(src, dst netip.AddrPort, proto uint8) Tuple {
	t := tuple{proto: proto, known: knowsPorts, ports: uint32(src.Port())<<16 | uint32(dst.Port())}
	t.srcHi, t.srcLo = words(src.Addr())
	t.dstHi, t.dstLo = words(dst.Addr())
	return t
}

// Match stores in rules the number of the first rule that matches each packet, 0 for none. All packets
// are IPv4, or all are IPv6. It is what engines do, for callers that have no packets.
func (a *ACL) Match(packets []Tuple, v4 bool, rules []uint16) {
	f := a.of(v4)
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	var best [chunkSize]uint16
	for len(packets) > 0 {
		n := min(len(packets), chunkSize)
		f.match(m, packets[:n], everyone[:n], &best)
		for i, place := range best[:n] {
			rules[i] = place + 1
		}
		packets, rules = packets[n:], rules[n:]
	}
}

// matchers are for calls that come from anywhere; engines have their own.
var matchers = sync.Pool{New: func() any { return new(matcher) }}

// everyone is all packets of a chunk.
var everyone = func() (all [chunkSize]uint8) {
	for i := range all {
		all[i] = uint8(i)
	}
	return all
}()

// Lookup4 stores in hops the next hop of each IPv4 address, 0 for none.
func (t *LPM) Lookup4(addrs []uint32, hops []uint16) {
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	w := &m.walk
	for len(addrs) > 0 {
		n := min(len(addrs), chunkSize)
		for i, a := range addrs[:n] {
			w.x[i] = uint64(a) << 32
		}
		copy(hops[:n], t.lookup(w, true, n)[:])
		addrs, hops = addrs[n:], hops[n:]
	}
}

// Lookup6 stores in hops the next hop of each IPv6 address, which is two words, 0 for none.
func (t *LPM) Lookup6(addrs [][2]uint64, hops []uint16) {
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	w := &m.walk
	for len(addrs) > 0 {
		n := min(len(addrs), chunkSize)
		for i, a := range addrs[:n] {
			w.x[i], w.lo[i] = a[0], a[1]
		}
		copy(hops[:n], t.lookup(w, false, n)[:])
		addrs, hops = addrs[n:], hops[n:]
	}
}
