package shim

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// Names of linux/udp.h: checksums over IPv6 are left out both ways or neither (RFC 6935).
const (
	udpNoCheck6TX = 101
	udpNoCheck6RX = 102
)

// packetOptions are those of UDP.
var packetOptions = map[optionName]optionSpec{
	nameS(unix.SO_RCVBUF):      udpInt(2304, 1<<30, func(o *socket.UDPOptions, v int) { o.ReceiveBuffer = v }, func(o *socket.UDPOptions) int { return 2 * orDefault(o.ReceiveBuffer, 106496) }),
	nameS(unix.SO_RCVBUFFORCE): {set: udpInt(2304, 1<<30, func(o *socket.UDPOptions, v int) { o.ReceiveBuffer = v }, nil).set},
	nameS(unix.SO_SNDBUF):      sendBufferOption,
	nameS(unix.SO_SNDBUFFORCE): {set: sendBufferOption.set},
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

	name4(unix.IP_RECVERR):        queuesErrors(),
	name6(unix.IPV6_RECVERR):      queuesErrors(),
	nameS(unix.SO_TIMESTAMPING):   reforming(stamping()),
	name4(unix.IP_PKTINFO):        wants(wantPktInfo),
	name6(unix.IPV6_RECVPKTINFO):  wants(of6(wantPktInfo)),
	name4(unix.IP_RECVTOS):        wants(wantTOS),
	name6(unix.IPV6_RECVTCLASS):   wants(of6(wantTOS)),
	name4(unix.IP_RECVTTL):        wants(wantHopLimit),
	name6(unix.IPV6_RECVHOPLIMIT): wants(of6(wantHopLimit)),

	name4(unix.IP_RECVORIGDSTADDR):   wants(wantOriginal),
	name6(unix.IPV6_RECVORIGDSTADDR): wants(of6(wantOriginal)),
	nameS(unix.SO_RXQ_OVFL):          wants(wantOverflow),
	name4(unix.IP_MINTTL):            kept(0, 0, 255), // of TCP alone on Linux, too
	name6(unix.IPV6_MINHOPCOUNT):     kept(0, 0, 255),
	name4(unix.IP_MULTICAST_ALL):     allGroups(func(o *socket.UDPOptions) *bool { return &o.AllGroups4 }),
	name6(unix.IPV6_MULTICAST_ALL):   allGroups(func(o *socket.UDPOptions) *bool { return &o.AllGroups6 }),
	nameS(unix.SO_BINDTOIFINDEX):     {set: byIndex(bindToDevice), get: getIndex},
	name4(unix.IP_UNICAST_IF):        {set: setUnicastIf(setDevice), get: getUnicastIf},
	name6(unix.IPV6_UNICAST_IF):      {set: setUnicastIf(setDevice), get: getUnicastIf},

	nameS(unix.SO_TIMESTAMP):    times(wantTime, wantTimeNS),
	nameS(unix.SO_TIMESTAMPNS):  times(wantTimeNS, wantTime),
	name4(unix.IP_MTU):          {get: getPacketMTU},
	name6(unix.IPV6_MTU):        {set: setPacketMTU, get: getPacketMTU},
	name6(unix.IPV6_DONTFRAG):   dontFragment,
	nameU(unix.UDP_SEGMENT):     segmented(kept(0, 0, 65535)),
	nameU(unix.UDP_GRO):         kept(0, minInt32, maxInt32), // datagrams are never merged
	nameU(udpNoCheck6TX):        udpBool(func(o *socket.UDPOptions) *bool { return &o.NoChecksum }),
	nameU(udpNoCheck6RX):        udpBool(func(o *socket.UDPOptions) *bool { return &o.NoChecksum }),
	nameU(unix.UDP_CORK):        corked(keptFlag(0)),
	nameS(unix.SO_BINDTODEVICE): {set: bindToDevice, get: boundDevice},
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
	udpMTUDiscover = fragments(kept(unix.IP_PMTUDISC_WANT, 0, 5))
	dontFragment   = fragments(kept(0, minInt32, maxInt32))

	udpLoop = udpInt(0, 255, func(o *socket.UDPOptions, v int) { o.NoLoop = v == 0 }, func(o *socket.UDPOptions) int { return asInt(!o.NoLoop) })
)

