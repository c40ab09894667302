package rdma

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/wire"
)

// Queue pair 1 is the general service interface (3.5.9.2): datagrams to and from it carry the messages of the
// communication manager. It is no object of the program, and has no posted receives: the manager takes each datagram at once.

// gsi is the general service interface of a context. It is guarded by the loop's lock.
type gsi struct {
	manager *cm.Manager
	psn     uint32
	at      clock.Time                // of the datagram that is handled
	dropped [transport.Reasons]uint64 // datagrams that the manager does not get; Taken is those that it gets
	noPath  uint64                    // messages whose peer has no known link address
}

// init makes the manager of a context.
func (g *gsi) init(c *Context, now clock.Time) {
	g.manager = cm.New(now, cm.Config{
		Addr: c.addr, CAGUID: random64(), Draw: random64, Notify: c.connectionEvent, MaxConns: c.cfg.MaxQPs,
		MaxHalfOpen: c.cfg.MaxHalfOpen, MaxBySource: c.cfg.MaxHalfOpenBySource,
	})
}

func random64() uint64 { return uint64(random())<<32 | uint64(random()) }

// inputGSI handles a datagram to queue pair 1. dev is the device that it came from.
func (c *Context) inputGSI(now clock.Time, f *roce.Frame, dev uint8) packet.Verdict {
	g := &c.gsi
	why := transport.Taken
	switch {
	case f.Opcode != roce.SendOnly.Of(roce.UD):
		why = transport.WrongService
	case f.PKey&0x7fff != 0x7fff: // 10.9.3: the limited and the full member of the default partition
		why = transport.WrongPKey
	case f.QKey != cm.QKey:
		why = transport.WrongQKey
	case f.SrcQP != cm.QPN:
		why = transport.WrongSource
	}
	g.dropped[why]++
	if why != transport.Taken {
		return effectVerdicts[why]
	}
	g.at = now
	// Answers go back to where the datagram came from, as no neighbour resolution has been made for the peer.
	from := cm.Peer{Addr: f.Src, MAC: f.SrcMAC, VLAN: f.VLAN, Dev: dev}
	return messageVerdicts[g.manager.Input(now, &from, f.Payload)]
}

// messageVerdicts are the loop's words for the manager's reasons.
var messageVerdicts = [cm.Reasons]packet.Verdict{
	cm.Taken: packet.Deliver, cm.Duplicate: packet.Deliver, cm.Truncated: packet.DropTruncated, cm.OtherClass: packet.DropUnsupported,
	cm.OtherVersion: packet.DropUnsupported, cm.OtherMethod: packet.DropUnsupported, cm.OtherAttribute: packet.DropUnsupported,
	cm.BadField: packet.DropMalformed, cm.UnknownID: packet.DropNoSocket, cm.WrongState: packet.DropState, cm.NoListener: packet.DropNoSocket,
	cm.StaleQP: packet.DropState, cm.DuplicateID: packet.DropState, cm.BacklogFull: packet.DropSocketFull, cm.SourceFull: packet.DropSocketFull,
	cm.HalfOpenFull: packet.DropSocketFull, cm.RepliesFull: packet.DropSocketFull,
}

// pollGSI sends what the manager has to send, and returns when to call it next.
func (c *Context) pollGSI(now clock.Time) clock.Time { return c.gsi.manager.Poll(now, c.messenger) }

// emitMessage sends a message from queue pair 1. It reports false where there is no room now.
func (c *Context) emitMessage(to *cm.Peer, mad []byte) bool {
	e := roce.Envelope{Src: c.addr, Dst: to.Addr, TOS: c.cfg.TOS, TTL: 64, ID: c.id, SrcPort: sourcePort(cm.QPN)}
	e.DstMAC, e.VLAN = to.MAC, to.VLAN
	dev := to.Dev
	if p := c.paths[to.Addr]; p != nil && p.usable() && !p.own {
		e.DstMAC, e.VLAN, dev = p.hop.MAC, p.hop.VLAN, p.hop.Dev
	} else if to.Addr != c.addr && to.MAC == (wire.MAC{}) {
		c.gsi.noPath++ // lost, and repeated
		return true
	}
	p := roce.Packet{Opcode: roce.SendOnly.Of(roce.UD), PKey: 0xffff, DestQP: cm.QPN, SrcQP: cm.QPN, QKey: cm.QKey, PSN: c.gsi.psn}
	pieces := [][]byte{mad}
	c.id++
	c.gsi.psn = (c.gsi.psn + 1) & roce.Mask24
	if to.Addr == c.addr {
		return c.emitLocal(&e, &p, pieces)
	}
	return c.originate(dev, &e, &p, pieces)
}
