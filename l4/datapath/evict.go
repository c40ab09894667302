package datapath

import "time"

// The table keeps two budgets apart, because anybody can open a connection with a forged source, but only a
// real client completes one. Half-open connections are at most table.half_open, and the oldest is evicted
// for the next: a flood evicts half-open ones only. Confirmed ones may take the rest of the table, at least
// half of it, and one of them is evicted for a further confirmed one.

// Kinds of evictions, counted for each service.
const (
	evictedHalfOpen = iota
	evictedConfirmed
	evictions
)

// sampled is the number of connections that are sampled to find one that was idle for long: an exact order would cost
// a list operation per packet. Where a fraction f of the table is idle for longer than a connection in use,
// a sample hits none of them once in (1-f)^-8 evictions.
const sampled = 8

// enter adds a half-open connection, in place of the oldest when the budget or the table is used
// up, and returns its number. The hash is that of its client's side.
func (h evictor) enter(c *Conn, hash uint32) int {
	t := h.table
	if t.halfOpen.full() || t.full() {
		h.evict(int(t.halfOpen.slots[t.halfOpen.all.oldest].conn), evictedHalfOpen)
	}
	c.deadline = h.now + h.snap.timeout(c)
	both := t.hashesFrom(c, hash)
	n := t.add(c, both)
	t.conns[n].place = t.halfOpen.push(uint32(n), both, h.pairQueue(c))
	h.tally(c.backend)[Opened]++
	return n
}

// confirm moves connection n to the confirmed ones. When those have used up their part of the table another
// one is evicted.
func (h evictor) confirm(n int) {
	t := h.table
	h.leaveHalfOpen(n)
	if h.sync.changes != nil {
		h.syncSide().syncChange(n)
	}
	if t.live-t.halfOpen.n > t.confirmed {
		h.evict(h.idlest(n), evictedConfirmed)
	}
}

// leaveHalfOpen takes connection n out of the half-open ones.
func (h evictor) leaveHalfOpen(n int) {
	c := &h.table.conns[n]
	h.table.halfOpen.remove(c.place, h.pairQueue(c))
	c.place = 0
}

// pairQueue returns the queue of half-open connections of c's SNAT address and endpoint, nil when
// the backend sees the client's own address.
func (h evictor) pairQueue(c *Conn) *queue {
	if c.pair == 0 {
		return nil
	}
	return &h.ports.list[c.pair].half
}

// idlest returns, of some confirmed connections other than n, one that has expired or that both ends have closed, or
// the one that was idle for longest.
func (h evictor) idlest(n int) int {
	t, best, most := h.table, -1, uint32(0)
	for i := 0; i < sampled || best < 0; i++ {
		k := int(t.rand.Uint64() >> 32 * uint64(t.high) >> 32)
		c := &t.conns[k]
		if k == n || c.state == stateFree || c.halfOpen() {
			continue
		}
		h.kernelSide().read(c)
		if c.expired(h.now) || c.closed() {
			return k
		}
		if idle := uint32(h.idle(c)); best < 0 || idle > most { // below 0 is idler than above
			best, most = k, idle
		}
	}
	return best
}

// idle returns for how many ticks there was no packet, from the deadline and the timeout of now. It is
// negative where there was no packet since a reload made timeouts shorter; as unsigned that is idlest.
func (h evictor) idle(c *Conn) int32 {
	return int32(h.now - (c.deadline - h.snap.timeout(c)))
}

// evict ends connection n to make room.
func (h evictor) evict(n, kind int) {
	service := h.snap.Backends[h.table.conns[n].backend].Service
	h.snap.Services[service].evicted[h.loop].Add(kind, 1)
	h.aborter().abort(n, false)
}

// answerTimeLimit is the time that a backend may take to answer before a connection that ends counts as
// unanswered: one that was evicted earlier is no sign of the backend.
const answerTimeLimit = time.Second

// forget ends connection n and gives back what it holds: its place, its slots, its source port, its place
// among the half-open ones, its entry in the kernel. Audit checks that none of them leaks.
func (h evictor) forget(n int) {
	c := &h.table.conns[n]
	h.kernelSide().takeBack(c, backEnded)
	both := h.table.hashesOf(c)
	t := h.tally(c.backend)
	t[Closed]++
	if c.state.ending() {
		h.closing--
		t[Ended]++
	}
	if c.halfOpen() {
		if c.flags&(connAnswered|connDirect) == 0 && h.idle(c) >= int32(ticksIn(answerTimeLimit)) {
			t[Unanswered]++
		}
		h.leaveHalfOpen(n)
	}
	if c.pair != 0 {
		h.releasePort(n)
	}
	h.table.remove(n, both)
}

// halfOpenTable are the half-open connections of a table in the order they were opened: all of them, and
// those of each pair of SNAT address and endpoint for itself, so that the oldest that holds a
// port can give it up. They stand beside the connections, since only few are half-open at a time,
// and those that follow each other in age mostly lie together.
type halfOpenTable struct {
	slots []halfOpenSlot // slot 0 is none
	all   queue
	free  uint32 // first of the free slots below high, linked as newer by age; 0 is none
	high  uint32 // slots from here on have never been used
	n     int
}

// halfOpenSlot is one connection's place in the two queues: 32 bytes, so that none lies on two cache lines.
type halfOpenSlot struct {
	conn   uint32
	hashes hashes // with them its slots in the index are found without the connection
	links  [2]link
	_      uint32
}

// link names the neighbours in a queue; 0 is none.
type link struct{ older, newer uint32 }

// The queues that a half-open connection stands in.
const (
	byAge  = iota
	byPair // of the SNAT address and endpoint; connections with clients' own addresses have none
)

// queue is the ends of a list of half-open connections; both are 0 when it is empty.
type queue struct{ oldest, newest uint32 }

// full reports whether the budget is used up.
func (h *halfOpenTable) full() bool { return h.n == len(h.slots)-1 }

// push enters a connection as the newest, in the queue of its pair too if it has one, and returns
// its slot. There is room.
func (h *halfOpenTable) push(conn uint32, hashes hashes, pair *queue) uint32 {
	s := h.free
	if s != 0 {
		h.free = h.slots[s].links[byAge].newer
	} else {
		s = h.high
		h.high++
	}
	h.slots[s] = halfOpenSlot{conn: conn, hashes: hashes}
	h.join(&h.all, byAge, s)
	if pair != nil {
		h.join(pair, byPair, s)
	}
	h.n++
	return s
}

// remove takes slot s out of the queues that push entered it in.
func (h *halfOpenTable) remove(s uint32, pair *queue) {
	h.leave(&h.all, byAge, s)
	if pair != nil {
		h.leave(pair, byPair, s)
	}
	h.slots[s] = halfOpenSlot{links: [2]link{{newer: h.free}, {}}}
	h.free = s
	h.n--
}

func (h *halfOpenTable) join(q *queue, by int, s uint32) {
	h.slots[s].links[by].older = q.newest
	if q.newest != 0 {
		h.slots[q.newest].links[by].newer = s
	} else {
		q.oldest = s
	}
	q.newest = s
}

func (h *halfOpenTable) leave(q *queue, by int, s uint32) {
	l := h.slots[s].links[by]
	if l.older != 0 {
		h.slots[l.older].links[by].newer = l.newer
	} else {
		q.oldest = l.newer
	}
	if l.newer != 0 {
		h.slots[l.newer].links[by].older = l.older
	} else {
		q.newest = l.older
	}
}
