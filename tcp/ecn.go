package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// ecnState is the explicit congestion notification of a connection: RFC 3168, its use by
// DCTCP (RFC 8257), and accurate ECN (RFC 9768), which counts marked packets in the three
// bits AE, CWR and ECE (the ACE field).
type ecnState struct {
	ceReceived       uint32 // packets that arrived marked: r.cep of RFC 9768
	ceReported       uint32 // marked packets that the peer has reported: s.cep
	mode             ecnAgreed
	echo             bool // send ECN-Echo until the peer answers by CWR (RFC 3168 6.1.3)
	handshakeACKSent bool // the ACK that completes the handshake was sent: its ACE field has another meaning (RFC 9768 3.2.2.1)
	synECN           wire.ECN
}

// cepStart is where the counters of accurate ECN begin: not at 0, nor at a value that a
// peer which merely reflects bits would repeat (RFC 9768 3.2.1).
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

// cePackets is how many packets arrived marked.
func (e *ecnState) cePackets() uint32 {
	if e.mode == ecnAccurate {
		return e.ceReceived - cepStart
	}
	return e.ceReceived
}

// wantsECN returns the mode to ask for. DCTCP does not work without ECN, so it asks even
// where options do not.
func (c *Conn) wantsECN() ECNMode {
	if c.opt.ECN == ECNPassive && c.opt.Congestion == "dctcp" {
		return ECNClassic
	}
	return c.opt.ECN
}

// markSYN asks for ECN in a SYN, and agrees in a SYN-ACK of a simultaneous open to what the
// peer's SYN asked for (RFC 3168 6.1.1, RFC 9768 3.1.1). A SYN that timed out twice no
// longer asks: a middlebox may drop it for that (RFC 3168 6.1.1.1).
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

// parseSynAck returns the mode that a SYN-ACK agrees to (RFC 9768 table 2). SYNs that cross
// agree on nothing.
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

// aceField is the number in AE, CWR and ECE.
func aceField(s *Segment) uint32 {
	f := uint32(s.Flags >> 6 & 3)
	if s.AE {
		f |= 4
	}
	return f
}

// aceOf returns the ACE field that reports the ECN field in which a SYN or SYN-ACK arrived
// (RFC 9768 tables 2 and 3).
func aceOf(mark wire.ECN) uint32 {
	return [4]uint32{wire.NotECT: 2, wire.ECT1: 3, wire.ECT0: 4, wire.CE: 6}[mark&3]
}

// markSegment sets ECT on new data, and only on that (RFC 3168 6.1.4 and 6.1.5: a lost ACK
// or retransmission that was marked would go unnoticed), and reports what was received.
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

// segmentSent notes that the segment has left. CWR is sent once: until then another Send
// may have found no room.
func (e *ecnState) segmentSent(c *Conn, o *Outgoing) {
	e.handshakeACKSent = e.handshakeACKSent || !c.has(flagPassive)
	if o.Header.Flags.Has(wire.FlagCWR) && e.mode == ecnClassic {
		c.sender.cwr = false
	}
}

// countCE counts packets that arrived marked (RFC 9768 3.2.2). With data they are
// acknowledged at once; without, one in four is: ACKs of ACKs that are marked in turn must
// come to an end (section 3.2.2.5.1).
func (c *Conn) countCE(s *Segment) {
	e := &c.ecn
	e.ceReceived += uint32(s.Packets)
	if segmentLen(s) > 0 || e.ceReceived&3 == 0 {
		c.ackNow()
	}
}

// inputECN handles the ECN field of a segment (RFC 3168 6.1.3). DCTCP echoes each mark and
// each end of marks: data received before the change is acknowledged first, with the old
// echo (RFC 8257 3.2).
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

// parseACK reads what an ACK for n bytes says of congestion: whether to reduce the window,
// and how many bytes were marked. Unless fresh, the ACK may be older than the last, and its
// counter too (RFC 9768 3.2.2.5).
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

// newlyReported returns how many more marked packets the peer reports. Three bits wrap at
// eight, so that the GRO merges at most six marked segments (RFC 9768 3.2.2.5).
func (e *ecnState) newlyReported(ace uint32) uint32 {
	more := (ace - e.ceReported) & 7
	e.ceReported += more
	return more
}

// inputFinalACK handles the ACK that completes a handshake, which reports the ECN field of
// our SYN-ACK (RFC 9768 table 4). 0 is what remains where the path clears the bits: then
// nothing is sent ECN-capable.
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
