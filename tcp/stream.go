package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/stamp"
)

// Write appends a copy of b to the send queue and returns how many bytes had room. When
// that is less than all, Writable is reported later. The data leaves with the next Poll.
func (c *Conn) Write(now clock.Time, b []byte) int {
	c.flags &^= flagMore
	return c.write(now, b)
}

// WriteMore is Write by an application that announces more (MSG_MORE): what does not fill a
// segment waits until it does, for 200 ms at most.
func (c *Conn) WriteMore(now clock.Time, b []byte) int {
	c.flags |= flagMore
	return c.write(now, b)
}

func (c *Conn) write(now clock.Time, b []byte) int {
	c.ensureActive()
	n := len(b)
	if !c.writesLittle(n) {
		n = min(n, c.Writable())
	}
	if n > 0 {
		n = c.writeCopy(now, b[:n])
	}
	if n < len(b) {
		c.flags |= flagWantWrite
	}
	return n
}

// writesLittle reports whether there is surely room for n bytes: the send queue holds
// minBuffer whatever the congestion window is, while memory is not short.
func (c *Conn) writesLittle(n int) bool {
	return c.snd == nil && n <= minBuffer && c.opt.SendBuffer == 0 && c.opt.NotSentLowat == 0 &&
		c.state == StateEstablished && c.flags&(flagFIN|flagOrphaned|flagStarved) == 0 &&
		!c.m.buffers.Tight() && c.m.writers.head == noConn
}

// writeCopy queues as much of b as there is memory for.
func (c *Conn) writeCopy(now clock.Time, b []byte) (n int) {
	if !c.mustWait() {
		n = c.queue().Write(&c.m.buffers, b)
		c.wrote(now, uint32(n))
	}
	c.woken = false
	if n < len(b) {
		c.waitForMemory()
	}
	return n
}

// reservation is the room that Reserve has returned and Commit has not ended.
type reservation struct {
	c     *Conn  // nil without one
	end   uint32 // c.end then: a Write since makes it void
	tail  []byte // of the last chunk
	spare []byte // behind it; from the Pool
	n     int    // bytes of both
}

// Reserve borrows room of the send buffer for at most n bytes, in two pieces to be filled in order. It is for data that a system
// call can put there, which saves a copy. None is that there is no room, and Writable is reported later.
//
// Commit comes next, with no call for a connection of the Mux between: its argument is the number of bytes put there.
func (c *Conn) Reserve(n int) (room [2][]byte) {
	c.ensureActive()
	m := c.m
	m.unreserve()
	if n = min(n, c.Writable()); n <= 0 {
		c.flags |= flagWantWrite
		return room
	}
	r := &m.reserved
	if !c.mustWait() {
		*r = reservation{c: c, end: c.end}
		if c.snd != nil {
			tail := c.snd.Tail()
			r.tail = tail[:min(n, len(tail))]
		}
		if left := n - len(r.tail); left > 0 {
			r.spare = c.newChunk(left)
		}
		room[0], room[1] = r.tail, r.spare[:min(n-len(r.tail), len(r.spare))]
		if len(room[0]) == 0 {
			room[0], room[1] = room[1], nil
		}
		r.n = len(room[0]) + len(room[1])
	}
	c.woken = false
	if r.c == nil || r.n == 0 {
		m.unreserve()
		c.flags |= flagWantWrite
		c.waitForMemory()
	}
	return room
}

// newChunk returns memory that can follow what is queued.
func (c *Conn) newChunk(need int) []byte {
	if c.snd == nil {
		var empty buffer.Queue
		return empty.NewChunk(&c.m.buffers, need)
	}
	return c.snd.NewChunk(&c.m.buffers, need)
}

// unreserve ends the reservation.
func (m *Mux) unreserve() {
	if r := &m.reserved; r.c != nil {
		if r.spare != nil {
			m.buffers.FreeChunk(r.spare)
		}
		*r = reservation{}
	}
}

// Commit queues the first n bytes of the room that Reserve has returned, and takes the rest back. False is that the
// connection has ended since, or was written to: then nothing is queued. It panics where n is more than was reserved.
func (c *Conn) Commit(now clock.Time, n int) bool {
	r := &c.m.reserved
	if r.c != c || r.end != c.end || !c.canWrite() {
		c.m.unreserve()
		return false
	}
	if n < 0 || n > r.n {
		panic("tcp: Commit of more than was reserved")
	}
	c.flags &^= flagMore
	if n > 0 {
		q, first := c.queue(), min(n, len(r.tail))
		q.AppendTail(first)
		if first < n {
			q.AppendChunk(&c.m.buffers, r.spare, n-first)
			r.spare = nil
		}
	}
	c.m.unreserve()
	if n > 0 {
		c.wrote(now, uint32(n))
	}
	return true
}

