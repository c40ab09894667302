package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// ecnState is what a connection keeps of explicit congestion notification: RFC 3168, its use by DCTCP
// (RFC 8257), and accurate ECN (RFC 9768).
type ecnState struct {
	ceReceived       uint32 // packets that came marked: r.cep
	ceReported       uint32 // marked packets that the peer has reported: s.cep
	mode             ecnAgreed
	echo             bool // send ECN-Echo until the peer answers by CWR
	handshakeACKSent bool // the ACK that ended the handshake, whose ACE field is special, was sent
	synECN           wire.ECN
}

// cepStart is where the counters of accurate ECN begin: neither 0 nor what a broken peer repeats (RFC 9768 3.2.2.1).
const cepStart = 5

// setNegotiated takes the outcome of the handshake.
func (e *ecnState) setNegotiated(h *handshake) {
	e.mode, e.synECN = h.ecn, h.synECN
	if e.mode == ecnAccurate {
		e.ceReceived, e.ceReported = cepStart, max(e.ceReported, cepStart) // answered may have counted our SYN
		if h.synECN == wire.CE {
			e.ceReceived++
		}
	}
}

// cePackets is how many packets came marked.
func (e *ecnState) cePackets() uint32 {
	if e.mode == ecnAccurate {
		return e.ceReceived - cepStart
	}
	return e.ceReceived
}

// wants returns the mode to ask for.
func (c *Conn) wantsECN() ECNMode {
	if c.opt.ECN == ECNPassive && c.opt.Congestion == "dctcp" {
		return ECNClassic
	}
	return c.opt.ECN
}

// markSYN asks for ECN in a SYN, and agrees to what a SYN without ACK has asked for (RFC 3168 6.1.1, RFC 9768
// 3.1.1). One that was lost twice may have been lost for it.
func (e *ecnState) markSYN(c *Conn, o *Outgoing) {
	if c.state == StateSynReceived {
		switch e.mode {
		case ecnClassic:
			o.Header.Flags |= wire.FlagECE
		case ecnAccurate:
			ace := aceOf(e.synECN)
			o.Header.Flags |= wire.TCPFlags(ace&3) << 6
			o.AE = ace&4 != 0
		}
		return
	}
	want := c.wantsECN()
	if want < ECNClassic || c.sender.scoreboard.Backoff() > 1 {
		return
	}
	o.Header.Flags |= wire.FlagECE | wire.FlagCWR
	o.AE = want == ECNAccurate
}

// parseSynAck reads what a SYN-ACK says to what our SYN asked (RFC 9768 table 2). SYNs that cross agree on
// nothing.
func (e *ecnState) parseSynAck(o *Options, s *Segment) ecnAgreed {
	ace := aceField(s)
	asked := o.ECN
	if asked == ECNPassive && o.Congestion == "dctcp" {
		asked = ECNClassic
	}
	switch {
	case !s.Flags.Has(wire.FlagACK): // each would have to tell the other what it made of two questions
		return ecnNone
	case asked == ECNAccurate && (ace == 2 || ace == 3 || ace == 4 || ace == 6):
		if ace == 6 {
			e.ceReported = cepStart + 1
		}
		return ecnAccurate
	case asked >= ECNClassic && (ace == 1 || ace == 5):
		return ecnClassic
	}
	return ecnNone
}

// aceField is AE, CWR and ECE as a number.
func aceField(s *Segment) uint32 {
	f := uint32(s.Flags >> 6 & 3)
	if s.AE {
		f |= 4
	}
	return f
}

// aceOf returns the three bits that tell how a SYN or SYN-ACK arrived (RFC 9768 tables 2 and 3).
func aceOf(mark wire.ECN) uint32 {
	return [4]uint32{wire.NotECT: 2, wire.ECT1: 3, wire.ECT0: 4, wire.CE: 6}[mark&3]
}

