package shim

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp/cc"
)

func knownCongestion(name string) bool { return name != "" && cc.Known(name) }

func name6(n int) optionName { return optionName{unix.IPPROTO_IPV6, n} }
func name4(n int) optionName { return optionName{unix.IPPROTO_IP, n} }
func nameU(n int) optionName { return optionName{unix.IPPROTO_UDP, n} }
func nameT(n int) optionName { return optionName{unix.IPPROTO_TCP, n} }
func nameS(n int) optionName { return optionName{unix.SOL_SOCKET, n} }

// ipLocalPortRange is IP_LOCAL_PORT_RANGE of Linux 6.3.
const ipLocalPortRange = 51

// Names of linux/in6.h and tcp.h that package unix does not have.
const (
	ipv6RouterAlertIsolate = 30
	tcpIsMPTCP             = 43
)

// commonOptions are those of TCP and UDP.
var commonOptions = map[optionName]optionSpec{
	nameS(unix.SO_ERROR):                {get: getError},
	nameS(unix.SO_LINGER):               {set: setLinger, get: getLinger},
	nameS(unix.SO_DOMAIN):               fixed((*sock).family),
	nameS(unix.SO_TYPE):                 fixed((*sock).kind),
	nameS(unix.SO_PROTOCOL):             fixed((*sock).protocol),
	nameS(unix.SO_ACCEPTCONN):           fixed(func(k *sock) int { return asInt(k.current() == listening) }),
	nameS(unix.SO_SNDLOWAT):             fixed(func(*sock) int { return 1 }),
	nameS(unix.SO_COOKIE):               {get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return order.AppendUint64(b, k.cookie), nil }},
	nameS(unix.SO_REUSEADDR):            field(func(o *options) *bool { return &o.reuse }),
	nameS(unix.SO_REUSEPORT):            field(func(o *options) *bool { return &o.share }),
	name4(unix.IP_BIND_ADDRESS_NO_PORT): kept(0, math.MinInt32, math.MaxInt32), // bind(2) chooses the port all the same
	name4(ipLocalPortRange):             {set: setPortRange, get: getPortRange},
	nameS(unix.SO_PRIORITY):             beyond(kept(0, 0, 6), syscall.EPERM),
	nameS(unix.SO_DONTROUTE):            kept(0, math.MinInt32, math.MaxInt32),
	nameS(unix.SO_BUSY_POLL):            kept(0, 0, math.MaxInt32),
	nameS(unix.SO_DEBUG):                beyond(kept(0, 0, 0), syscall.EACCES),
	nameS(unix.SO_MARK):                 {set: refuse, get: zero},
	nameS(unix.SO_INCOMING_NAPI_ID):     {get: zero}, // the kernel's network devices have numbers, the stack's have none
	nameS(unix.SO_CNX_ADVICE):           {set: setAdvice},
	nameS(unix.SO_LOCK_FILTER):          {set: setLockFilter, get: keptFlag(0).get},
	nameS(unix.SO_BSDCOMPAT):            {set: func(*sock, optionName, []byte) error { return nil }, get: zero},
	nameS(unix.SO_NOFCS):                keptFlag(0), // of packet sockets
	name4(unix.IP_OPTIONS):              {set: setNoOptions, get: empty},
	name4(unix.IP_HDRINCL):              {get: zero}, // of raw sockets, as the next ones
	name4(unix.IP_NODEFRAG):             {get: zero},
	name4(unix.IP_PROTOCOL):             {get: zero},
	name4(unix.IP_ROUTER_ALERT):         {set: invalid, get: zero},
	name6(unix.IPV6_ROUTER_ALERT):       {get: zero},
	name6(ipv6RouterAlertIsolate):       keptFlag(0),
	name4(unix.IP_FREEBIND):             field(func(o *options) *bool { return &o.freeBind }),
	name4(unix.IP_TRANSPARENT):          {set: refuse, get: zero},
	name6(unix.IPV6_FREEBIND):           field(func(o *options) *bool { return &o.freeBind }),
	name6(unix.IPV6_V6ONLY):             {set: setV6Only, get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return appendBool(b, k.options.v6only), nil }},
}

