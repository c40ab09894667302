package node

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
)

// Network is a prefix of the kernel's addresses on the link of a device.
type Network struct {
	Prefix netip.Prefix
	Dev    uint8  // place in Config.Devices
	VLAN   uint16 // 802.1Q tag of its frames; 0 is none
}

// Networks is for announcements of addresses (gratuitous ARP, unsolicited neighbour
// advertisements), which only hosts of the same link hear. It returns the networks on
// the links of the devices and of their VLANs.
func (n *Node) Networks() (list []Network, err error) {
	if n.cfg.WithoutDevices {
		return nil, nil
	}
	links, err := rtnl.Dump(n.netlink.LinkList)
	if err != nil {
		return nil, err
	}
	devs := map[int]uint8{} // by the kernel's index
	for i, l := range n.Links() {
		devs[l.index] = uint8(i)
	}
	for _, l := range links {
		net := Network{}
		index := l.Attrs().Index // of a VLAN: the interface that its tagged frames leave by
		if v, ok := l.(*netlink.Vlan); ok {
			index, net.VLAN = v.ParentIndex, uint16(v.VlanId)
		}
		dev, ours := devs[index]
		if !ours {
			continue
		}
		net.Dev = dev
		addrs, err := rtnl.Dump(func() ([]netlink.Addr, error) { return n.netlink.AddrList(l, netlink.FAMILY_ALL) })
		switch {
		case errors.Is(err, unix.ENODEV):
			continue // it has gone meanwhile
		case err != nil:
			return nil, err
		}
		for _, a := range addrs {
			net.Prefix = prefixOf(a)
			if net.Prefix.IsValid() && !slices.Contains(list, net) {
				list = append(list, net)
			}
		}
	}
	return list, nil
}

// prefixOf returns the network of an interface's address.
func prefixOf(a netlink.Addr) netip.Prefix {
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.IPNet == nil {
		return netip.Prefix{}
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits).Masked()
}

// Route is a route of the kernel through a gateway. Routes on the link are left out: a
// stack has its own, which follow from its addresses.
type Route struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
	Metric  uint32
}

// KernelRoutes returns the kernel's routes through gateways by the interface of a
// device, from its main table.
func (n *Node) KernelRoutes(dev int) (list []Route, err error) {
	link := n.Links()[dev]
	if link.index == 0 {
		return nil, nil // there is no interface
	}
	routes, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return n.netlink.RouteListFiltered(netlink.FAMILY_ALL,
			&netlink.Route{LinkIndex: link.index, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		gateway, ok := netip.AddrFromSlice(r.Gw)
		if !ok || r.Type != unix.RTN_UNICAST {
			continue // on link, which follows from addresses, or no way to send
		}
		gateway = gateway.Unmap()
		prefix := netip.PrefixFrom(netip.IPv6Unspecified(), 0) // a default route may come without a destination
		if gateway.Is4() {
			prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		if r.Dst != nil {
			a, _ := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			prefix = netip.PrefixFrom(a.Unmap(), bits)
		}
		list = append(list, Route{prefix, gateway, uint32(r.Priority)})
	}
	return list, nil
}
