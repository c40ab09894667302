package socket

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The same calls on sockets of the kernel, over 127.0.0.1, and on those of two stacks must return the same.
// linuxSocket and ourSocket are the two kinds; a case is a function that makes calls, and what they return is
// its transcript.

// anySocket is a TCP connection of either kind. No call blocks.
type anySocket interface {
	connect() error // once more
	send(b string, flags SendFlags) (int, error)
	recv(n int, flags ReceiveFlags) (string, error)
	set(opt Option, v int) error
	get(opt Option) (int, error)
	queues() (Queues, error)
	shutdown(read, write bool) error
	close() error
}

// anyListener is a listener of either kind.
type anyListener interface {
	accept() (anySocket, error)
	set(opt Option, v int) error
	get(opt Option) (int, error)
	close() error
}

// anyPoller is a Poller, or an epoll descriptor.
type anyPoller interface {
	ctl(cmd pollCommand, s any, want Interest) error
	wait(d time.Duration) Events // of the only socket in it, 0 after d
}

// anySystem makes sockets.
type anySystem interface {
	listen() anyListener
	dial(l anyListener) anySocket // and does not wait; nil is a port at which nothing listens
	poller() anyPoller
}

// transcript is what a case saw.
type transcript struct {
	anySystem
	t     testing.TB
	text  strings.Builder
	pause time.Duration // for what was sent to arrive
}

// note adds a line.
func (x *transcript) note(what string, result ...any) {
	fmt.Fprint(&x.text, what, " =")
	for _, r := range result {
		if err, ok := r.(error); ok {
			r = errnoName(err)
		}
		fmt.Fprintf(&x.text, " %v", r)
	}
	x.text.WriteByte('\n')
}

// errnoName returns the name of the number that an error has, or EOF.
func errnoName(err error) string {
	var n syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.As(err, &n):
		return unix.ErrnoName(n)
	}
	return err.Error()
}

// settle lets what was sent arrive.
func (x *transcript) settle() { time.Sleep(x.pause) }

func (x *transcript) send(name string, s anySocket, b string, f SendFlags) {
	n, err := s.send(b, f)
	x.note(fmt.Sprintf("%s.send(%q, %d)", name, b, f), n, err)
}

func (x *transcript) recv(name string, s anySocket, n int, f ReceiveFlags) {
	b, err := s.recv(n, f)
	x.note(fmt.Sprintf("%s.recv(%d, %d)", name, n, f), fmt.Sprintf("%q", b), err)
}

func (x *transcript) set(name string, s interface{ set(Option, int) error }, opt Option, v int) {
	x.note(fmt.Sprintf("%s.set(%d, %d)", name, opt, v), s.set(opt, v))
}

func (x *transcript) get(name string, s interface{ get(Option) (int, error) }, opt Option) {
	v, err := s.get(opt)
	x.note(fmt.Sprintf("%s.get(%d)", name, opt), v, err)
}

func (x *transcript) queues(name string, s anySocket) {
	q, err := s.queues()
	x.note(name+".queues", fmt.Sprintf("%+v", q), err)
}

// poll says what a level-triggered poll reports.
func (x *transcript) poll(name string, s any) {
	p := x.poller()
	_ = p.ctl(addInterest, s, Interest{Events: Readable | Writable | PeerClosed | Priority})
	x.note(name+".poll", eventNames(p.wait(x.pause)))
	_ = p.ctl(delInterest, s, Interest{})
}

// wait says what a Poller reports.
func (x *transcript) wait(name string, p anyPoller) {
	x.note(name+".wait", eventNames(p.wait(x.pause)))
}

// eventNames are those of poll(2).
func eventNames(ev Events) string {
	var names []string
	for _, e := range []struct {
		bit  Events
		name string
	}{{Readable, "IN"}, {Writable, "OUT"}, {Priority, "PRI"}, {PeerClosed, "RDHUP"}, {Closed, "HUP"}, {Failed, "ERR"}} {
		if ev&e.bit != 0 {
			names = append(names, e.name)
		}
	}
	return "[" + strings.Join(names, " ") + "]"
}

