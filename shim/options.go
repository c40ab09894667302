package shim

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/tcp"
)

// options are those of a socket that is neither connected nor listens, and those that programs read again and that have
// no effect in the stack. The holder of sock.ops has them.
type options struct {
	*socket.OptionSet // of TCP
	udp               socket.UDPOptions

	v6only   bool
	freeBind bool
	reuse    bool // SO_REUSEADDR
	share    bool // SO_REUSEPORT

	deferAccept int           // seconds
	want        datagramFlags // control messages of received datagrams

	multicastAddr [4]byte   // of IP_MULTICAST_IF, as the program has set it
	device        uint32    // of SO_BINDTODEVICE, for TCP
	portRange     [2]uint16 // IP_LOCAL_PORT_RANGE; zeros are all
	kept          map[optionName]int32
}

// lateOption is an option that is set on the connection when it is there.
type lateOption struct {
	opt socket.Option
	v   int
}

// newOptions returns the defaults of Linux, which programs rely on: Nagle's algorithm is on, keepalive off.
func (s *Server) newOptions() *options {
	o := &options{OptionSet: s.cfg.Stack.NewOptionSet()}
	o.Change(func(t *socket.TCPOptions) {
		t.NoDelay = false
		t.KeepAlive = tcp.KeepAlive{}
		t.DelayFINAck = true // most programs close a connection when its peer has
	})
	o.udp.AllGroups4, o.udp.AllGroups6 = true, true
	return o
}

// optionName is the level and the name of an option.
type optionName struct{ level, name int }

// optionSpec says what setsockopt(2) and getsockopt(2) do. nil is ENOPROTOOPT.
type optionSpec struct {
	set func(k *sock, n optionName, v []byte) error
	get func(k *sock, n optionName, b []byte) ([]byte, error)

	enters bool // it enters a loop, so that a loop cannot do it: it may be its own
}

// entersLoop reports whether an option is for a goroutine (see loopChannel.inLoop).
func (k *sock) entersLoop(q *request) bool {
	if q.op != opSetOption && q.op != opGetOption {
		return false
	}
	spec, ok := k.spec(optionName{int(q.level), int(q.name)})
	return ok && spec.enters
}

// setOption is setsockopt(2).
func (k *sock) setOption(level, name int, v []byte) error {
	n := optionName{level, name}
	spec, ok := k.spec(n)
	if !ok || spec.set == nil {
		return syscall.ENOPROTOOPT
	}
	return spec.set(k, n, v)
}

// earlyBits are the options that a program may have set before the node knew its socket.
var earlyBits = []struct {
	at   int
	name optionName
}{
	{earlyNoDelay, optionName{unix.IPPROTO_TCP, unix.TCP_NODELAY}},
	{earlyKeepAlive, optionName{unix.SOL_SOCKET, unix.SO_KEEPALIVE}},
}

// setEarly sets the options that the library has kept in p, the program's end. What the program writes there itself is none of
// them, or is as good as if it had called setsockopt(2).
func (k *sock) setEarly(p int) {
	kept, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
	if err != nil || kept&earlyMask != earlyOptions {
		return
	}
	for _, e := range earlyBits {
		if bits := kept >> e.at; bits&1 != 0 {
			_ = k.setOption(e.name.level, e.name.name, appendInt(nil, bits>>1&1)) // the option takes any int
		}
	}
}

// option is getsockopt(2) with a buffer of most bytes. It appends to b.
func (k *sock) option(level, name int, b []byte, most int) ([]byte, error) {
	n := optionName{level, name}
	if !k.hasLevel(level) && !k.v6 {
		return nil, syscall.EOPNOTSUPP // as Linux, and ENOPROTOOPT of IPv6
	}
	spec, ok := k.spec(n)
	if !ok || spec.get == nil {
		return nil, syscall.ENOPROTOOPT
	}
	b, err := spec.get(k, n, b)
	if err != nil {
		return nil, err
	}
	return b[:min(len(b), most, maxReplyValue)], nil
}

// hasLevel reports whether sockets of the kind have options of a level.
func (k *sock) hasLevel(level int) bool {
	switch level {
	case unix.SOL_SOCKET, unix.IPPROTO_IP:
		return true
	case unix.IPPROTO_IPV6:
		return k.v6
	case unix.IPPROTO_TCP:
		return k.stream
	}
	return level == unix.IPPROTO_UDP && !k.stream
}

func (k *sock) spec(n optionName) (optionSpec, bool) {
	if !k.hasLevel(n.level) {
		return optionSpec{}, false
	}
	spec, ok := commonOptions[n]
	if ok {
		return spec, true
	}
	if k.stream {
		spec, ok = streamOptions[n]
	} else {
		spec, ok = packetOptions[n]
	}
	if !ok && !k.stream {
		spec, ok = groupOptions[n]
	}
	return spec, ok
}

