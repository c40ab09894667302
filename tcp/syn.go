package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// outputSYN sends the SYN, or the SYN-ACK of a simultaneous or fast open: once, and again when its
// timer ran out or the peer sent its own again.
func (c *Conn) outputSYN(now clock.Time) bool {
	first := !c.outstanding()
	seq, lost := c.sender.lost()
	again := lost > 0 && seq == c.una
	if !first && !again && !c.has(flagSynAck) {
		return true
	}
	n, ok := c.sendSYN(now, first)
	if !ok {
		return false
	}
	c.flags &^= flagSynAck
	if first {
		c.nxt += 1 + n
		c.progressAt = now
		c.sender.sent(now, c.una, 1+n, false)
		return true
	}
	if c.has(flagTriedFastOpen) && c.state == StateSynSent {
		c.flags &^= flagTriedFastOpen
		c.m.passive.fastOpenCache.markLost(now, &c.tuple.Remote)
	}
	c.sender.resent(now, c.una, 1)
	c.countRetransmit(1)
	return true
}

// sendSYN hands the SYN to the Output, the first one with Fast Open where that may be. It returns how
// much data it carries, and false where there was no room.
func (c *Conn) sendSYN(now clock.Time, first bool) (uint32, bool) {
	m := c.m
	o := &m.out
	h := &o.Header
	*o = Outgoing{Tuple: &c.tuple, RouteCache: &c.routeCache, TTL: c.opt.TTL}
	h.SrcPort, h.DstPort = c.tuple.LocalPort, c.tuple.RemotePort
	h.Seq, h.Flags = c.una, wire.FlagSYN
	if c.state == StateSynReceived {
		h.Ack, h.Flags = c.rcvNxt, wire.FlagSYN|wire.FlagACK
		c.acknowledged(c.rcvAdv, false)
	}
	h.Window = uint16(c.m.synWindow(c.opt))
	h.Options = c.appendSynOptions(m.options[:0], now)
	c.ecn.markSYN(c, o)
	n := c.addFastOpenOption(now, o, first)
	if c.auth != nil {
		o.Sign = c.auth.Sign
	}
	if !m.cfg.Output.Send(now, o) {
		return 0, false
	}
	m.stats.SegmentsOut++
	return n, true
}
