package ip

import (
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Times of address conflict detection (RFC 5227 1.1). An IPv4 address is usable after PROBE_NUM probes and a wait of
// ANNOUNCE_WAIT without an answer, 4 to 7 s after it was added.
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
//
// RFC 826 has a host merge the sender of every packet into its table. This node creates no entry from a packet: it only
// updates those that its own traffic made, or any host on the link could fill the table by forged requests. A packet
// that conflicts with an address of this host is neither answered nor does it update an entry.
func (n *Node) inputARP(dev uint8, b []byte) packet.Verdict {
	a := wire.ARP(b)
	mac := wire.MAC{}
	if a.Valid() {
		mac = a.SenderMAC()
	}
	// A multicast link address for a unicast neighbour would send its traffic to the whole link (RFC 1812 3.3.2).
	if !a.Valid() || mac.Multicast() || mac == (wire.MAC{}) || a.Op() != wire.ARPRequest && a.Op() != wire.ARPReply {
		return packet.DropNeighbor
	}
	if mac == n.links[dev].MAC {
		return packet.DropNeighbor // sent by this host and looped back: else it would conflict with itself
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

// isAssigned reports whether this node answers ARP requests for a on dev: only if it is assigned to that device.
// Answering on every device for every address (Linux arp_ignore=0) makes two devices on one link claim an address.
func (n *Node) isAssigned(dev uint8, a wire.Addr) bool {
	x := n.local.find(dev, a)
	return x != nil && x.assigned()
}

// updateFromARP updates the entry of the sender of an ARP packet. Only a reply to this host resolves it: a request or a
// gratuitous ARP shows that the sender claims the address, not that it is reachable from here. Another link address than
// the known one is verified first (verifyLinkAddr). Permanent entries keep theirs.
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

// conflict reports whether an ARP packet shows that another host uses, or probes for, an address of this one, and acts
// on it (RFC 5227 2.1.1 and 2.4):
//
//   - the sender address is assigned here: defend it by one announcement, at most one in DEFEND_INTERVAL, and keep it.
//     This is 2.4 (c), since a server's connections would end with its address. The limit keeps two hosts that both
//     defend from flooding the link.
//   - the sender address is tentative here: the other host was first.
//   - a probe (sender 0.0.0.0) is for an address that is tentative here: both hosts probe at once, and neither gets it.
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

// replyARP answers the request a by unicast to its sender, with the two sides exchanged (RFC 826, packet reception).
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

// requestARP sends a request for e by broadcast, or by unicast to the known link address to verify it: RFC 1122 2.3.2.1
// (2), unicast poll. A unicast poll costs the other hosts on the link nothing.
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

// solicitSource returns the source address of a request for e. RFC 4861 7.2.2 prefers the source of the packet that
// waits, because the neighbour then learns the link address that its answer to that packet needs. An address of another
// device does not qualify: the neighbour may ignore a sender that is not on its link.
func (n *Node) solicitSource(e *neighbor) (wire.Addr, bool) {
	if x := n.local.find(e.key.dev, e.src); x != nil && x.assigned() {
		return e.src, true
	}
	return n.source(e.key.addr, e.key.dev)
}

// probeARP sends an ARP probe for x (RFC 5227 2.1.1). Its sender address is zero, so that the probe of an address that
// another host has does not change the caches of the link.
func (n *Node) probeARP(x *address) {
	n.sendARP(x.dev, wire.Broadcast, [4]byte{}, x.addr.As4())
}

// announceARP sends an ARP announcement of x (RFC 5227 2.3). It replaces the stale entries of an earlier holder.
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

// controlFrame returns a frame with its Ethernet header for a message of size bytes that the node itself originates. The
// frame belongs to Output until Send. It is nil, and counted, where the output has no frame: such messages are repeated
// by timers or by the other host, so none is queued.
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