// intOf reads the int of an option. Options of IP take a byte, too.
func intOf(n optionName, v []byte) (int, error) {
	switch {
	case len(v) >= 4:
		return int(int32(order.Uint32(v))), nil
	case len(v) >= 1 && (n.level == unix.IPPROTO_IP || n.level == unix.IPPROTO_IPV6):
		return int(v[0]), nil
	}
	return 0, syscall.EINVAL
}

// setTCP sets an option of TCP on what the socket is: a connection, a listener, or what will be one.
func (k *sock) setTCP(opt socket.Option, v int) error {
	conn := k.connection()
	k.mu.Lock()
	l := k.server
	if conn == nil && k.conn != nil { // its handshake has ended meanwhile, and what is late has been set
		conn = k.conn
	}
	if conn == nil && (k.state == connecting || opt == socket.OptLinger) && k.state != listening {
		k.late = setLate(k.late, lateOption{opt, v})
	}
	k.mu.Unlock()
	switch {
	case conn != nil:
		_ = k.options.SetOption(opt, v) // for a socket in the place of this one (see renew); the connection has the word
		return bare(conn.SetOption(opt, v))
	case opt == socket.OptLinger && l != nil:
		l.mu.Lock()
		l.linger = v
		l.mu.Unlock()
		return nil
	case opt == socket.OptLinger:
		return nil
	case l != nil:
		return bare(l.l.SetOption(opt, v))
	}
	return bare(k.options.SetOption(opt, v))
}

// setLate returns the options with o, in the place of one of before: a program may set it any number of times.
func setLate(late []lateOption, o lateOption) []lateOption {
	late = slices.DeleteFunc(slices.Clone(late), func(of lateOption) bool { return of.opt == o.opt })
	return append(late, o)
}

// getTCP reads an option of TCP.
func (k *sock) getTCP(opt socket.Option) (v int, err error) {
	conn := k.connection()
	k.mu.Lock()
	l, late := k.server, k.late
	k.mu.Unlock()
	switch {
	case conn != nil:
		v, err = conn.Option(opt)
	case opt == socket.OptLinger && l != nil:
		l.mu.Lock()
		v = l.linger
		l.mu.Unlock()
	case opt == socket.OptLinger:
		v = -1
		for _, o := range late {
			if o.opt == opt {
				v = o.v
			}
		}
	case l != nil:
		v, err = l.l.Option(opt)
	default:
		v, err = k.options.Option(opt)
	}
	return v, bare(err)
}

// bare returns the errno in err: the library reports nothing else.
func bare(err error) error {
	if err == nil {
		return nil
	}
	if n := errnoOf(err); n != 0 {
		return n
	}
	return err
}

// tcpInt is an option that socket.Option has with the same units.
func tcpInt(opt socket.Option) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			return k.setTCP(opt, i)
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) {
			v, err := k.getTCP(opt)
			return appendInt(b, v), err
		},
	}
}

// field is a boolean of options.
func field(f func(o *options) *bool) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err == nil {
				*f(k.options) = i != 0
			}
			return err
		},
		get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return appendBool(b, *f(k.options)), nil },
	}
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return appendInt(b, 1)
	}
	return appendInt(b, 0)
}

// fixed is an option that reads as one value.
func fixed(v func(k *sock) int) optionSpec {
	return optionSpec{get: func(k *sock, _ optionName, b []byte) ([]byte, error) { return appendInt(b, v(k)), nil }}
}

// kept is an option without effect in the stack that programs set and read: an int from least to most.
func kept(def, least, most int32) optionSpec {
	return optionSpec{
		set: func(k *sock, n optionName, v []byte) error {
			i, err := intOf(n, v)
			if err != nil {
				return err
			}
			if int32(i) < least || int32(i) > most {
				return syscall.EINVAL
			}
			if k.options.kept == nil {
				k.options.kept = map[optionName]int32{}
			}
			k.options.kept[n] = int32(i)
			return nil
		},
		get: func(k *sock, n optionName, b []byte) ([]byte, error) {
			v, ok := k.options.kept[n]
			if !ok {
				v = def
			}
			return appendInt(b, int(v)), nil
		},
	}
}

// keptFlag is kept of a boolean.
func keptFlag(def int32) optionSpec {
	spec := kept(def, minInt32, maxInt32)
	set := spec.set
	spec.set = func(k *sock, n optionName, v []byte) error {
		i, err := intOf(n, v)
		if err != nil {
			return err
		}
		return set(k, n, appendBool(nil, i != 0))
	}
	return spec
}

