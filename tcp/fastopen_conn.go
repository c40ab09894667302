package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// inputFastOpen takes the payload of the SYN that made the connection (RFC 7413 4.2.2).
func (c *Conn) inputFastOpen(now clock.Time, s *Segment) packet.Verdict {
	x := *s
	x.Seq++
	x.Flags &^= wire.FlagSYN
	v := c.takeText(now, &x)
	if v == packet.Deliver && x.Flags.Has(wire.FlagFIN) {
		c.noteFIN(x.Seq + x.Len)
		c.reachFIN(now)
	}
	return v
}
