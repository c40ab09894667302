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

// sampled is how many connections are sampled to find one that was idle for long: an exact order would cost
// a list operation per packet. Where a fraction f of the table is idle for longer than a connection in use,
// a sample hits none of them once in (1-f)^-8 evictions.
const sampled = 8

// enter adds a half-open connection, in place of the oldest when the budget or the table is used
// up, and returns its number. The hash is that of its client's side.
func (h *Handler) enter(c *Conn, hash uint32) int {
	t := h.table
	if t.halfOpen.full() || t.full() {
		h.evict(int(t.halfOpen.slots[t.halfOpen.all.oldest].conn), evictedHalfOpen)
	}
	c.deadline = h.now + ticks(h.snap.Timeouts[c.state])
	both := t.hashesFrom(c, hash)
	n := t.add(c, both)
	t.conns[n].halfSlot = t.halfOpen.push(uint32(n), both, h.pairQueue(c))
	h.tally(c.backend)[Opened]++
	return n
}

// confirm moves connection n to the confirmed ones. When those have used up their part of the table another
// one is evicted.
func (h *Handler) confirm(n int) {
	t := h.table
	h.leaveHalfOpen(n)
	if h.sync.changes != nil {
		h.syncChange(&t.conns[n])
	}
	if t.live-t.halfOpen.n > t.confirmed {
		h.evict(h.idlest(n), evictedConfirmed)
	}
}

// leaveHalfOpen takes connection n out of the half-open ones.
func (h *Handler) leaveHalfOpen(n int) {
	c := &h.table.conns[n]
	h.table.halfOpen.remove(c.halfSlot, h.pairQueue(c))
	c.halfSlot = 0
}

// pairQueue returns the queue of half-open connections of c's SNAT address and endpoint, nil when
// the backend sees the client's own address.
func (h *Handler) pairQueue(c *Conn) *queue {
	if c.pair == 0 {
		return nil
	}
	return &h.ports.list[c.pair].half
}

// idlest returns, of some confirmed connections other than n, one that has expired or that both ends have closed, or
// the one that was idle for longest.
func (h *Handler) idlest(n int) int {
	t, best, most := h.table, -1, uint32(0)
	for i := 0; i < sampled || best < 0; i++ {
		k := int(t.rand.Uint64() >> 32 * uint64(t.high) >> 32)
		c := &t.conns[k]
		if k == n || c.state == stateFree || c.halfSlot != 0 {
			continue
		}
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
func (h *Handler) idle(c *Conn) int32 {
	return int32(h.now - (c.deadline - ticks(h.snap.Timeouts[c.state])))
}

// evict ends connection n to make room.
func (h *Handler) evict(n, kind int) {
	service := h.snap.Backends[h.table.conns[n].backend].Service
	h.snap.Services[service].evicted[h.loop].Add(kind, 1)
	h.discard(n, false)
}

// answerTimeLimit is how long a backend may take to answer before a connection that ends counts as
// unanswered: one that was evicted earlier says nothing about the backend.
const answerTimeLimit = time.Second

// forget ends connection n and gives back what it holds: its place, its slots, its source port, its place
// among the half-open ones. Audit checks that none of them leaks.
func (h *Handler) forget(n int) {
	c := &h.table.conns[n]
	both := h.table.hashesOf(c)
	t := h.tally(c.backend)
	t[Closed]++
	if c.state.ending() {
		h.closing--
		t[Ended]++
	}
	if c.halfSlot != 0 {
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
