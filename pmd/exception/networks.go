package exception

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Networks are the addresses and routes that the kernel has on an interface.
type Networks struct {
	name   string
	addrs  []netlink.Addr
	routes []netlink.Route
}

// SaveNetworks reads the addresses and routes of an interface, in the network namespace of the calling thread. It leaves
// out what the kernel makes itself: link-local addresses, and routes that follow from addresses.
func SaveNetworks(name string) (*Networks, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return save(h, name)
}

func save(h *netlink.Handle, name string) (*Networks, error) {
	link, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	n := &Networks{name: name}
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", name, err)
	}
	for _, a := range addrs {
		if a.Scope != int(netlink.SCOPE_LINK) {
			n.addrs = append(n.addrs, a)
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC}
		routes, err := h.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("routes of %s: %w", name, err)
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL && r.Type == unix.RTN_UNICAST {
				n.routes = append(n.routes, r)
			}
		}
	}
	// A gateway must be reachable before a route names it.
	slices.SortStableFunc(n.routes, func(a, b netlink.Route) int { return hasGateway(a) - hasGateway(b) })
	return n, nil
}

func hasGateway(r netlink.Route) int {
	if r.Gw != nil {
		return 1
	}
	return 0
}

// move takes the networks away from their interface, where that is still there, and gives them to another one.
func (n *Networks) move(h *netlink.Handle, to netlink.Link) error {
	if n == nil {
		return nil
	}
	if old, err := h.LinkByName(n.name); err == nil {
		for i := range n.addrs {
			if err := h.AddrDel(old, &netlink.Addr{IPNet: n.addrs[i].IPNet}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("take %s from %s: %w", n.addrs[i].IPNet, n.name, err)
			}
		}
		for i := range n.routes { // those that have not gone with their addresses
			_ = h.RouteDel(&n.routes[i])
		}
	}
	return n.add(h, to)
}

// add gives the networks to an interface.
func (n *Networks) add(h *netlink.Handle, to netlink.Link) error {
	var errs []error
	for _, a := range n.addrs {
		// The address was in use here until now: its duplicate would be this very machine (RFC 4862 5.4).
		flags := a.Flags&unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD
		if a.IP.To4() != nil {
			flags = a.Flags & unix.IFA_F_NOPREFIXROUTE
		}
		moved := netlink.Addr{IPNet: a.IPNet, Peer: a.Peer, Broadcast: a.Broadcast, Scope: a.Scope, Flags: flags, ValidLft: a.ValidLft, PreferedLft: a.PreferedLft}
		if err := h.AddrReplace(to, &moved); err != nil {
			errs = append(errs, fmt.Errorf("address %s on %s: %w", a.IPNet, to.Attrs().Name, err))
		}
	}
	for _, r := range n.routes {
		r.LinkIndex, r.ILinkIndex, r.Flags = to.Attrs().Index, 0, r.Flags&^(unix.RTNH_F_LINKDOWN|unix.RTNH_F_DEAD)
		if err := h.RouteReplace(&r); err != nil {
			errs = append(errs, fmt.Errorf("route %v on %s: %w", r, to.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// returnLimit is the longest wait of giveBack for an interface: the kernel's driver makes it anew once it has the NIC back.
const returnLimit = 2 * time.Second

// giveBack returns the networks to an interface of the name that they come from. One that is not there is no error: it may
// have been deleted, which is why the device is closed.
func (n *Networks) giveBack(h *netlink.Handle) error {
	if n == nil || len(n.addrs)+len(n.routes) == 0 {
		return nil
	}
	for end := time.Now().Add(returnLimit); ; time.Sleep(20 * time.Millisecond) {
		link, err := h.LinkByName(n.name)
		if err == nil {
			if link.Attrs().Flags&net.FlagUp == 0 {
				if err := h.LinkSetUp(link); err != nil {
					return fmt.Errorf("bring %s up again: %w", n.name, err)
				}
			}
			return n.add(h, link)
		}
		if time.Now().After(end) {
			return nil
		}
	}
}
