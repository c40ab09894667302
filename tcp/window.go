package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
)

// receiveSpace is how many bytes from RCV.NXT on may arrive: the limit less what waits to
// be read, within what the window field can say (RFC 7323 2.3).
func (c *Conn) receiveSpace() uint32 {
	held, limit := uint32(c.Readable()), c.receiveLimit()
	if held >= limit {
		return 0
	}
	return min(limit-held, 0xffff<<c.rcvScale)
}

// receiveEdge returns the right edge of the window to announce. It never moves left (RFC
// 9293 3.8.6), and right only by a full segment or half the buffer: small steps would
// invite small segments (silly window syndrome, section 3.8.6.2.2).
func (c *Conn) receiveEdge() uint32 {
	edge := c.rcvNxt + c.receiveSpace()
	// Until the handshake is complete the peer knows the window of the SYN-ACK, which is
	// not scaled.
	if c.state == StateSynReceived {
		return c.rcvAdv // what the SYN-ACK says, or will say again
	}
	gain := seqnum.Distance(c.rcvAdv, edge)
	if gain < min(c.receiveLimit()/2, c.fullSegmentIn()) {
		return seqnum.Latest(c.rcvAdv, c.rcvNxt)
	}
	return edge
}

// fullSegmentIn estimates the size of the peer's full segments.
func (c *Conn) fullSegmentIn() uint32 {
	return max(uint32(c.largestIn), uint32(c.mss()))
}

// scaledWindow returns the window field for the right edge and moves the edge to what the
// field says. Scaling rounds down, but up where the edge would otherwise move left.
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
	gain := seqnum.Distance(c.rcvAdv, c.rcvNxt+c.receiveSpace())
	left := seqnum.Distance(c.rcvNxt, c.rcvAdv)
	if half := c.receiveLimit() / 2; gain >= min(half, 2*c.fullSegmentIn()) && left < half {
		c.ackNow()
	}
}

// receiveTuning measures how fast the application reads.
type receiveTuning struct {
	since clock.Time // when the present round trip began
	bytes uint32     // read since then
}

// tuneReceive grows the receive buffer to twice what the application has read in a round
// trip: in that time the sender's window can double (dynamic right-sizing, Fisk and Feng,
// 2001). An application that does not read gets no memory.
func (c *Conn) tuneReceive(now clock.Time, n uint32) {
	if c.opt.ReceiveBuffer > 0 {
		return
	}
	c.tuning.bytes += n
	if now.Sub(c.tuning.since) < c.sender.scoreboard.SRTT() {
		return
	}
	want := 2*uint64(c.tuning.bytes) + 16*uint64(c.fullSegmentIn())
	if want > uint64(c.rcvLimit) {
		c.growReceive(want + want/2)
	}
	c.tuning.since, c.tuning.bytes = now, 0
}
