package ip

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// SetLink changes the link address and the MTU of device dev, as those of its interface have changed. Paths follow at once. The
// leader announces the addresses again where the link address is new: neighbours would send to the old one until they
// verify it (RFC 5227 2.3, RFC 4861 7.2.6). The caller does so at every node of a host, and then has its transports look at
// the MTU of their paths. An MTU below 68 bytes is none (RFC 791 3.2) and changes nothing.
func (n *Node) SetLink(now clock.Time, dev uint8, mac wire.MAC, mtu int) {
	n.setNow(now)
	l := &n.links[dev]
	moved := mac != l.MAC
	l.MAC = mac
	if mtu >= 68 {
		l.setMTU(mtu)
	}
	n.updatePaths()
	if !moved {
		return
	}
	for i := range n.neigh.slot {
		if e := &n.neigh.slot[i]; e.state != nudFree && e.key.dev == dev {
			l.header(&e.path, e.mac(), e.key.addr.Is4())
		}
	}
	n.announceAgain(dev)
}

// setMTU sets the MTU of the link. What routers advertise stays where it is less; IPv6 had the link's otherwise (RFC 4861
// 6.3.4).
func (l *link) setMTU(mtu int) {
	if l.mtu6 == l.MTU || l.mtu6 > mtu {
		l.mtu6 = mtu
	}
	l.MTU = mtu
}

// announceAgain announces the assigned addresses of a device, as often as new ones, where this node is the leader.
func (n *Node) announceAgain(dev uint8) {
	for i := range n.local.slot {
		if x := &n.local.slot[i]; x.assigned() && x.dev == dev {
			x.sent = 0
			n.maintainAddr(x, i)
		}
	}
}
