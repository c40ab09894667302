package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/wire"
)

// ecnState is the explicit congestion notification of a connection: RFC 3168, its use by
// DCTCP (RFC 8257), and accurate ECN (RFC 9768), whose counters are in rare.accurate.
type ecnState struct {
	received   uint32 // packets that arrived marked, in classic mode
	mode       ecn.Mode
	echo       bool // send ECN-Echo until the peer answers by CWR (RFC 3168 6.1.3)
	ackOfACKs  bool // the next ACK answers marks of packets without data: it must not look like a duplicate
	handshaken bool // accurate: nothing is left to send or to read of the handshake's encoding
}

// accurateECN is both directions of accurate ECN.
type accurateECN struct {
	in          ecn.Receiver
	out         ecn.Sender
	syn         wire.ECN // ECN field in which the peer's latest SYN arrived
	sendsSynAck bool     // the ACKs of both ends have counters then, but one
}

// accurate returns the counters of accurate ECN, nil in another mode.
func (c *Conn) accurate() *accurateECN {
	if c.ecn.mode != ecn.Accurate {
		return nil
	}
	return c.rare.accurate
}

// startECN takes the outcome of the handshake. An accepting end must send nothing
// ECN-capable once a SYN or SYN-ACK without ECN was among those of the handshake (RFC 9768
// 3.1.5): the peer may have understood that there is none.
func (c *Conn) startECN(h *handshake) {
	c.ecn = ecnState{mode: h.ecn}
	if h.notECT {
		c.flags |= flagNotECT
	}
	if h.ecn != ecn.Accurate {
		return
	}
	a := &accurateECN{syn: h.synECN, sendsSynAck: h.sendsSynAck}
	a.in.Start()
	a.out.Start(h.sendsSynAck)
	if h.resent {
		a.in.Silence() // the SYN-ACK with the option may have been dropped for it (RFC 9768 3.2.3.2.2)
	}
	c.ensureRare().accurate = a
}

// receivedCE is the number of packets that arrived marked.
func (c *Conn) receivedCE() uint32 {
	if a := c.accurate(); a != nil {
		return a.in.CE()
	}
	return c.ecn.received
}

// wantsECN returns the mode to ask for. DCTCP does not work without ECN, so it asks even
// where options do not.
func (c *Conn) wantsECN() ECNMode {
	if c.has(flagECNPaused) {
		return ECNPassive
	}
	if c.opt.ECN == ECNPassive && c.opt.Congestion == "dctcp" {
		return ECNClassic
	}
	return c.opt.ECN
}

// cachesECN reports whether the fate of our SYNs that ask for ECN is remembered. That of DCTCP's is not: it works on paths
// alone that are known to let them through.
func (c *Conn) cachesECN() bool { return c.wantsECN() >= ECNClassic && c.opt.Congestion != "dctcp" }

// pauseECN decides before the first SYN whether ours ask for no ECN, because none that did was answered lately.
func (c *Conn) pauseECN(now clock.Time) {
	if c.cachesECN() && c.m.passive.ecnFailures.Paused(int64(now), &c.tuple.Remote) {
		c.flags |= flagECNPaused
	}
}

// noteECNAnswer remembers whether a SYN that asks for ECN was answered. One that agrees to it answers such a SYN, even where the
// latest did not ask.
func (c *Conn) noteECNAnswer(now clock.Time, agreed ecn.Mode) {
	switch f := &c.m.passive.ecnFailures; {
	case !c.cachesECN():
	case agreed == ecn.None && c.asksECN() == ecn.None:
		f.Failed(int64(now), &c.tuple.Remote)
	default:
		f.Worked(&c.tuple.Remote)
	}
}

// asksECN is the mode that the latest SYN requests. One that timed out twice no longer asks: a
// middlebox may drop it for that (RFC 3168 6.1.1.1, RFC 9768 3.1.4.1).
func (c *Conn) asksECN() ecn.Mode {
	want := c.wantsECN()
	switch {
	case want < ECNClassic || c.sender.scoreboard.Backoff() > 1:
		return ecn.None
	case want == ECNAccurate:
		return ecn.Accurate
	}
	return ecn.Classic
}

// markSYN asks for ECN in a SYN, and agrees in the SYN-ACK of a simultaneous or fast open
// to what the peer's SYN asked for.
func (c *Conn) markSYN(o *Outgoing) {
	var f ecn.Field
	if c.state == StateSynReceived {
		f = c.markSynAck()
	} else {
		f = [...]ecn.Field{ecn.None: 0, ecn.Classic: ecn.SYNClassic, ecn.Accurate: ecn.SYNAccurate}[c.asksECN()]
	}
	flags, ae := f.Flags()
	o.Header.Flags |= flags
	o.AE = ae
}

// markSynAck returns what the SYN-ACK agrees by. Once one without ECN was sent, nothing
// ECN-capable is (RFC 9768 3.1.5).
func (c *Conn) markSynAck() ecn.Field {
	a, unanswered := c.accurate(), int(c.sender.scoreboard.Backoff())
	if a == nil {
		return ecn.SynAck(c.ecn.mode, 0, unanswered)
	}
	if unanswered >= ecn.WithoutECN {
		c.flags |= flagNotECT
	}
	return ecn.SynAck(ecn.Accurate, a.syn, unanswered)
}

