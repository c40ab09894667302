package tcp

import (
	"math"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// receiveSpace returns the number of bytes from RCV.NXT on that may arrive: the limit less what waits to
// be read, within Options.WindowClamp and what the window field can say (RFC 7323 2.3).
func (c *Conn) receiveSpace() uint32 {
	held, limit := uint32(c.Readable()), c.receiveLimit()
	if held >= limit {
		return 0
	}
	return min(limit-held, c.opt.windowClamp(), 0xffff<<c.rcvScale)
}

// windowLimit returns the largest window that reading all would open.
func (c *Conn) windowLimit() uint32 { return min(c.receiveLimit(), c.opt.windowClamp()) }

// windowClamp returns WindowClamp, the largest number without one.
func (o *Options) windowClamp() uint32 {
	if o.WindowClamp == 0 {
		return math.MaxUint32
	}
	return uint32(o.WindowClamp)
}

// receiveEdge returns the right edge of the window to announce. It never moves left (RFC
// 9293 3.8.6), and right only by a full segment or half the buffer: small steps would
// invite small segments (silly window syndrome, section 3.8.6.2.2).
func (c *Conn) receiveEdge() uint32 {
	// Until the handshake is complete the peer knows the window of the SYN-ACK, which is
	// not scaled.
	if c.state == StateSynReceived {
		return c.rcvAdv // as in the SYN-ACK, or when it is sent again
	}
	edge := c.rcvNxt + c.receiveSpace()
	gain := seqnum.Distance(c.rcvAdv, edge)
	if gain < c.fullSegmentIn() && gain < c.windowLimit()/2 {
		return seqnum.Latest(c.rcvAdv, c.rcvNxt)
	}
	return edge
}

// fullSegmentIn estimates the size of the peer's full segments.
func (c *Conn) fullSegmentIn() uint32 {
	return max(uint32(c.largestIn), uint32(c.mss()))
}

// scaledWindow returns the window field for the right edge and moves the edge to what the
// field holds. Scaling rounds down, but up where the edge would otherwise move left.
func (c *Conn) scaledWindow(right *uint32) uint16 {
	wnd := *right - c.rcvNxt
	field := wnd >> c.rcvScale
	if c.rcvNxt+field<<c.rcvScale != *right && seqnum.Before(c.rcvNxt+field<<c.rcvScale, c.rcvAdv) {
		field++
	}
	field = min(field, 0xffff)
	*right = seqnum.Latest(c.rcvNxt+field<<c.rcvScale, c.rcvNxt)
	return uint16(field)
}

// windowOpened sends a window update where reading has made enough room: two segments, or
// half the buffer. Updates while the window is still half open would only be extra ACKs.
func (c *Conn) windowOpened() {
	if c.state != StateEstablished && c.state != StateFinWait1 && c.state != StateFinWait2 {
		return
	}
	if c.has(flagRefused) && c.m.buffers.RingsMayGrow() {
		c.flags &^= flagRefused
		c.ackNow()
		return
	}
	left := seqnum.Distance(c.rcvNxt, c.rcvAdv)
	if left >= c.rcvLimit/2 {
		return // receiveLimit is rcvLimit at most
	}
	gain := seqnum.Distance(c.rcvAdv, c.rcvNxt+c.receiveSpace())
	if half := c.windowLimit() / 2; gain >= min(half, 2*c.fullSegmentIn()) && left < half {
		c.ackNow()
	}
}

// receiveTuning measures what the application reads in a round trip (dynamic right-sizing,
// Fisk and Feng, 2001). The round-trip time is the receiver's own, since a connection that
// only receives may have measured none as a sender.
type receiveTuning struct {
	since    clock.Time // when the present round began
	rttSince clock.Time // with timestamps when the present minimum began, else when the mark was set
	bytes    uint32     // read in this round
	rttMark  uint32     // with timestamps the last echo, else a sequence number that is a round trip away
	rtt      uint32     // least round-trip time, microseconds, plus one; 0: none
	low      uint32     // the same, since rttSince
	rate     uint32     // bytes per millisecond when a full window last let the buffer grow
	hole     bool       // one was filled in this round
}

const (
	// leastRound is the shortest round. On shorter paths the time that the application
	// needs to wake up decides how much must fit into the window.
	leastRound = 250 * time.Microsecond

	// receiveRTTPeriod is the time that a least round-trip time holds. A standing queue of this
	// flow must not pass for a longer path at once, or the window would grow with the queue
	// and the queue with the window.
	receiveRTTPeriod = 30 * time.Second
)

// measureReceive takes the round-trip time from a full segment in order: by the echo of a
// timestamp that no segment has echoed before, or else by the time in which the window that
// was open at the mark has filled.
func (c *Conn) measureReceive(now clock.Time, s *Segment) {
	t := &c.tuning
	if !c.has(flagTimestamps) {
		c.measureWindow(now)
		return
	}
	if s.Options.TSEcr == t.rttMark || s.Len < uint32(c.largestIn) {
		return
	}
	t.rttMark = s.Options.TSEcr
	at := c.echo(now, s)
	if at == 0 {
		return
	}
	t.sample(now.Sub(at))
	if now.Sub(t.rttSince) > receiveRTTPeriod {
		t.rtt, t.low, t.rttSince = t.low, math.MaxUint32, now
	}
}

// measureWindow is measureReceive without timestamps: data beyond the announced window was
// sent after the announcement had arrived.
func (c *Conn) measureWindow(now clock.Time) {
	t := &c.tuning
	if t.rttSince != 0 && seqnum.Before(c.rcvNxt, t.rttMark) {
		return
	}
	if t.rttSince != 0 {
		t.sample(now.Sub(t.rttSince))
	}
	t.rttSince, t.rttMark = now, c.rcvAdv
}

// sample takes a round-trip time.
func (t *receiveTuning) sample(d time.Duration) {
	us := uint32(min(max(d, 0), time.Minute).Microseconds()) + 1
	if t.rtt == 0 {
		t.rtt, t.low = us, us
	}
	t.rtt, t.low = min(t.rtt, us), min(t.low, us)
}

// receiveRTT is the round-trip time for the receive buffer; 0 while it is not known. The
// sender's may be from the handshake, so with timestamps the receiver's counts where it is
// surely longer: echoes are rounded down to a tick. The window is an upper bound only.
func (c *Conn) receiveRTT() time.Duration {
	srtt, own := c.sender.scoreboard.SRTT(), time.Duration(max(c.tuning.rtt, 1)-1)*time.Microsecond
	switch {
	case srtt == 0:
		return own
	case c.has(flagTimestamps):
		return max(srtt, own-timestampTick)
	}
	return srtt
}

// tuneReceive grows the receive buffer to twice what the application reads in a round trip:
// in that time the sender's window can double. An application that does not read gets no
// memory.
func (c *Conn) tuneReceive(now clock.Time, n uint32) {
	if c.opt.ReceiveBuffer > 0 {
		return
	}
	t := &c.tuning
	t.bytes += n
	elapsed := now.Sub(t.since)
	if elapsed < leastRound {
		return
	}
	round := max(c.receiveRTT(), leastRound)
	if elapsed < round {
		return
	}
	read := uint64(t.bytes) * uint64(round) / uint64(elapsed)
	if c.windowLimited(elapsed) {
		read = uint64(t.bytes)
	}
	want := 2*read + 16*uint64(c.fullSegmentIn())
	if want > uint64(c.rcvLimit) {
		c.growReceive(want + want/2)
	}
	t.since, t.bytes, t.hole = now, 0, false
}

// windowLimited reports whether the peer waits for the window although all that arrived was
// read. Either a hole kept data from the application, for longer than a round trip. Or the
// application reads seldom, and the last growth for this reason has made the peer faster by
// a quarter. Otherwise something else limits the rate, such as the CPU, and a larger window
// would only be a longer queue.
func (c *Conn) windowLimited(elapsed time.Duration) bool {
	t := &c.tuning
	full := seqnum.Distance(c.rcvNxt, c.rcvAdv) < c.fullSegmentIn()
	switch {
	case !full || c.Readable() > 0:
		return false
	case t.hole:
		return true
	}
	rate := uint32(min(uint64(t.bytes)*uint64(time.Millisecond)/uint64(elapsed), math.MaxUint32/2))
	if rate <= t.rate+t.rate/4 {
		return false
	}
	t.rate = rate
	return true
}
