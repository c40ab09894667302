package tcp

import (
	"math"
	"math/bits"
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
	minBuffer            = 8 << 10 // what remains of a send queue when memory is short

	// What a receive buffer has even where all windows together promise more than there is
	// room for: most are never filled.
	maxReceiveFloor = 32 << 10
	minReceiveFloor = buffer.Minimum
	receiveFloors   = 256 // parts of the free memory, of which a floor is one
)

// sendLimit is the number of bytes that the send queue holds at most: twice the congestion window, so
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

// A window is a promise that the data finds room: what is refused, the peer sends again
// after its timeout only, since no segment says when there is memory again. All promises
// together are half of the budget, as far as the floors allow it. A new connection gets a
// part of what is left, and one whose data fills its buffer up to half of that (dynamic
// thresholds, Choudhury and Hahne, 1998): many connections have equal shares, and there is
// always something left for the next.
const (
	promisePart  = 2   // of the budget: 1/2
	initialParts = 128 // of what is left, of which a new connection gets one
	growthParts  = 2   // and one that grows
)

// unpromised returns the memory that windows may still promise, bytes.
func (m *Mux) unpromised() int64 {
	return max(m.buffers.Budget/promisePart-m.buffers.Promised, 0)
}

// ringPromises bounds what the peers may send at once by what the rings of the devices hold while the loop waits for a core:
// what comes beyond is lost, whole flights of hundreds of senders, who then wait for their timeouts. Only what a peer may send
// within ringStall counts. Windows of long paths hold what is under way there, which comes to no ring at once.
type ringPromises struct {
	limit int64 // bytes; 0: none
	sum   int64 // shares of all connections, in ringUnit
}

// ringStall is the time that a loop may wait for a core, or be busy with other packets, before its rings are emptied again.
const ringStall = 10 * time.Millisecond

// ringPart is the part of the rings that windows may fill: the rest is for the ACKs of what is sent meanwhile.
const ringPart = 2

// left returns how many bytes windows may still promise on short paths.
func (r *ringPromises) left() int64 {
	if r.limit == 0 {
		return math.MaxInt64
	}
	return max(r.limit/ringPart-r.sum*ringUnit, 0)
}

// floor bounds a floor of receive buffers by an equal part of the rings for each of n connections.
func (r *ringPromises) floor(floor int64, n int) int64 {
	if r.limit == 0 {
		return floor
	}
	return min(floor, max(r.limit/ringPart/int64(n+1), minReceiveFloor))
}

// ringUnit is the unit of shares of the rings, bytes: a share of up to 16 MiB has 16 bits.
const ringUnit = 256

// ringShareOf returns the part of a window of n bytes that may come within ringStall, in ringUnit.
func (c *Conn) ringShareOf(n uint32) uint16 {
	share := uint64(n)
	if rtt := c.receiveRTT(); rtt > ringStall {
		share = share * uint64(ringStall) / uint64(rtt)
	}
	return uint16(min(share/ringUnit, math.MaxUint16))
}

// unpromised returns what the window of c may still promise, bytes: by memory, and by the rings for a path of its length.
func (c *Conn) unpromised() int64 {
	n, left := c.m.unpromised(), c.m.rxRings.left()
	if rtt := c.receiveRTT(); rtt > ringStall && left < n {
		left = int64(min(float64(left)*float64(rtt)/float64(ringStall), float64(n)))
	}
	return min(n, left)
}

// baseReceive is the first receive buffer of a connection with these options while there is
// enough to promise, bytes.
func (m *Mux) baseReceive(o *Options) uint32 {
	if o.ReceiveBuffer > 0 {
		return uint32(min(o.ReceiveBuffer, 1<<30))
	}
	return uint32(max(min(initialReceiveBuffer, m.buffers.Budget/16), minBuffer))
}

// initialReceive is the first receive buffer of a connection with these options, bytes.
func (m *Mux) initialReceive(o *Options) uint32 {
	base := m.baseReceive(o)
	if o.ReceiveBuffer > 0 {
		return base
	}
	return uint32(min(int64(base), max(min(m.unpromised(), m.rxRings.left())/initialParts, m.receiveFloor())))
}

// promisesShort reports whether a new connection gets less than it would alone.
func (m *Mux) promisesShort(o *Options) bool { return m.initialReceive(o) < m.baseReceive(o) }

// receiveFloor returns the least size of a receive buffer, bytes: a part of the memory that is
// free, since the promises that others have do not matter while no peer fills them.
func (m *Mux) receiveFloor() int64 {
	free := m.buffers.Budget - m.buffers.Used()
	return m.rxRings.floor(max(min(free/receiveFloors, maxReceiveFloor), minReceiveFloor), m.slab.live)
}

// receiveLimit is the receive buffer, bytes: rcvLimit, and less where promises are short.
// What was announced before stays announced (RFC 9293 3.8.6), so that the window shrinks as
// data arrives. Two segments remain, or silly window avoidance would have the peer wait for
// a timer.
func (c *Conn) receiveLimit() uint32 {
	if int64(c.rcvLimit)*growthParts <= min(c.m.unpromised(), c.m.rxRings.left()) {
		return c.rcvLimit
	}
	return c.shortReceiveLimit()
}

