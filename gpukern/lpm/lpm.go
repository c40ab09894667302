// Package lpm finds the longest prefix of an address, in routing tables and for the address fields of
// package acl. One trie serves both, and the kernels on a GPU, which read the same arrays. Engines look up a
// chunk of addresses at once (Walk), so that the reads of many are under way together.
package lpm

import (
	"fmt"
	"math"
	"net/netip"
	"sync"

	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/tuple"
)

// Route sends the addresses of a prefix to a next hop.
type Route struct {
	Prefix  netip.Prefix // IPv4 or IPv6, without bits beyond its length
	NextHop uint16       // from 1; what the number means is the caller's affair
}

// Table is a compiled routing table: longest prefix match over IPv4 and IPv6. It is immutable and may
// be shared by engines. The zero value finds nothing.
type Table struct {
	v4, v6 Trie[uint16]
	direct []uint16 // of many IPv4 routes: see fillDirect
	deep6  bool     // IPv6 routes are longer than 64 bits
	n      int
}

// A table of at least directRoutes IPv4 routes has a direct form too, in 32 MiB: next hops by the first 24
// bits of the address, after Gupta, Lin and McKeown's DIR-24-8 (INFOCOM 1998). One read answers where the
// trie takes two or three and counts bits: twice as fast with ten thousand routes, and never slower. Smaller
// tables are not worth the memory. What it cannot say, it leaves to the trie.
const (
	directRoutes = 10_000
	directBits   = 24
	askTrie      = 1 << 15 // the route is longer, or its next hop does not fit
)

// fillDirect makes the direct form of routes in order.
func (t *Table) fillDirect(all []Prefix) {
	t.direct = make([]uint16, 1<<directBits)
	for i := range all {
		r := &all[i]
		val, first, n := uint16(r.Val), r.Hi>>(64-directBits), 1
		if r.Bits <= directBits {
			n = 1 << (directBits - r.Bits)
		}
		if r.Bits > directBits {
			val = askTrie // a next hop that does not fit has the bit itself
		}
		for k := range t.direct[first:][:n] {
			t.direct[int(first)+k] = val
		}
	}
}

// RouteError reports which route cannot be compiled, and why.
type RouteError struct {
	N      int // which, counted from 1
	Reason string
}

// Error implements error.
func (e *RouteError) Error() string { return fmt.Sprintf("route %d: %s", e.N, e.Reason) }

// Compile compiles routes; their order means nothing. The error is a *RouteError that names the
// first route in the way: a prefix that is not valid or occurs twice, or a next hop of 0.
func Compile(routes []Route) (*Table, error) {
	n4 := 0
	for _, r := range routes {
		if r.Prefix.Addr().Is4() {
			n4++
		}
	}
	v4, v6 := make([]Prefix, 0, n4), make([]Prefix, 0, len(routes)-n4)
	for i, r := range routes {
		if reason := CheckPrefix(r.Prefix); reason != "" {
			return nil, &RouteError{i + 1, reason}
		}
		if r.NextHop == 0 {
			return nil, &RouteError{i + 1, "next hop 0 means none; count from 1"}
		}
		one := Prefix{N: uint32(i), Val: uint32(r.NextHop), Bits: uint8(r.Prefix.Bits())}
		one.Hi, one.Lo = tuple.Words(r.Prefix.Addr())
		if r.Prefix.Addr().Is4() {
			v4 = append(v4, one)
		} else {
			v6 = append(v6, one)
		}
	}
	Sort(v4)
	Sort(v6)
	if n := min(firstTwice(v4), firstTwice(v6)); n < len(routes) {
		return nil, &RouteError{n + 1, fmt.Sprintf("%v is there already", routes[n].Prefix)}
	}
	t := &Table{v4: Build[uint16](v4, FirstRow), v6: Build[uint16](v6, FirstRow), n: len(routes)}
	t.deep6 = longest(v6) > 64
	if len(v4) >= directRoutes {
		t.fillDirect(v4)
	}
	return t, nil
}

// firstTwice returns the first place in the caller's list of a prefix that stands before it too; sorted
// is in order. A place that no list has says that there is none.
func firstTwice(sorted []Prefix) int {
	first := math.MaxInt
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Same(&sorted[i-1]) {
			first = min(first, int(sorted[i].N))
		}
	}
	return first
}

// CheckPrefix returns what is wrong with p, "" where nothing is.
func CheckPrefix(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "the prefix is not valid"
	case p != p.Masked():
		return fmt.Sprintf("%v has bits beyond its length; %v is meant", p, p.Masked())
	}
	return ""
}

// Lookup returns the next hop of a, 0 where no route has it. An IPv4 address in IPv6 form is an
// IPv6 address here, as it is in packets.
func (t *Table) Lookup(a netip.Addr) uint16 {
	hi, lo := tuple.Words(a)
	if a.Is4() {
		return t.v4.Find(hi, lo)
	}
	return t.v6.Find(hi, lo)
}

// LookupWords is Lookup for an address of 128 bits in two words; an IPv4 address (v4 is true) lies in
// the upper half of hi.
func (t *Table) LookupWords(hi, lo uint64, v4 bool) uint16 {
	if v4 {
		return t.v4.Find(hi, lo)
	}
	return t.v6.Find(hi, lo)
}

// Lookup4 stores in hops the next hop of each IPv4 address, 0 for none.
func (t *Table) Lookup4(addrs []uint32, hops []uint16) {
	t.lookupAll(true, hops[:len(addrs)], func(w *Walk, from, n int) {
		for i, a := range addrs[from:][:n] {
			w.X[i] = uint64(a) << 32
		}
	})
}

// Lookup6 stores in hops the next hop of each IPv6 address, which is two words, 0 for none.
func (t *Table) Lookup6(addrs [][2]uint64, hops []uint16) {
	t.lookupAll(false, hops[:len(addrs)], func(w *Walk, from, n int) {
		for i, a := range addrs[from:][:n] {
			w.X[i], w.Lo[i] = a[0], a[1]
		}
	})
}

// lookupAll fills hops chunk by chunk: load writes the n addresses from one on into the walk.
func (t *Table) lookupAll(v4 bool, hops []uint16, load func(w *Walk, from, n int)) {
	w := walks.Get().(*Walk)
	defer walks.Put(w)
	for from := 0; from < len(hops); from += tuple.ChunkSize {
		part := hops[from:min(from+tuple.ChunkSize, len(hops))]
		load(w, from, len(part))
		copy(part, t.LookupChunk(w, v4, len(part))[:])
	}
}

// walks are for calls that come from anywhere; engines have their own.
var walks = sync.Pool{New: func() any { return new(Walk) }}

// Len returns the number of routes.
func (t *Table) Len() int { return t.n }

// Size returns the memory that the table takes, in bytes.
func (t *Table) Size() int { return t.v4.Size() + t.v6.Size() + 2*len(t.direct) }

// Images returns the routes of IPv4 and of IPv6 for kernels: a struct gk_lpm each. The memory is t's;
// a nil table finds nothing.
func (t *Table) Images() (v4, v6 image.Image) {
	if t == nil {
		t = new(Table)
	}
	return lpmImage(&t.v4), lpmImage(&t.v6)
}

func lpmImage(t *Trie[uint16]) image.Image {
	var m image.Image
	t.Arrays(&m)
	m.U32(uint32(t.wide))
	m.U32(0)
	return m
}
