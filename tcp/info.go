package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// Info is the state of a connection at one moment, as struct tcp_info of Linux has it. Where that
// counts packets of data, such as tcpi_unacked, this counts bytes. What it has and this has not is
// in docs/design/012-socket-options.md with the reasons.
type Info struct {
	Tuple      wire.Tuple
	State      State
	Congestion string        // algorithm
	Recovery   RecoveryState // tcpi_ca_state

	RTT, RTTVar, MinRTT, RTO time.Duration // RFC 6298; 0 before the first measurement
	AckDelay                 time.Duration // the longest of a delayed ACK (tcpi_ato)
	Cwnd, Ssthresh           uint64        // bytes
	InFlight                 uint64        // sent, and neither acknowledged nor presumed lost, bytes
	Sacked, Lost             uint64        // bytes in flight that arrived out of order; that are lost and not sent again yet
	Pacing                   uint64        // bytes per second; 0 is unpaced
	MaxPacing                uint64        // the application's limit, bytes per second; 0 is none
	DeliveryRate             uint64        // bytes per second, the latest sample
	AppLimited               bool          // the application, not the path, limited that sample

	MSS          int // payload of a full segment now, bytes
	PeerMSS      int // as announced
	AnnouncedMSS int // to the peer (tcpi_advmss)
	ReceiveMSS   int // the largest payload of one received segment (tcpi_rcv_mss)
	PathMTU      int // bytes

	SendWindow, ReceiveWindow     uint32 // bytes
	SendScale, ReceiveScale       uint8
	SendQueue, ReceiveQueue       int // bytes: unacknowledged; unread
	Unsent                        int // of SendQueue, bytes (tcpi_notsent_bytes)
	SendBuffer, ReceiveBuffer     int // bytes: their limits now
	Timestamps, SACK, ECN, AccECN bool
	FastOpen                      bool // data in the SYN was taken
	FastOpenFailed                bool // Fast Open was tried in the SYN, and the peer did not take its data

	BytesAcked, BytesReceived       uint64 // of payload; BytesAcked has what SACK reports, too
	BytesSent, BytesRetransmitted   uint64 // of payload; BytesSent has both
	SegmentsIn, SegmentsOut         uint32 // modulo 2^32, as all of 32 bits below
	DataSegmentsIn, DataSegmentsOut uint32 // those with payload
	Retransmits                     uint64 // segments
	OutOfOrder                      uint32 // segments received behind a hole
	Duplicates                      uint32 // of our segments that arrived twice, as DSACK reports
	Reordering                      uint32 // segments by which one was overtaken; 0 is none seen
	Reorderings                     uint32 // ACKs that showed reordering (tcpi_reord_seen)
	CE                              uint32 // packets that came marked (ECN)

	// Accurate ECN (RFC 9768).
	DeliveredCE                   uint32    // packets that the peer reports as marked
	ReceivedByECN, DeliveredByECN [4]uint32 // bytes of payload by ECN field, as wire.ECN has it

	Backoff       int           // timeouts in a row, of which each doubled the RTO (tcpi_retransmits, tcpi_backoff)
	Probes        int           // unanswered probes of the window or of keepalive
	Timeouts      uint32        // retransmission timeouts
	TimeoutSeries uint32        // of one or more in a row
	TimeoutTime   time.Duration // from the first timeout to the next ACK of new data, of all that have ended

	// Time since then; -1 before the first.
	LastDataSent, LastDataReceived, LastAckReceived time.Duration

	// How long there was something to send; of that, how long the peer's window left no room for
	// all of it, and how long all was in flight while the application waited for room in the
	// send buffer.
	Busy, WindowLimited, BufferLimited time.Duration
}

// RecoveryState is the state of loss recovery, with the numbers of Linux (TCP_CA_).
type RecoveryState uint8

// Values of RecoveryState.
const (
	RecoveryOpen     RecoveryState = iota // nothing is missing
	RecoveryDisorder                      // SACK reports holes that are no losses yet
	RecoveryECN                           // the window was reduced because of marks (TCP_CA_CWR)
	RecoveryFast                          // fast recovery (TCP_CA_Recovery)
	RecoveryTimeout                       // after a retransmission timeout (TCP_CA_Loss)
)

var recoveryNames = [...]string{"open", "disorder", "ecn", "fast", "timeout"}

// String returns a word for the state.
func (r RecoveryState) String() string { return recoveryNames[r] }

// counts are the counters of one connection. They outlive compaction.
type counts struct {
	received, sent, retransmitted      uint64 // payload, bytes; received is in order
	segmentsIn, segmentsOut            uint32
	dataIn, dataOut                    uint32 // segments
	outOfOrder                         uint32
	duplicates, reorderings            uint32
	timeouts, timeoutSeries            uint32
	lastDataIn, lastAckIn              uint32     // timestamp(now) | 1; 0 is never
	timeoutAt                          clock.Time // of the first in a row; 0 for none
	timeoutTime                        time.Duration
	limit                              limitReason
	appLimited                         bool       // the latest rate sample measures the application
	since                              clock.Time // when limit began
	busy, windowLimited, bufferLimited time.Duration
}

