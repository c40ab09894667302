package shim

import (
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
)

// state is the state of a socket.
type state uint8

const (
	idle state = iota
	connecting
	connected
	listening
	paired   // connected to another program, without the node between them
	released // the node's end is closed
)

// sock is a socket of a program: the node's end of it, and what it stands for in the stack.
type sock struct {
	s      *Server
	user   *user
	owner  *socket.Process
	cookie uint64 // of the program's end
	stream bool   // TCP; otherwise UDP
	v6     bool
	joins  bool // datagrams may join others: the form of the program's end has it. The holder of ops has it
	byCall bool // of a supervisor's program, whose read(2) and write(2) the supervisor does not see

	needsHeaders [2]bool // UDP: calls need what only headers have, while the socket is not connected and while it is; see headed

	refuses bool // the kernel takes no descriptors from the program

	// ops is held during a request. Callbacks of loops never take it, so that its holder may enter loops.
	ops     sync.Mutex
	options *options
	bound   *socket.Bound
	port    uint16         // in Server.bound, whose mutex guards it
	groups  []membership   // that a UDP socket has joined, or will join when it is bound
	chosen  netip.AddrPort // of bind(2): what of it is neither unspecified nor 0 stays after a disconnect and a failure
	before  ended          // of a connection that has failed, in whose place this socket is (see renew)

	// mu is a leaf: its holder enters no loop and takes no other lock. Server.mu may be held.
	mu            sync.Mutex
	state         state
	fd            int // the node's end
	watch         uint64
	local, remote netip.AddrPort
	attempt       *socket.Connecting
	server        *listener
	udp           *packets
	packetErr     syscall.Errno
	notices       int // in the program's socket, as far as the library has said
	conn          *socket.TCPConn
	late          []lateOption
	mem           *ring.Memory // until the relay has it
	direct        *direct      // of a pair
	budget        *ringBudget  // that mem counts for
	small         *smallBuffer // until the handshake is complete; nil if the socket was filled
	refilled      int          // bytes more to be taken out of the program's end when it is connected
	relayed       *relay       // its fields belong to the loop of conn
	asked         int          // the program's end, during a request
	held          optionConn   // the connection as its loop has it, during a request that the loop does; else nil
	answer        func(error)  // called on the loop at the end of the handshake; nil if no reply waits for it
	reported      bool         // connect(2) has returned 0 for the connection
	attempted     bool         // it was released because no connection came about, or the program has ended it
}

// find returns the socket that p is the program's end of. It registers p first if need be, and may wait.
func (s *Server) find(c *channel, p int) (*sock, error) {
	return s.lookUp(c, p, func(u *user) error { return s.addFile(u, s.takeAnySocket(u)) })
}

// findNow is find in a loop: it does not wait. What fails is tried again by find, which counts it.
func (s *Server) findNow(c *channel, p int) (*sock, error) {
	return s.lookUp(c, p, func(u *user) error {
		if !u.take(&u.sockets, s.cfg.Limits.Sockets) {
			return syscall.EMFILE
		}
		err := s.takeFile(u)
		if err != nil {
			u.giveBack(&u.sockets)
		}
		return err
	})
}

// lookUp is find with a function that counts a new socket and its descriptor.
func (s *Server) lookUp(c *channel, p int, take func(u *user) error) (*sock, error) {
	cookie, err := cookieOf(p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	k := s.sockets[cookie]
	_, ended := s.ended.byCookie[cookie]
	closed := s.closed
	s.mu.Unlock()
	switch {
	case k != nil:
		return k, nil
	case closed:
		return nil, syscall.ENETDOWN
	case ended:
		return nil, syscall.EISCONN
	}
	return s.register(c, p, cookie, take)
}

// cookieOf returns the kernel's number of a socket, which no other socket of the machine has had.
func cookieOf(fd int) (uint64, error) {
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
}

// register connects p to the node. It accepts AF_UNIX sockets with a mark, and only if they are not connected.
func (s *Server) register(c *channel, p int, cookie uint64, take func(u *user) error) (*sock, error) {
	k := &sock{s: s, user: c.user, owner: c.process(), cookie: cookie, fd: -1}
	kind, err := k.inspect(p)
	if err != nil {
		return nil, err
	}
	if err := take(c.user); err != nil {
		return nil, err
	}
	end, err := s.private.connect(p, kind)
	if err != nil {
		s.giveFile(c.user)
		c.user.giveBack(&c.user.sockets)
		return nil, err
	}
	k.byCall = c.supervisor
	k.options = s.newOptions()
	if err := k.begin(p, end); err != nil {
		unix.Close(end)
		s.giveFile(c.user)
		c.user.giveBack(&c.user.sockets)
		return nil, err
	}
	return k, nil
}

// inspect reads from p what the socket is.
func (k *sock) inspect(p int) (kind int, err error) {
	domain, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, err
	}
	if kind, err = unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return 0, err
	}
	mark, err := unix.GetsockoptInt(p, unix.SOL_SOCKET, unix.SO_PRIORITY)
	switch {
	case err != nil:
		return 0, err
	case domain == unix.AF_UNIX && (mark == markTCP4Connected || mark == markTCP6Connected || mark == markUDP4Connected || mark == markUDP6Connected):
		return 0, syscall.EISCONN // the node has closed its end
	case domain != unix.AF_UNIX || kind != unix.SOCK_STREAM && kind != unix.SOCK_SEQPACKET || mark != markInet && mark != markInet6:
		return 0, syscall.EINVAL
	}
	k.stream, k.v6 = kind == unix.SOCK_STREAM, mark == markInet6
	return kind, nil
}

