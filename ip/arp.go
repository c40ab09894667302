package ip

import (
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Times of address conflict detection (RFC 5227 1.1).
const (
	probeNum         = 3
	probeMin         = time.Second
	probeMax         = 2 * time.Second
	announceWait     = 2 * time.Second
	announceNum      = 2
	announceInterval = 2 * time.Second
	defendInterval   = 10 * time.Second
)

// inputARP takes an ARP packet (RFC 826, RFC 5227).
func (n *Node) inputARP(dev uint8, b []byte) packet.Verdict {
	a := wire.ARP(b)
	mac := wire.MAC{}
	if a.Valid() {
		mac = a.SenderMAC()
	}
	if !a.Valid() || mac.Multicast() || mac == (wire.MAC{}) || a.Op() != wire.ARPRequest && a.Op() != wire.ARPReply {
		return packet.DropNeighbor
	}
	if mac == n.links[dev].MAC {
		return packet.DropNeighbor // our own, looped back
	}
	sender, target := wire.AddrFrom4(a.Sender()), wire.AddrFrom4(a.Target())
	if n.conflict(dev, sender, target, a) {
		return packet.Deliver
	}
	asked := a.Op() == wire.ARPRequest && n.isAssigned(dev, target)
	if asked {
		n.replyARP(dev, a)
	}
	v := packet.DropNeighbor
	if e := n.neigh.find(sender, dev); e != nil {
		v = n.updateFromARP(e, a, target)
	}
	if asked {
		return packet.Deliver
	}
	return v
}

// isAssigned reports whether ARP requests for a on dev are ours to answer: it is assigned to that device.
func (n *Node) isAssigned(dev uint8, a wire.Addr) bool {
	x := n.local.find(dev, a)
	return x != nil && x.assigned()
}

// updateFromARP takes what an ARP packet says of a neighbour that we have an entry for. Only a reply to us
// resolves it; another link address than the one known is verified first.
func (n *Node) updateFromARP(e *neighbor, a wire.ARP, target wire.Addr) packet.Verdict {
	mac := a.SenderMAC()
	reply := a.Op() == wire.ARPReply && n.local.find(e.key.dev, target) != nil && a.TargetMAC() == n.links[e.key.dev].MAC
	switch {
	case e.state == nudFailed || e.state == nudNew, e.state == nudIncomplete && !reply:
		return packet.DropNeighbor
	case e.state == nudIncomplete:
		n.setLinkAddr(e, mac, nudReachable)
	case e.mac() != mac:
		return n.verifyLinkAddr(e)
	case reply && e.state != nudPermanent:
		n.setLinkAddr(e, mac, nudReachable)
	}
	return packet.Deliver
}

// conflict reports whether an ARP packet is about an address of ours that another host has, or probes
// for, and acts on it (RFC 5227 2.1.1 and 2.4).
func (n *Node) conflict(dev uint8, sender, target wire.Addr, a wire.ARP) bool {
	x := n.local.find(dev, sender)
	switch {
	case x != nil && x.assigned():
		n.stats.Duplicates++
		if n.now.Sub(x.defended) >= defendInterval || x.defended == 0 {
			x.defended = max(n.now, 1)
			n.announceARP(x)
		}
		return true
	case x != nil:
		n.handleDuplicate(x)
		return true
	}
	probed := n.local.find(dev, target)
	if sender == wire.Unspecified4 && a.Op() == wire.ARPRequest && probed != nil && probed.state == addrTentative {
		n.handleDuplicate(probed)
		return true
	}
	return false
}

// replyARP answers the request a: as its target, to its sender.
func (n *Node) replyARP(dev uint8, a wire.ARP) {
	l := &n.links[dev]
	f := n.controlFrame(dev, a.SenderMAC(), wire.EtherTypeARP, wire.ARPLen)
	if f == nil {
		return
	}
	sender := wire.ARPHost{MAC: l.MAC, Addr: a.Target()}
	wire.AppendARP(f[:wire.EthernetLen], wire.ARPReply, sender, wire.ARPHost{MAC: a.SenderMAC(), Addr: a.Sender()})
	n.cfg.Output.Send(dev, len(f))
}

// requestARP asks for e: everybody, or e itself where its link address is only to be verified.
func (n *Node) requestARP(e *neighbor) {
	src, ok := n.solicitSource(e)
	if !ok {
		return
	}
	dst := wire.Broadcast
	if e.state == nudProbe {
		dst = e.mac()
	}
	n.sendARP(e.key.dev, dst, src.As4(), e.key.addr.As4())
}

// solicitSource returns our address that asks for e: the source of the packet that waits, if it is of that device.
func (n *Node) solicitSource(e *neighbor) (wire.Addr, bool) {
	if x := n.local.find(e.key.dev, e.src); x != nil && x.assigned() {
		return e.src, true
	}
	return n.source(e.key.addr, e.key.dev)
}

// probeARP asks whether somebody has x already (RFC 5227 2.1.1).
func (n *Node) probeARP(x *address) {
	n.sendARP(x.dev, wire.Broadcast, [4]byte{}, x.addr.As4())
}

// announceARP says that x is ours (RFC 5227 2.3).
func (n *Node) announceARP(x *address) {
	n.sendARP(x.dev, wire.Broadcast, x.addr.As4(), x.addr.As4())
}

// sendARP sends an ARP request.
func (n *Node) sendARP(dev uint8, dst wire.MAC, sender, target [4]byte) {
	f := n.controlFrame(dev, dst, wire.EtherTypeARP, wire.ARPLen)
	if f == nil {
		return
	}
	wire.AppendARP(f[:wire.EthernetLen], wire.ARPRequest, wire.ARPHost{MAC: n.links[dev].MAC, Addr: sender}, wire.ARPHost{Addr: target})
	n.cfg.Output.Send(dev, len(f))
}

// controlFrame returns a frame with its Ethernet header for a message of size bytes of the node itself; nil,
// and a count, where there is no room.
func (n *Node) controlFrame(dev uint8, dst wire.MAC, etherType uint16, size int) []byte {
	f := n.cfg.Output.Frame(dev, wire.EthernetLen+size)
	if f == nil {
		n.stats.Drops[packet.DropNoFrame]++
		return nil
	}
	f = f[:wire.EthernetLen+size]
	wire.AppendEthernet(f[:0], dst, n.links[dev].MAC, etherType)
	return f
}
