package netsim

import (
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// merger puts packets together that follow each other.
type merger struct {
	tcp.Coalescer
	tuple   wire.Tuple
	packets []*Packet // whose bytes the segment borrows
}

// take adds a packet's segment to the one at hand, or begins with it where there is none, and reports
// whether it could. It keeps the packet then.
func (m *merger) take(p *Packet, t *wire.Tuple, s wire.TCP, ecn wire.ECN) bool {
	switch {
	case len(m.packets) == 0:
		m.tuple = *t
		m.Begin(s, ecn)
	case m.tuple != *t || !m.Join(s, ecn):
		return false
	}
	m.packets = append(m.packets, p)
	return true
}

// appendSegment appends the IP packet of the next segment of c.
func appendSegment(b []byte, c *tcp.Segmenter, o *tcp.Outgoing) []byte {
	b = AppendIP(b, o.Tuple, c.Size(), o.ECN, o.TTL)
	n, at := c.Size(), len(b)
	b = append(b, make([]byte, n)...)
	c.Next(b[at:])
	return b
}
