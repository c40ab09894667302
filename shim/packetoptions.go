package shim

import (
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// packetOptions are those of UDP.
var packetOptions = map[optionName]optionSpec{
	nameS(unix.SO_RCVBUF):      udpInt(2304, 1<<30, func(o *socket.UDPOptions, v int) { o.ReceiveBuffer = v }, func(o *socket.UDPOptions) int { return 2 * orDefault(o.ReceiveBuffer, 106496) }),
	nameS(unix.SO_RCVBUFFORCE): udpInt(2304, 1<<30, func(o *socket.UDPOptions, v int) { o.ReceiveBuffer = v }, func(o *socket.UDPOptions) int { return 2 * orDefault(o.ReceiveBuffer, 106496) }),
	nameS(unix.SO_SNDBUF):      kept(212992, 0, 1<<30),
	nameS(unix.SO_SNDBUFFORCE): kept(212992, 0, 1<<30),
	nameS(unix.SO_BROADCAST):   udpBool(func(o *socket.UDPOptions) *bool { return &o.Broadcast }),
	nameS(unix.SO_KEEPALIVE):   kept(0, minInt32, maxInt32),
	nameS(unix.SO_OOBINLINE):   kept(0, minInt32, maxInt32),
	nameS(unix.SO_NO_CHECK):    udpBool(func(o *socket.UDPOptions) *bool { return &o.NoChecksum }),

	name4(unix.IP_TOS):              udpTOS,
	name6(unix.IPV6_TCLASS):         udpTOS,
	name4(unix.IP_TTL):              udpTTL,
	name6(unix.IPV6_UNICAST_HOPS):   udpTTL,
	name4(unix.IP_MTU_DISCOVER):     udpMTUDiscover,
	name6(unix.IPV6_MTU_DISCOVER):   udpMTUDiscover,
	name4(unix.IP_MULTICAST_TTL):    udpMulticastTTL,
	name6(unix.IPV6_MULTICAST_HOPS): udpMulticastTTL,
	name4(unix.IP_MULTICAST_LOOP):   udpLoop,
	name6(unix.IPV6_MULTICAST_LOOP): udpLoop,

	name4(unix.IP_PKTINFO):         wants(wantPktInfo),
	name6(unix.IPV6_RECVPKTINFO):   wants(of6(wantPktInfo)),
	name4(unix.IP_RECVTOS):         wants(wantTOS),
	name6(unix.IPV6_RECVTCLASS):    wants(of6(wantTOS)),
	name4(unix.IP_RECVTTL):         wants(wantHopLimit),
	name6(unix.IPV6_RECVHOPLIMIT):  wants(of6(wantHopLimit)),
	name4(unix.IP_ADD_MEMBERSHIP):  {set: membership4(true)},
	name4(unix.IP_DROP_MEMBERSHIP): {set: membership4(false)},
	name6(unix.IPV6_JOIN_GROUP):    {set: membership6(true)},
	name6(unix.IPV6_LEAVE_GROUP):   {set: membership6(false)},
}

const (
	minInt32 = -1 << 31
	maxInt32 = 1<<31 - 1
)

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// change changes the options of a UDP socket, bound or not.
func (k *sock) change(f func(o *socket.UDPOptions)) error {
	f(&k.options.udp)
	if u := k.packets(); u != nil {
		return bare(u.conn.SetOptions(f))
	}
	return nil
}

// udpInt is an option of UDP with bounds.
func udpInt(least, most int, set func(o *socket.UDPOptions, v int), get func(o *socket.UDPOptions) int) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if n.level == unix.SOL_SOCKET { // sizes of buffers are cut to what is possible
				i = min(max(i, least), most)
			}
			if i < least || i > most {
				return syscall.EINVAL
			}
			return k.change(func(o *socket.UDPOptions) { set(o, i) })
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return appendInt(b, get(&k.options.udp)), nil },
	}
}

func udpBool(f func(o *socket.UDPOptions) *bool) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			return k.change(func(o *socket.UDPOptions) { *f(o) = i != 0 })
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return appendBool(b, *f(&k.options.udp)), nil },
	}
}

