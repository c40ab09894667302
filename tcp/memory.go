package tcp

import (
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/seqnum"
)

// All connections of a loop share one budget of memory (buffer.Pool). A peer can make a
// connection hold much of it, and the application can hold the rest by not reading. Three
// rules keep every other connection at work:
//
//   - a connection that holds nothing gets a minimum from a part that only minima use;
//   - what the peer has to keep anyway, data out of order, gets a quarter at most;
//   - a writer that finds nothing waits in a queue for what others free.

// Bounds of buffers that grow with need.
const (
	initialReceiveBuffer = 128 << 10
	maxReceiveBuffer     = 6 << 20
	initialSendBuffer    = 256 << 10
	maxSendBuffer        = 4 << 20
	tightReceiveBuffer   = 64 << 10
	minBuffer            = 8 << 10 // what remains when memory is short
)

// sendLimit is how many bytes the send queue holds at most: twice the congestion window, so
// that a window that was acknowledged is replaced at once, and what the peer has SACKed,
// which fills no window but stays queued (RFC 2018 8). Under memory pressure it is less, but
// never nothing.
func (c *Conn) sendLimit() int {
	p := &c.m.buffers
	if c.opt.SendBuffer > 0 {
		return c.opt.SendBuffer
	}
	if p.Critical() || c.m.writers.head != noConn {
		return int(c.sendMinimum())
	}
	n := max(initialSendBuffer, min(2*int(c.sender.cc.Window()), maxSendBuffer)) + int(c.sender.scoreboard.SACKed())
	if p.Tight() {
		n = initialSendBuffer / 4
	}
	return max(min(n, int(p.Budget/8)), minBuffer)
}

// sendMinimum is the send queue while memory is short, bytes. Data that the peer has no
// window for would only hold memory that others could send from; but one byte is queued
// even for a closed window, because without one that is not probed (RFC 9293 3.8.6.1).
func (c *Conn) sendMinimum() uint32 {
	if c.state < StateEstablished {
		return minBuffer // the window is not known yet
	}
	return min(max(seqnum.Distance(c.una, c.sndEdge), 1), minBuffer)
}

// initialReceive is the first receive buffer of a connection with these options, bytes. It
// bounds the first window.
func (m *Mux) initialReceive(o *Options) uint32 {
	if o.ReceiveBuffer > 0 {
		return uint32(min(o.ReceiveBuffer, 1<<30))
	}
	return uint32(max(min(initialReceiveBuffer, m.buffers.Budget/16), minBuffer))
}

// receiveLimit is the receive buffer, bytes: rcvLimit, and less under memory pressure. What
// was announced before stays announced (RFC 9293 3.8.6), so that the window shrinks as data
// arrives. Two segments remain, or silly window avoidance would have the peer wait for a
// timer.
func (c *Conn) receiveLimit() uint32 {
	p := &c.m.buffers
	if !p.Tight() {
		return c.rcvLimit
	}
	limit := uint32(tightReceiveBuffer)
	if p.Critical() {
		limit = minBuffer
	}
	return min(c.rcvLimit, max(limit, 2*c.fullSegmentIn()))
}

// growReceive raises the receive buffer towards want bytes. What all buffers have grown by
// is half the budget at most, since a window is a promise that the data finds room. Each
// growth takes at most half of what is left, so that one connection cannot take it all
// (dynamic thresholds, Choudhury and Hahne, 1998).
func (c *Conn) growReceive(want uint64) {
	m := c.m
	if m.buffers.Tight() {
		return
	}
	most := min(maxReceiveBuffer, m.buffers.Budget/8)
	left := max(m.buffers.Budget/2-m.grown, 0)
	target := min(int64(want), most, int64(c.rcvLimit)+left/2)
	if n := target - int64(c.rcvLimit); n > 0 {
		c.rcvLimit += uint32(n)
		m.grown += n
	}
}