// streamOptions are those of TCP.
var streamOptions = map[optionName]optionSpec{
	nameT(unix.TCP_NODELAY):          tcpInt(socket.OptNoDelay),
	nameT(unix.TCP_CORK):             tcpInt(socket.OptCork),
	nameT(unix.TCP_MAXSEG):           tcpInt(socket.OptMaxSegment),
	nameT(unix.TCP_KEEPIDLE):         tcpInt(socket.OptKeepIdle),
	nameT(unix.TCP_KEEPINTVL):        tcpInt(socket.OptKeepInterval),
	nameT(unix.TCP_KEEPCNT):          tcpInt(socket.OptKeepCount),
	nameT(unix.TCP_USER_TIMEOUT):     tcpInt(socket.OptUserTimeout),
	nameT(unix.TCP_QUICKACK):         {set: tcpInt(socket.OptQuickAck).set, get: fixed(func(*sock) int { return 1 }).get},
	nameT(unix.TCP_NOTSENT_LOWAT):    tcpInt(socket.OptNotSentLowat),
	nameT(unix.TCP_FASTOPEN):         fastOpen,
	nameT(unix.TCP_FASTOPEN_CONNECT): tcpInt(socket.OptFastOpen),
	nameT(unix.TCP_DEFER_ACCEPT): {set: setDeferAccept, get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
		return appendInt(b, retransmissions(k.options.deferAccept)), nil
	}},
	nameT(unix.TCP_CONGESTION):   {set: setCongestion, get: getCongestion},
	nameT(unix.TCP_INFO):         {get: getInfo},
	nameT(unix.TCP_THIN_DUPACK):  {set: setThinDupAck, get: zero}, // without effect on Linux, too
	nameT(tcpIsMPTCP):            {get: zero},
	nameT(unix.TCP_SYNCNT):       tcpInt(socket.OptSYNCount),
	nameT(unix.TCP_LINGER2):      tcpInt(socket.OptOrphanTime),
	nameT(unix.TCP_WINDOW_CLAMP): {set: setWindowClamp, get: tcpInt(socket.OptWindowClamp).get},
	nameT(unix.TCP_ULP):          {set: func(*sock, optionName, []byte) error { return syscall.ENOENT }, get: empty},

	nameS(unix.SO_BINDTODEVICE):    {set: setDevice, get: getDevice, enters: true},
	nameS(unix.SO_BINDTOIFINDEX):   {set: byIndex(setDevice), get: getIndex, enters: true},
	name4(unix.IP_UNICAST_IF):      {set: setUnicastIf(setDevice), get: getUnicastIf, enters: true},
	name6(unix.IPV6_UNICAST_IF):    {set: setUnicastIf(setDevice), get: getUnicastIf, enters: true},
	nameS(unix.SO_KEEPALIVE):       tcpInt(socket.OptKeepAlive),
	nameS(unix.SO_OOBINLINE):       kept(0, math.MinInt32, math.MaxInt32), // urgent bytes are in line in any case
	nameS(unix.SO_MAX_PACING_RATE): pacing,
	nameS(unix.SO_SNDBUF):          bufferSize(socket.OptSendBuffer, 87040, 4608),
	nameS(unix.SO_RCVBUF):          bufferSize(socket.OptReceiveBuffer, 131072, 2304),
	nameS(unix.SO_SNDBUFFORCE):     {set: bufferSize(socket.OptSendBuffer, 87040, 4608).set},
	nameS(unix.SO_RCVBUFFORCE):     {set: bufferSize(socket.OptReceiveBuffer, 131072, 2304).set},
	nameS(unix.SO_BROADCAST):       kept(0, math.MinInt32, math.MaxInt32),

	// Control messages, of which streams have none, and what is of groups and fragments.
	name4(unix.IP_RECVERR):           keptFlag(0), // what ICMP reports of a connection is in SO_ERROR
	name6(unix.IPV6_RECVERR):         keptFlag(0),
	name4(unix.IP_PKTINFO):           keptFlag(0),
	name4(unix.IP_RECVTTL):           keptFlag(0),
	name4(unix.IP_RECVTOS):           keptFlag(0),
	name4(unix.IP_RECVOPTS):          keptFlag(0),
	name4(unix.IP_RECVORIGDSTADDR):   keptFlag(0),
	name4(unix.IP_MULTICAST_LOOP):    keptFlag(1),
	name4(unix.IP_MULTICAST_ALL):     keptFlag(1),
	name6(unix.IPV6_RECVPKTINFO):     keptFlag(0),
	name6(unix.IPV6_RECVHOPLIMIT):    keptFlag(0),
	name6(unix.IPV6_RECVTCLASS):      keptFlag(0),
	name6(unix.IPV6_DONTFRAG):        keptFlag(0),
	name6(unix.IPV6_MULTICAST_LOOP):  keptFlag(1),
	name6(unix.IPV6_MULTICAST_ALL):   keptFlag(1),
	name6(unix.IPV6_RECVORIGDSTADDR): keptFlag(0),
	nameS(unix.SO_RXQ_OVFL):          keptFlag(0),
	name4(unix.IP_MULTICAST_TTL):     {set: invalid, get: fixed(func(*sock) int { return 1 }).get},
	name4(unix.IP_MULTICAST_IF):      {set: invalid, get: zero},
	name6(unix.IPV6_MULTICAST_HOPS):  {get: fixed(func(*sock) int { return 1 }).get},
	name6(unix.IPV6_MULTICAST_IF):    {get: zero},
	nameS(unix.SO_TIMESTAMP):         keptFlag(0),
	nameS(unix.SO_TIMESTAMPNS):       keptFlag(0),
	nameS(unix.SO_NO_CHECK):          keptFlag(0),

	name4(unix.IP_TOS):            tcpInt(socket.OptTOS),
	name4(unix.IP_TTL):            tcpInt(socket.OptTTL),
	name4(unix.IP_MINTTL):         tcpInt(socket.OptMinTTL),
	name6(unix.IPV6_MINHOPCOUNT):  tcpInt(socket.OptMinTTL),
	name4(unix.IP_MTU_DISCOVER):   tcpInt(socket.OptMTUDiscover),
	name4(unix.IP_MTU):            {get: streamMTU},
	name6(unix.IPV6_TCLASS):       tcpInt(socket.OptTOS),
	name6(unix.IPV6_UNICAST_HOPS): tcpInt(socket.OptTTL),
	name6(unix.IPV6_MTU_DISCOVER): tcpInt(socket.OptMTUDiscover),
	name6(unix.IPV6_MTU):          {set: setPacketMTU, get: streamMTU},
}

