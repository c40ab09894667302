package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// Urgent data is inline (RFC 6093 4): the pointer marks a place in the stream, no byte
// leaves it. It points behind the last urgent byte (RFC 9293 3.8.5).

// WriteUrgent is Write with the last byte marked urgent (RFC 9293 3.8.5).
//
// Urgent data stays inline (RFC 6093 4): the pointer marks a place in the stream and takes
// no byte out of it. It points behind the last urgent byte (RFC 9293 3.8.5).
func (c *Conn) WriteUrgent(now clock.Time, b []byte) int {
	n := c.Write(now, b)
	if n > 0 {
		c.ensureRare().sndUrgent = c.end
		c.flags |= flagSndUrgent
	}
	return n
}

// markUrgent sets the urgent pointer of a segment at seq while urgent data is ahead of it.
func (c *Conn) markUrgent(h *wire.TCPHeader, seq uint32, flags *wire.TCPFlags) {
	h.Urgent = 0
	if !c.has(flagSndUrgent) {
		return
	}
	up := c.rare.sndUrgent
	if seqnum.AtOrBefore(up, c.una) {
		c.flags &^= flagSndUrgent
		return
	}
	if seqnum.Before(seq, up) {
		*flags |= wire.FlagURG
		h.Urgent = uint16(min(up-seq, 0xffff))
	}
}

// inputURG is RFC 9293 3.10.7.4, sixth: it reports urgent data ahead of what was read. An
// older pointer changes nothing.
func (c *Conn) inputURG(s *Segment) {
	up := s.Seq + uint32(s.Urgent)
	if s.Urgent == 0 || c.has(flagRcvUrgent) && !seqnum.Before(c.rare.rcvUrgent, up) || !seqnum.Before(c.readNext(), up) {
		return
	}
	c.ensureRare().rcvUrgent = up
	c.flags |= flagRcvUrgent
	c.report(Urgent)
}

// readNext is the sequence number of the next byte to be read.
func (c *Conn) readNext() uint32 {
	if c.active == nil || c.rcv == nil {
		return c.rcvNxt
	}
	return c.rcv.Base()
}

// passUrgent forgets the mark once the application has read past it.
func (c *Conn) passUrgent() {
	if c.has(flagRcvUrgent) && !seqnum.Before(c.readNext(), c.rare.rcvUrgent) {
		c.flags &^= flagRcvUrgent
	}
}

// AtMark reports whether the next byte to be read is the urgent one (RFC 6093; SIOCATMARK
// of sockets).
func (c *Conn) AtMark() bool {
	return c.has(flagRcvUrgent) && c.readNext() == c.rare.rcvUrgent-1
}

// ToMark returns how many bytes precede the urgent one; false is that none is ahead.
func (c *Conn) ToMark() (int, bool) {
	if !c.has(flagRcvUrgent) {
		return 0, false
	}
	return int(seqnum.Distance(c.readNext(), c.rare.rcvUrgent-1)), true
}
