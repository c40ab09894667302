package tcp

import "github.com/millrace/millrace/clock"

// Bounds of buffers that grow with need.
const (
	initialReceiveBuffer = 128 << 10
	maxReceiveBuffer     = 6 << 20
	initialSendBuffer    = 256 << 10
	maxSendBuffer        = 4 << 20
	minBuffer            = 8 << 10 // what remains when memory is short
)

// receiveTuning watches how fast the application reads.
type receiveTuning struct {
	since clock.Time // the round trip began
	bytes uint32     // read in it
}

// initialReceive is how many bytes a connection with these options holds at first.
func (m *Mux) initialReceive(o *Options) uint32 {
	if o.ReceiveBuffer > 0 {
		return uint32(min(o.ReceiveBuffer, 1<<30))
	}
	return uint32(max(min(initialReceiveBuffer, m.buffers.budget/16), minBuffer))
}

// tuneReceive grows the receive buffer to twice what the application has read in a round trip: the
// sender's window doubles in that time (dynamic right-sizing, Fisk and Feng 2001).
func (c *Conn) tuneReceive(now clock.Time, n uint32) {
	if c.opt.ReceiveBuffer > 0 {
		return
	}
	c.tuning.bytes += n
	if now.Sub(c.tuning.since) < c.sender.scoreboard.SRTT() {
		return
	}
	want := 2*uint64(c.tuning.bytes) + 16*uint64(c.fullSegmentIn())
	if most := c.m.maxReceiveNow(); want > uint64(c.rcvLimit) && c.rcvLimit < most {
		c.rcvLimit = uint32(min(want+want/2, uint64(most)))
	}
	c.tuning.since, c.tuning.bytes = now, 0
}

// maxReceiveNow is what a receive buffer may grow to now.
func (m *Mux) maxReceiveNow() uint32 {
	if m.buffers.tight() {
		return 0
	}
	return uint32(min(maxReceiveBuffer, m.buffers.budget/8))
}

// sendLimit is how many bytes the send queue holds at most: twice the congestion window, so that what
// is acknowledged is replaced at once.
func (c *Conn) sendLimit() int {
	p := &c.m.buffers
	if c.opt.SendBuffer > 0 {
		return c.opt.SendBuffer
	}
	if p.critical() {
		return minBuffer
	}
	n := max(initialSendBuffer, min(2*int(c.sender.cc.Window()), maxSendBuffer))
	if p.tight() {
		n = initialSendBuffer / 4
	}
	return max(min(n, int(p.budget/8)), minBuffer)
}

// reserveAfterPrune makes room for c's ring, which the budget has refused: what came out of order is dropped, as
// the peer keeps it until it is acknowledged (RFC 2018 8).
func (m *Mux) reserveAfterPrune(c *Conn, r *receiveRing, need uint32) bool {
	if len(r.ooo) > 0 && r.n == 0 {
		m.stats.Pruned += uint64(r.prune())
	}
	return r.reserve(&m.buffers, need)
}
