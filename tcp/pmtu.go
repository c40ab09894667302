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

// PathsChanged makes the segments of all connections fit the MTU that the Output has for their paths now: that of a link has
// changed. What is in flight and too long for it was lost in silence, without an ICMP message, so it is sent again. Smaller
// sizes that a search has found stay (pathProbe). It looks at every connection once.
func (m *Mux) PathsChanged(now clock.Time) {
	m.now = now
	m.Each((*Conn).pathChanged)
}

func (c *Conn) pathChanged() {
	if c.state < StateEstablished || c.ended() || c.pathMTU() == 0 {
		return // the handshake asks for the MTU when it is complete; without a route there is nothing to fit
	}
	switch n := c.segmentSize(); {
	case n == int(c.segment), n > int(c.segment) && c.rare != nil && c.rare.probe.suspected:
	case c.active == nil:
		c.segment = uint16(n)
		c.compacted.cc.SetMSS(uint32(c.mss()))
	case n < int(c.segment):
		c.reduceSegmentSize(n)
	default:
		c.updateSegmentSize()
	}
}

// reduceSegmentSize makes n the size of segments with their options, and sends again what
// is in flight.
func (c *Conn) reduceSegmentSize(n int) {
	c.segment = uint16(n)
	c.sender.setOptions(c.lossOptions())
	c.sender.scoreboard.RetransmitAll()
	c.m.markDirty(c)
}

// minPathMTU is the smallest path MTU that an ICMP message may claim. One that claims less is
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
// Segments that are too long and that no router reports vanish each time they are sent: a
// black hole (RFC 2923 2.1). So repeated timeouts make segments as short as nearly every
// path takes, then as short as all do. But most often an outage has caused the timeouts, and
// not the size. So when data is acknowledged again, the size from before is tried first (RFC
// 4821 7.7), and the step below where that fails; with Options.PathProbe the sizes between,
// too.
type pathProbe struct {
	next      clock.Time // no probe before
	end       uint32     // behind the probe in flight, with size
	size      uint16     // of the probe in flight with its options; 0 for none
	retrySize uint16     // to be tried once more; 0 for none
	ceiling   uint16     // the largest size worth a try; 0 is what the route allows
	failures  uint8      // probes of this size that were lost
	suspected bool       // a black hole: sizes are tried without Options.PathProbe
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
	c.ensureRare().probe = pathProbe{suspected: true}
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

// pathProbeSize returns the size of a probe to send now; 0 for none. While a loss is
// repaired there is none, and so none in an outage.
func (c *Conn) pathProbeSize(now clock.Time) uint16 {
	k := c.rare
	if c.opt.PathProbe {
		k = c.ensureRare()
	}
	if k == nil || !k.probe.suspected && !c.opt.PathProbe || c.state < StateEstablished || c.has(flagRecords) { // a probe would join two records
		return 0
	}
	p := &k.probe
	if p.size != 0 || now < p.next || c.sender.scoreboard.InRecovery() {
		return 0
	}
	size := c.nextProbeSize()
	if size == 0 {
		c.endPathSearch(now)
		return 0
	}
	if !c.hasRoomForProbe(now, size) {
		return 0
	}
	return uint16(size)
}

// nextProbeSize returns the size to try next, 0 where the search is over: near the ceiling,
// or where no step is left.
func (c *Conn) nextProbeSize() int {
	p, top := &c.rare.probe, c.ceiling()
	least := int(c.segment) + probeGranularity
	switch step := blackHoleMTU - headersLen(&c.tuple); {
	case top < least:
		return 0
	case p.retrySize != 0:
		return min(int(p.retrySize), top)
	case p.ceiling == 0:
		return top
	case c.opt.PathProbe:
		return (int(c.segment) + top + 1) / 2
	case step >= least && step <= top:
		return step
	}
	return 0
}

// endPathSearch ends a search. It starts again after probeRaiseInterval, since routes
// change, unless all that was suspected has turned out wrong.
func (c *Conn) endPathSearch(now clock.Time) {
	p := &c.rare.probe
	*p = pathProbe{next: now.Add(probeRaiseInterval), suspected: p.suspected && int(c.segment)+probeGranularity <= c.segmentSize()}
}

// hasRoomForProbe reports whether data and windows suffice for a probe of size bytes, and
// for what shows that it alone was lost (RFC 4821 7.4): without SACK three duplicate ACKs.
func (c *Conn) hasRoomForProbe(now clock.Time, size int) bool {
	room, _ := c.room(now)
	behind := 2 * c.mss()
	if !c.has(flagSACK) {
		behind = dupThresh * c.mss()
	}
	return int(room) >= size && int(min(c.unsent(), c.window(), c.sender.window())) >= size+behind
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