var (
	udpTOS = udpInt(0, 255, func(o *socket.UDPOptions, v int) { o.TOS = uint8(v) }, func(o *socket.UDPOptions) int { return int(o.TOS) })

	// -1 is the default.
	udpTTL = udpInt(-1, 255, func(o *socket.UDPOptions, v int) { o.TTL = uint8(max(v, 0)) },
		func(o *socket.UDPOptions) int { return orDefault(int(o.TTL), 64) })
	udpMulticastTTL = udpInt(-1, 255, func(o *socket.UDPOptions, v int) { o.MulticastTTL = uint8(max(v, 0)) },
		func(o *socket.UDPOptions) int { return orDefault(int(o.MulticastTTL), 1) })

	// IP_PMTUDISC_DO and IP_PMTUDISC_PROBE forbid fragments.
	udpMTUDiscover = udpInt(0, 5, func(o *socket.UDPOptions, v int) {
		o.DontFragment = v == unix.IP_PMTUDISC_DO || v == unix.IP_PMTUDISC_PROBE
	},
		func(o *socket.UDPOptions) int {
			if o.DontFragment {
				return unix.IP_PMTUDISC_DO
			}
			return unix.IP_PMTUDISC_WANT
		})

	udpLoop = udpInt(0, 255, func(o *socket.UDPOptions, v int) { o.NoLoop = v == 0 }, func(o *socket.UDPOptions) int { return asInt(!o.NoLoop) })
)

// wants is an option that asks for control messages.
func wants(f datagramFlags) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if n.level == unix.IPPROTO_IPV6 && !k.v6 {
				return syscall.ENOPROTOOPT
			}
			k.options.want &^= f
			if i != 0 {
				k.options.want |= f
			}
			if u := k.packets(); u != nil {
				u.want.Store(uint32(k.options.want))
			}
			return nil
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
			return appendBool(b, k.options.want&f != 0), nil
		},
	}
}

// membership4 is IP_ADD_MEMBERSHIP and IP_DROP_MEMBERSHIP: struct ip_mreq or ip_mreqn. The interface is that of the routes:
// an address or index of the kernel's interfaces says nothing here.
func membership4(join bool) func(*sock, optionName, []byte) error {
	return func(k *sock, _ optionName, v []byte) error {
		if len(v) < 8 {
			return syscall.EINVAL
		}
		return k.membership(join, netip.AddrFrom4([4]byte(v)))
	}
}

// membership6 is IPV6_JOIN_GROUP and IPV6_LEAVE_GROUP: struct ipv6_mreq.
func membership6(join bool) func(*sock, optionName, []byte) error {
	return func(k *sock, _ optionName, v []byte) error {
		if len(v) < 20 {
			return syscall.EINVAL
		}
		return k.membership(join, netip.AddrFrom16([16]byte(v)))
	}
}

// maxGroups is the number of groups that a socket may be in. Linux permits 20 of IPv4 by default, and more of IPv6.
const maxGroups = 256

// membership joins or leaves a group; a socket that is not bound yet joins as soon as it is.
func (k *sock) membership(join bool, group netip.Addr) error {
	at, u := slices.Index(k.groups, group), k.packets()
	switch {
	case !group.IsMulticast():
		return syscall.EINVAL
	case join && at >= 0:
		return syscall.EADDRINUSE
	case join && len(k.groups) >= maxGroups:
		return syscall.ENOBUFS
	case !join && at < 0:
		return syscall.EADDRNOTAVAIL
	case join && u != nil:
		if err := u.conn.Join(0, group, netip.Addr{}); err != nil {
			return bare(err)
		}
	case u != nil:
		if err := u.conn.Leave(0, group, netip.Addr{}); err != nil {
			return bare(err)
		}
	}
	if join {
		k.groups = append(k.groups, group)
	} else {
		k.groups = slices.Delete(k.groups, at, at+1)
	}
	return nil
}
