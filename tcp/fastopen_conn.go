package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inputFastOpen takes the payload of the SYN that made the connection (RFC 7413 4.2.2).
func (c *Conn) inputFastOpen(now clock.Time, s *Segment) packet.Verdict {
	x := *s
	x.Seq++
	x.Flags &^= wire.FlagSYN
	v := c.acceptData(now, &x)
	if v == packet.Deliver && x.Flags.Has(wire.FlagFIN) {
		c.noteFIN(x.Seq + x.Len)
		c.processFIN(now)
	}
	return v
}

// addFastOpenOption adds Fast Open to a SYN: to the first of ours the cookie that the server gave, with data, or
// the wish for one (RFC 7413 4.1.3 and 4.2.1); to a SYN-ACK a new cookie. It returns the bytes of data.
func (c *Conn) addFastOpenOption(now clock.Time, o *Outgoing, first bool) uint32 {
	if c.state == StateSynReceived {
		if c.rare != nil && c.rare.cookie != nil {
			c.appendFastOpenCookie(o, c.rare.cookie)
		}
		return 0
	}
	if !c.opt.FastOpen || !first || c.auth != nil {
		return 0
	}
	cookie, mss, ok := c.m.passive.fastOpenCache.cookie(now, &c.tuple.Remote)
	if !ok || !c.appendFastOpenCookie(o, cookie) {
		return 0
	}
	c.flags |= flagTriedFastOpen
	if len(cookie) == 0 || c.snd == nil {
		return 0
	}
	room := min(int(mss), c.segmentSize()) - len(o.Header.Options)
	var n int
	o.Payload, n = c.snd.slice(c.una+1, max(room, 0))
	o.SegmentSize = n
	return uint32(n)
}

// outputFastOpenData sends data behind the SYN-ACK, before that is acknowledged: the cookie has shown that the peer is at its
// address (RFC 7413 4.2.2). Once the SYN-ACK was lost, the rest waits for the handshake, and so does a FIN.
func (c *Conn) outputFastOpenData(now clock.Time) bool {
	if c.state != StateSynReceived || c.m.passive.fastOpenPending[c.id] == nil || c.has(flagFIN) || c.sender.scoreboard.Backoff() > 0 {
		return true
	}
	return c.outputNew(now)
}

// appendFastOpenCookie appends the option, if it fits.
func (c *Conn) appendFastOpenCookie(o *Outgoing, cookie []byte) bool {
	b := o.Header.Options
	if len(b)+2+len(cookie)+3 > wire.TCPMaxOptions {
		return false
	}
	b = wire.AppendFastOpen(b, cookie)
	o.Header.Options = wire.AppendNOP(b, -len(b)&3)
	return true
}

// inputFastOpenReply takes what a SYN-ACK says to a SYN with the option.
func (c *Conn) inputFastOpenReply(s *Segment) {
	f := &c.m.passive.fastOpenCache
	if s.Options.HasFastOpen {
		f.store(&c.tuple.Remote, s.Options.FastOpen, c.peerMSS)
	}
	f.markWorking(&c.tuple.Remote)
	if s.Ack != c.una+1 {
		c.flags |= flagFastOpen
	}
}