// limitReason is the reason why sending waits.
type limitReason uint8

const (
	nothingToSend limitReason = iota
	limitedByPath             // acknowledgments, congestion control, Nagle's algorithm
	limitedByWindow
	limitedByBuffer
)

// noteInput counts a received segment.
func (n *counts) noteInput(now clock.Time, s *Segment) {
	at := timestamp(now) | 1
	n.segmentsIn += uint32(s.Packets)
	if s.Len > 0 {
		n.dataIn += uint32(s.Packets)
		n.lastDataIn = at
	}
	if s.Flags.Has(wire.FlagACK) {
		n.lastAckIn = at
	}
}

// noteOutput counts what was sent: segments with their payload together, bytes.
func (n *counts) noteOutput(segments, payload int, again bool) {
	n.segmentsOut += uint32(segments)
	if payload > 0 {
		n.dataOut += uint32(segments)
		n.sent += uint64(payload)
		if again {
			n.retransmitted += uint64(payload)
		}
	}
}

// noteTimeout counts a retransmission timeout.
func (n *counts) noteTimeout(now clock.Time) {
	n.timeouts++
	if n.timeoutAt == 0 {
		n.timeoutSeries++
		n.timeoutAt = now
	}
}

// noteACK counts what an ACK has shown.
func (n *counts) noteACK(ev loss.Events, x *sender) {
	if ev&loss.Reordered != 0 {
		n.reorderings++
	}
	n.appLimited = x.lastACK&ackAppLimited != 0
	if x.lastACK&ackDuplicate != 0 {
		n.duplicates++
	}
}

// noteProgress ends a series of timeouts.
func (n *counts) noteProgress(now clock.Time) {
	if n.timeoutAt != 0 {
		n.timeoutTime += now.Sub(n.timeoutAt)
		n.timeoutAt = 0
	}
}

// setLimit notes what sending waits for from now on.
func (n *counts) setLimit(now clock.Time, l limitReason) {
	if l != n.limit {
		n.busy, n.windowLimited, n.bufferLimited = n.times(now)
		n.limit, n.since = l, now
	}
}

// times returns the times in the states of limitReason.
func (n *counts) times(now clock.Time) (busy, window, buffer time.Duration) {
	busy, window, buffer = n.busy, n.windowLimited, n.bufferLimited
	d := now.Sub(n.since)
	switch n.limit {
	case nothingToSend:
		return busy, window, buffer
	case limitedByWindow:
		window += d
	case limitedByBuffer:
		buffer += d
	}
	return busy + d, window, buffer
}

// noteLimit finds out what sending waits for, after output.
func (c *Conn) noteLimit(now clock.Time) {
	l := nothingToSend
	if c.state != StateClosed && c.una != c.end && c.snd != nil {
		unsent := c.unsent()
		switch l = limitedByPath; {
		case unsent > 0 && c.window() < min(unsent, uint32(c.mss())):
			l = limitedByWindow
		case unsent == 0 && c.has(flagWantWrite):
			l = limitedByBuffer
		}
	}
	c.counts.setLimit(now, l)
}

// sinceTick returns the time since a tick of the counters.
func sinceTick(now clock.Time, tick uint32) time.Duration {
	if tick == 0 {
		return -1
	}
	return time.Duration(max(int32(timestamp(now)|1-tick), 0)) * timestampTick
}

// Stats counts what happened in a Mux since it was made. Fields called levels can also
// fall.
type Stats struct {
	Conns, HalfOpen, TimeWait int   // levels
	Memory                    int64 // level: bytes of buffers

	ActiveOpens, PassiveOpens   uint64 // RFC 4022
	Failed, Resets              uint64 // attempts that failed; connections that a RST ended
	SegmentsIn, SegmentsOut     uint64
	BytesIn, BytesOut           uint64
	Retransmits                 uint64 // segments
	Timeouts, Probes            uint64 // retransmission timeouts; tail loss probes
	ResetsOut                   uint64
	ChallengeAcks               uint64 // RFC 5961
	ZeroWindowProbes, KeepAlive uint64
	OutOfOrder, Duplicate       uint64 // segments with payload: behind a hole; received before, in whole or in part
	Pruned                      uint64 // out-of-order data dropped for lack of memory, bytes
	StalledPeers                uint64 // connections reset because their peers held memory and did not move

	CookiesSent, CookiesGood, CookiesBad uint64 // RFC 4987
	FastOpens                            uint64 // SYNs whose data was accepted (RFC 7413)
	AcceptOverflow                       uint64
	AuthFailed                           uint64
	TimeWaitReused                       uint64 // RFC 6191
}

