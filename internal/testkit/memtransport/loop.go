// Package memtransport is a transport.Loop in memory and in virtual time, for tests of a proxy.
//
// A test plays all peers: clients that connect to listeners, and backends that are dialed. Nothing runs by itself. The test
// writes to peers, calls Run, and looks at what they have received; Advance lets time pass. The same calls give the same
// results, so that a fuzzer can repeat them.
package memtransport

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/transport"
)

// Loop is a transport.Loop. One goroutine uses it; others may call Do.
type Loop struct {
	// Dialed says what becomes of a connection to remote: accept gets the peer, an error refuses it, and with neither it is
	// never established. Nil refuses all.
	Dialed func(remote netip.AddrPort) (accept func(p *Peer), err error)
	// Cut says how many of n bytes that are there a Read returns at most, at least 1. Nil is all.
	Cut func(n int) int
	// Relays has connections implement Relay.
	Relays bool

	now       clock.Time
	next      clock.Time
	tick      func(now clock.Time) clock.Time
	listeners map[netip.AddrPort]*listener
	conns     []*Conn
	mu        sync.Mutex // of commands, which goroutines add
	commands  []func()
	ports     uint16
}

var _ transport.Loop = (*Loop)(nil)

// New returns a loop at a time that is not 0.
func New() *Loop {
	return &Loop{now: clock.Time(time.Hour), next: clock.Never, listeners: map[netip.AddrPort]*listener{}}
}

type listener struct {
	l      *Loop
	addr   netip.AddrPort
	accept func(c transport.Conn) transport.Handler
}

func (li *listener) Addr() netip.AddrPort { return li.addr }
func (li *listener) Close()               { delete(li.l.listeners, li.addr) }

// Listen implements transport.Loop.
func (l *Loop) Listen(a netip.AddrPort, accept func(c transport.Conn) transport.Handler) (transport.Listener, error) {
	if l.listeners[a] != nil {
		return nil, unix.EADDRINUSE
	}
	li := &listener{l, a, accept}
	l.listeners[a] = li
	return li, nil
}

// Dial implements transport.Loop.
func (l *Loop) Dial(remote netip.AddrPort, h transport.Handler) (transport.Conn, error) {
	c := l.newConn(remote)
	c.handler = h
	var accept func(p *Peer)
	err := error(unix.ECONNREFUSED)
	if l.Dialed != nil {
		accept, err = l.Dialed(remote)
	}
	switch {
	case err != nil:
		c.fail(err)
	case accept != nil:
		l.Do(func() {
			if !c.closed {
				c.established = true
				c.pending |= transport.Writable
				accept(c.peer)
			}
		})
	}
	return c, nil
}

// DialUnix implements transport.Loop: there are no such sockets.
func (l *Loop) DialUnix(string, transport.Handler) (transport.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Connect opens a connection of a client.
func (l *Loop) Connect(addr netip.AddrPort) (*Peer, error) {
	li := l.listeners[addr]
	if li == nil {
		return nil, fmt.Errorf("memtransport: nobody listens on %v", addr)
	}
	l.ports++
	c := l.newConn(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, 1}), 1024+l.ports%60000))
	c.local, c.established = addr, true
	h := li.accept(c)
	if !c.closed {
		c.handler = h
	}
	return c.peer, nil
}

func (l *Loop) newConn(remote netip.AddrPort) *Conn {
	c := &Conn{loop: l, remote: remote}
	c.peer = &Peer{Conn: c, Window: 1 << 20}
	l.conns = append(l.conns, c)
	return c
}

// Now implements transport.Loop.
func (l *Loop) Now() clock.Time { return l.now }

// SetTick implements transport.Loop.
func (l *Loop) SetTick(f func(now clock.Time) clock.Time) { l.tick = f }

// Do implements transport.Loop.
func (l *Loop) Do(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commands = append(l.commands, f)
	return true
}

// Commands returns how many functions of Do have not run yet.
func (l *Loop) Commands() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.commands)
}

// ErrBusy reports that a loop does not come to rest: connections become ready again and again, without a cause.
var ErrBusy = errors.New("memtransport: the loop does not come to rest")

// Run delivers events and calls peers until nothing is left to do.
func (l *Loop) Run() error {
	for range 1 << 16 {
		worked := l.batch()
		if l.tick != nil {
			l.next = l.tick(l.now)
		}
		if !worked && !l.waiting() && l.next > l.now {
			return nil
		}
	}
	return ErrBusy
}

// batch runs what is due now, and reports whether there was something.
func (l *Loop) batch() (worked bool) {
	l.mu.Lock()
	commands := l.commands
	l.commands = nil
	l.mu.Unlock()
	for _, f := range commands {
		f()
		worked = true
	}
	for i := 0; i < len(l.conns); i++ {
		c := l.conns[i]
		if ev := c.pending; ev != 0 && c.handler != nil && !c.closed {
			c.pending = 0
			c.handler.Ready(c, ev)
			worked = true
		}
	}
	for _, c := range slices.Clone(l.conns) {
		if p := c.peer; p.news && p.Handler != nil {
			p.news = false
			p.Handler(p)
			worked = true
		}
	}
	l.conns = slices.DeleteFunc(l.conns, func(c *Conn) bool { return c.closed && !c.peer.news })
	return worked
}

// waiting reports whether the tick has produced something.
func (l *Loop) waiting() bool {
	return l.Commands() > 0 || slices.ContainsFunc(l.conns, func(c *Conn) bool {
		return c.pending != 0 && c.handler != nil && !c.closed || c.peer.news && c.peer.Handler != nil
	})
}

// Advance lets time pass, and runs what is due on the way.
func (l *Loop) Advance(d time.Duration) error {
	end := l.now.Add(d)
	for {
		if err := l.Run(); err != nil {
			return err
		}
		if l.next > end {
			l.now = end
			return l.Run()
		}
		l.now = max(l.next, l.now+1)
	}
}

// Open returns how many connections the proxy has not closed.
func (l *Loop) Open() (n int) {
	for _, c := range l.conns {
		if !c.closed {
			n++
		}
	}
	return n
}