// appendSynAckECN appends the option of accurate ECN to the options of our SYN-ACK.
func (c *Conn) appendSynAckECN(b []byte) []byte {
	if c.accurate() == nil {
		return b
	}
	if c.sender.scoreboard.Backoff() >= ecn.WithoutOption {
		c.rare.accurate.in.Silence()
		return b
	}
	return ecn.AppendInitial(b, wire.TCPMaxOptions-len(b))
}

// parseSynAck returns the mode that a SYN-ACK agrees to (RFC 9768 Table 2). To a SYN that
// crossed ours the answer is that of a listener (section 3.1.2), unless our own SYN
// asked for classic ECN: the peer can answer it by that alone, and both ends need one mode.
func (c *Conn) parseSynAck(s *Segment) ecn.Mode {
	if !s.Flags.Has(wire.FlagACK) {
		mode := ecnOf(c.opt, s)
		if mode == ecn.Accurate && c.asksECN() == ecn.Classic {
			return ecn.Classic
		}
		return mode
	}
	asked := [...]ecn.Mode{ECNClassic: ecn.Classic, ECNAccurate: ecn.Accurate}[c.wantsECN()]
	return ecn.FieldOf(s.Flags, s.AE).Agreed(asked)
}

// inputSynAckECN handles what a SYN-ACK reports of our SYN, and notes how it arrived itself.
// Its mark is counted as that of any segment.
func (c *Conn) inputSynAckECN(now clock.Time, s *Segment) {
	a := c.accurate()
	if a == nil {
		return
	}
	a.in.SynAck(s.ECN, true)
	if a.out.SynAck(ecn.FieldOf(s.Flags, s.AE), wire.NotECT, &s.Options.AccECN) {
		c.sender.congested(now, s.Ack, c.sender.cc.Window())
	}
}

// inputSYNAgain handles a SYN or SYN-ACK that arrives again and does nothing else but
// report, and be reported: the ECN field of the latest counts (RFC 9768 3.1.5). It reports
// whether it has reset the connection.
func (c *Conn) inputSYNAgain(s *Segment) bool {
	if c.ecn.mode == ecn.None || s.Seq != c.rcvNxt-1-uint32(c.counts.received) {
		return false
	}
	f, a := ecn.FieldOf(s.Flags, s.AE), c.accurate()
	switch {
	case !s.Flags.Has(wire.FlagACK):
		return c.state == StateSynReceived && c.inputOtherSYN(s, c.askedAgain(f))
	case a == nil:
	case a.sendsSynAck && c.state == StateSynReceived: // it answers our SYN, which crossed the peer's
		a.out.Established()
		return c.inputOtherSYN(s, f.Agreed(ecn.Accurate))
	case !a.sendsSynAck && f.Agreed(ecn.Accurate) == ecn.Accurate:
		// Our ACK was lost. The next one reports how the latest SYN-ACK arrived (section
		// 3.2.2.1); a SYN-ACK without ECN asks for an ordinary ACK.
		a.in.SynAck(s.ECN, false)
		c.ecn.handshaken = false
	}
	return false
}

// askedAgain is the mode that a further SYN requests. One for accurate ECN that crossed ours for
// classic ECN was answered by that, and is again: it contradicts nothing.
func (c *Conn) askedAgain(f ecn.Field) ecn.Mode {
	mode := f.Asked()
	if mode == ecn.Accurate && c.ecn.mode == ecn.Classic && !c.has(flagPassive) && c.wantsECN() == ECNClassic {
		return ecn.Classic
	}
	return mode
}

// inputOtherSYN handles a further SYN or SYN-ACK of the handshake, for mode.
func (c *Conn) inputOtherSYN(s *Segment, mode ecn.Mode) bool {
	if c.opt.ECN != ECNClassic && ecn.Conflict(c.ecn.mode, mode) {
		c.sendReset()
		c.enterClosed(refused)
		return true
	}
	if mode == ecn.None {
		c.flags |= flagNotECT
	}
	if a := c.accurate(); a != nil && !s.Flags.Has(wire.FlagACK) {
		a.syn = s.ECN
	}
	return false
}

// outputHandshakeACK sends the pure ACK that reports how the SYN-ACK arrived, before data
// that could carry the ACK (RFC 9768 3.2.2.1).
func (c *Conn) outputHandshakeACK(now clock.Time) bool {
	if c.ecn.mode != ecn.Accurate || c.ecn.handshaken {
		return true
	}
	c.ecn.handshaken = true
	return !c.rare.accurate.in.HandshakeDue() || c.sendACK(now)
}

