package tcp

import (
	"errors"
	"sort"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// Marks in the stream: the urgent pointer, and the ends of records.
//
// The urgent pointer points behind the last urgent byte (RFC 9293 3.8.5) and takes no byte out
// of the stream (RFC 6093 4). The socket interface of BSD nevertheless does so unless
// SO_OOBINLINE is set; Options.UrgentOutOfBand is for programs that rely on it.
//
// A record end (MSG_EOR) is the sender's alone: no segment has bytes of two records, so that
// devices and peers that look at segments see each by itself. The peer's stream does not show it.

// Errors of ReadUrgent.
var (
	ErrNoUrgent    = errors.New("no urgent data")
	ErrUrgentLater = errors.New("urgent data has not arrived yet")
)

// WriteUrgent is Write with the last byte marked urgent (RFC 9293 3.8.5).
func (c *Conn) WriteUrgent(now clock.Time, b []byte) int {
	n := c.Write(now, b)
	if n > 0 {
		c.ensureRare().sndUrgent = c.end
		c.flags |= flagSndUrgent
	}
	return n
}

// EndRecord ends a record with the byte that was written last (MSG_EOR): no segment has both
// that byte and one that is written later.
func (c *Conn) EndRecord() {
	if c.end == c.una || c.has(flagFIN) {
		return
	}
	k := c.ensureRare()
	if n := len(k.records); c.has(flagRecords) && n > 0 && k.records[n-1] == c.end {
		return
	}
	k.records = append(k.records[c.recordAt(c.una):], c.end)
	c.flags |= flagRecords
}

// recordAt returns the index of the record that seq lies in.
func (c *Conn) recordAt(seq uint32) int {
	list := c.rare.records
	return sort.Search(len(list), func(i int) bool { return seqnum.Before(seq, list[i]) })
}

// toRecordEnd returns how many bytes from seq on belong to one record.
func (c *Conn) toRecordEnd(seq uint32) uint32 {
	k := c.rare
	k.records = k.records[c.recordAt(c.una):]
	if len(k.records) == 0 {
		c.flags &^= flagRecords
		k.records = nil
		return c.end - seq
	}
	if i := c.recordAt(seq); i < len(k.records) {
		return k.records[i] - seq
	}
	return c.end - seq
}

// endsRecord reports whether the byte before seq is the last of a record.
func (c *Conn) endsRecord(seq uint32) bool {
	if !c.has(flagRecords) {
		return false
	}
	i := c.recordAt(seq - 1)
	return i < len(c.rare.records) && c.rare.records[i] == seq
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
	// The byte before an older pointer becomes part of the stream, unless the program stands at
	// it and would then read it as the first byte behind the mark.
	if c.skipsUrgent() {
		c.rcv.Discard(&c.m.buffers, 1)
		c.freeRing()
	}
	k := c.ensureRare()
	k.rcvUrgent, k.urgentRead = up, false
	c.flags |= flagRcvUrgent
	c.report(Urgent)
}

// holdsUrgent reports, with flagRcvUrgent, whether the urgent byte has arrived and was not
// passed.
func (c *Conn) holdsUrgent() bool {
	return seqnum.AtOrBefore(c.rare.rcvUrgent, c.rcvNxt) && seqnum.Before(c.readNext(), c.rare.rcvUrgent)
}

// skipsUrgent reports whether the next read leaves out the urgent byte.
func (c *Conn) skipsUrgent() bool { return c.opt.UrgentOutOfBand && c.AtMark() && c.holdsUrgent() }

// cutAtMark shortens what can be read to what precedes the urgent byte; behind it, to what
// follows it where the byte is out of band.
func (c *Conn) cutAtMark(p *[2][]byte) {
	n := int(seqnum.Distance(c.readNext(), c.rare.rcvUrgent-1))
	switch {
	case n > 0:
		*p = truncatePieces(*p, min(n, len(p[0])+len(p[1])))
	case c.skipsUrgent():
		p[0] = p[0][1:]
		if len(p[0]) == 0 {
			p[0], p[1] = p[1], nil
		}
	}
}

// UrgentReady reports whether an urgent byte has arrived that neither ReadUrgent has returned nor
// Read has passed (EPOLLPRI).
func (c *Conn) UrgentReady() bool {
	return c.has(flagRcvUrgent) && !c.rare.urgentRead && c.holdsUrgent()
}

// ReadUrgent returns the urgent byte (MSG_OOB). Later calls return ErrNoUrgent unless peek is
// set, as it does without Options.UrgentOutOfBand; the byte stays where AtMark finds it.
// ErrUrgentLater is that the pointer has arrived before the byte.
func (c *Conn) ReadUrgent(peek bool) (byte, error) {
	switch {
	case !c.opt.UrgentOutOfBand || !c.has(flagRcvUrgent) || c.rare.urgentRead:
		return 0, ErrNoUrgent
	case !c.holdsUrgent():
		return 0, ErrUrgentLater
	}
	c.rare.urgentRead = !peek
	p := c.rcv.Peek()
	at := int(seqnum.Distance(c.readNext(), c.rare.rcvUrgent-1))
	if at < len(p[0]) {
		return p[0][at], nil
	}
	return p[1][at-len(p[0])], nil
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