// streamMTU is IP_MTU of a connection.
func streamMTU(k *sock, n optionName, b []byte) ([]byte, error) {
	if k.connection() == nil && k.current() != paired {
		return nil, syscall.ENOTCONN
	}
	return tcpInt(socket.OptMTU).get(k, n, b)
}

func (k *sock) family() int {
	if k.v6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func (k *sock) kind() int {
	if k.stream {
		return unix.SOCK_STREAM
	}
	return unix.SOCK_DGRAM
}

func (k *sock) protocol() int {
	if k.stream {
		return unix.IPPROTO_TCP
	}
	return unix.IPPROTO_UDP
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// beyond is an option whose other values need privileges in the kernel, as those that refuse is for.
func beyond(spec optionSpec, err error) optionSpec {
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		if e := set(k, n, v); e != syscall.EINVAL || len(v) < 4 {
			return e
		}
		return err
	}
	return spec
}

// refuse is for options that need privileges in the kernel, which programs do not have here.
func refuse(*sock, optionName, []byte) error { return syscall.EPERM }

func zero(_ *sock, _ optionName, b []byte) ([]byte, error) { return appendInt(b, 0), nil }

// setV6Only is IPV6_V6ONLY, which bind(2) fixes.
func setV6Only(k *sock, n optionName, v []byte) error {
	i, err := intOf(n, v)
	switch {
	case err != nil:
		return err
	case !k.v6:
		return syscall.ENOPROTOOPT
	case k.isBound():
		return syscall.EINVAL
	}
	k.options.v6only = i != 0
	return nil
}

func (k *sock) isBound() bool {
	return k.bound != nil || k.packets() != nil || k.current() != idle
}

// bufferSize is SO_SNDBUF or SO_RCVBUF. The kernel doubles what is set, and reads say so; the stack takes the size as it is.
// def is what a socket of the kernel begins with, where buffers grow with need, and least is the least that reads say.
func bufferSize(opt socket.Option, def, least int) optionSpec {
	const most = math.MaxInt32 / 2
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			return k.setTCP(opt, min(max(i, least/2), most))
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
			v, err := k.getTCP(opt)
			if v == 0 {
				return appendInt(b, def), err
			}
			return appendInt(b, 2*v), err
		},
	}
}

func setDeferAccept(k *sock, n optionName, v []byte) error {
	i, err := intOf(n, v)
	if err != nil {
		return err
	}
	k.options.deferAccept = max(i, 0)
	k.mu.Lock()
	l := k.server
	k.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.deferred = i > 0
	l.mu.Unlock()
	return bare(l.l.SetOption(socket.OptDeferAccept, k.options.deferAccept))
}
