package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/wire"
)

// handshake holds what the two ends of a connection agreed on when it was opened.
type handshake struct {
	tuple    wire.Tuple
	iss, irs uint32

	announced uint32 // window of our SYN-ACK, bytes

	peerMSS uint16 // as announced, or the default
	window  uint16 // of the SYN, which is never scaled

	scaling                 bool
	sendScale, receiveScale uint8 // shifts: of windows that the peer announces, and of announced ones
	sack                    bool
	timestamps              bool
	tsOffset                uint32 // our timestamps are timestamp(now) + tsOffset
	tsRecent                uint32 // TS.Recent (RFC 7323 4.3)
	ecn                     ecn.Mode
	synECN                  wire.ECN // ECN field in which the latest SYN arrived (RFC 9768 3.1.5)
	notECT                  bool     // a SYN or SYN-ACK of the handshake was without ECN
	sendsSynAck             bool     // it is the peer's SYN that opens, or opens too

	resent bool       // the SYN-ACK left more than once (RFC 6298 5.7)
	sent   clock.Time // when the SYN-ACK left, for the first RTT sample; 0 where it left twice or with a cookie

	// A Fast Open SYN (RFC 7413) makes a connection in SYN-RECEIVED, which sends its own
	// SYN-ACK and retransmits it; otherwise the connection begins in ESTABLISHED.
	fastOpen bool
	cookie   []byte // a new cookie for that SYN-ACK; borrowed

	opts  *Options
	owner *Listener
	auth  *auth.State // signs and verifies; nil without keys
}

// setNegotiated takes what the handshake has settled. Scaling holds for both directions or
// neither (RFC 7323 2.2).
func (c *Conn) setNegotiated(h *handshake) {
	c.peerMSS = max(h.peerMSS, minMSS)
	if h.scaling {
		c.flags |= flagScaling
		c.sndScale = h.sendScale
	} else {
		c.sndScale, c.rcvScale = 0, 0
	}
	if h.sack {
		c.flags |= flagSACK
	}
	if h.timestamps {
		c.flags |= flagTimestamps
	}
	c.startECN(h)
}

// minMSS is the least segment size that is believed, options included. A peer that announces
// less would make us send mostly headers. RFC 9293 3.7.1 (MUST-16) forbids to send more than
// a peer announces, and small devices do announce less than the 536 that RFC 791 lets every
// host accept. So this is no larger than in other stacks (Linux has 48 since CVE-2019-11479),
// and the records of a flight are bounded instead.
const minMSS = 48

// Sizes of segments where the peer announces none (RFC 9293 3.7.1, MUST-15): the smallest
// MTU without the headers.
const (
	defaultMSS4 = 536
	defaultMSS6 = 1220
)

// defaultMSS is the peer's MSS where its SYN has no option.
func defaultMSS(t *wire.Tuple) uint16 {
	if t.Remote.Is4() {
		return defaultMSS4
	}
	return defaultMSS6
}

// headersLen is the length of the IP and TCP headers without options, bytes.
func headersLen(t *wire.Tuple) int {
	if t.Remote.Is4() {
		return wire.IPv4Len + wire.TCPLen
	}
	return wire.IPv6Len + wire.TCPLen
}

// lossOptions returns the scoreboard's options for the connection. SACK counts once the
// handshake is complete: a SYN is never SACKed, and a tail loss probe, which SACK brings
// (RFC 8985 7.2), would come instead of its timeout.
func (c *Conn) lossOptions() loss.Options {
	o := loss.Options{MSS: uint32(c.mss()), SACK: c.has(flagSACK) && c.state >= StateEstablished}
	if c.has(flagTimestamps) {
		o.Tick = timestampTick
	}
	return o
}

// updateSegmentSize computes the segment size anew, and passes it to loss detection and
// congestion control, which count in segments.
func (c *Conn) updateSegmentSize() {
	c.segment = uint16(c.segmentSize())
	c.sender.setOptions(c.lossOptions())
}

// segmentSize is the largest that a segment with its options may be: by the peer's MSS, the
// application's, and the MTU of the route (RFC 9293 3.7.1, MUST-16).
func (c *Conn) segmentSize() int { return c.segmentSizeFor(c.peerMSS) }

// segmentSizeFor is segmentSize for a peer that announces mss.
func (c *Conn) segmentSizeFor(mss uint16) int {
	mtu := c.pathMTU()
	n := min(int(mss), mtu-headersLen(&c.tuple))
	if c.opt.MSS > 0 {
		n = min(n, c.opt.MSS)
	}
	return max(min(n, 0xffff), minMSS)
}

// pathMTU is the largest packet to send, bytes.
func (c *Conn) pathMTU() int {
	if c.opt.PathMTU == IgnorePathMTU {
		return c.m.cfg.Output.LinkMTU(&c.tuple)
	}
	return c.m.cfg.Output.MTU(&c.tuple)
}

// announcedMSS returns the MSS for a SYN or SYN-ACK: what the interface receives, without
// options (RFC 9293 3.7.1, MUST-14 and MUST-67; RFC 6691 2). The MTU of the path to the
// peer has no bearing on the way back: the peer discovers that by itself.
func (m *Mux) announcedMSS(t *wire.Tuple, o *Options) uint16 {
	n := m.cfg.Output.LinkMTU(t) - headersLen(t)
	if o.MSS > 0 {
		n = min(n, o.MSS)
	}
	return uint16(max(min(n, 0xffff), minMSS))
}

// scaleFor returns the shift of our windows: enough for the largest buffer, which can grow
// after the handshake (RFC 7323 2.3).
func scaleFor(o *Options) (s uint8) {
	largest := maxReceiveBuffer
	if o.ReceiveBuffer > 0 {
		largest = o.ReceiveBuffer
	}
	for s < wire.MaxWindowScale && 0xffff<<s < largest {
		s++
	}
	return s
}

// smallSYNWindow is the window of a SYN-ACK while windows promise most of the memory that
// there is: the first flight of a peer fits (RFC 6928 2), and the first ACK announces more.
const smallSYNWindow = 16 << 10

// synWindow is the window of our SYN-ACK, which is not scaled. It is a multiple of what
// later windows count in, so that rounding does not shrink it (RFC 9293 3.8.6). The terms
// keep which of two it is, since the promise must hold until the ACK comes.
func (m *Mux) synWindow(o *Options, t synTerms) uint32 {
	n := m.baseReceive(o)
	if t&termsSmallWindow != 0 {
		n = min(n, smallSYNWindow)
	}
	return unscaledWindow(o, n)
}

// synWindow is the window of our SYN, or of a SYN-ACK for Fast Open.
func (c *Conn) synWindow() uint32 {
	if c.has(flagPassive) {
		return c.m.synWindow(c.opt, 0)
	}
	return unscaledWindow(c.opt, c.rcvLimit)
}

func unscaledWindow(o *Options, n uint32) uint32 {
	s := scaleFor(o)
	return min(n, o.windowClamp(), 0xffff) >> s << s
}
