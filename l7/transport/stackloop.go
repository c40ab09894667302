package transport

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// StackLoop is a Loop over the userspace stack: the part of a host on one of its loops. Handlers are called by whoever
// holds that loop, one at a time, and what they write leaves with the same iteration.
//
// The flows of a host are spread over its loops by a hash. A connection belongs to the loop of its flow; Dial chooses a
// local port whose flow comes back to this loop.
type StackLoop struct {
	h         *host.Host
	options   tcp.Options // of all connections and listeners
	tick      func(now clock.Time) clock.Time
	next      clock.Time // when tick wants to be called
	worked    bool       // a handler or a command has run since tick did
	conns     slots[stackConn]
	listeners []*stackListener
	lingering lingerers
	closed    bool
	commands  commandList
	run       func() // runCommands, bound once
}

// NewStackLoop returns a loop over h, which has none yet. The loop of h is served (stack.Loop.Serve) or does not run yet,
// and the caller does not hold it. Options of connections are those of the host's group, without Nagle's algorithm.
func NewStackLoop(h *host.Host) *StackLoop {
	l := &StackLoop{h: h, options: h.Group().TCPDefaults(), next: clock.Never}
	l.options.NoDelay, l.options.Share, l.options.V6Only = true, true, true
	l.commands.notify, l.run = l.notify, l.runCommands
	l.commands.arm()
	h.Enter()
	defer h.Exit()
	h.SetTick(l.poll)
	h.AtEnd(l.commands.end)
	return l
}

// notify makes the loop of the stack run the commands. Where too many wait there, it tries again, until the loop ends.
func (l *StackLoop) notify() {
	if !l.h.Do(l.run) {
		time.AfterFunc(time.Millisecond, func() {
			if l.commands.pending() {
				l.notify()
			}
		})
	}
}

// runCommands is armed before it looks for commands: what comes after that notifies again.
func (l *StackLoop) runCommands() {
	l.commands.arm()
	l.worked = true
	l.commands.run()
	l.h.RequestTick()
}

// poll is called by each Tick of the host, after the events.
func (l *StackLoop) poll(now clock.Time) clock.Time {
	if l.tick != nil && (l.worked || now >= l.next) {
		l.worked = false
		l.next = l.tick(now)
	}
	return min(l.next, l.lingering.expire(now)) // last, since the tick may make connections linger
}

// Hold calls f as the loop calls handlers. Unlike Do it does not need the loop to run; the caller does not hold it.
func (l *StackLoop) Hold(f func()) {
	l.h.Enter()
	defer l.h.Exit()
	l.worked = true
	f()
	l.h.RequestTick()
}

// Close closes all listeners and connections of the loop; no handler is called for that. What was written is still sent
// while the stack runs. The caller does not hold the loop of the stack.
func (l *StackLoop) Close() error {
	l.h.Enter()
	defer l.h.Exit()
	if l.closed {
		return nil
	}
	l.commands.end()
	l.closed = true
	l.h.SetTick(nil)
	for _, li := range l.listeners {
		li.t.Close(l.h.Now())
	}
	l.conns.each((*stackConn).Close)
	return nil
}

// Now implements Loop.
func (l *StackLoop) Now() clock.Time { return l.h.Now() }

// SetTick implements Loop.
func (l *StackLoop) SetTick(f func(now clock.Time) clock.Time) {
	l.tick, l.worked = f, true
	l.h.RequestTick()
}

// Do implements Loop.
func (l *StackLoop) Do(f func()) bool { return l.commands.do(f) }

// Listen implements Loop. It takes the connections whose flows belong to this loop; connections of the others are refused
// until their loops listen, too. The address must be one of the stack's, or unspecified.
func (l *StackLoop) Listen(a netip.AddrPort, accept func(c Conn) Handler) (Listener, error) {
	a = unmap(a)
	local := wire.AddrFrom(a.Addr())
	switch {
	case l.closed:
		return nil, ErrClosed
	case !a.Addr().IsValid():
		return nil, syscall.EINVAL
	case !local.Unspecified() && !l.h.IP.Usable(local):
		return nil, syscall.EADDRNOTAVAIL
	}
	li := &stackListener{loop: l, f: accept}
	t, err := l.h.TCP.Listen(local, a.Port(), backlog, &l.options, li)
	if err != nil {
		return nil, errno(err)
	}
	_, port := t.Addr()
	li.t, li.addr = t, netip.AddrPortFrom(a.Addr(), port)
	l.listeners = append(l.listeners, li)
	return li, nil
}

