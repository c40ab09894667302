package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// world is loops of one implementation, and a blocking TCP that can reach them.
type world struct {
	t       testing.TB
	servers []Loop         // share an address
	client  Loop           // another host, or another loop of this one
	addr    netip.AddrPort // of servers, with port 0
	local   netip.AddrPort // of peer, with port 0
	peer    peer
}

// peer is package net, or a stack that has its interface.
type peer interface {
	Dial(network, address string) (net.Conn, error)
	Listen(network, address string) (net.Listener, error)
}

type kernelPeer struct{}

func (kernelPeer) Dial(n, a string) (net.Conn, error)       { return net.DialTimeout(n, a, patience) }
func (kernelPeer) Listen(n, a string) (net.Listener, error) { return net.Listen(n, a) }

// fullBuffers is more than the buffers of a connection hold whose receiver does not read: Linux sends 4 MiB ahead.
const fullBuffers = 10 << 20

// patience is for machines with much else to do.
const patience = 30 * time.Second

// worlds are the implementations.
var worlds = []struct {
	name string
	open func(t testing.TB) *world
}{
	{"epoll", func(t testing.TB) *world { return newEpollWorld(t, 1, "127.0.0.1:0") }},
	{"epoll IPv6, 2 loops", func(t testing.TB) *world { return newEpollWorld(t, 2, "[::1]:0") }},
	{"stack", func(t testing.TB) *world { return newStackWorld(t, 1) }},
	{"stack, 3 loops", func(t testing.TB) *world { return newStackWorld(t, 3) }},
}

// inEachWorld runs a test over every implementation.
func inEachWorld(t *testing.T, f func(t *testing.T, w *world)) {
	for _, x := range worlds {
		t.Run(x.name, func(t *testing.T) { f(t, x.open(t)) })
	}
}

func newEpollWorld(t testing.TB, loops int, addr string) *world {
	a := netip.MustParseAddrPort(addr)
	w := &world{t: t, client: runEpollLoop(t), addr: a, local: a, peer: kernelPeer{}}
	for range loops {
		w.servers = append(w.servers, runEpollLoop(t))
	}
	return w
}

func runEpollLoop(t testing.TB) *EpollLoop {
	t.Helper()
	l, err := NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

const framesPerLoop = 4096

// newStackWorld makes two stacks with a link in memory for each pair of their loops.
func newStackWorld(t testing.TB, loops int) *world {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2 * loops * framesPerLoop, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	var ends [2][]stack.Config
	var closers []io.Closer
	for range loops {
		var pools [2]*ring.Pool
		for i := range pools {
			if pools[i], err = arena.Cut(framesPerLoop); err != nil {
				t.Fatal(err)
			}
		}
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1]})
		if err != nil {
			t.Fatal(err)
		}
		closers = append(closers, a, b)
		for i, drv := range []pmd.Driver{a, b} {
			ends[i] = append(ends[i], stack.Config{Devices: []pmd.Driver{drv}, Pool: pools[i], Engine: gpukern.NewCPU(gpukern.Config{})})
		}
	}
	a, b := newStack(t, ends[0], "198.18.0.1/24"), newStack(t, ends[1], "198.18.0.2/24")
	w := &world{t: t, addr: netip.MustParseAddrPort("198.18.0.2:0"), local: netip.MustParseAddrPort("198.18.0.1:0"), peer: a}
	w.client = NewStackLoop(a.Group().Hosts[0])
	for _, h := range b.Group().Hosts {
		w.servers = append(w.servers, NewStackLoop(h))
	}
	t.Cleanup(func() { w.closeStacks(a, b, append(closers, arena)) })
	return w
}