// shortReceiveLimit is receiveLimit where rcvLimit is more than a part of what is left.
func (c *Conn) shortReceiveLimit() uint32 {
	m := c.m
	if c.opt.ReceiveBuffer > 0 && !m.buffers.Tight() {
		return c.rcvLimit
	}
	limit := max(c.unpromised()/growthParts, m.receiveFloor(), 2*int64(c.fullSegmentIn()))
	// Memory comes in powers of two: more than one would promise the next.
	return min(c.rcvLimit, 1<<(bits.Len32(uint32(limit))-1))
}

// growReceive raises the receive buffer towards want bytes, by at most a part of what is
// left, so that one connection cannot take it all.
func (c *Conn) growReceive(want uint64) {
	m := c.m
	if m.buffers.Tight() {
		return
	}
	most := min(maxReceiveBuffer, m.buffers.Budget/8)
	target := min(int64(want), most, int64(c.rcvLimit)+c.unpromised()/growthParts)
	c.rcvLimit = max(c.rcvLimit, uint32(target))
}

// promise counts the memory that the ring needs when the peer has filled the window. It is
// called wherever a window was announced, or data was read.
func (c *Conn) promise() {
	// Memory comes in powers of two, so that the promise of most segments is that of the last.
	w := c.rcvAdv - c.readNext()
	if c.state != StateEstablished || w > c.promised || w <= c.promised/2 || c.flags&(flagPeerFIN|flagReadShutdown|flagOrphaned) != 0 {
		c.changePromise()
	}
}

func (c *Conn) changePromise() {
	n := uint32(0)
	if c.state == StateSynSent {
		n = uint32(buffer.RingSize(int(c.synWindow())))
	} else if c.state != StateClosed && !c.has(flagPeerFIN) && !c.has(flagReadShutdown|flagOrphaned) {
		n = uint32(buffer.RingSize(int(c.rcvAdv - c.readNext())))
	}
	share := c.ringShareOf(n)
	c.m.buffers.Promised += int64(n) - int64(c.promised)
	c.m.rxRings.sum += int64(share) - int64(c.ringShare)
	c.promised, c.ringShare = n, share
}

// unpromise ends the promise of a connection that is closed or compacted.
func (c *Conn) unpromise() {
	c.m.buffers.Promised -= int64(c.promised)
	c.m.rxRings.sum -= int64(c.ringShare)
	c.promised, c.ringShare = 0, 0
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

// refuse notes that data in order found no memory. Its ACK does not show it: the peer
// sends it again after its timeout.
func (c *Conn) refuse() {
	if m := c.m; !c.has(flagRefused) && len(m.refused) < maxRefused {
		c.flags |= flagRefused
		m.refused = append(m.refused, c.id)
	}
}

// maxRefused is the number of connections that wait to announce that there is memory again. The peers
// of others probe by themselves.
const maxRefused = 4096

// refusedReady reports whether there is memory for data that was refused.
func (m *Mux) refusedReady() bool { return len(m.refused) > 0 && m.buffers.RingsMayGrow() }

// announceMemory has connections that refused data announce their windows, the first first,
// as many as there is memory for.
func (m *Mux) announceMemory() {
	n := 0
	for room := int64(0); n < min(len(m.refused), maxWoken) && m.buffers.Used()+room < m.buffers.Budget; n++ {
		c := m.conn(m.refused[n])
		if c.has(flagRefused) && !c.ended() {
			room += minReceiveFloor
			c.flags &^= flagRefused
			c.ensureActive()
			c.ackNow()
		}
	}
	m.refused = append(m.refused[:0], m.refused[n:]...)
}

// staleOutOfOrder is the time that a gap keeps its memory from the gaps of others: longer than
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
	return w.head != noConn && !c.woken && (c.snd != nil || c.m.buffers.Minima() <= w.n)
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
		c.woken = true
		c.flags &^= flagWantWrite
		c.report(Writable)
		*n++
	}
	return *n > before
}

// spares are structures that wait to be used again, with the slices that they have grown.
type spares[T any] []*T

// get takes the one that was put last, or makes one.
func (l *spares[T]) get() *T {
	n := len(*l)
	if n == 0 {
		return new(T)
	}
	v := (*l)[n-1]
	*l = (*l)[:n-1]
	return v
}

// put keeps v, where fewer than limit wait.
func (l *spares[T]) put(v *T, limit int) {
	if len(*l) < limit {
		*l = append(*l, v)
	}
}

func (m *Mux) putQueue(q *buffer.Queue) {
	q.ReleaseAll(&m.buffers)
	m.queues.put(q, maxSpare)
}

func (m *Mux) putRing(r *buffer.Ring) {
	r.Free(&m.buffers)
	m.rings.put(r, maxSpare)
}

// maxSpare is the number of structures of each kind that wait to be used again.
const maxSpare = 4096