// pair returns the ends of a connection.
func (x *transcript) pair() (c, s anySocket) {
	l := x.listen()
	c = x.dial(l)
	x.settle()
	s, err := l.accept()
	for end := time.Now().Add(20 * time.Second); err == syscall.EAGAIN && time.Now().Before(end); s, err = l.accept() {
		time.Sleep(10 * time.Millisecond) // a machine with more to do: the handshake has not come this far
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.note("connect", c.connect())
	return c, s
}

// ourSystem is two stacks.
type ourSystem struct{ *testbed }

// ourSocket is a TCPConn.
type ourSocket struct{ *TCPConn }

// ourListener is a Listener.
type ourListener struct{ *Listener }

// ourPoller is a Poller.
type ourPoller struct{ *Poller }

// likeLinux sets the options whose defaults differ from those of the kernel's sockets.
func likeLinux(o *TCPOptions) { o.UrgentOutOfBand, o.NoDelay = true, false }

func (x ourSystem) listen() anyListener {
	l, err := x.b.ListenWith(x.t.Context(), &ListenConfig{TCPOptions: likeLinux, KeepAlive: -1}, "tcp", addrB+":0")
	if err != nil {
		x.t.Fatal(err)
	}
	return ourListener{l}
}

func (x ourSystem) dial(l anyListener) anySocket {
	to := netip.MustParseAddrPort(addrB + ":9")
	if l != nil {
		to = netip.MustParseAddrPort(l.(ourListener).Addr().String())
	}
	c, err := x.a.StartDial(&Dialer{TCPOptions: likeLinux, KeepAlive: -1}, to)
	if err != nil {
		x.t.Fatal(err)
	}
	return ourSocket{c}
}

// poller returns one of a stack that is found when a socket is added.
func (x ourSystem) poller() anyPoller { return ourPoller{&Poller{}} }

func (p ourPoller) ctl(cmd pollCommand, s any, want Interest) error {
	var c Pollable
	var hosts *Stack
	switch s := s.(type) {
	case ourSocket:
		c = s.TCPConn
		hosts = &Stack{group: s.h.Group()}
	case ourListener:
		c, hosts = s.Listener, s.s
	}
	if p.s == nil {
		q := hosts.NewPoller()
		p.Poller.s, p.shards, p.woken = q.s, q.shards, q.woken
	}
	return c.poll(p.Poller, cmd, &want)
}

func (p ourPoller) wait(d time.Duration) Events {
	var ev [1]Event
	_, _ = p.Wait(ev[:], d)
	return ev[0].Events
}

func (s ourSocket) connect() error { return s.FinishConnect() }

func (s ourSocket) send(b string, f SendFlags) (int, error) {
	return s.WriteWith([]byte(b), f|SendDontWait)
}

func (s ourSocket) recv(n int, f ReceiveFlags) (string, error) {
	b := make([]byte, n)
	n, _, err := s.ReadWith(b, f|ReceiveDontWait)
	return string(b[:n]), err
}

func (s ourSocket) set(opt Option, v int) error     { return s.SetOption(opt, v) }
func (s ourSocket) get(opt Option) (int, error)     { return s.Option(opt) }
func (s ourSocket) queues() (Queues, error)         { return s.Queues() }
func (s ourSocket) close() error                    { return s.Close() }
func (s ourSocket) shutdown(read, write bool) error { return closeHalves(s.TCPConn, read, write) }

func closeHalves(c *TCPConn, read, write bool) (err error) {
	if read {
		err = c.CloseRead()
	}
	if write {
		err = errors.Join(err, c.CloseWrite())
	}
	return err
}

func (l ourListener) accept() (anySocket, error) {
	if err := l.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return nil, err
	}
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, syscall.EAGAIN
	}
	return ourSocket{c}, nil
}

func (l ourListener) set(opt Option, v int) error { return l.SetOption(opt, v) }
func (l ourListener) get(opt Option) (int, error) { return l.Option(opt) }
func (l ourListener) close() error                { return l.Close() }

