package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Segments that the path does not take and nobody reports vanish each time they are sent (RFC 2923
// 2.1). So repeated timeouts make them as short as nearly every path takes, then as short as all do.
// With Options.PathProbe larger sizes are then looked for by single segments (RFC 4821).
type pathProbe struct {
	next      clock.Time // no probe before it
	end       uint32     // behind the probe in flight, with size
	size      uint16     // of the probe in flight with its options; 0 for none
	retrySize uint16     // a size to try once more; 0 for none
	ceiling   uint16     // the largest size worth a try; 0 is what the way allows
	failures  uint8      // probes of this size that were lost
}

const (
	blackHoleMTU       = 1280 // RFC 8200 5: IPv6 links, and so the tunnels of most paths
	minHostMTU         = 576  // RFC 791: what every host takes
	maxProbeFailures   = 2    // lost probes that say that the size is too large: one may be chance
	probeGranularity   = 16   // bytes: nearer to the ceiling is near enough (RFC 4821 7.3)
	probeRaiseInterval = 10 * time.Minute
	probeSpacingRTTs   = 4 // round trips between probes
)

// detectBlackHole takes a timeout in a row of them, which may mean that full segments are too long.
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
	if c.opt.PathProbe {
		c.ensureRare().probe = pathProbe{ceiling: c.segment - 1, next: c.m.now.Add(c.sender.rto())}
	}
	c.reduceSegmentSize(n)
}

// ceiling is the largest segment to look for.
func (c *Conn) ceiling() int {
	n := c.segmentSize()
	if k := c.rare; k != nil && k.probe.ceiling != 0 {
		n = min(n, int(k.probe.ceiling))
	}
	return n
}

// pathProbeSize returns the size of a probe to send now, of n bytes that may be sent at all; 0 for none.
// There must be data behind it, whose arrival tells that the probe alone was lost (RFC 4821 7.4).
func (c *Conn) pathProbeSize(now clock.Time, n uint32) uint16 {
	if !c.opt.PathProbe || c.state < StateEstablished {
		return 0
	}
	k := c.ensureRare()
	p := &k.probe
	if p.size != 0 || now < p.next || c.sender.scoreboard.InRecovery() {
		return 0
	}
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

// pathProbeAcked takes what was acknowledged: a probe among it was not too long.
func (c *Conn) pathProbeAcked(now clock.Time) {
	p := &c.rare.probe
	if p.size == 0 || seqBefore(c.una, p.end) {
		return
	}
	c.segment = p.size
	p.size, p.retrySize, p.failures = 0, 0, 0
	p.next = now.Add(probeSpacingRTTs * c.sender.scoreboard.SRTT())
	c.sender.setOptions(c.lossOptions())
}

// pathProbeLost takes what is sent again: a probe among it was lost, and leaves in shorter segments.
func (c *Conn) pathProbeLost(now clock.Time, seq uint32) {
	p := &c.rare.probe
	if p.size == 0 || !seqBefore(seq, p.end) || seqBefore(seq, p.end-uint32(p.size)) {
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