// WriteZeroCopy appends b itself. b must not change until done is called: when all of it is
// acknowledged, or the connection is gone. It takes all of b or, where there is no room,
// nothing. A short b is copied, which costs less than segments made of many pieces, and
// done is called at once. done must not call the connection or its Mux.
func (c *Conn) WriteZeroCopy(now clock.Time, b []byte, done func()) bool {
	if len(b) == 0 || c.Writable() == 0 {
		c.flags |= flagWantWrite
		return false
	}
	c.flags &^= flagMore
	if len(b) < minZeroCopy && !c.mustWait() {
		n := c.queue().Write(&c.m.buffers, b)
		c.wrote(now, uint32(n))
		b = b[n:] // no memory for the rest: that is borrowed
	}
	if len(b) > 0 {
		c.queue().AppendZeroCopy(b, done)
		c.wrote(now, uint32(len(b)))
	} else if done != nil {
		done()
	}
	return true
}

// minZeroCopy is the size from which sending in place costs less than a copy, bytes.
const minZeroCopy = 2 << 10

// queue returns the send queue, a new one where there is none.
func (c *Conn) queue() *buffer.Queue {
	if c.snd == nil {
		c.snd = c.m.queues.get()
		c.snd.Reset(c.end)
	}
	return c.snd
}

// wrote counts n bytes that were queued.
func (c *Conn) wrote(now clock.Time, n uint32) {
	if c.opt.Stamps != 0 && n > 0 {
		c.ensureStamps(c.end).Written(c.end+n, c.opt.Stamps)
	}
	c.end += n
	if c.snd.Empty() {
		c.m.putQueue(c.snd)
		c.snd = nil
		return
	}
	c.m.markDirty(c)
}

// ensureStamps returns the times of the connection, from the byte next on where there were none.
func (c *Conn) ensureStamps(next uint32) *stamp.Queue {
	k := c.ensureRare()
	if !c.has(flagStamps) {
		k.stamps = stamp.New(next)
		c.flags |= flagStamps
	}
	return k.stamps
}

// stampSent notes that all before SND.NXT was sent.
func (c *Conn) stampSent(now clock.Time) {
	if c.has(flagStamps) && c.rare.stamps.Transmitted(now, c.nxt) {
		c.report(Stamped)
	}
}

// NextStamp takes the oldest time of a write that Options.Stamps asked for (MSG_ERRQUEUE of a stream).
func (c *Conn) NextStamp() (stamp.Event, bool) {
	if !c.has(flagStamps) {
		return stamp.Event{}, false
	}
	return c.rare.stamps.Next()
}

// Stamps returns how many times NextStamp has.
func (c *Conn) Stamps() int {
	if !c.has(flagStamps) {
		return 0
	}
	return c.rare.stamps.Len()
}

// ReceivedAt returns when the byte that was read last arrived, if Options.Stamps asked for it.
func (c *Conn) ReceivedAt() (clock.Time, bool) {
	if !c.has(flagStamps) {
		return 0, false
	}
	return c.rare.stamps.ReceivedAt(c.readNext())
}

// canWrite reports whether the state accepts data from the application (RFC 9293 3.10.2).
// In SYN-SENT and SYN-RECEIVED it is queued.
func (c *Conn) canWrite() bool {
	if c.has(flagFIN) || c.has(flagOrphaned) {
		return false
	}
	switch c.state {
	case StateSynSent, StateSynReceived, StateEstablished, StateCloseWait:
		return true
	}
	return false
}

// Writable returns how many bytes Write has room for. After a Write that the budget refused
// it is 0 until the event Writable.
func (c *Conn) Writable() int {
	if !c.canWrite() || c.has(flagStarved) {
		return 0
	}
	c.ensureActive()
	used := 0
	if c.snd != nil {
		used = c.snd.Len()
	}
	n := max(c.sendLimit()-used, 0)
	if c.opt.NotSentLowat > 0 {
		n = min(n, c.roomBelowLowat())
	}
	return n
}

// roomBelowLowat returns the bytes that Write may add below NotSentLowat. A segment always fits while nothing
// waits, or a limit below one would let only partial segments leave.
func (c *Conn) roomBelowLowat() int {
	unsent, low := int(c.unsent()), c.opt.NotSentLowat
	if unsent >= low {
		return 0
	}
	return max(low, c.mss()) - unsent
}