// markSegment marks a segment as one whose sender hears congestion (new data alone, RFC 3168 6.1.4 and
// 6.1.5), and says what was heard.
func (e *ecnState) markSegment(c *Conn, o *Outgoing, n int, fresh bool) {
	switch e.mode {
	case ecnClassic:
		if e.echo {
			o.Header.Flags |= wire.FlagECE
		}
		if c.sender.cwr && n > 0 && fresh {
			o.Header.Flags |= wire.FlagCWR
		}
	case ecnAccurate:
		ace := e.ceReceived & 7
		if !e.handshakeACKSent && !c.has(flagPassive) {
			ace = aceOf(e.synECN)
		}
		o.Header.Flags |= wire.TCPFlags(ace&3) << 6
		o.AE, o.ACE = ace&4 != 0, true
	default:
		return
	}
	if n > 0 && fresh && !c.has(flagNotECT) {
		o.ECN = wire.ECT0
	}
}

// segmentSent notes that the segment has left.
func (e *ecnState) segmentSent(c *Conn, o *Outgoing) {
	e.handshakeACKSent = e.handshakeACKSent || !c.has(flagPassive)
	if o.Header.Flags.Has(wire.FlagCWR) && e.mode == ecnClassic {
		c.sender.cwr = false
	}
}

// countCE counts packets that came marked (RFC 9768 3.2.2). With data they are answered at once. Without, one in four
// is: ACKs of ACKs that are marked in their turn must come to an end (section 3.2.2.5.1).
func (c *Conn) countCE(s *Segment) {
	e := &c.ecn
	e.ceReceived += uint32(s.Packets)
	if segmentLen(s) > 0 || e.ceReceived&3 == 0 {
		c.ackNow()
	}
}

// inputECN notes how a segment came (RFC 3168 6.1.3). DCTCP echoes every mark and every end of marks:
// what was received before the change is acknowledged first (RFC 8257 3.2).
func (c *Conn) inputECN(now clock.Time, s *Segment) {
	e := &c.ecn
	marked := s.ECN == wire.CE
	switch e.mode {
	case ecnClassic:
		if c.opt.Congestion == "dctcp" {
			if marked != e.echo && s.Len > 0 {
				if c.lastAcked != c.rcvNxt {
					c.sendACK(now)
				}
				e.echo = marked
				c.ackNow()
			}
			return
		}
		if s.Flags.Has(wire.FlagCWR) {
			e.echo = false
		}
		if marked {
			e.echo = true
		}
	}
}

// parseACK reads what an ACK for n bytes says of congestion: whether to reduce the window, and how many
// bytes were marked. The counter of accurate ECN may be older than the last where fresh is not set: the ACK brings
// nothing new (RFC 9768 3.2.2.5).
func (e *ecnState) parseACK(c *Conn, s *Segment, n uint32, fresh bool) (reduce bool, marked uint32) {
	switch e.mode {
	case ecnClassic:
		if !s.Flags.Has(wire.FlagECE) || s.Flags.Has(wire.FlagSYN) {
			return false, 0
		}
		return true, n
	case ecnAccurate:
		if s.Flags.Has(wire.FlagSYN) || !fresh {
			return false, 0
		}
		marked = e.newlyReported(aceField(s)) * uint32(c.mss())
		return marked > 0, marked
	}
	return false, 0
}

// newlyReported returns how many more packets the peer says to have received marked (RFC 9768 3.2.2.5).
func (e *ecnState) newlyReported(ace uint32) uint32 {
	more := (ace - e.ceReported) & 7
	e.ceReported += more
	return more
}

// inputFinalACK takes the ACK that ends a handshake, which tells how our SYN-ACK came (RFC 9768 table 4). 0 is what is left of it
// where something in the way clears the bits.
func (c *Conn) inputFinalACK(s *Segment) {
	if c.ecn.mode != ecnAccurate {
		return
	}
	switch aceField(s) {
	case 6:
		c.ecn.ceReported++
	case 0:
		c.flags |= flagNotECT
	}
}
