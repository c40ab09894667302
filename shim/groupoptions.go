package shim

import (
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/wire"
)

// Memberships of multicast groups: the requests of ip(7) and ipv6(7), and those of RFC 3678 for both.

// Names that package unix has for IPv4 alone: they are those of RFC 3678, at either level.
const (
	mcastJoinGroup         = 42
	mcastBlockSource       = 43
	mcastUnblockSource     = 44
	mcastLeaveGroup        = 45
	mcastJoinSourceGroup   = 46
	mcastLeaveSourceGroup  = 47
	sizeGroupReq           = 136 // struct group_req: the interface, and a sockaddr_storage at 8
	sizeGroupSourceReq     = 264 // another one at 136
	sizeMreqSource         = 12
	groupReqGroup          = 8
	groupReqSource         = 136
	maxSourcesOfMembership = 64 // as package udp has it
)

// membership is a group that a socket has joined, from all sources or from some.
type membership struct {
	iface   int // as UDPConn.Join has it
	group   netip.Addr
	include bool         // sources alone; otherwise all but sources
	sources []netip.Addr // that were joined, or are blocked
}

// groupChange is the change that an option requests.
type groupChange struct {
	iface         int
	group, source netip.Addr // source is invalid where the option is about all
}

var groupOptions = map[optionName]optionSpec{
	name4(unix.IP_ADD_MEMBERSHIP):         {set: byMreq((*sock).joinGroup)},
	name4(unix.IP_DROP_MEMBERSHIP):        {set: byMreq((*sock).leaveGroup)},
	name6(unix.IPV6_JOIN_GROUP):           {set: byMreq6((*sock).joinGroup)},
	name6(unix.IPV6_LEAVE_GROUP):          {set: byMreq6((*sock).leaveGroup)},
	name4(unix.IP_ADD_SOURCE_MEMBERSHIP):  {set: byMreqSource((*sock).joinSource)},
	name4(unix.IP_DROP_SOURCE_MEMBERSHIP): {set: byMreqSource((*sock).leaveSource)},
	name4(unix.IP_BLOCK_SOURCE):           {set: byMreqSource((*sock).blockSource)},
	name4(unix.IP_UNBLOCK_SOURCE):         {set: byMreqSource((*sock).unblockSource)},
	name4(mcastJoinGroup):                 {set: byGroupReq((*sock).joinGroup)},
	name6(mcastJoinGroup):                 {set: byGroupReq((*sock).joinGroup)},
	name4(mcastLeaveGroup):                {set: byGroupReq((*sock).leaveGroup)},
	name6(mcastLeaveGroup):                {set: byGroupReq((*sock).leaveGroup)},
	name4(mcastJoinSourceGroup):           {set: bySourceReq((*sock).joinSource)},
	name6(mcastJoinSourceGroup):           {set: bySourceReq((*sock).joinSource)},
	name4(mcastLeaveSourceGroup):          {set: bySourceReq((*sock).leaveSource)},
	name6(mcastLeaveSourceGroup):          {set: bySourceReq((*sock).leaveSource)},
	name4(mcastBlockSource):               {set: bySourceReq((*sock).blockSource)},
	name6(mcastBlockSource):               {set: bySourceReq((*sock).blockSource)},
	name4(mcastUnblockSource):             {set: bySourceReq((*sock).unblockSource)},
	name6(mcastUnblockSource):             {set: bySourceReq((*sock).unblockSource)},
	name4(unix.IP_MULTICAST_IF):           {set: setMulticastIf4, get: getMulticastIf4},
	name6(unix.IPV6_MULTICAST_IF):         {set: setMulticastIf6, get: getMulticastIf6},
}

type groupSetter func(k *sock, c groupChange) error

// byMreq reads struct ip_mreq or ip_mreqn.
func byMreq(f groupSetter) func(*sock, optionName, []byte) error {
	return func(k *sock, _ optionName, v []byte) error {
		if len(v) < 8 {
			return syscall.EINVAL
		}
		iface, err := k.interfaceOf(v[4:])
		if err != nil {
			return err
		}
		return f(k, groupChange{iface: iface, group: netip.AddrFrom4([4]byte(v))})
	}
}

// interfaceOf returns the interface that the tail of an ip_mreqn names by its index, or else by an address of it; 0 is that of the routes.
func (k *sock) interfaceOf(v []byte) (int, error) {
	if len(v) >= 8 {
		if index := order.Uint32(v[4:]); index != 0 {
			return k.known(stackIndex(index))
		}
	}
	a := netip.AddrFrom4([4]byte(v))
	if a.IsUnspecified() || a.IsLoopback() {
		return 0, nil
	}
	var of uint32
	k.s.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) { of = in.DeviceOf(wire.AddrFrom(a)) })
	if of == 0 {
		return 0, syscall.ENODEV
	}
	return int(of), nil
}

