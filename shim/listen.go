package shim

import (
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
)

// maxRecords is the number of accepted connections that wait in the program's socket. The rest of the backlog waits in the stack.
const maxRecords = 256

// recordCharge is more than a record counts in a send buffer, in bytes, before the first was measured.
const recordCharge = 1024

// listener passes connections of a Listener to the program: each is a record with a descriptor in the stream of its
// socket. Callbacks of all loops use it.
type listener struct {
	k *sock
	l *socket.Listener

	mu       sync.Mutex // its holder enters no loop
	backlog  int
	charge   int               // of one record in the send buffer
	measured bool              // charge is what the kernel has counted
	rings    bool              // accepted connections have rings
	budget   ringBudget        // of these
	linger   int               // SO_LINGER of accepted connections, -1 is off
	waiting  []socket.LoopConn // accepted, and there was no space for their records
	deferred bool              // TCP_DEFER_ACCEPT
	paused   bool              // the stack's listener is to stop, because some wait
	closed   bool

	switching sync.Mutex // of pausing and resuming: its holder enters loops
}

// listen is listen(2): the first one makes the listener, further ones change the backlog.
func (k *sock) listen(q *request, r *reply, p int) error {
	if !k.stream {
		return syscall.EOPNOTSUPP
	}
	backlog := int(min(uint32(q.arg), uint32(k.s.cfg.Limits.Backlog))) // negative is the most, as on Linux
	switch k.current() {
	case listening:
		r.local, r.remote = k.names()
		return k.server.resize(backlog)
	case connecting, connected, paired:
		return syscall.EINVAL
	case released:
		return syscall.ENETDOWN
	}
	if k.bound == nil {
		if err := k.bindStream(k.unspecified()); err != nil {
			return err
		}
	}
	l, err := k.newListener(backlog)
	if err != nil {
		return err
	}
	l.rings = q.name&wantRings != 0
	r.local, r.remote = k.names()
	_ = k.s.bindName(p, r.local, netip.AddrPort{})
	l.pass()
	k.s.enlist(l)
	return nil
}

// newListener makes the stack listen at the bound address.
func (k *sock) newListener(backlog int) (*listener, error) {
	l := &listener{k: k, backlog: backlog, charge: recordCharge, linger: k.takeLinger()}
	k.mu.Lock()
	fd, id := k.fd, k.watch
	k.mu.Unlock()
	if fd < 0 {
		return nil, syscall.ENETDOWN
	}
	raiseBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, 4*maxRecords*recordCharge) // a quarter is what poll permits
	o := k.options
	ls, err := k.bound.Listen(&socket.ListenConfig{Backlog: max(backlog, 1), Process: k.owner, TCPOptions: func(t *socket.TCPOptions) {
		o.Apply(t)
		t.V6Only, t.Share = o.v6only, o.share
	}})
	if err != nil {
		return nil, err
	}
	l.l = ls
	l.deferred = o.deferAccept > 0
	if l.deferred {
		_ = ls.SetOption(socket.OptDeferAccept, o.deferAccept) // it listens
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = l
	if k.state == released {
		return nil, syscall.ENETDOWN
	}
	k.state = listening
	return l, k.s.watch.modify(fd, id, unix.EPOLLRDHUP)
}

// inherit sets the options that an accepted connection begins with.
func (l *listener) inherit(o *options) {
	if of, err := l.l.Options(); err == nil {
		o.Change(func(to *socket.TCPOptions) { *to = of })
	}
}

// takeLinger returns SO_LINGER as it was set before listen(2).
func (k *sock) takeLinger() int {
	v, _ := k.getTCP(socket.OptLinger) // it is neither connected nor listens
	return v
}

// resize changes the backlog.
func (l *listener) resize(backlog int) error {
	l.mu.Lock()
	l.backlog = backlog
	l.mu.Unlock()
	l.resume()
	return l.l.SetBacklog(max(backlog, 1))
}

// pass tells the stack's listener whether to go on. It enters all loops.
func (l *listener) pass() {
	l.switching.Lock()
	defer l.switching.Unlock()
	l.mu.Lock()
	paused, closed := l.paused, l.closed
	l.mu.Unlock()
	switch {
	case closed:
	case paused:
		l.l.OnAccept(nil)
	default:
		l.l.OnAccept(l.accept)
	}
}

// accept is called on the loop of a new connection.
func (l *listener) accept(in socket.LoopConn) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = in.Abort()
		return
	}
	if len(l.waiting) > 0 || l.space() <= 0 {
		l.wait(in)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.hand(in)
}

// wait keeps a connection until the program has taken records. Only meanwhile the watcher reports that: otherwise each accept(2)
// of the program would wake it. mu is held.
func (l *listener) wait(in socket.LoopConn) {
	l.waiting = append(l.waiting, in)
	if !l.paused {
		l.paused = true
		l.watchSpace(unix.EPOLLOUT)
		go l.pass()
	}
}

// watchSpace makes the watcher call resume when there is space for records, or now if there is (EPOLLOUT), or stops that (0).
func (l *listener) watchSpace(ev uint32) {
	k := l.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd >= 0 && k.watch != 0 {
		_ = k.s.watch.modify(k.fd, k.watch, unix.EPOLLRDHUP|ev) // it is watched
	}
}