// linuxSystem is the kernel.
type linuxSystem struct{ t testing.TB }

// linuxSocket is the descriptor of a socket.
type linuxSocket struct {
	fd int
	to *unix.SockaddrInet4
}

// linuxPoller is the descriptor of an epoll instance.
type linuxPoller int

func (x linuxSystem) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x linuxSystem) socket() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	x.must(err)
	x.t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func (x linuxSystem) listen() anyListener {
	fd := x.socket()
	x.must(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	x.must(unix.Listen(fd, 16))
	return linuxSocket{fd: fd}
}

func (x linuxSystem) dial(l anyListener) anySocket {
	s := linuxSocket{x.socket(), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 1}}
	if l != nil {
		a, err := unix.Getsockname(l.(linuxSocket).fd)
		x.must(err)
		s.to = a.(*unix.SockaddrInet4)
	}
	if err := unix.Connect(s.fd, s.to); err != unix.EINPROGRESS {
		x.t.Fatal(err)
	}
	return s
}

func (x linuxSystem) poller() anyPoller {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	x.must(err)
	x.t.Cleanup(func() { _ = unix.Close(fd) })
	return linuxPoller(fd)
}

// epollBits are the events of epoll.
var epollBits = map[Events]uint32{
	Readable: unix.EPOLLIN, Writable: unix.EPOLLOUT, Priority: unix.EPOLLPRI, PeerClosed: unix.EPOLLRDHUP, Closed: unix.EPOLLHUP, Failed: unix.EPOLLERR,
}

func (p linuxPoller) ctl(cmd pollCommand, s any, want Interest) error {
	ev := unix.EpollEvent{}
	for bit, linux := range epollBits {
		if want.Events&bit != 0 {
			ev.Events |= linux
		}
	}
	for bit, on := range map[uint32]bool{unix.EPOLLET: want.Edge, unix.EPOLLONESHOT: want.OneShot, unix.EPOLLEXCLUSIVE: want.Exclusive} {
		if on {
			ev.Events |= bit
		}
	}
	op := map[pollCommand]int{addInterest: unix.EPOLL_CTL_ADD, modInterest: unix.EPOLL_CTL_MOD, delInterest: unix.EPOLL_CTL_DEL}[cmd]
	return unix.EpollCtl(int(p), op, s.(linuxSocket).fd, &ev)
}

func (p linuxPoller) wait(d time.Duration) (out Events) {
	var ev [1]unix.EpollEvent
	if n, _ := unix.EpollWait(int(p), ev[:], int(d/time.Millisecond)); n == 0 {
		return 0
	}
	for bit, linux := range epollBits {
		if ev[0].Events&linux != 0 {
			out |= bit
		}
	}
	return out
}

func (s linuxSocket) connect() error {
	err := unix.Connect(s.fd, s.to)
	return err
}

func (s linuxSocket) send(b string, f SendFlags) (int, error) {
	flags := unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	for bit, linux := range map[SendFlags]int{More: unix.MSG_MORE, EndOfRecord: unix.MSG_EOR, SendOutOfBand: unix.MSG_OOB} {
		if f&bit != 0 {
			flags |= linux
		}
	}
	n, err := unix.SendmsgN(s.fd, []byte(b), nil, nil, flags)
	return max(n, 0), err
}

func (s linuxSocket) recv(n int, f ReceiveFlags) (string, error) {
	flags := unix.MSG_DONTWAIT
	for bit, linux := range map[ReceiveFlags]int{PeekData: unix.MSG_PEEK, ReceiveOutOfBand: unix.MSG_OOB, WaitAll: unix.MSG_WAITALL} {
		if f&bit != 0 {
			flags |= linux
		}
	}
	b := make([]byte, n)
	n, _, err := unix.Recvfrom(s.fd, b, flags)
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return string(b[:max(n, 0)]), err
}