// known returns an interface of the stack; ENODEV is that it has no such one.
func (k *sock) known(of uint32) (int, error) {
	var n int
	k.s.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) { n = len(in.Interfaces()) })
	if int(of) > n {
		return 0, syscall.ENODEV
	}
	return int(of), nil
}

// byMreq6 reads struct ipv6_mreq.
func byMreq6(f groupSetter) func(*sock, optionName, []byte) error {
	return func(k *sock, _ optionName, v []byte) error {
		if len(v) < 20 {
			return syscall.EINVAL
		}
		iface, err := k.known(stackIndex(order.Uint32(v[16:])))
		if err != nil {
			return err
		}
		return f(k, groupChange{iface: iface, group: netip.AddrFrom16([16]byte(v))})
	}
}

// byMreqSource reads struct ip_mreq_source: the group, the interface by an address, the source.
func byMreqSource(f groupSetter) func(*sock, optionName, []byte) error {
	return func(k *sock, _ optionName, v []byte) error {
		if len(v) < sizeMreqSource {
			return syscall.EINVAL
		}
		iface, err := k.interfaceOf(v[4:8])
		if err != nil {
			return err
		}
		return f(k, groupChange{iface, netip.AddrFrom4([4]byte(v)), netip.AddrFrom4([4]byte(v[8:]))})
	}
}

// byGroupReq reads struct group_req, and bySourceReq struct group_source_req.
func byGroupReq(f groupSetter) func(*sock, optionName, []byte) error {
	return func(k *sock, n optionName, v []byte) error {
		if len(v) < sizeGroupReq {
			return syscall.EINVAL
		}
		return k.byRequest(f, n, v, false)
	}
}

func bySourceReq(f groupSetter) func(*sock, optionName, []byte) error {
	return func(k *sock, n optionName, v []byte) error {
		if len(v) < sizeGroupSourceReq {
			return syscall.EINVAL
		}
		return k.byRequest(f, n, v, true)
	}
}

func (k *sock) byRequest(f groupSetter, n optionName, v []byte, source bool) (err error) {
	var c groupChange
	if c.iface, err = k.known(stackIndex(order.Uint32(v))); err != nil {
		return err
	}
	if c.group, err = sockaddrOf(n, v[groupReqGroup:]); err == nil && source {
		c.source, err = sockaddrOf(n, v[groupReqSource:])
	}
	if err != nil {
		return err
	}
	return f(k, c)
}

// sockaddrOf reads a struct sockaddr_storage of the version of the option's level.
func sockaddrOf(n optionName, v []byte) (netip.Addr, error) {
	switch family := order.Uint16(v); {
	case family == unix.AF_INET && n.level == unix.IPPROTO_IP:
		return netip.AddrFrom4([4]byte(v[4:])), nil
	case family == unix.AF_INET6 && n.level == unix.IPPROTO_IPV6:
		return netip.AddrFrom16([16]byte(v[8:])), nil
	}
	return netip.Addr{}, syscall.EADDRNOTAVAIL
}

// maxGroups bounds the groups of a socket. Linux permits 20 of IPv4 by default, and more of IPv6.
const maxGroups = 256

// findGroup returns the membership of a group by the interface, or, where the program names none, by any; nil for none.
func (k *sock) findGroup(c groupChange) *membership {
	i := slices.IndexFunc(k.groups, func(m membership) bool { return m.group == c.group && (m.iface == c.iface || c.iface == 0) })
	if i < 0 {
		return nil
	}
	return &k.groups[i]
}

func (k *sock) joinGroup(c groupChange) error {
	switch {
	case !c.group.IsMulticast():
		return syscall.EINVAL
	case k.findGroup(c) != nil:
		return syscall.EADDRINUSE
	}
	return k.addGroup(membership{iface: c.iface, group: c.group})
}

func (k *sock) addGroup(m membership) error {
	if len(k.groups) >= maxGroups {
		return syscall.ENOBUFS
	}
	if u := k.packets(); u != nil {
		if err := m.join(u.conn); err != nil {
			return bare(err)
		}
	}
	k.groups = append(k.groups, m)
	return nil
}