// grown returns by how much the receive buffer exceeds its initial size, bytes. Mux.grown
// counts it while the connection is active: compacted ones receive nothing.
func (c *Conn) grown() int64 {
	if c.opt == nil || c.opt.ReceiveBuffer > 0 {
		return 0
	}
	return max(int64(c.rcvLimit)-int64(c.m.initialReceive(c.opt)), 0)
}

// reserve makes room in the ring for [left, right) and returns the right edge of what there
// is room for. Where the budget refuses it, the oldest data out of order makes room.
func (c *Conn) reserve(now clock.Time, r *buffer.Ring, left, right uint32) uint32 {
	p := &c.m.buffers
	if left != c.rcvNxt {
		if r.ReserveOutOfOrder(p, left, right) ||
			c.m.reclaim(r, now.Add(-staleOutOfOrder)) && r.ReserveOutOfOrder(p, left, right) {
			return right
		}
		c.m.stats.Pruned += uint64(right - left)
		return left
	}
	got := r.Reserve(p, right)
	if got != right && c.m.reclaim(r, now) {
		got = r.Reserve(p, right)
	}
	return seqnum.Latest(left, got)
}

// staleOutOfOrder is how long a gap keeps its memory from the gaps of others: longer than
// the peer needs to fill it, a few round trips.
const staleOutOfOrder = time.Second

// reclaim drops data out of order that was held since before t, the oldest first, and
// reports whether there was any. It is bounded, since each refused segment calls it.
// own is the ring that needs it, which keeps its place.
func (m *Mux) reclaim(own *buffer.Ring, t clock.Time) (any bool) {
	for range 4 {
		r := m.buffers.OldestOutOfOrder()
		if r == nil || clock.Time(r.Since) > t {
			break
		}
		m.stats.Pruned += uint64(r.Prune(&m.buffers))
		if r != own {
			m.conn(r.Holder).freeRing()
		}
		any = true
	}
	return any
}

// prune drops what arrived out of order: the peer keeps it until it is acknowledged (RFC
// 2018 8).
func (c *Conn) prune() {
	c.m.stats.Pruned += uint64(c.rcv.Prune(&c.m.buffers))
	c.freeRing()
}

// writerList has the connections whose application wrote, found no memory, and has nothing
// in its queue: no ACK will come for which it could write again. They wait in order.
type writerList struct {
	head, tail uint32
	n          int
}

// maxWoken bounds how many writers one Poll wakes.
const maxWoken = 256

// mustWait reports whether a Write has to let others go first: those that wait have a claim
// to the memory that there is.
func (c *Conn) mustWait() bool {
	w := &c.m.writers
	return w.head != noConn && !c.granted && (c.snd != nil || c.m.buffers.Minima() <= w.n)
}

// waitForMemory notes that the budget has refused a Write. With something in the queue, its
// ACK ends the wait.
func (c *Conn) waitForMemory() {
	c.flags |= flagStarved
	if c.snd != nil {
		return
	}
	w := &c.m.writers
	w.n++
	c.previous, c.following = w.tail, noConn
	if w.tail != noConn {
		c.m.conn(w.tail).following = c.id
	} else {
		w.head = c.id
	}
	w.tail = c.id
}

// stopWaiting takes the connection out of the list of writers.
func (c *Conn) stopWaiting() {
	if !c.has(flagStarved) {
		return
	}
	c.flags &^= flagStarved
	if c.snd != nil {
		return
	}
	w := &c.m.writers
	w.n--
	if c.previous != noConn {
		c.m.conn(c.previous).following = c.following
	} else {
		w.head = c.following
	}
	if c.following != noConn {
		c.m.conn(c.following).previous = c.previous
	} else {
		w.tail = c.previous
	}
}

// writersReady reports whether there is memory for a writer that waits.
func (m *Mux) writersReady() bool { return m.writers.head != noConn && m.buffers.Minima() > 0 }

