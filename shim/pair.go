package shim

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// A connection between two programs of the stack needs no TCP. The client's socket is connected to the node already, and the
// node passes its own end on to the program that listens: the two have one AF_UNIX pair between them, and the node has
// no part in what they send. FIN, a reset by unread data, and waiting are the kernel's. The node keeps the addresses
// and options of both ends until their files are gone (pairs).
//
// Everything that such a pair cannot do goes through the loop as TCP: see mayPair and Server.pairListener.

// local is the address of the client's end and what it has reserved for it.
type local struct {
	l     *listener
	from  netip.AddrPort
	bound *socket.Bound // new; nil where the program has called bind(2)
	rings bool          // the client requests them
}

// connectLocal connects to a program of the same stack, if one listens at the address and a pair serves. false is that the
// connection has to be made through the loop.
func (k *sock) connectLocal(c *channel, q *request, to netip.AddrPort, r *reply, p int) bool {
	if !k.s.pairs.on || !k.s.listensAt(to.Port()) || !k.mayPair(p) {
		return false
	}
	at, ok := k.findLocal(c, to)
	if !ok {
		return false
	}
	at.rings = q.arg&wantRings != 0
	if !k.join(&at, to, r, p) {
		at.close()
		return false
	}
	k.s.stats.connects.Add(1)
	k.s.stats.accepts.Add(1)
	k.s.stats.pairs.Add(1)
	r.local, r.remote = k.names()
	return true
}

// mayPair reports whether a pair does what the client has asked for. SO_LINGER of 0 makes close(2) a reset, which AF_UNIX
// does not have. A name that the program itself has given its socket would be shown to the other as its address.
func (k *sock) mayPair(p int) bool {
	if hasName(p) {
		return false
	}
	linger, _ := k.getTCP(socket.OptLinger) // it is not connected
	return linger != 0
}

// hasName reports whether an AF_UNIX socket is bound, or cannot be asked.
func hasName(fd int) bool {
	var sa unix.RawSockaddrUnix // x/sys shows no difference between no name and one of a zero byte
	size := uint32(unsafe.Sizeof(sa))
	_, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	return errno != 0 || size > uint32(unsafe.Offsetof(sa.Path))
}

// findLocal finds the listener of the destination, and reserves a port for the client.
func (k *sock) findLocal(c *channel, to netip.AddrPort) (at local, ok bool) {
	d := &socket.Dialer{Process: k.owner, Bound: k.bound, FreeBind: k.options.freeBind}
	l, from := k.s.cfg.Stack.LocalListener(d, to)
	if k.s.pairListener(l) == nil {
		return at, false
	}
	if k.bound == nil {
		b, err := k.s.cfg.Stack.Bind(&socket.BindConfig{User: k.user.uid, FreeBind: true}, "tcp", netip.AddrPortFrom(from.Addr(), 0))
		if err != nil {
			return at, false
		}
		at.bound, d.Bound = b, b
		l, from = k.s.cfg.Stack.LocalListener(d, to) // the port chooses among listeners that share theirs
	}
	at.l, at.from = k.s.pairListener(l), from
	if at.l == nil {
		at.close()
	}
	return at, at.l != nil
}

// close gives the reserved port back.
func (at *local) close() {
	if at.bound != nil {
		_ = at.bound.Close() // it reports nothing
	}
}

// listensAt reports whether a program listens at a port, at any address.
func (s *Server) listensAt(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ports[port]) > 0
}

// pairListener returns the listener of a program, nil where it has to accept through the loop.
func (s *Server) pairListener(of *socket.Listener) *listener {
	s.mu.Lock()
	l := s.listeners[of]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.linger == 0 || l.deferred || len(l.waiting) > 0 || l.space() <= 0 {
		return nil
	}
	return l
}

// enlist makes a listener known to connectLocal, and delist undoes that.
func (s *Server) enlist(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l.l] = l
	put(s.ports, l.port(), l)
}

func (s *Server) delist(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners[l.l] == nil {
		return
	}
	delete(s.listeners, l.l)
	drop(s.ports, l.port(), l)
}

func (l *listener) port() uint16 { return addrOf(l.l.Addr()).Port() }

// join passes the node's end of k to the program that listens. false is that nothing has changed.
func (k *sock) join(at *local, to netip.AddrPort, r *reply, p int) bool {
	s := k.s
	other, err := k.newPaired(at.l, at.from, to)
	if err != nil {
		return false
	}
	q, ok := k.takeEnd()
	if !ok { // the program has closed it
		other.release(0)
		return false
	}
	if err = other.enterPaired(q); err == nil {
		err = k.setMark(p, true)
	}
	if err == nil {
		k.setAddresses(at.from, to)
		if at.rings {
			r.memory = k.newDirect(other, at.l, p, q)
		}
		err = at.l.send(other, q, &r.memory)
	}
	if err != nil {
		k.dropDirect(r)
		other.release(0)
		k.returnEnd(q, p)
		return false
	}
	refuseRights(p)                        // one program must not close what the other has sent it (the kernel before 6.16 does not know this)
	if s.bindName(p, at.from, to) != nil { // the program has named it meanwhile, perhaps by an address that it does not have
		_ = unix.Shutdown(q, unix.SHUT_RDWR)
	}
	if at.bound != nil {
		k.bound = at.bound
		k.enterPort(at.bound.Addr().Port())
	}
	s.pairs.add(k, p)
	s.pairs.add(other, q)
	unix.Close(q)
	s.giveFile(k.user)
	return true
}