// Info returns the state of the connection. Times are until the Mux was called last.
func (c *Conn) Info() Info {
	c.ensureActive()
	b := &c.sender.scoreboard
	i := Info{
		Tuple: c.tuple, State: c.state,
		Congestion: congestionName(c.opt),
		RTT:        b.SRTT(), RTTVar: b.RTTVar(), MinRTT: b.MinRTT(), RTO: b.RTO(), AckDelay: delayedAck,
		Cwnd: uint64(c.sender.cc.Window()), Ssthresh: uint64(c.sender.cc.Threshold()), InFlight: uint64(b.Flight()),
		Pacing: c.sender.pacing(), MaxPacing: c.opt.MaxPacing, DeliveryRate: c.sender.deliveryRate, AppLimited: c.counts.appLimited,
		Reordering: b.Reordering(),
		MSS:        c.mss(), PeerMSS: int(c.peerMSS), AnnouncedMSS: int(c.m.announcedMSS(&c.tuple, c.opt)), ReceiveMSS: int(c.largestIn),
		PathMTU:    int(c.segment) + headersLen(&c.tuple),
		SendWindow: c.sndEdge - c.una, ReceiveWindow: c.rcvAdv - c.rcvNxt,
		SendScale: c.sndScale, ReceiveScale: c.rcvScale,
		SendQueue: c.Unacked(), ReceiveQueue: c.Readable(), Unsent: c.Unsent(),
		SendBuffer: c.sendLimit(), ReceiveBuffer: int(c.rcvLimit),
		Timestamps: c.has(flagTimestamps), SACK: c.has(flagSACK),
		ECN: c.ecn.mode != ecn.None, AccECN: c.ecn.mode == ecn.Accurate,
		FastOpen: c.has(flagFastOpen), FastOpenFailed: c.has(flagTriedFastOpen) && !c.has(flagFastOpen) && c.state >= StateEstablished,
		BytesAcked: c.payloadAcked(), Retransmits: c.retransmits(), CE: c.receivedCE(),
		Backoff: int(b.Backoff()), Probes: int(c.unansweredProbes),
	}
	if a := c.accurate(); a != nil {
		i.DeliveredCE = a.out.CE()
		for mark := range i.ReceivedByECN {
			i.ReceivedByECN[mark], i.DeliveredByECN[mark] = a.in.Payload(wire.ECN(mark)), a.out.Payload(wire.ECN(mark))
		}
	}
	i.Sacked, i.Lost = uint64(b.SACKed()), uint64(b.Unrepaired())
	i.Recovery = c.recoveryState(i.Sacked)
	c.counts.fill(c.m.now, &i)
	i.LastDataSent = -1
	if t := c.sender.lastSent; t != 0 {
		i.LastDataSent = max(c.m.now.Sub(t), 0)
	}
	return i
}

// payloadAcked returns the bytes of payload that the peer has, as ACKs and SACK report. The
// scoreboard counts sequence numbers, of which SYN and FIN take one each (RFC 9293 3.4). The
// SYN is in it unless the handshake was complete when the connection began.
func (c *Conn) payloadAcked() uint64 {
	n := c.sender.scoreboard.Delivered()
	if n > 0 && (!c.has(flagPassive) || c.has(flagFastOpen)) {
		n--
	}
	if c.finAcked() || c.finSent() && c.sender.scoreboard.LastSACKed() {
		n--
	}
	return n
}

// fill copies the counters.
func (n *counts) fill(now clock.Time, i *Info) {
	i.BytesReceived, i.BytesSent, i.BytesRetransmitted = n.received, n.sent, n.retransmitted
	i.SegmentsIn, i.SegmentsOut, i.DataSegmentsIn, i.DataSegmentsOut = n.segmentsIn, n.segmentsOut, n.dataIn, n.dataOut
	i.OutOfOrder, i.Duplicates, i.Reorderings = n.outOfOrder, n.duplicates, n.reorderings
	i.Timeouts, i.TimeoutSeries, i.TimeoutTime = n.timeouts, n.timeoutSeries, n.timeoutTime
	i.LastDataReceived, i.LastAckReceived = sinceTick(now, n.lastDataIn), sinceTick(now, n.lastAckIn)
	i.Busy, i.WindowLimited, i.BufferLimited = n.times(now)
}

// recoveryState returns what loss recovery is doing, with bytes that SACK has reported.
func (c *Conn) recoveryState(sacked uint64) RecoveryState {
	b := &c.sender.scoreboard
	switch {
	case b.InFastRecovery():
		return RecoveryFast
	case b.InRecovery():
		return RecoveryTimeout
	case c.sender.inECNRecovery && seqnum.Before(c.una, c.sender.ecnRecover):
		return RecoveryECN
	case sacked > 0:
		return RecoveryDisorder
	}
	return RecoveryOpen
}

// congestionName returns the name of the congestion control that o chooses.
func congestionName(o *Options) string {
	if o.Congestion == "" {
		return cc.Default
	}
	return o.Congestion
}

func (c *Conn) retransmits() uint64 {
	if c.rare == nil {
		return 0
	}
	return c.rare.retransmits
}