// wakeWriters reports Writable to as many waiting writers as there is memory for, the first
// first. One that finds none again waits behind the others. It counts them in n and reports
// whether there were any.
func (m *Mux) wakeWriters(n *int) bool {
	before := *n
	for room := m.buffers.Minima(); room > 0 && *n < maxWoken && m.writers.head != noConn; room-- {
		c := m.conn(m.writers.head)
		c.stopWaiting()
		c.granted = true
		c.flags &^= flagWantWrite
		c.report(Writable)
		*n++
	}
	return *n > before
}

// A peer can make a connection hold memory for nothing: it asks for data and never opens
// its window, or leaves a hole before what it sends. A window may stay closed for ever (RFC
// 9293 3.8.6.1), but not at the cost of all others (RFC 6429 4). So while the budget is
// nearly used up, the Mux checks every second which connections do not move, and takes
// their memory back.
const (
	stalledInterval = time.Second // between checks
	stalledDrain    = 60          // checks within which a queue at its pace would be empty; slower ones count as stalled
)

// stalledPeers is the result of the last check.
type stalledPeers struct {
	next  clock.Time        // check
	seen  map[uint32]uint32 // SND.UNA by Conn.id of connections that had data queued
	still []uint32          // those that did not move, in this check
}

// checkStalled makes the check where it is due, and returns when it must be called next. It
// resets the stalled connections with the longest queues, until half the budget is free.
func (m *Mux) checkStalled(now clock.Time) clock.Time {
	h := &m.passive.stalled
	if !m.buffers.Critical() {
		h.seen = nil
		return clock.Never
	}
	if now < h.next {
		return h.next
	}
	h.next = now.Add(stalledInterval)
	m.findStalled()
	slices.SortFunc(h.still, func(a, b uint32) int { return m.conn(b).snd.Len() - m.conn(a).snd.Len() })
	for _, id := range h.still {
		if m.buffers.Used() <= m.buffers.Budget/2 {
			break
		}
		c := m.conn(id)
		m.stats.StalledPeers++
		c.sendReset()
		c.enterClosed(outOfMemory)
	}
	return h.next
}

// findStalled lists the connections whose queue has hardly moved since the last check. It
// also drops data received out of order, which the sender keeps until it is acknowledged
// (RFC 2018 8).
func (m *Mux) findStalled() {
	h := &m.passive.stalled
	seen := h.seen
	h.seen, h.still = make(map[uint32]uint32, len(seen)), h.still[:0]
	for id := range m.slab.used {
		c := m.conn(id)
		if c.ended() || c.active == nil {
			continue
		}
		if c.rcv != nil && len(c.rcv.OutOfOrder()) > 0 {
			c.prune()
		}
		if c.snd == nil || c.snd.Len() == 0 {
			continue
		}
		h.seen[id] = c.una
		if una, ok := seen[id]; ok && c.una-una < uint32(c.snd.Len()/stalledDrain)+1 {
			h.still = append(h.still, id)
		}
	}
}

// The structures of buffers are used again, with the slices that they have grown.

func (m *Mux) getQueue() *buffer.Queue {
	if n := len(m.queues); n > 0 {
		q := m.queues[n-1]
		m.queues = m.queues[:n-1]
		return q
	}
	return new(buffer.Queue)
}

func (m *Mux) putQueue(q *buffer.Queue) {
	q.ReleaseAll(&m.buffers)
	if len(m.queues) < maxSpare {
		m.queues = append(m.queues, q)
	}
}

func (m *Mux) getRing() *buffer.Ring {
	if n := len(m.rings); n > 0 {
		r := m.rings[n-1]
		m.rings = m.rings[:n-1]
		return r
	}
	return new(buffer.Ring)
}

func (m *Mux) putRing(r *buffer.Ring) {
	r.Free(&m.buffers)
	if len(m.rings) < maxSpare {
		m.rings = append(m.rings, r)
	}
}

// maxSpare is how many structures of each kind wait to be used again.
const maxSpare = 4096