// newPaired returns the socket of the server's end, counted for its user.
func (k *sock) newPaired(l *listener, from, to netip.AddrPort) (*sock, error) {
	of := l.k
	if err := k.s.takeAnySocket(of.user); err != nil {
		return nil, err
	}
	other := &sock{s: k.s, user: of.user, owner: of.owner, stream: true, v6: of.v6, fd: -1, state: paired, reported: true}
	other.local, other.remote = other.shown(to), other.shown(from)
	other.options = k.s.newOptions()
	l.inherit(other.options)
	l.mu.Lock()
	linger := l.linger
	l.mu.Unlock()
	if linger >= 0 {
		other.late = []lateOption{{socket.OptLinger, linger}}
	}
	return other, nil
}

// takeEnd takes the node's end from an idle socket. What the program has written before connect(2), which no socket of TCP
// takes, and the guard byte are dropped.
func (k *sock) takeEnd() (q int, ok bool) {
	k.mu.Lock()
	if k.state != idle {
		k.mu.Unlock()
		return -1, false
	}
	q, id := k.fd, k.watch
	k.fd, k.watch, k.state, k.reported = -1, 0, paired, true
	k.mu.Unlock()
	k.s.watch.remove(q, id)
	var b [512]byte
	for {
		n, _, err := unix.Recvfrom(q, b[:], unix.MSG_DONTWAIT)
		if err != syscall.EINTR && (err != nil || n == 0) {
			return q, true
		}
	}
}

// returnEnd makes the socket idle again.
func (k *sock) returnEnd(q, p int) {
	_, _, _ = unix.SetNonblock(q, true), writeGuard(p), k.setMark(p, false) // what comes next fails if they do
	k.mu.Lock()
	if k.state == released { // Close was earlier: it had no end to close
		k.mu.Unlock()
		k.closeEnd(q)
		return
	}
	k.state, k.local, k.remote, k.reported = idle, netip.AddrPort{}, netip.AddrPort{}, false
	if k.bound != nil {
		k.local = k.shown(k.bound.Addr())
	}
	k.fd = q
	k.mu.Unlock()
	id, _ := k.s.watch.add(q, unix.EPOLLRDHUP, k.watched)
	k.mu.Lock()
	k.watch = id
	k.mu.Unlock()
}

// enterPaired makes q the end of a program, and enters it in the tables.
func (k *sock) enterPaired(q int) (err error) {
	raiseBuffer(q, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	if err = k.setMark(q, true); err == nil {
		err = unix.SetsockoptInt(q, unix.SOL_SOCKET, unix.SO_OOBINLINE, 0)
	}
	if err == nil {
		err = unix.SetNonblock(q, false)
	}
	if err == nil {
		k.cookie, err = cookieOf(q)
	}
	if err != nil {
		return err
	}
	return k.enterTables()
}

func (k *sock) setAddresses(from, to netip.AddrPort) {
	k.mu.Lock()
	k.local, k.remote = k.shown(from), k.shown(to)
	k.mu.Unlock()
}

// pairInfo is TCP_INFO of an end of a pair: its state, and the sizes that Linux has for connections over lo.
func pairInfo(out *unix.TCPInfo, p int) {
	out.State = pairState(p)
	out.Options = infoTimestamps | infoSACK | infoWscale
	out.Snd_mss, out.Rcv_mss, out.Advmss, out.Pmtu = 65483, 65483, 65483, 65535
	out.Snd_cwnd, out.Snd_ssthresh, out.Reordering = 10, 1<<31-1, 3
	out.Rto, out.Rtt, out.Rttvar, out.Min_rtt = 200_000, 10, 5, 5
	out.Pacing_rate, out.Max_pacing_rate = ^uint64(0), ^uint64(0)
}

// pairState is the state of TCP that an end of a pair has: which of both directions are closed.
func pairState(p int) uint8 {
	f := []unix.PollFd{{Fd: int32(p), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(f, 0); err != nil || n == 0 {
		return linuxEstablished
	}
	switch {
	case f[0].Revents&unix.POLLHUP != 0:
		return linuxClose
	case f[0].Revents&unix.POLLRDHUP != 0:
		return linuxCloseWait
	}
	return linuxEstablished
}
