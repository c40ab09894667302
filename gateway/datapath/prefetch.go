package datapath

import (
	"unsafe"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// A prefetcher overlaps the cache misses of a window of packets. With many connections a packet costs
// two or three misses, each depending on the one before: its slot in the index, its connection, what the
// connection refers to. Deciding packet by packet would wait for each of them in turn. So the handler
// prefetches in three steps, each for all packets of the window: the slots, the connections, the backend,
// endpoint, counters and VIP of each connection. Only then does it decide.
//
// A candidate is a hint, never a decision: packets of the same window open and end connections, so byClient
// and byBackend compare the full key before they use it.
type prefetcher struct {
	from       int           // number of connections from which on prefetching pays
	candidates [window]int32 // by packet: the connection that it may belong to; -1 is none
	lines      [refers * window]uintptr
	lookups    [window]lookup
	victims    [window]uint32 // connections that will be evicted
}

// lookup is a packet that may belong to a connection: with this hash, on this side.
type lookup struct {
	hash   uint32
	side   uint8 // as in a slot: 0 client's, 1 backend's
	packet uint8
}

// window is how many packets are prefetched together: more than the misses that a core keeps in flight
// (10 to 16 line-fill buffers), and so few that the lines are still in the first-level cache when used.
const window = 64

// manyConns is the default of Options.PrefetchFrom: the caches hold a table with fewer connections.
const manyConns = 1024

// candidateFor returns the candidate of packet i. At the first packet of a window it prefetches for all.
func (h *Handler) candidateFor(ds []packet.Desc, i int) int32 {
	if !canPrefetch || h.table.live < h.prefetcher.from {
		return -1
	}
	if i%window == 0 {
		h.prefetchBatch(ds[i:min(i+window, len(ds))])
	}
	return h.prefetcher.candidates[i%window]
}

// prefetchBatch prefetches the memory that deciding on the given packets needs, and notes candidates.
func (h *Handler) prefetchBatch(ds []packet.Desc) {
	a, t := &h.prefetcher, h.table
	if len(h.snap.keys.slots) > manyKeys {
		h.prefetchKeys(ds)
	}
	n := 0
	for i := range ds {
		a.candidates[i] = -1
		if s, ok := h.lookup(&ds[i]); ok {
			s.packet = uint8(i)
			a.lookups[n] = s
			a.lines[n] = uintptr(unsafe.Pointer(&t.index[s.hash&t.mask]))
			n++
		}
	}
	prefetch(&a.lines[0], n)
	found, lines := 0, 0
	for _, s := range a.lookups[:n] {
		if c := t.candidate(s.hash, uint64(s.side)); c >= 0 {
			a.candidates[s.packet] = int32(c)
			a.lookups[found].packet = s.packet
			found++
			a.lines[lines] = uintptr(unsafe.Pointer(&t.conns[c]))
			lines++
			if ds[s.packet].Proto == wire.ProtoTCP {
				a.lines[lines] = uintptr(unsafe.Pointer(&t.sequences[c]))
				lines++
			}
		}
	}
	prefetch(&a.lines[0], lines)
	for i, s := range a.lookups[:found] {
		c := &t.conns[a.candidates[s.packet]]
		line := a.lines[refers*i:]
		line[0] = uintptr(unsafe.Pointer(h.snap.Backends[c.backend]))
		line[1] = uintptr(unsafe.Pointer(h.snap.Endpoints[c.endpoint]))
		line[2] = uintptr(unsafe.Pointer(&h.tallies[c.backend]))
		line[3] = uintptr(unsafe.Pointer(&h.snap.VIPs[c.vip]))
	}
	prefetch(&a.lines[0], refers*found)
	if t.halfOpen.full() && n > found {
		h.prefetchVictims(n - found)
	}
}

// prefetchVictims prefetches what evicting the n oldest half-open connections needs, which n new ones of the window
// will cause: the connections, and then the slots of both their sides.
func (h *Handler) prefetchVictims(n int) {
	a, t := &h.prefetcher, h.table
	victims, s := 0, t.halfOpen.all.oldest
	for ; s != 0 && victims < n; victims++ {
		c := t.halfOpen.slots[s].conn
		a.lines[victims], a.victims[victims] = uintptr(unsafe.Pointer(&t.conns[c])), c
		s = t.halfOpen.slots[s].links[byAge].newer
	}
	prefetch(&a.lines[0], victims)
	slots := 0
	for _, v := range a.victims[:victims] {
		c := &t.conns[v]
		ck := c.clientKey()
		a.lines[slots] = uintptr(unsafe.Pointer(&t.index[t.hashClient(&ck)&t.mask]))
		slots++
		if !c.direct() {
			bk := c.backendKey()
			a.lines[slots] = uintptr(unsafe.Pointer(&t.index[t.hashBackend(&bk)&t.mask]))
			slots++
		}
	}
	prefetch(&a.lines[0], slots)
}

// prefetchBackendSlot prefetches the slot of the backend's side that a new connection will take. What is left to do
// before the connection is entered hides most of the miss.
func (h *Handler) prefetchBackendSlot(c *Conn) {
	if !canPrefetch || h.table.live < h.prefetcher.from {
		return
	}
	key := c.backendKey()
	line := uintptr(unsafe.Pointer(&h.table.index[h.table.hashBackend(&key)&h.table.mask]))
	prefetch(&line, 1)
}

// refers is how many cache lines that a connection refers to are prefetched.
const refers = 4

// prefetchCounters prefetches the counters that publish adds to. They are atomic, and atomic adds do not
// overlap their misses.
func (h *Handler) prefetchCounters() {
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
func (h *Handler) prefetchKeys(ds []packet.Desc) {
	x, n := &h.snap.keys, 0
	for i := range ds {
		if d := &ds[i]; onFastPath(d) {
			v := viewOf(d, h.arena.Bytes(d))
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

// lookup returns where the table has the connection of a packet; false for packets of the slow path. It
// mirrors route, inbound and outbound, which decide.
func (h *Handler) lookup(d *packet.Desc) (lookup, bool) {
	if !onFastPath(d) {
		return lookup{}, false
	}
	v := viewOf(d, h.arena.Bytes(d))
	if front, ok := h.snap.keys.find(v.dst, tagOf(kindVIP, v.dport, d.Proto)); ok {
		return lookup{hash: h.table.hashClient(&clientKey{v.src, front, v.sport})}, true
	}
	from, ok := h.snap.keys.find(v.src, tagOf(kindEndpoint, v.sport, d.Proto))
	if !ok {
		return lookup{}, false
	}
	key := backendKey{endpoint: from, port: v.dport}
	if snat, ok := h.snap.keys.find(v.dst, tagOf(kindSNAT, 0, 0)); ok {
		key.snat = uint16(snat)
	} else {
		key.client = v.dst
	}
	return lookup{hash: h.table.hashBackend(&key), side: 1}, true
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

// byClient is table.byClient, without its probes where the candidate matches.
func (h *Handler) byClient(k *clientKey) int {
	if h.candidate >= 0 {
		if c := &h.table.conns[h.candidate]; c.state != stateFree && c.isClient(k) {
			return int(h.candidate)
		}
	}
	return h.table.byClient(k)
}

// byBackend is table.byBackend, without its probes where the candidate matches.
func (h *Handler) byBackend(k *backendKey) int {
	if h.candidate >= 0 {
		if c := &h.table.conns[h.candidate]; c.state != stateFree && c.isBackend(k) {
			return int(h.candidate)
		}
	}
	return h.table.byBackend(k)
}