// WriteReady reports whether a program that waits for room should write: a third of the
// buffer is free, and with NotSentLowat less than half of that waits, as select(2) of Linux has
// it. If not, Writable will be reported.
func (c *Conn) WriteReady() bool {
	n := c.Writable()
	ready := n > 0 && 3*n >= c.sendLimit()
	if low := c.opt.NotSentLowat; low > 0 {
		ready = n > 0 && 2*int(c.unsent()) < low
	}
	if !ready && c.canWrite() {
		c.flags |= flagWantWrite
	}
	return ready
}

// Unsent returns how many written bytes were never sent (SIOCOUTQNSD).
func (c *Conn) Unsent() int {
	if c.ended() {
		return 0
	}
	return int(c.unsent())
}

// Read copies received bytes to b and returns how many. 0 is that none wait: Finished
// reports whether more can come.
func (c *Conn) Read(now clock.Time, b []byte) int {
	if c.has(flagRcvUrgent) && len(b) > 0 && c.skipsUrgent() {
		// A read that begins at the mark passes the urgent byte, even if nothing follows yet.
		c.rcv.Discard(&c.m.buffers, 1)
		c.passUrgent()
		c.freeRing()
	}
	if c.active == nil || c.rcv == nil {
		return 0
	}
	n := 0
	if c.has(flagRcvUrgent) {
		p := c.Peek()
		n = copy(b, p[0])
		n += copy(b[n:], p[1])
	} else {
		n = c.rcv.Copy(b)
	}
	if n > 0 {
		c.Discard(now, n)
	}
	return n
}

// Peek borrows the bytes that wait to be read, in order in two pieces; only those before the
// urgent one, where that is ahead, so that a program can find it by AtMark. They are valid until
// the next call for the connection, or of Input or Poll of its Mux; other connections may
// be written to meanwhile.
func (c *Conn) Peek() [2][]byte {
	if c.active == nil || c.rcv == nil {
		return [2][]byte{}
	}
	p := c.rcv.Peek()
	if c.has(flagRcvUrgent) {
		c.cutAtMark(&p)
	}
	return p
}

// Discard drops the next n bytes, which Peek has returned.
func (c *Conn) Discard(now clock.Time, n int) {
	if n == 0 {
		return
	}
	urgent := c.has(flagRcvUrgent)
	if urgent && c.skipsUrgent() {
		n++
	}
	c.rcv.Discard(&c.m.buffers, uint32(n))
	c.tuneReceive(now, uint32(n))
	if urgent {
		c.passUrgent()
	}
	c.freeRing()
	c.promise()
	c.windowOpened()
}

// freeRing returns the ring when it is empty: idle connections have none.
func (c *Conn) freeRing() {
	if r := c.rcv; r != nil && r.Empty() {
		c.rcv = nil
		c.m.putRing(r)
	}
}

// Readable returns how many bytes wait to be read.
func (c *Conn) Readable() int {
	if c.active == nil || c.rcv == nil {
		return 0
	}
	n := int(c.rcv.Readable())
	if c.has(flagRcvUrgent) && c.holdsUrgent() && c.opt.UrgentOutOfBand {
		n--
	}
	return n
}

// ReceiveQueue returns how many bytes Read returns before it stops at the urgent one
// (SIOCINQ).
func (c *Conn) ReceiveQueue() int {
	if n, ok := c.ToMark(); ok && c.opt.UrgentOutOfBand && c.holdsUrgent() {
		return n
	}
	return c.Readable()
}

// Finished reports whether everything that the peer will ever send has been read: its FIN
// was reached, or the connection is closed (Err).
func (c *Conn) Finished() bool {
	return c.Readable() == 0 && (c.state == StateClosed || c.peerDone())
}

// PeerClosed reports whether no byte will be added to those that wait to be read: the peer's FIN
// was reached, the connection is closed, or CloseRead was called (EPOLLRDHUP).
func (c *Conn) PeerClosed() bool {
	return c.state == StateClosed || c.has(flagReadShutdown) || c.peerDone()
}

// ReceivedFIN reports whether the peer has closed its direction and all that it sent before was
// received, whatever happened after.
func (c *Conn) ReceivedFIN() bool { return c.peerDone() }

// peerDone reports whether the peer's FIN was reached.
func (c *Conn) peerDone() bool { return c.has(flagPeerFIN) && c.rcvNxt == c.peerFIN+1 }

// Unacked returns how many written bytes, and the FIN, the peer has not acknowledged: 0
// when nothing lingers.
func (c *Conn) Unacked() int {
	if c.ended() || c.finAcked() {
		return 0
	}
	return int(c.end - c.una + seqLen(c.has(flagFIN)))
}
