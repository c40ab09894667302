package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// ICMP handles an ICMP error about a segment of t that began at seq. It reports whether
// such a segment is in flight: other errors are forged, or too old to matter (RFC 5927
// 4.1).
func (m *Mux) ICMP(now clock.Time, t *wire.Tuple, seq uint32, e ip.ICMPError) bool {
	m.now = now
	c := m.lookup(t)
	if c == nil || seq-c.una >= c.nxt-c.una {
		return false
	}
	switch e.Kind {
	case ip.TooBig:
		c.tooBig(e.MTU)
	case ip.ParameterProblem:
	default:
		c.unreachable(e.Kind)
	}
	return true
}

// unreachable ends an attempt to connect. Established connections survive such errors, also
// those that RFC 1122 calls hard, because they are easy to forge and often transient (RFC
// 5461 4, RFC 5927 5.2). The error is kept as the reason for a later timeout.
func (c *Conn) unreachable(k ip.ErrorKind) {
	why := hostUnreachable
	switch k {
	case ip.NetUnreachable:
		why = unreachable
	case ip.PortUnreachable, ip.ProtoUnreachable:
		why = refused
	}
	if c.state == StateSynSent {
		c.m.stats.Failed++
		c.enterClosed(why)
		return
	}
	c.reason = why
}

// tooBig makes segments shorter: the path takes packets of mtu bytes (RFC 1191, RFC 8201).
// Everything in flight was too long and is sent again; that is no sign of congestion.
func (c *Conn) tooBig(mtu int) {
	if c.opt.PathMTU >= FragmentPackets {
		return
	}
	n := max(mtu, minPathMTU(&c.tuple)) - headersLen(&c.tuple)
	if n >= int(c.segment) {
		return
	}
	c.reduceSegmentSize(n)
}

// reduceSegmentSize makes n the size of segments with their options, and sends again what
// is in flight.
func (c *Conn) reduceSegmentSize(n int) {
	c.segment = uint16(n)
	c.sender.setOptions(c.lossOptions())
	c.sender.scoreboard.RetransmitAll()
	c.m.markDirty(c)
}

// minPathMTU is the smallest path MTU that an ICMP message may claim. One that says less is
// forged, or of a link that fragments IPv4 itself (RFC 8200 5; RFC 5927 7.2, RFC 879). Tiny
// segments would cost us a header for every few bytes.
func minPathMTU(t *wire.Tuple) int {
	if t.Remote.Is4() {
		return 576
	}
	return 1280
}

// pathProbe is the state of the search for a larger path MTU (RFC 4821), which is a search
// by whole segments of data.
//
// Segments that are too long and that nobody reports vanish each time they are sent: a
// black hole (RFC 2923 2.1). So repeated timeouts make segments as short as nearly every
// path takes, then as short as all do. With Options.PathProbe larger sizes are then
// searched for.
type pathProbe struct {
	next      clock.Time // no probe before
	end       uint32     // behind the probe in flight, with size
	size      uint16     // of the probe in flight with its options; 0 for none
	retrySize uint16     // to be tried once more; 0 for none
	ceiling   uint16     // the largest size worth a try; 0 is what the route allows
	failures  uint8      // probes of this size that were lost
}

const (
	blackHoleMTU       = 1280             // the minimum of IPv6 links (RFC 8200 5), and so what the tunnels of most paths carry
	minHostMTU         = 576              // what every host accepts (RFC 791 3.1)
	maxProbeFailures   = 2                // lost probes after which a size counts as too large: a single loss may be chance
	probeGranularity   = 16               // bytes; closer to the ceiling is close enough (RFC 4821 7.3)
	probeRaiseInterval = 10 * time.Minute // after which the full size is searched for again
	probeSpacingRTTs   = 4                // round trips between probes
)

// detectBlackHole shortens the segments at the third and at the fifth timeout in a row.
func (c *Conn) detectBlackHole() {
	mtu := 0
	switch c.sender.scoreboard.Backoff() {
	case 3:
		mtu = blackHoleMTU
	case 5:
		mtu = minHostMTU
	default:
		return
	}
	n := mtu - headersLen(&c.tuple)
	if n >= int(c.segment) || c.state < StateEstablished {
		return
	}
	// The size that just failed is the ceiling of the search; it begins no earlier than one
	// timeout from now.
	if c.opt.PathProbe {
		c.ensureRare().probe = pathProbe{ceiling: c.segment - 1, next: c.m.now.Add(c.sender.rto())}
	}
	c.reduceSegmentSize(n)
}

// ceiling is the largest segment to search for.
func (c *Conn) ceiling() int {
	n := c.segmentSize()
	if k := c.rare; k != nil && k.probe.ceiling != 0 {
		n = min(n, int(k.probe.ceiling))
	}
	return n
}

// pathProbeSize returns the size of a probe to send now, of n bytes that may be sent at
// all; 0 for none. There must be data behind it, whose arrival shows that the probe alone
// was lost (RFC 4821 7.4).
func (c *Conn) pathProbeSize(now clock.Time, n uint32) uint16 {
	if !c.opt.PathProbe || c.state < StateEstablished {
		return 0
	}
	k := c.ensureRare()
	p := &k.probe
	if c.has(flagRecords) { // a probe would join two
		return 0
	}
	if p.size != 0 || now < p.next || c.sender.scoreboard.InRecovery() {
		return 0
	}
	// Near the ceiling the search is over; after probeRaiseInterval it starts again, since
	// routes change.
	top := c.ceiling()
	if top < int(c.segment)+probeGranularity {
		p.ceiling, p.retrySize, p.failures, p.next = 0, 0, 0, now.Add(probeRaiseInterval)
		return 0
	}
	size := top
	switch {
	case p.retrySize != 0:
		size = min(int(p.retrySize), top)
	case p.ceiling != 0:
		size = (int(c.segment) + top + 1) / 2
	}
	if int(n) < size || int(min(c.unsent(), c.window())) < size+2*c.mss() {
		return 0
	}
	return uint16(size)
}

// pathProbeSent notes that the segment up to end is a probe.
func (c *Conn) pathProbeSent(size uint16, end uint32) {
	p := &c.rare.probe
	p.size, p.end = size, end
}

// pathProbeAcked raises the segment size where the probe was acknowledged.
func (c *Conn) pathProbeAcked(now clock.Time) {
	p := &c.rare.probe
	if p.size == 0 || seqnum.Before(c.una, p.end) {
		return
	}
	c.segment = p.size
	p.size, p.retrySize, p.failures = 0, 0, 0
	p.next = now.Add(probeSpacingRTTs * c.sender.scoreboard.SRTT())
	c.sender.setOptions(c.lossOptions())
}

// pathProbeLost handles a retransmission at seq: where that is of the probe, the probe was
// lost. It was too long, not a victim of congestion, if it alone is missing (RFC 4821 7.5).
func (c *Conn) pathProbeLost(now clock.Time, seq uint32) {
	p := &c.rare.probe
	if p.size == 0 || !seqnum.Before(seq, p.end) || seqnum.Before(seq, p.end-uint32(p.size)) {
		return
	}
	if c.sender.scoreboard.LostExactly(uint32(int(p.size) - c.optionsLen())) {
		c.sender.undoReduction(now)
	}
	p.failures++
	p.retrySize = p.size
	if p.failures >= maxProbeFailures {
		p.ceiling, p.retrySize, p.failures = p.size-1, 0, 0
	}
	p.size = 0
	p.next = now.Add(probeSpacingRTTs * c.sender.scoreboard.SRTT())
}