// linuxOptions are the numbers of the options.
var linuxOptions = map[Option][2]int{
	OptNoDelay: {unix.IPPROTO_TCP, unix.TCP_NODELAY}, OptCork: {unix.IPPROTO_TCP, unix.TCP_CORK}, OptMaxSegment: {unix.IPPROTO_TCP, unix.TCP_MAXSEG},
	OptKeepAlive: {unix.SOL_SOCKET, unix.SO_KEEPALIVE}, OptKeepIdle: {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, OptKeepInterval: {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	OptKeepCount: {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, OptUserTimeout: {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}, OptQuickAck: {unix.IPPROTO_TCP, unix.TCP_QUICKACK},
	OptNotSentLowat: {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT}, OptOutOfBandInline: {unix.SOL_SOCKET, unix.SO_OOBINLINE}, OptTOS: {unix.IPPROTO_IP, unix.IP_TOS},
	OptTTL: {unix.IPPROTO_IP, unix.IP_TTL}, OptMTUDiscover: {unix.IPPROTO_IP, unix.IP_MTU_DISCOVER}, OptMTU: {unix.IPPROTO_IP, unix.IP_MTU},
	OptSYNCount: {unix.IPPROTO_TCP, unix.TCP_SYNCNT}, OptOrphanTime: {unix.IPPROTO_TCP, unix.TCP_LINGER2}, OptWindowClamp: {unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP},
	OptMaxPacing:   {unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE},
	OptDeferAccept: {unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT}, OptError: {unix.SOL_SOCKET, unix.SO_ERROR}, OptLinger: {unix.SOL_SOCKET, unix.SO_LINGER},
}

func (s linuxSocket) set(opt Option, v int) error {
	if opt == OptLinger {
		return unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: int32(boolInt(v >= 0)), Linger: int32(max(v, 0))})
	}
	return unix.SetsockoptInt(s.fd, linuxOptions[opt][0], linuxOptions[opt][1], v)
}

func (s linuxSocket) get(opt Option) (int, error) {
	if opt == OptLinger {
		return -2, syscall.ENOPROTOOPT // x/sys has no GetsockoptLinger
	}
	v, err := unix.GetsockoptInt(s.fd, linuxOptions[opt][0], linuxOptions[opt][1])
	return v, err
}

func (s linuxSocket) queues() (q Queues, err error) {
	const siocATMark = 0x8905
	mark := 0
	for _, r := range []struct {
		request uint
		to      *int
	}{{unix.SIOCINQ, &q.Receive}, {unix.SIOCOUTQ, &q.Send}, {unix.SIOCOUTQNSD, &q.Unsent}, {siocATMark, &mark}} {
		if *r.to, err = unix.IoctlGetInt(s.fd, r.request); err != nil {
			return q, err
		}
	}
	q.AtMark = mark != 0
	return q, nil
}

func (s linuxSocket) shutdown(read, write bool) error {
	how := unix.SHUT_RDWR
	if !write {
		how = unix.SHUT_RD
	} else if !read {
		how = unix.SHUT_WR
	}
	return unix.Shutdown(s.fd, how)
}

func (s linuxSocket) close() error {
	// The descriptor stays valid for the cleanup; a descriptor on nothing takes its place.
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return unix.Dup3(null, s.fd, unix.O_CLOEXEC)
}

func (s linuxSocket) accept() (anySocket, error) {
	fd, _, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return linuxSocket{fd: fd}, nil
}

// TestLikeLinux compares the transcripts of both systems. On a busy machine what was sent may arrive late: a
// case that differs is tried again with longer pauses.
func TestLikeLinux(t *testing.T) {
	for name, f := range linuxCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ours, linux string
			for _, pause := range []time.Duration{20, 100, 500} {
				ours = run(t, ourSystem{newTestbed(t, testbedConfig{})}, pause*time.Millisecond, f)
				linux = run(t, linuxSystem{t}, pause*time.Millisecond, f)
				if ours == linux {
					return
				}
			}
			t.Errorf("ours and Linux's differ:\n%s\n--- Linux\n%s", ours, linux)
		})
	}
}

// run returns the transcript of a case.
func run(t *testing.T, s anySystem, pause time.Duration, f func(x *transcript)) string {
	x := &transcript{anySystem: s, t: t, pause: pause}
	f(x)
	return x.text.String()
}