// DialUnix implements Loop: the stack has no such sockets.
func (l *StackLoop) DialUnix(string, Handler) (Conn, error) { return nil, errors.ErrUnsupported }

// Dial implements Loop. What the stack refuses at once is returned: no route, no local port, too many connections.
func (l *StackLoop) Dial(remote netip.AddrPort, h Handler) (Conn, error) {
	if l.closed {
		return nil, ErrClosed
	}
	remote = unmap(remote)
	if !remote.Addr().IsValid() || remote.Addr().IsUnspecified() {
		return nil, syscall.EINVAL
	}
	t, err := l.tuple(remote)
	if err != nil {
		return nil, err
	}
	c := &stackConn{loop: l, handler: h, flags: connecting}
	if c.t, err = l.connect(t, c); err != nil {
		return nil, errno(err)
	}
	c.tuple, c.slot = c.t.Tuple(), l.conns.add(c)
	return c, nil
}

// tuple returns the flow to remote, without a local port. The source address is that of RFC 6724.
func (l *StackLoop) tuple(remote netip.AddrPort) (wire.Tuple, error) {
	t := wire.Tuple{Remote: wire.AddrFrom(remote.Addr()), RemotePort: remote.Port()}
	now := l.h.Now()
	if p, _ := l.h.IP.Route(now, t.Remote, wire.Addr{}, ip.AnyDev); p == nil {
		return t, syscall.ENETUNREACH
	}
	var ok bool
	if t.Local, ok = l.h.IP.Source(now, t.Remote, ip.AnyDev); !ok {
		return t, syscall.ENETUNREACH
	}
	return t, nil
}

// portSearches bounds how often one Dial continues the search for a free port, where nearly all are in use: each step is
// some 100 us, in which the loop does nothing else. The next Dial goes on where this one ended.
const portSearches = 8

func (l *StackLoop) connect(t wire.Tuple, c *stackConn) (*tcp.Conn, error) {
	for range portSearches {
		conn, err := l.h.TCP.Connect(l.h.Now(), t, &l.options, c)
		if err != tcp.ErrPortSearch {
			return conn, err
		}
	}
	return nil, tcp.ErrNoPort
}

// errno returns an error of package tcp as the kernel's.
func errno(err error) error {
	if n, ok := socket.Errno(err); ok {
		return n
	}
	return err
}

// stackListener accepts connections of a StackLoop.
type stackListener struct {
	loop *StackLoop
	t    *tcp.Listener
	f    func(c Conn) Handler
	addr netip.AddrPort
}

// Ready implements tcp.Owner.
func (li *stackListener) Ready(tcp.Events) {
	for t := li.t.Accept(); t != nil; t = li.t.Accept() {
		li.open(t)
	}
}

// open makes a connection of an accepted one.
func (li *stackListener) open(t *tcp.Conn) {
	c := &stackConn{loop: li.loop, t: t, tuple: t.Tuple()}
	c.slot = li.loop.conns.add(c)
	t.SetOwner(c)
	li.loop.worked = true
	c.handler = li.f(c)
}

// Addr implements Listener.
func (li *stackListener) Addr() netip.AddrPort { return li.addr }

// Close implements Listener. Complete connections have been accepted: each Tick reports them before anything else.
func (li *stackListener) Close() {
	l := li.loop
	if !slices.Contains(l.listeners, li) {
		return
	}
	l.listeners = slices.DeleteFunc(l.listeners, func(x *stackListener) bool { return x == li })
	li.t.Close(l.h.Now())
}

var (
	_ Loop     = (*EpollLoop)(nil)
	_ Loop     = (*StackLoop)(nil)
	_ Conn     = (*epollConn)(nil)
	_ Conn     = (*stackConn)(nil)
	_ Listener = (*epollListener)(nil)
	_ Listener = (*stackListener)(nil)
)