// join makes conn a member.
func (m *membership) join(conn *socket.UDPConn) error {
	if !m.include {
		err := conn.Join(m.iface, m.group, netip.Addr{})
		for _, s := range m.sources {
			if err == nil {
				err = conn.Block(m.iface, m.group, s)
			}
		}
		return err
	}
	for _, s := range m.sources {
		if err := conn.Join(m.iface, m.group, s); err != nil {
			return err
		}
	}
	return nil
}

func (k *sock) leaveGroup(c groupChange) error {
	m := k.findGroup(c)
	switch {
	case !c.group.IsMulticast():
		return syscall.EINVAL
	case m == nil:
		return syscall.EADDRNOTAVAIL
	}
	if u := k.packets(); u != nil {
		if err := u.conn.Leave(m.iface, m.group, netip.Addr{}); err != nil {
			return bare(err)
		}
	}
	k.groups = slices.DeleteFunc(k.groups, func(x membership) bool { return x.group == m.group && x.iface == m.iface })
	return nil
}

func (k *sock) joinSource(c groupChange) error {
	m := k.findGroup(c)
	switch {
	case !c.group.IsMulticast():
		return syscall.EINVAL
	case m == nil:
		return k.addGroup(membership{iface: c.iface, group: c.group, include: true, sources: []netip.Addr{c.source}})
	case !m.include:
		return syscall.EINVAL
	case slices.Contains(m.sources, c.source):
		return syscall.EADDRNOTAVAIL
	}
	return k.changeSources(m, append(slices.Clone(m.sources), c.source))
}

func (k *sock) leaveSource(c groupChange) error {
	m := k.findGroup(c)
	switch {
	case !c.group.IsMulticast():
		return syscall.EINVAL
	case m == nil:
		return syscall.EINVAL
	case !m.include:
		return syscall.EINVAL
	case !slices.Contains(m.sources, c.source):
		return syscall.EADDRNOTAVAIL
	case len(m.sources) == 1:
		return k.leaveGroup(c)
	}
	return k.changeSources(m, without(m.sources, c.source))
}

func (k *sock) blockSource(c groupChange) error {
	m := k.findGroup(c)
	switch {
	case !c.group.IsMulticast(), m == nil, m.include:
		return syscall.EINVAL
	case slices.Contains(m.sources, c.source):
		return syscall.EADDRNOTAVAIL
	}
	return k.changeSources(m, append(slices.Clone(m.sources), c.source))
}

func (k *sock) unblockSource(c groupChange) error {
	m := k.findGroup(c)
	switch {
	case !c.group.IsMulticast(), m == nil, m.include:
		return syscall.EINVAL
	case !slices.Contains(m.sources, c.source):
		return syscall.EADDRNOTAVAIL
	}
	return k.changeSources(m, without(m.sources, c.source))
}

func without(list []netip.Addr, a netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(x netip.Addr) bool { return x == a })
}

// changeSources sets the sources of a membership.
func (k *sock) changeSources(m *membership, sources []netip.Addr) error {
	if len(sources) > maxSourcesOfMembership {
		return syscall.ENOBUFS
	}
	x := *m
	x.sources = sources
	if u := k.packets(); u != nil {
		_ = u.conn.Leave(m.iface, m.group, netip.Addr{}) // it is a member
		if err := x.join(u.conn); err != nil {
			return bare(err)
		}
	}
	*m = x
	return nil
}

// setMulticastIf4 is IP_MULTICAST_IF: an address of the interface, or struct ip_mreq or ip_mreqn.
func setMulticastIf4(k *sock, _ optionName, v []byte) error {
	at := v
	if len(v) >= 8 {
		at = v[4:]
	}
	if len(v) < 4 {
		return syscall.EINVAL
	}
	iface, err := k.interfaceOf(at)
	if err == syscall.ENODEV {
		err = syscall.EADDRNOTAVAIL
	}
	if err != nil {
		return err
	}
	k.options.multicastAddr = [4]byte(at)
	return k.change(func(o *socket.UDPOptions) { o.MulticastInterface = uint32(iface) })
}

func getMulticastIf4(k *sock, _ optionName, b []byte) ([]byte, error) {
	return append(b, k.options.multicastAddr[:]...), nil
}

func setMulticastIf6(k *sock, n optionName, v []byte) error {
	i, err := intOf(n, v)
	if err != nil {
		return err
	}
	iface, err := k.known(stackIndex(uint32(i)))
	if err != nil || i < 0 {
		return syscall.ENODEV
	}
	return k.change(func(o *socket.UDPOptions) { o.MulticastInterface = uint32(iface) })
}

func getMulticastIf6(k *sock, _ optionName, b []byte) ([]byte, error) {
	return appendInt(b, int(programIndex(k.options.udp.MulticastInterface))), nil
}
