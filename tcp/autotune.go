package tcp

import "github.com/millrace/millrace/clock"

// Bounds of buffers that grow with need.
const (
	firstReceive = 128 << 10
	maxReceive   = 6 << 20
	firstSend    = 256 << 10
	maxSend      = 4 << 20
	leastBuffer  = 8 << 10 // what remains when memory is short
)

// tuning watches how fast the application reads.
type tuning struct {
	since clock.Time // the round trip began
	bytes uint32     // read in it
}

// initialReceive is how many bytes a connection with these options holds at first.
func (m *Mux) initialReceive(o *Options) uint32 {
	if o.ReceiveBuffer > 0 {
		return uint32(min(o.ReceiveBuffer, 1<<30))
	}
	return uint32(max(min(firstReceive, m.buffers.budget/16), leastBuffer))
}

// tuneReceive grows the receive buffer to twice what the application has read in a round trip: the
// sender's window doubles in that time (dynamic right-sizing, Fisk and Feng 2001).
func (c *Conn) tuneReceive(now clock.Time, n uint32) {
	if c.opt.ReceiveBuffer > 0 {
		return
	}
	c.tune.bytes += n
	if now.Sub(c.tune.since) < c.sender.board.SRTT() {
		return
	}
	want := 2*uint64(c.tune.bytes) + 16*uint64(c.fullSegmentIn())
	if most := c.m.mostReceive(); want > uint64(c.rcvLimit) && c.rcvLimit < most {
		c.rcvLimit = uint32(min(want+want/2, uint64(most)))
	}
	c.tune.since, c.tune.bytes = now, 0
}

// mostReceive is what a receive buffer may grow to now.
func (m *Mux) mostReceive() uint32 {
	if m.buffers.tight() {
		return 0
	}
	return uint32(min(maxReceive, m.buffers.budget/8))
}

// sendLimit is how many bytes the send queue holds at most: twice the congestion window, so that what
// is acknowledged is replaced at once.
func (c *Conn) sendLimit() int {
	p := &c.m.buffers
	if c.opt.SendBuffer > 0 {
		return c.opt.SendBuffer
	}
	if p.critical() {
		return leastBuffer
	}
	n := max(firstSend, min(2*int(c.sender.cc.Window()), maxSend))
	if p.tight() {
		n = firstSend / 4
	}
	return max(min(n, int(p.budget/8)), leastBuffer)
}

// relieve makes room for c's ring, which the budget has refused: what came out of order is dropped, as
// the peer keeps it until it is acknowledged (RFC 2018 8).
func (m *Mux) relieve(c *Conn, r *receiveRing, need uint32) bool {
	if len(r.ranges) > 0 && r.n == 0 {
		m.stats.Pruned += uint64(r.prune())
	}
	return r.reserve(&m.buffers, need)
}
