package shim

import (
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// target checks the destination of connect(2), and returns it as the stack has it.
func (k *sock) target(a netip.AddrPort) (netip.AddrPort, error) {
	ip := a.Addr()
	switch {
	case !ip.IsValid() || !k.v6 && !ip.Is4():
		return a, syscall.EAFNOSUPPORT
	case k.v6 && ip.Is4():
		return a, syscall.EAFNOSUPPORT
	case k.v6 && ip.Is4In6() && k.options.v6only, ip.IsMulticast(), ip == broadcast:
		return a, syscall.ENETUNREACH
	}
	return destination(a), nil
}

// destination returns an address as the stack has it. The unspecified one is the host itself, as on Linux.
func destination(a netip.AddrPort) netip.AddrPort {
	ip := a.Addr().Unmap()
	switch {
	case !ip.IsUnspecified():
	case ip.Is4():
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		ip = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(ip, a.Port())
}

// dialer is Connect of a Stack, or of a loop of it, which its caller holds then.
type dialer func(d *socket.Dialer, to netip.AddrPort, f func(in socket.LoopConn, err error)) (*socket.Connecting, error)

// errElsewhere is that the holder of a loop cannot connect without waiting for another one.
var errElsewhere = errors.New("not on this loop")

// connect begins a connection. The reply is EINPROGRESS, and the program's end is not writable until the handshake is
// complete. The result errDelayed is that it is as before, and that the reply of a program that waits has to wait, too.
//
// onLoop is that the caller holds a loop: then it is TCP through the loop, also where a program listens at the address. To join the
// two takes all loops, and may wait.
func (k *sock) connect(c *channel, q *request, r *reply, p int, dial dialer, onLoop bool) error {
	if !k.stream {
		return k.connectPackets(q, r, p)
	}
	if !q.addr.IsValid() {
		return k.endStream(r)
	}
	if err := k.takeBefore(); err != nil {
		return err
	}
	if err := k.mayConnect(); err != nil || k.isConnected() {
		r.local, r.remote = k.names()
		return err
	}
	to, err := k.prepareConnect(c, q, onLoop)
	if err != nil {
		return err
	}
	k.owner = c.process()
	k.mu.Lock()
	k.reported = q.arg&blocks != 0
	k.mu.Unlock()
	if !onLoop {
		k.s.closeAbandoned(to.Port())
		if k.connectLocal(c, q, to, r, p) {
			return k.reportPair(p)
		}
	}
	if err := k.setMark(p, true); err != nil {
		return err
	}
	if q.arg&wantRings != 0 {
		r.memory = k.newRings(p, &c.budget)
	}
	wait := onLoop && q.arg&blocks != 0
	if err := k.beginHandshake(p, to, dial, onLoop, wait); err != nil {
		_ = k.setMark(p, false) // it was set before
		k.dropRings(r)
		return err
	}
	r.local, r.remote = k.shown(k.local), k.shown(to)
	_ = k.s.bindName(p, r.local, r.remote)
	if wait {
		return errDelayed
	}
	return syscall.EINPROGRESS
}

// prepareConnect checks the destination and the program's budget of connections, and binds a socket whose local port has to be in a
// range (IP_LOCAL_PORT_RANGE).
func (k *sock) prepareConnect(c *channel, q *request, onLoop bool) (to netip.AddrPort, err error) {
	if to, err = k.target(q.addr); err != nil {
		return to, err
	}
	if err = k.s.takeConnect(c.user); err != nil {
		return to, err
	}
	if k.bound != nil || k.options.portRange == [2]uint16{} {
		return to, nil
	}
	if onLoop {
		return to, errElsewhere // bind takes all loops
	}
	return to, k.inRange(k.unspecified(), k.bindStream)
}

// beginHandshake sends the SYN. Which way it takes depends on how the program learns of the end of the handshake: by a reply that
// waits, or by an end that is not writable until then.
func (k *sock) beginHandshake(p int, to netip.AddrPort, dial dialer, onLoop, wait bool) error {
	early, err := k.early()
	switch {
	case err != nil:
		return err
	case wait:
		return k.start(to, early, dial)
	case onLoop && early == 0:
		return k.beginSmall(p, to, dial)
	}
	return k.beginFilled(p, to, early, dial)
}

// closeAbandoned closes the listeners at a port that their programs have closed and the node has yet to: the connection is refused,
// as on Linux, where close(2) returns after that, or is the next listener's. It waits for as long as that takes. Of more
// than mostLooked listeners at the port it looks at some: the others' are found by the watcher.
func (s *Server) closeAbandoned(port uint16) {
	var at []*listener
	s.mu.Lock()
	for l := range s.ports[port] {
		if at = append(at, l); len(at) == mostLooked {
			break
		}
	}
	s.mu.Unlock()
	s.stats.looked.Add(uint64(len(at)))
	for _, l := range at {
		if l.k.isClosed() {
			l.k.release(0) // the watcher may do so at the same time
			l.k.closeAll() // no listener waits for another socket with its lock held: the caller may hold that of its own
		}
	}
}

// isClosed reports whether the program has closed the socket.
func (k *sock) isClosed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state == released || k.fd >= 0 && hungUp(k.fd)
}

// mayConnect returns why connect(2) fails in the state of the socket.
func (k *sock) mayConnect() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.state == connecting:
		return syscall.EALREADY
	case k.state == listening || k.reported && (k.state == paired || k.state == connected):
		return syscall.EISCONN
	case k.state == released:
		return syscall.ENETDOWN
	}
	return nil
}