// space returns how many more records may wait for the program. mu is held.
func (l *listener) space() int {
	used, err := l.queued()
	if err != nil {
		return 0
	}
	return min(l.backlog+1, maxRecords) - used/l.charge
}

// queued returns what the records that the program has not taken count in the send buffer, in bytes.
func (l *listener) queued() (int, error) {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if l.k.fd < 0 {
		return 0, syscall.EBADF
	}
	return unix.IoctlGetInt(l.k.fd, unix.SIOCOUTQ)
}

// hand gives a connection to the program.
func (l *listener) hand(in socket.LoopConn) {
	s := l.k.s
	k, q, err := l.newAccepted(in)
	var r *relay
	if err == nil {
		var mem memory
		if l.rings {
			mem = k.newRings(q, &l.budget)
		}
		r = k.newRelay(in, k.fd) // before the program has the connection, and may write to it
		if err = l.send(k, q, &mem); err != nil {
			r.closeRings(ring.Moved)
			k.release(0)
		}
		unix.Close(q)
		mem.close()
	}
	if err == syscall.EAGAIN { // full all the same: the charge of a record was not known
		l.mu.Lock()
		l.wait(in)
		l.mu.Unlock()
		return
	}
	if err != nil {
		s.stats.acceptErrors.Add(1)
		_ = in.Abort()
		return
	}
	s.stats.accepts.Add(1)
	r.start(0)
}

// newAccepted makes the socket of an accepted connection, and returns the program's end.
func (l *listener) newAccepted(in socket.LoopConn) (*sock, int, error) {
	s, from := l.k.s, l.k
	if err := s.addFile(from.user, s.takeSocket(from.user)); err != nil {
		return nil, -1, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.giveFile(from.user)
		from.user.giveBack(&from.user.sockets)
		return nil, -1, err
	}
	k := &sock{s: s, user: from.user, owner: from.owner, stream: true, v6: from.v6, fd: pair[0], state: connected, conn: in.Conn(), reported: true}
	k.local, k.remote = k.shown(addrOf(in.Conn().LocalAddr())), k.shown(addrOf(in.Conn().RemoteAddr()))
	k.options = s.newOptions()
	if l.linger >= 0 {
		k.late = []lateOption{{socket.OptLinger, l.linger}}
	}
	if err := k.enter(pair[1]); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		s.giveFile(from.user)
		from.user.giveBack(&from.user.sockets)
		return nil, -1, err
	}
	return k, pair[1], nil
}

func addrOf(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// enter makes both ends of an accepted connection ready, and enters it in the tables.
func (k *sock) enter(q int) (err error) {
	raiseBuffer(q, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	k.refuses = refuseRights(k.fd)
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
	if err = k.setMark(q, true); err == nil {
		err = writeGuard(q)
	}
	if err == nil {
		k.cookie, err = cookieOf(q)
	}
	if err != nil {
		return err
	}
	_ = k.s.bindName(q, k.local, k.remote) // it has no name
	return k.enterTables()
}

// enterTables makes the socket known, unless the server is closed.
func (k *sock) enterTables() error {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.s.closed {
		return syscall.ENETDOWN
	}
	k.s.sockets[k.cookie] = k
	k.s.all[k] = struct{}{}
	return nil
}

// send sends the record of a connection with its descriptor. EAGAIN is that there is no space for it.
func (l *listener) send(k *sock, q int, mem *memory) (err error) {
	var b [acceptedSize]byte
	encodeAccepted(b[:], k.local, k.remote, mem)
	rights := unix.UnixRights(q)
	if mem.fd != 0 {
		rights = unix.UnixRights(q, mem.fd)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := 0
	if !l.measured {
		if before, err = l.queued(); err != nil {
			return err
		}
	}
	l.k.mu.Lock()
	if l.k.fd >= 0 {
		_, err = unix.SendmsgN(l.k.fd, b[:], rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	} else {
		err = syscall.EBADF
	}
	l.k.mu.Unlock()
	if err == nil && before == 0 && !l.measured {
		if after, e := l.queued(); e == nil && after > 0 {
			l.charge, l.measured = after, true
		}
	}
	return err
}

// resume passes on connections that wait, as far as there is space: the program has taken records.
func (l *listener) resume() {
	l.mu.Lock()
	n := max(min(l.space(), len(l.waiting)), 0)
	next := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	again := len(l.waiting) == 0 && l.paused
	if again {
		l.paused = false
		l.watchSpace(0)
	}
	l.mu.Unlock()
	if len(next) == 0 && !again {
		return
	}
	go func() { // the watcher must not wait for loops
		for _, in := range next {
			in.Conn().Do(l.hand)
		}
		if again {
			l.pass()
		}
	}()
}

// close ends the listener. Connections that wait are reset.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	_ = l.l.Close() // it is open
	l.k.s.delist(l) // until then connect(2) waits
	for _, in := range waiting {
		in.Conn().Do(func(in socket.LoopConn) { _ = in.Abort() })
	}
}