func newStack(t testing.TB, loops []stack.Config, addr string) *socket.Stack {
	t.Helper()
	s, err := socket.New(socket.Config{Loops: loops, Host: host.Config{}, Addrs: []socket.Address{{Prefix: netip.MustParsePrefix(addr)}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closeStacks closes the loops and then the stacks, which must have no connection of the loops left.
func (w *world) closeStacks(a, b *socket.Stack, parts []io.Closer) {
	for _, l := range append(w.servers, w.client) {
		if err := l.(*StackLoop).Close(); err != nil {
			w.t.Error(err)
		}
	}
	w.eventually("connections or memory are left", func() bool {
		left := 0
		for _, s := range []*socket.Stack{a, b} {
			_ = s.Group().Each(func(_ clock.Time, h *host.Host) error {
				st := h.TCP.Stats()
				left += st.Conns + st.HalfOpen + int(st.Memory)
				return nil
			})
		}
		return left == 0
	})
	for _, s := range []*socket.Stack{a, b} {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	}
	for _, c := range parts {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

// on runs f on a loop and waits for it.
func (w *world) on(l Loop, f func()) {
	w.t.Helper()
	done := make(chan struct{})
	if !l.Do(func() { defer close(done); f() }) {
		w.t.Fatal("the loop has ended")
	}
	w.await(done, "Do")
}

// listen listens on all servers.
func (w *world) listen(accept func(c Conn) Handler) (netip.AddrPort, []Listener) {
	w.t.Helper()
	at, list := w.addr, []Listener{}
	for _, l := range w.servers {
		w.on(l, func() {
			li, err := l.Listen(at, accept)
			if err != nil {
				w.t.Error(err)
				return
			}
			at, list = li.Addr(), append(list, li)
		})
	}
	if len(list) != len(w.servers) {
		w.t.FailNow()
	}
	return at, list
}

// reachesOne reports whether all connections to an address on which the first server alone listens come to it.
func (w *world) reachesOne() bool {
	l, ours := w.servers[0].(*StackLoop)
	return !ours || len(l.h.Group().Hosts) == 1
}

// loopOf returns the loop of a connection.
func loopOf(c Conn) Loop {
	if e, ok := c.(*epollConn); ok {
		return e.loop
	}
	return c.(*stackConn).loop
}

// dial dials from the client.
func (w *world) dial(to netip.AddrPort, h Handler) (c Conn) {
	w.t.Helper()
	w.on(w.client, func() {
		var err error
		if c, err = w.client.Dial(to, h); err != nil {
			w.t.Error(err)
		}
	})
	if c == nil {
		w.t.FailNow()
	}
	return c
}

// connect dials from the peer, with a deadline.
func (w *world) connect(to netip.AddrPort) halfCloser {
	w.t.Helper()
	c, err := w.peer.Dial("tcp", to.String())
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	w.t.Cleanup(func() { _ = c.Close() })
	return c.(halfCloser)
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

func (w *world) await(done <-chan struct{}, what string) {
	w.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		w.t.Fatalf("%s takes longer than %v\n%s", what, patience, buf[:runtime.Stack(buf, true)])
	}
}

// next returns what ch brings.
func next[T any](w *world, ch <-chan T, what string) (v T) {
	w.t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		w.t.Fatalf("%s takes longer than %v", what, patience)
	}
	return v
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatal(what)
		}
	}
}

type handlerFunc func(c Conn, ev Events)

func (f handlerFunc) Ready(c Conn, ev Events) { f(c, ev) }

// echo sends back what it reads, and reads no more while that finds no room.
type echo struct {
	buf, held []byte
	end       bool
	short     *atomic.Int64 // writes that found no room for all; nil counts none
}

func newEcho(size int) *echo { return &echo{buf: make([]byte, size)} }

func (e *echo) Ready(c Conn, _ Events) {
	for e.flush(c) {
		if e.end {
			c.Close()
			return
		}
		n, err := c.Read(e.buf)
		e.held = e.buf[:n]
		switch {
		case err == ErrAgain:
			return
		case errors.Is(err, io.EOF):
			e.end = true
		case err != nil:
			c.Close()
			return
		case n < len(e.buf):
			e.flush(c) // and Ready follows when there is more
			return
		}
	}
}

// flush reports whether nothing is held.
func (e *echo) flush(c Conn) bool {
	if len(e.held) == 0 {
		return true
	}
	n, err := c.Write(e.held)
	if e.held = e.held[n:]; len(e.held) == 0 {
		return true
	}
	if e.short != nil {
		e.short.Add(1)
	}
	if err != nil && err != ErrAgain {
		c.Close()
	}
	return false
}
