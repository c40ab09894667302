package ip

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const (
	mldQuery   uint8 = 130
	mldReport1 uint8 = 131
	mldDone1   uint8 = 132
	mldReport2 uint8 = 143
)

type pending struct{}

func (n *Node) filterChanged(i uint16, was *group)                 {}
func (n *Node) reports(i uint16) bool                              { return false }
func (n *Node) inputIGMP(g *Datagram) packet.Verdict               { return packet.DropUnsupported }
func (n *Node) inputMLD(g *Datagram, m wire.ICMPv6) packet.Verdict { return packet.DropUnsupported }
func (n *Node) inputRA(port uint8, ip wire.IPv6, ra wire.RouterAdvert) packet.Verdict {
	return packet.DropUnsupported
}
func (n *Node) remake(x *address)                 {}
func (n *Node) hopLimit(a Addr, port uint8) uint8 { return n.links[port].hopLimit }