// isConnected reports whether the handshake is complete. connect(2) says that once.
func (k *sock) isConnected() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	made := k.state == connected || k.state == paired
	k.reported = k.reported || made
	return made
}

// reportPair returns what connect(2) does for a pair, which is connected at once. A socket that does not block gets EINPROGRESS,
// as from Linux, even over lo: some programs handle a connection only when it is reported as writable.
func (k *sock) reportPair(p int) error {
	if flags, err := unix.FcntlInt(uintptr(p), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reported = false
	return syscall.EINPROGRESS
}

// start sends the SYN. filled is the number of bytes that are to be taken out of the program's end when the handshake is complete.
func (k *sock) start(to netip.AddrPort, filled int, dial dialer) error {
	d := &socket.Dialer{Process: k.owner, Bound: k.bound, TCPOptions: k.options.Apply, FreeBind: k.options.freeBind}
	k.mu.Lock()
	if k.state == released { // the program has shut it down since the request: it must not come back to life
		k.mu.Unlock()
		return syscall.ENETDOWN
	}
	k.state = connecting
	k.mu.Unlock()
	attempt, err := dial(d, to, func(in socket.LoopConn, err error) { k.finish(in, err, filled) })
	if err == nil && !attempt.LocalAddr().IsValid() { // the port has to be searched for
		attempt.Cancel()
		err = errElsewhere
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		if k.state == connecting {
			k.state = idle
		}
		return err
	}
	k.s.stats.connects.Add(1)
	if k.state == released { // it has failed already, which SO_ERROR has, or the program has closed it
		attempt.Cancel()
		return nil
	}
	k.local, k.remote = attempt.LocalAddr(), to
	if k.state == connecting {
		k.attempt = attempt
	}
	return nil
}

// finish is called on the connection's loop at the end of the handshake.
func (k *sock) finish(in socket.LoopConn, err error, filled int) {
	answer := k.takeAnswer()
	if err != nil {
		k.s.stats.failures.Add(1)
		k.mu.Lock()
		k.attempted = true
		k.mu.Unlock()
		k.release(errnoOf(err)) // with bytes unread: EPOLLERR and EPOLLHUP
		if answer != nil {
			answer(syscall.EINPROGRESS) // and the socket shows that it has failed
		}
		return
	}
	k.mu.Lock()
	if k.state == released {
		k.mu.Unlock()
		_ = in.Abort()
		if answer != nil {
			answer(syscall.EINPROGRESS)
		}
		return
	}
	id, fd := k.watch, k.fd
	filled += k.refilled
	k.state, k.watch, k.attempt, k.conn = connected, 0, nil, in.Conn()
	k.mu.Unlock()
	k.s.watch.remove(fd, id)
	k.relay(in, fd, filled)
	k.s.cfg.Stack.LoopOf(in).After(func() { // the ACK that ends the handshake leaves first: the peer works meanwhile
		k.restoreBuffer()
		if answer != nil {
			answer(nil)
		}
	})
}

// early returns how many bytes wait in the node's end beside the guard byte: a program has written them before connect(2),
// by calls that the library does not see.
func (k *sock) early() (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd < 0 {
		return 0, syscall.ENETDOWN
	}
	n, err := unix.IoctlGetInt(k.fd, unix.SIOCINQ)
	return max(n-1, 0), err
}

// shown returns an address as the program's socket shows it: IPv6 sockets have mapped IPv4 addresses.
func (k *sock) shown(a netip.AddrPort) netip.AddrPort {
	if k.v6 && a.Addr().Is4() {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	return a
}

// bindName gives the program's end p the name from which it reads its addresses. A socket that has a name already, which
// the program has given it, asks the node instead.
func (s *Server) bindName(p int, local, remote netip.AddrPort) (err error) {
	n := name{process: s.process, local: local, remote: remote}
	var b [1 + nameSize]byte
	for range 3 {
		n.unique = unique()
		n.encode(b[1:])
		b[0] = '@'
		if err = unix.Bind(p, &unix.SockaddrUnix{Name: string(b[:])}); err != syscall.EADDRINUSE {
			break
		}
	}
	return err
}
