package datapath

import (
	"unsafe"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A prefetcher overlaps the cache misses of a window of packets. With many connections a packet costs
// two or three misses, each depending on the one before: its slot in the index, its connection, what the
// connection refers to. Deciding packet by packet would wait for each of them in turn. So the handler
// prefetches in steps, each for all packets of the window: the slots, the connections and, where there are many
// backends, the backend, endpoint, counters and VIP of each connection. Only then does it decide. The lines of a
// step are asked for a group at a time, so that they come while the step goes on with the next group.
//
// What a packet is for or from is certain, since neither its bytes nor the snapshot change before it is decided on. Its
// connection is a hint, never a decision: packets of the same window open and end connections, so byClient and
// byBackend compare the full key before they use it.
type prefetcher struct {
	from    int            // number of connections from which on prefetching pays
	lookups [window]lookup // by packet
	found   [window]*lookup
	lines   [refers * window]uintptr
}

// lookup holds the results of look-ups of a packet before it is decided on.
type lookup struct {
	known  bool   // the rest is valid: a packet of the fast path, for a service address or from an endpoint
	side   uint8  // as in a slot: 0 client's, 1 backend's
	snat   uint16 // backend's side: the SNAT address that it is for; 0 is none
	number uint32 // of the service address that it is for, or of the endpoint that it is from
	hash   uint32 // of the key by which the table finds its connection
	conn   int32  // a connection with that hash; -1 is none
	tcp    bool
	view   view // of the packet, for its decision
}

// notLookedUp is the lookup of packets that are decided on without prefetching.
var notLookedUp lookup

// window is the number of packets that are prefetched together: more than the misses that a core keeps in flight
// (10 to 16 line-fill buffers), and so few that the lines are still in the first-level cache when used.
const window = 64

// group is the number of lines that are asked for at once, a power of two: about as many misses as a core keeps in flight.
const group = 16

// fewBackends is the number of backends up to which the first-level cache holds what connections refer to.
const fewBackends = 64

// manyConns is the default of Options.PrefetchFrom: the caches hold a table with fewer connections.
const manyConns = 1024

// lookedUp returns what is known of packet i. At the first packet of a window it prefetches for all.
func (h lookups) lookedUp(ds []packet.Desc, i int) *lookup {
	if !canPrefetch || h.table.live < h.prefetcher.from {
		return &notLookedUp
	}
	if i%window == 0 {
		h.prefetchBatch(ds[i:min(i+window, len(ds))])
	}
	return &h.prefetcher.lookups[i%window]
}

// prefetchBatch looks the given packets up, and prefetches the memory that deciding on them needs.
func (h lookups) prefetchBatch(ds []packet.Desc) {
	if len(h.snap.keys.slots) > manyKeys {
		h.prefetchKeys(ds)
	}
	n := h.prefetchSlots(ds)
	found := h.prefetchConns(n)
	if len(h.snap.Backends) > fewBackends {
		h.prefetchReferences(found)
	}
	if n > found {
		h.prefetchVictims(n - found)
	}
}

// prefetchSlots looks packets up and prefetches the slot of each that is known. It returns how many these are, the first
// ones of prefetcher.found.
func (h lookups) prefetchSlots(ds []packet.Desc) (n int) {
	a, t := &h.prefetcher, h.table
	for i := range ds {
		l := &a.lookups[i]
		h.lookup(&ds[i], l)
		if !l.known {
			continue
		}
		a.found[n] = l
		a.lines[n%group] = uintptr(unsafe.Pointer(&t.index[l.hash&t.mask]))
		if n++; n%group == 0 {
			prefetch(&a.lines[0], group)
		}
	}
	prefetch(&a.lines[0], n%group)
	return n
}

// prefetchConns prefetches the connections of the first n packets of prefetcher.found. It returns how many have one, and
// leaves only those there.
func (h lookups) prefetchConns(n int) (found int) {
	a, t := &h.prefetcher, h.table
	lines := 0
	for _, l := range a.found[:n] {
		l.conn = int32(t.candidate(l.hash, uint64(l.side)))
		if l.conn < 0 {
			continue
		}
		a.found[found] = l
		found++
		a.lines[lines] = uintptr(unsafe.Pointer(&t.conns[l.conn]))
		lines++
		if l.tcp {
			a.lines[lines] = uintptr(unsafe.Pointer(&t.sequences[l.conn]))
			lines++
		}
		if lines >= group {
			prefetch(&a.lines[0], lines)
			lines = 0
		}
	}
	prefetch(&a.lines[0], lines)
	return found
}

// prefetchReferences prefetches what the connections of the first n packets of prefetcher.found refer to.
func (h lookups) prefetchReferences(n int) {
	a := &h.prefetcher
	for i, l := range a.found[:n] {
		c := &h.table.conns[l.conn]
		front, _ := h.snap.vip(c.vip)
		to, _ := h.snap.endpoint(c.endpoint)
		line := a.lines[refers*i:]
		line[0] = uintptr(unsafe.Pointer(h.snap.Backends[c.backend]))
		line[1] = uintptr(unsafe.Pointer(to))
		line[2] = uintptr(unsafe.Pointer(&h.tallies[c.backend]))
		line[3] = uintptr(unsafe.Pointer(front))
	}
	prefetch(&a.lines[0], refers*n)
}

// prefetchVictims prefetches what evicting half-open connections needs, as n new ones of the window will where the budget
// is used up, or the ports of a pair are: the connections, which the new ones take the place of, and the slots of both
// their sides. Which pair a new connection will be of is not known yet. It is taken to be the one that was short last.
func (h lookups) prefetchVictims(n int) {
	a, t := &h.prefetcher, h.table
	by, oldest := byAge, t.halfOpen.all.oldest
	if !t.halfOpen.full() {
		m := h.ports.list[h.ports.short]
		if m == nil || m.free > 0 {
			return
		}
		by, oldest = byPair, m.half.oldest
	}
	lines := 0
	for s := oldest; s != 0 && lines < victimLines*n; lines += victimLines {
		v := &t.halfOpen.slots[s]
		a.lines[lines] = uintptr(unsafe.Pointer(&t.conns[v.conn]))
		a.lines[lines+1] = uintptr(unsafe.Pointer(&t.sequences[v.conn]))
		a.lines[lines+2] = uintptr(unsafe.Pointer(&t.index[v.hashes[0]&t.mask]))
		a.lines[lines+3] = uintptr(unsafe.Pointer(&t.index[v.hashes[1]&t.mask]))
		s = v.links[by].newer
	}
	prefetch(&a.lines[0], lines)
}

// prefetchBackendSlot prefetches the slot of the backend's side that a new connection will take. What is left to do
// before the connection is entered hides most of the miss.
func (h lookups) prefetchBackendSlot(c *Conn) {
	if !canPrefetch || h.table.live < h.prefetcher.from {
		return
	}
	key := c.backendKey()
	line := uintptr(unsafe.Pointer(&h.table.index[h.table.hashBackend(&key)&h.table.mask]))
	prefetch(&line, 1)
}

// refers is the number of cache lines prefetched of those that a connection refers to.
const refers = 4

// victimLines is the number of lines prefetched of a connection that will be evicted: not more than refers.
const victimLines = 4

// prefetchCounters prefetches the counters that publish adds to. They are atomic, and atomic adds do not
// overlap their misses.
func (h lookups) prefetchCounters() {
	if !canPrefetch || len(h.touched) <= 8 {
		return
	}
	for rest := h.touched; len(rest) > 0; {
		n := min(len(rest), len(h.prefetcher.lines))
		for i, id := range rest[:n] {
			h.prefetcher.lines[i] = h.stats[id].Addr()
		}
		prefetch(&h.prefetcher.lines[0], n)
		rest = rest[n:]
	}
}

// manyKeys is the number of slots up to which the caches hold the index of addresses.
const manyKeys = 2048

// prefetchKeys prefetches the slots of the service addresses that packets may be for: with thousands of
// services this index does not stay in the cache either.
func (h lookups) prefetchKeys(ds []packet.Desc) {
	x, n := &h.snap.keys, 0
	for i := range ds {
		if d := &ds[i]; onFastPath(d) {
			var v view
			v.read(d, h.arena.Bytes(d))
			at := selection.sum(v.dst, uint64(tagOf(kindVIP, v.dport, d.Proto))) & x.mask
			h.prefetcher.lines[n] = uintptr(unsafe.Pointer(&x.slots[at]))
			n++
		}
	}
	prefetch(&h.prefetcher.lines[0], n)
}

// ipPacket are the flags of which a prefetched packet has one.
const ipPacket = packet.FlagIPv4 | packet.FlagIPv6

// onFastPath reports whether d is a complete TCP or UDP packet without options, tag or fragmentation: its
// addresses and ports stand where the descriptor says, and nothing else decides.
func onFastPath(d *packet.Desc) bool {
	return d.Flags&(slowPath|packet.FlagFragment) == 0 && d.Flags&ipPacket != 0 && d.L4 != 0 &&
		(d.Proto == wire.ProtoTCP || d.Proto == wire.ProtoUDP)
}

// lookup says of a packet what its addresses and ports lead to, and keeps its view. It mirrors route, inbound and outbound, which decide.
func (h lookups) lookup(d *packet.Desc, l *lookup) {
	l.known = false
	if !onFastPath(d) {
		return
	}
	v := &l.view
	*v = view{}
	v.read(d, h.arena.Bytes(d))
	l.tcp = d.Proto == wire.ProtoTCP
	if front, ok := h.snap.findVIP(v.dst, v.dport, d.Proto); ok {
		l.known, l.side, l.snat, l.number, l.hash = true, 0, 0, front, h.table.hashClient(&clientKey{v.src, front, v.sport})
		return
	}
	from, snat, ok := h.findEndpoint(v)
	if !ok {
		return
	}
	key := replyKey(v, from, snat)
	l.known, l.side, l.snat, l.number, l.hash = true, 1, snat, from, h.table.hashBackend(&key)
}

// candidate returns a connection with the hash on a side, -1 when there is none.
func (t *table) candidate(h uint32, side uint64) int {
	for i := h & t.mask; t.index[i] != 0; i = (i + 1) & t.mask {
		if s := t.index[i]; uint32(s>>32) == h && s&1 == side {
			return slotConn(s)
		}
	}
	return -1
}

// serviceAddress returns the number of the service address that a packet is for, false when it is for none.
func (h lookups) serviceAddress(v *view) (uint32, bool) {
	if l := h.looked; l.known {
		return l.number, l.side == 0
	}
	return h.snap.findVIP(v.dst, v.dport, v.d.Proto)
}

// endpoint returns the endpoint that a packet is from, false when it is from none, and the SNAT address that it is
// for, 0 when it is for none.
func (h lookups) endpoint(v *view) (from uint32, snat uint16, ok bool) {
	if l := h.looked; l.known {
		return l.number, l.snat, true
	}
	return h.findEndpoint(v)
}

// findEndpoint is endpoint of a packet that has not been looked up.
func (h lookups) findEndpoint(v *view) (from uint32, snat uint16, ok bool) {
	to, _ := h.snap.keys.find(v.dst, tagOf(kindSNAT, 0, 0)) // there is no number 0
	from, ok = h.snap.findEndpoint(v.src, v.sport, v.d.Proto)
	return from, uint16(to), ok
}

// byClient returns the connection that k, the key of the packet, belongs to, -1 when there is none, and the hash of k.
func (h lookups) byClient(k *clientKey) (n int, hash uint32) {
	l := h.looked
	if !l.known || l.side != 0 {
		hash = h.table.hashClient(k)
		return h.table.findClient(k, hash), hash
	}
	if l.conn >= 0 {
		if c := &h.table.conns[l.conn]; c.state != stateFree && c.isClient(k) {
			return int(l.conn), l.hash
		}
	}
	return h.table.findClient(k, l.hash), l.hash
}

// byBackend returns the connection that k, the key of the packet, belongs to, -1 when there is none.
func (h lookups) byBackend(k *backendKey) int {
	l := h.looked
	if !l.known || l.side != 1 {
		return h.table.byBackend(k)
	}
	if l.conn >= 0 {
		if c := &h.table.conns[l.conn]; c.state != stateFree && c.isBackend(k) {
			return int(l.conn)
		}
	}
	return h.table.findBackend(k, l.hash)
}