// markSegment sets ECT on new data, and only on that (RFC 3168 6.1.4 and 6.1.5: a lost ACK
// or retransmission that was marked would go unnoticed), and reports what was received.
func (c *Conn) markSegment(o *Outgoing, n int, fresh bool) {
	e := &c.ecn
	switch e.mode {
	case ecn.Classic:
		if e.echo {
			o.Header.Flags |= wire.FlagECE
		}
		if c.sender.cwr && n > 0 && fresh {
			o.Header.Flags |= wire.FlagCWR
		}
	case ecn.Accurate:
		a := c.rare.accurate
		flags, ae := a.in.Field(n == 0 && !o.Header.Flags.Has(wire.FlagFIN)).Flags()
		o.Header.Flags |= flags
		o.AE, o.ACE = ae, true
		fresh = fresh && !a.out.NotECT()
	default:
		return
	}
	if n > 0 && fresh && !c.has(flagNotECT) {
		o.ECN = wire.ECT0
	}
}

// segmentSent notes that the segment with n bytes of data has left. CWR is sent once: until
// then another Send may have found no room.
func (c *Conn) segmentSent(o *Outgoing, n int, option ecn.Layout) {
	switch c.ecn.mode {
	case ecn.Classic:
		if o.Header.Flags.Has(wire.FlagCWR) {
			c.sender.cwr = false
		}
	case ecn.Accurate:
		a := c.rare.accurate
		a.in.Sent(n, option != ecn.NoOption)
		if n > 0 {
			a.out.Sent(n, o.SegmentSize)
		}
		c.ecn.ackOfACKs = false
	}
}

// countMarks counts packets for the peer, and acknowledges marks before there are more than
// the three bits of the ACE field can count (RFC 9768 3.2.2.5.1).
func (c *Conn) countMarks(now clock.Time, s *Segment) {
	in := &c.rare.accurate.in
	if s.ECN == wire.CE && in.Unreported()+uint32(s.Packets) > ecn.MostUnreported {
		c.sendACK(now)
	}
	unacked := s.Len > 0 || c.lastAcked != c.rcvNxt
	if in.Input(s.ECN, uint32(s.Packets), s.Len, unacked) {
		c.ecn.ackOfACKs = !unacked && !c.has(flagAckNow)
		c.ackNow()
	} else if s.Len > 0 {
		c.ecn.ackOfACKs = false
	}
}

// inputECN handles the ECN field of data in classic mode (RFC 3168 6.1.3). DCTCP echoes each
// mark and each end of marks: data received before the change is acknowledged first, with
// the old echo (RFC 8257 3.2).
func (c *Conn) inputECN(now clock.Time, s *Segment) {
	e := &c.ecn
	marked := s.ECN == wire.CE
	if marked {
		e.received += uint32(s.Packets)
	}
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

// feedback reads the congestion feedback of an ACK. The first in accurate mode that an
// accepting end gets may have the encoding of the handshake.
func (c *Conn) feedback(now clock.Time, s *Segment, progress bool) (f ecn.Feedback) {
	if s.Flags.Has(wire.FlagSYN) {
		return f
	}
	if c.ecn.mode == ecn.Classic {
		f.Echo = s.Flags.Has(wire.FlagECE)
		return f
	}
	a := c.rare.accurate
	f.Field, f.Option = ecn.FieldOf(s.Flags, s.AE), &s.Options.AccECN
	f.Later, f.SACK = progress || c.later(s), c.has(flagSACK)
	pure := segmentLen(s) == 0 && s.Options.SACKs == 0
	congested, read := a.out.Final(f.Field, wire.NotECT, f.Option, pure)
	if congested {
		c.sender.congested(now, c.una, c.sender.cc.Window())
	}
	if !read {
		f.Accurate = &a.out
	}
	return f
}

// firstWithOption cuts the first data that the client sends down to one segment: it carries
// the option to test the path (RFC 9768 3.2.3.2.1), which would make those after it shorter.
// cut is whether more is to follow, so that it is not a partial segment of Nagle's algorithm.
func (c *Conn) firstWithOption(n uint32, fin bool) (most uint32, last, cut bool) {
	if most = uint32(c.mss() - ecn.PaddedLen); c.rare.accurate.in.TestsData() && n > most {
		return most, false, true
	}
	return n, fin, false
}

// withoutSACK reports whether the next ACK, with n bytes of data, must not have SACK blocks:
// one with the encoding of the handshake (RFC 9768 3.2.2.1), and one that answers ACKs
// (section 3.2.2.5.1).
func (c *Conn) withoutSACK(n int) bool {
	return n == 0 && (c.ecn.ackOfACKs || c.rare.accurate.in.HandshakeDue())
}

// accECNLayout chooses the option of accurate ECN for an ACK with n bytes of data, where
// used bytes of options are there already. SACK blocks go before it as far as two of them:
// losses are the more urgent news (RFC 9768 3.2.3.3).
func (c *Conn) accECNLayout(used, n int) ecn.Layout {
	room := wire.TCPMaxOptions - used
	if blocks := min(c.sackBlocks(), 2); blocks > 0 && !c.withoutSACK(n) {
		room -= 4 + 8*blocks
	}
	return c.rare.accurate.in.Layout(room&^3, n)
}
