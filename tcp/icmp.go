package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// ICMP takes an ICMP error about a segment of t that began at seq. It reports whether such a segment is
// in flight: others are forged, or too old to matter (RFC 5927 4.1).
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

// unreachable ends an attempt to connect. Established connections outlive such errors, also those that
// RFC 1122 calls hard (RFC 5461 4, RFC 5927 5.2): they tell why in the end, if nothing else comes.
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

// tooBig makes segments shorter: the path takes packets of mtu bytes (RFC 1191, RFC 8201). All that is
// in flight was too long, and is sent again without doubt of the network.
func (c *Conn) tooBig(mtu int) {
	n := max(mtu, minPathMTU(&c.tuple)) - headersLen(&c.tuple)
	if n >= int(c.segment) {
		return
	}
	c.reduceSegmentSize(n)
}

// reduceSegmentSize makes n the size of segments.
func (c *Conn) reduceSegmentSize(n int) {
	c.segment = uint16(n)
	c.sender.setOptions(c.lossOptions())
	c.sender.scoreboard.RetransmitAll()
	c.m.markDirty(c)
}

// minPathMTU is the smallest path MTU that a message is believed: one that says less is forged, or of a link
// where IPv4 can do without us (RFC 8200 5; RFC 5927 7.2, RFC 879).
func minPathMTU(t *wire.Tuple) int {
	if t.Remote.Is4() {
		return 576
	}
	return 1280
}