// setLinger is SO_LINGER.
func setLinger(k *sock, _ optionName, v []byte) error {
	if len(v) < 8 {
		return syscall.EINVAL
	}
	seconds := -1
	if order.Uint32(v) != 0 {
		seconds = int(int32(order.Uint32(v[4:])))
		if seconds < 0 {
			return syscall.EINVAL
		}
	}
	if !k.stream {
		return nil // UDP ignores it
	}
	return k.setTCP(socket.OptLinger, seconds)
}

func getLinger(k *sock, _ optionName, b []byte) ([]byte, error) {
	seconds := -1
	var err error
	if k.stream {
		seconds, err = k.getTCP(socket.OptLinger)
	}
	return appendInt(appendBool(b, seconds >= 0), max(seconds, 0)), err
}

// setWindowClamp is TCP_WINDOW_CLAMP, which only a socket without a connection gives up again, as on Linux.
func setWindowClamp(k *sock, n optionName, v []byte) error {
	if i, err := intOf(n, v); err == nil && i == 0 && k.current() != idle {
		return syscall.EINVAL
	}
	return tcpInt(socket.OptWindowClamp).set(k, n, v)
}

// getError is SO_ERROR: what ended a connection, or what ICMP has said of a datagram.
func getError(k *sock, _ optionName, b []byte) ([]byte, error) {
	switch conn := k.connection(); {
	case k.current() == paired:
		v, err := unix.GetsockoptInt(k.asked, unix.SOL_SOCKET, unix.SO_ERROR)
		return appendInt(b, v), err
	case !k.stream:
		return appendInt(b, int(k.packetError())), nil
	case conn == nil && k.current() == idle:
		return appendInt(b, int(k.takeBeforeError())), nil
	case conn != nil:
		v, err := conn.Option(socket.OptError)
		if errors.Is(err, syscall.ENETDOWN) || err != nil {
			v = 0
		}
		return appendInt(b, v), nil
	}
	return appendInt(b, 0), nil
}

// optionConn is a connection for calls with options: a TCPConn, or a LoopConn where the loop does the request.
type optionConn interface {
	SetOption(opt socket.Option, v int) error
	Option(opt socket.Option) (int, error)
	SetOptions(change func(o *socket.TCPOptions)) error
	Info() (socket.TCPInfo, error)
}

// connection returns the connection of a request, nil where there is none.
func (k *sock) connection() optionConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil && k.conn != nil {
		return k.conn
	}
	return k.held
}

// setCongestion is TCP_CONGESTION.
func setCongestion(k *sock, _ optionName, v []byte) error {
	name := text(v)
	change := func(o *socket.TCPOptions) { o.Congestion = name }
	if !knownCongestion(name) {
		return syscall.ENOENT
	}
	conn := k.connection()
	k.mu.Lock()
	l := k.server
	k.mu.Unlock()
	switch {
	case conn != nil:
		return bare(conn.SetOptions(change))
	case l != nil:
		return bare(l.l.SetOptions(change))
	}
	k.options.Change(change)
	return nil
}

func getCongestion(k *sock, _ optionName, b []byte) ([]byte, error) {
	var name string
	if conn := k.connection(); conn != nil {
		i, err := conn.Info()
		if err != nil {
			return nil, bare(err)
		}
		name = i.Congestion
	} else {
		k.options.Change(func(o *socket.TCPOptions) { name = o.Congestion })
	}
	if name == "" {
		name = "cubic"
	}
	var text [16]byte // TCP_CA_NAME_MAX
	copy(text[:15], name)
	return append(b, text[:]...), nil
}

// setDevice is SO_BINDTODEVICE of TCP: "any", or the only device of the stack, which is the same.
func setDevice(k *sock, _ optionName, v []byte) error {
	of, err := k.deviceNamed(text(v))
	switch {
	case err != nil:
		return err
	case of != 0:
		if _, err := k.known(2); err == nil {
			return syscall.EOPNOTSUPP // of several
		}
	}
	k.options.device = of
	return nil
}

func getDevice(k *sock, _ optionName, b []byte) ([]byte, error) {
	return append(b, k.deviceName(k.options.device)...), nil
}

// setPortRange is IP_LOCAL_PORT_RANGE: the lower bound in the lower half, 0 is that of the stack.
func setPortRange(k *sock, _ optionName, v []byte) error {
	if len(v) != 4 {
		return syscall.EINVAL
	}
	low, high := uint16(order.Uint32(v)), uint16(order.Uint32(v)>>16)
	if low != 0 && high != 0 && low > high {
		return syscall.EINVAL
	}
	k.options.portRange = [2]uint16{low, high}
	return nil
}

func getPortRange(k *sock, _ optionName, b []byte) ([]byte, error) {
	return order.AppendUint32(b, uint32(k.options.portRange[0])|uint32(k.options.portRange[1])<<16), nil
}