// times is an option that asks for the time of arrival, in one form: the other is off then.
func times(f, other datagramFlags) optionSpec {
	spec := wants(f)
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		k.options.want &^= other
		return set(k, n, v)
	}
	return spec
}

// sendBufferOption is SO_SNDBUF, which reads as twice of what was set, as Linux has it, and SO_SNDBUFFORCE, which sets
// the same size. Sizes are cut to what is possible.
var sendBufferOption = optionSpec{
	set: func(k *sock, n optionName, v []byte) error {
		i, err := intOf(n, v)
		if err != nil {
			return err
		}
		return kept(0, 0, maxInt32).set(k, nameS(unix.SO_SNDBUF), appendInt(nil, min(max(i, 0), maxInt32/2)))
	},
	get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
		v, ok := k.options.kept[nameS(unix.SO_SNDBUF)]
		if !ok {
			return appendInt(b, 212992), nil
		}
		return appendInt(b, max(2*int(v), 4608)), nil
	},
}

// fragments is an option that decides, with others, whether datagrams may be fragmented.
func fragments(spec optionSpec) optionSpec {
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		if err := set(k, n, v); err != nil {
			return err
		}
		forbids := k.options.kept[name6(unix.IPV6_DONTFRAG)] != 0
		for _, of := range []optionName{name4(unix.IP_MTU_DISCOVER), name6(unix.IPV6_MTU_DISCOVER)} {
			how := k.options.kept[of]
			forbids = forbids || how == unix.IP_PMTUDISC_DO || how == unix.IP_PMTUDISC_PROBE
		}
		return k.change(func(o *socket.UDPOptions) { o.DontFragment = forbids })
	}
	return spec
}

// segmented is UDP_SEGMENT.
func segmented(spec optionSpec) optionSpec {
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		err := set(k, n, v)
		if u := k.packets(); err == nil && u != nil {
			u.segments.Store(uint32(k.options.kept[n]))
		}
		return err
	}
	return spec
}

// getPacketMTU is IP_MTU and IPV6_MTU: of the path to the peer.
func getPacketMTU(k *sock, _ optionName, b []byte) ([]byte, error) {
	u := k.packets()
	if u == nil {
		return nil, syscall.ENOTCONN
	}
	mtu, err := u.conn.PathMTU()
	return appendInt(b, mtu), bare(err)
}

// setPacketMTU is IPV6_MTU. Fragments follow the path's MTU, which the stack knows.
func setPacketMTU(k *sock, n optionName, v []byte) error {
	i, err := intOf(n, v)
	if err == nil && i != 0 && i < 1280 {
		err = syscall.EINVAL
	}
	return err
}

// bindToDevice is SO_BINDTODEVICE with the name of a device of the stack.
func bindToDevice(k *sock, _ optionName, v []byte) error {
	of, err := k.deviceNamed(text(v))
	if err != nil {
		return err
	}
	return k.change(func(o *socket.UDPOptions) { o.Interface = of })
}

func boundDevice(k *sock, _ optionName, b []byte) ([]byte, error) {
	return append(b, k.deviceName(k.options.udp.Interface)...), nil
}

// deviceNamed returns the device with a name; "" is any.
func (k *sock) deviceNamed(name string) (of uint32, err error) {
	for _, n := range k.s.interfaces() {
		if name != "" && n.name == name && n.index != loopbackIndex {
			return stackIndex(n.index), nil
		}
	}
	if name != "" {
		err = syscall.ENODEV
	}
	return 0, err
}

// deviceName returns a name with the zero byte of the kernel, "" for any.
func (k *sock) deviceName(of uint32) string {
	for _, n := range k.s.interfaces() {
		if of != 0 && n.index == programIndex(of) {
			return n.name + "\x00"
		}
	}
	return ""
}

// setWant says whether the program has asked for control messages.
func (k *sock) setWant(f datagramFlags, on bool) {
	k.options.want &^= f
	if on {
		k.options.want |= f
	}
	if u := k.packets(); u != nil {
		u.want.Store(uint32(k.options.want))
	}
}

// wants is an option that asks for control messages.
func wants(f datagramFlags) optionSpec {
	return reforming(optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if n.level == unix.IPPROTO_IPV6 && !k.v6 {
				return syscall.ENOPROTOOPT
			}
			k.setWant(f, i != 0)
			return nil
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
			return appendBool(b, k.options.want&f != 0), nil
		},
	})
}