// setMark says to all holders of the socket whether it is connected, and a UDP socket's datagrams have no headers then.
func (k *sock) setMark(p int, connected bool) error {
	mark := markInet
	switch {
	case connected && k.stream:
		mark = markTCP4Connected
	case connected:
		mark = markUDP4Connected
	}
	if k.v6 {
		mark = v6Marks[mark]
	}
	return unix.SetsockoptInt(p, unix.SOL_SOCKET, unix.SO_PRIORITY, mark)
}

// v6Marks are the marks of IPv6 sockets.
var v6Marks = [...]int{markTCP4Connected: markTCP6Connected, markUDP4Connected: markUDP6Connected, markInet: markInet6}

// sendBuffer is the send buffer of the program's end, in bytes: the kernel doubles it. One buffer of the kernel, of up to 51 KiB,
// may stay charged to it for one byte that was not consumed (see relay.consume), so that a quarter, from which
// on poll(2) does not report POLLOUT, has to be much more than that.
const sendBuffer = 208 << 10

// begin makes the ends ready, and enters the socket in the tables.
func (k *sock) begin(p, end int) error {
	raiseBuffer(p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	k.refuses = refuseRights(end)
	if k.stream {
		k.setEarly(p)
		// Urgent bytes stay in the stream: the loop would not see those behind.
		_ = unix.SetsockoptInt(end, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
		if err := writeGuard(p); err != nil {
			return err
		}
	}
	s := k.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return syscall.ENETDOWN
	}
	if s.sockets[k.cookie] != nil { // two requests at once: connect(2) has let only one pass
		return syscall.EALREADY
	}
	want := uint32(unix.EPOLLRDHUP)
	if !k.stream {
		want |= unix.EPOLLIN
	}
	k.mu.Lock() // an event may come before the fields are there
	defer k.mu.Unlock()
	id, err := s.watch.add(end, want, k.watched)
	if err != nil {
		return err
	}
	k.fd, k.watch = end, id
	s.sockets[k.cookie] = k
	s.all[k] = struct{}{}
	return nil
}

// writeGuard puts the first byte into a socket through its other end. As long as one byte is unread, the end of the node
// for any reason is ECONNRESET for the program.
func writeGuard(p int) error {
	_, err := unix.SendmsgN(p, []byte{0}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err
}

func raiseBuffer(fd, force, usual, bytes int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil { // it needs CAP_NET_ADMIN
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, usual, bytes)
	}
}

// watched is called by the watcher: the program has closed its end, or a listener has space again.
func (k *sock) watched(ev uint32) {
	if !k.stream && ev&unix.EPOLLIN != 0 && (ev&unix.EPOLLHUP == 0 || k.unsent()) {
		go k.bindLate()
		return
	}
	if ev&unix.EPOLLHUP != 0 {
		k.mu.Lock()
		known, server := k.state != connected && k.state != paired && k.state != released, k.state == listening
		k.mu.Unlock()
		if known {
			k.release(0)
		}
		if known && server {
			return
		}
	}
	if ev&unix.EPOLLOUT != 0 {
		k.mu.Lock()
		l := k.server
		k.mu.Unlock()
		if l != nil {
			l.resume()
		}
	}
}

// holdsStrangers reports whether the program's end may hold descriptors of another program, which are closed with it: the other
// end of a pair is that program's, and a listener holds ends of pairs. The last close of one may block.
func (k *sock) holdsStrangers() bool {
	state := k.current()
	return state == paired || state == listening
}

// unsent reports whether the program has sent datagrams before it closed its socket, which have not been read.
func (k *sock) unsent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd < 0 || k.state != idle {
		return false
	}
	var first [1]byte
	n, _, err := unix.Recvfrom(k.fd, first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == nil && n > 0
}

// release closes the node's end and frees what the socket has. errno is kept for SO_ERROR, unless it is 0.
// Any goroutine may call it, callbacks too, and several times.
func (k *sock) release(errno syscall.Errno) {
	k.mu.Lock()
	fd, id, attempt, mem := k.fd, k.watch, k.attempt, k.mem
	if k.state == released {
		k.mu.Unlock()
		return
	}
	k.small.close()
	k.state, k.fd, k.watch, k.attempt, k.conn, k.mem, k.relayed = released, -1, 0, nil, nil, nil, nil
	k.mu.Unlock()
	if mem != nil {
		k.closeMemory(mem, ring.Closed)
	}
	k.releaseDirect()
	if attempt != nil {
		attempt.Cancel() // false: it is over
	}
	if id != 0 {
		k.s.watch.remove(fd, id)
	}
	k.s.forget(k, errno)
	if fd >= 0 {
		k.closeEnd(fd)
	}
	k.user.giveBack(&k.user.sockets)
	if !k.closeNow() {
		go k.closeAll()
	}
}

// closeNow is closeAll for a socket that has nothing of the loops', such as an accepted one: to wake a goroutine costs more than
// all else that the end of a connection does. false is that nothing was done.
func (k *sock) closeNow() bool {
	if !k.ops.TryLock() {
		return false
	}
	defer k.ops.Unlock()
	k.mu.Lock()
	empty := k.bound == nil && k.server == nil && k.udp == nil
	k.mu.Unlock()
	if empty {
		k.leave()
	}
	return empty
}

// closeAll closes what takes loops, once no request uses it.
func (k *sock) closeAll() {
	k.ops.Lock()
	defer k.ops.Unlock()
	if k.bound != nil {
		_ = k.bound.Close() // without effect after Listen
	}
	k.mu.Lock()
	l, u := k.server, k.udp
	k.bound, k.server, k.udp = nil, nil, nil
	k.mu.Unlock()
	if l != nil {
		l.close()
	}
	if u != nil {
		u.close()
	}
	k.leave()
}

// forget removes a socket from the table by cookie. That of all has it until closeAll.
func (s *Server) forget(k *sock, errno syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sockets[k.cookie] == k {
		delete(s.sockets, k.cookie)
		if k.port != 0 {
			s.leaving[k.cookie] = k
		}
	}
	switch {
	case k.attempted:
		s.ended.put(&k.user.ended, k.cookie, ended{errno, true, k.user, k.options, k.chosen})
	case errno != 0:
		s.ended.put(&k.user.ended, k.cookie, ended{errno: errno})
	}
}

// releaseAll ends all sockets, for Close. Connections are reset.
func (s *Server) releaseAll() {
	s.mu.Lock()
	var all []*sock
	for k := range s.all {
		all = append(all, k)
	}
	s.mu.Unlock()
	for _, k := range all {
		k.abort()
	}
}

// abort resets a connection, and releases the socket. The caller holds no loop.
func (k *sock) abort() {
	k.mu.Lock()
	conn, u, r := k.conn, k.udp, k.relayed
	k.mu.Unlock()
	switch {
	case conn != nil:
		conn.Do(func(in socket.LoopConn) {
			_ = in.Abort() // it may have ended
			if r != nil {
				r.in = in
				r.close(syscall.ENETDOWN)
			}
			k.release(syscall.ENETDOWN)
		})
	case u != nil:
		k.s.cfg.Stack.EnterLoop(u.home, func(socket.LoopStack) { u.end() })
	default:
		k.release(syscall.ENETDOWN)
	}
}

// onEnded does a request for a socket whose node's end is closed, or that is none of the node's.
func (c *channel) onEnded(q *request, r *reply, p int, cause error) error {
	if cause != syscall.EISCONN {
		return cause
	}
	cookie, err := cookieOf(p)
	if err != nil {
		return err
	}
	s := c.s
	s.reopened.Lock()
	defer s.reopened.Unlock()
	s.mu.Lock()
	var e ended
	asks := q.op == opGetOption && q.level == unix.SOL_SOCKET && q.name == unix.SO_ERROR
	if asks || q.op == opConnect && q.addr.IsValid() {
		e = s.ended.take(cookie)
	} else {
		e = s.ended.byCookie[cookie]
	}
	s.mu.Unlock()
	switch {
	case asks:
		r.value = appendInt(nil, int(e.errno))
		return nil
	case e.attempt:
		return c.onFailed(q, r, p, &e)
	case q.op == opConnect && e.errno != 0:
		return e.errno
	case q.op == opNames:
		r.value = s.instanceOf()
		return nil
	case q.op == opSetOption && q.level == unix.SOL_SOCKET:
		return nil // such as SO_LINGER: Linux takes it, and it has no effect
	case q.op == opSetOption || q.op == opGetOption:
		return syscall.EINVAL // as Linux for a connection that has ended
	}
	return cause
}

// names returns the addresses of the socket; an invalid one is none.
func (k *sock) names() (local, remote netip.AddrPort) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == connecting {
		return k.local, netip.AddrPort{}
	}
	if !k.local.IsValid() {
		return k.unspecified(), k.remote
	}
	return k.local, k.remote
}

// unspecified is the name of a socket that is not bound.
func (k *sock) unspecified() netip.AddrPort {
	if k.v6 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}

// appendInt appends the int of a socket option.
func appendInt(b []byte, v int) []byte { return order.AppendUint32(b, uint32(v)) }
