package statesync

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// network is a TCP network between two hosts in virtual time (testing/synctest). A lost segment delays those behind it
// by retransmission timeouts, as in TCP. Its conditions may change at any time.
type network struct {
	mu      sync.Mutex
	delay   time.Duration // one way
	loss    float64       // of segments
	rate    int           // bytes a second; 0 is no limit
	cut     bool          // nothing arrives, and neither end hears of it
	rng     *rand.Rand
	hosts   map[netip.AddrPort]*listener
	changed chan struct{} // closed when something happens
	conns   []*conn       // of dialers and listeners
	dials   int
}

// window is what one end may send before the other reads: the socket buffers of both.
const window = 128 << 10

func newNetwork() *network {
	return &network{rng: rand.New(rand.NewPCG(1, 2)), hosts: map[netip.AddrPort]*listener{}, changed: make(chan struct{})}
}

// set changes the conditions.
func (n *network) set(f func(*network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
	n.wakeLocked()
}

func (n *network) wakeLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// wait returns when something has changed, at a time, or at the deadline. It unlocks meanwhile.
func (n *network) wait(at, deadline time.Time) error {
	changed := n.changed
	n.mu.Unlock()
	defer n.mu.Lock()
	var timer, end <-chan time.Time
	if !at.IsZero() {
		timer = time.After(time.Until(at))
	}
	if !deadline.IsZero() {
		if end = time.After(time.Until(deadline)); !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
	}
	select {
	case <-changed:
	case <-timer:
	case <-end:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// segment is data under way; nil data is the end of the stream.
type segment struct {
	data []byte
	at   time.Time
}

// conn is one end of a connection.
type conn struct {
	n             *network
	peer          *conn
	from, to      netip.AddrPort
	queue         []segment // to read
	size          int       // bytes of it
	most          int       // that size ever was
	closed        bool
	readBy, until time.Time // deadlines of Read and Write
}

func (n *network) listen(at netip.AddrPort) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{n: n, at: at}
	n.hosts[at] = l
	return l
}

// dial connects from a host to another.
func (n *network) dial(ctx context.Context, from, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	end := time.Now().Add(deadAfter)
	for at := time.Now().Add(2 * n.delay); n.cut || time.Now().Before(at); {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := n.wait(at, end); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		if !time.Now().Before(at) && n.cut {
			at = end
		}
	}
	l := n.hosts[to]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	a := &conn{n: n, from: netip.AddrPortFrom(from.Addr(), uint16(20000+n.dials)), to: to}
	b := &conn{n: n, from: to, to: a.from, peer: a}
	a.peer = b
	n.conns = append(n.conns, a, b)
	l.queue = append(l.queue, b)
	n.wakeLocked()
	return a, nil
}

// listener is of one host.
type listener struct {
	n      *network
	at     netip.AddrPort
	queue  []*conn
	closed bool
}

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for len(l.queue) == 0 {
		if l.closed {
			return nil, net.ErrClosed
		}
		l.n.wait(time.Time{}, time.Time{})
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.closed = true; l.n.hosts[l.at] == l {
		delete(l.n.hosts, l.at)
	}
	for _, c := range l.queue {
		c.closeLocked()
	}
	l.n.wakeLocked()
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		at := time.Time{}
		switch {
		case c.closed:
			return 0, c.fails("read", net.ErrClosed)
		case len(c.queue) > 0 && !c.n.cut:
			s := &c.queue[0]
			if at = s.at; time.Now().Before(at) {
				break
			}
			if s.data == nil {
				return 0, io.EOF
			}
			n := copy(b, s.data)
			if s.data = s.data[n:]; len(s.data) == 0 {
				c.queue = c.queue[1:]
			}
			c.size -= n
			c.n.wakeLocked()
			return n, nil
		}
		if err := c.n.wait(at, c.readBy); err != nil {
			return 0, c.fails("read", err)
		}
	}
}

// fails is an error as package net returns it, with the ports of the connection.
func (c *conn) fails(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for sent := 0; ; {
		p := c.peer
		switch {
		case c.closed:
			return sent, c.fails("write", net.ErrClosed)
		case p.closed && !c.n.cut:
			return sent, c.fails("write", syscall.EPIPE)
		case sent == len(b):
			return sent, nil
		case p.size < window:
			n := min(len(b)-sent, window-p.size, 1448)
			p.push(bytes.Clone(b[sent : sent+n]))
			sent += n
			continue
		}
		if err := c.n.wait(time.Time{}, c.until); err != nil {
			return sent, c.fails("write", err)
		}
	}
}

// push sends a segment to this end. The network is locked.
func (c *conn) push(data []byte) {
	at := time.Now()
	if len(c.queue) > 0 && c.queue[len(c.queue)-1].at.After(at.Add(c.n.delay)) {
		at = c.queue[len(c.queue)-1].at.Add(-c.n.delay) // behind the one before
	}
	if c.n.rate > 0 {
		at = at.Add(time.Duration(len(data)) * time.Second / time.Duration(c.n.rate))
	}
	at = at.Add(c.n.delay)
	for rto := 2*c.n.delay + 200*time.Millisecond; c.n.rng.Float64() < c.n.loss; rto *= 2 {
		at = at.Add(rto)
	}
	c.queue = append(c.queue, segment{data, at})
	c.size += len(data)
	c.most = max(c.most, c.size)
	c.n.wakeLocked()
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.closeLocked()
	return nil
}

func (c *conn) closeLocked() {
	if !c.closed {
		c.closed = true
		c.peer.push(nil)
	}
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.from) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.n.set(func(*network) { c.readBy = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.n.set(func(*network) { c.until = t })
	return nil
}

// The two hosts of the tests in virtual time.
var hosts = [2]netip.AddrPort{netip.MustParseAddrPort("198.18.9.1:3780"), netip.MustParseAddrPort("198.18.9.2:3780")}

// start runs a peer on a host of the network, until stop or the end of the test.
func (n *network) start(t *testing.T, host int, table Table) *virtualPeer {
	t.Helper()
	v := &virtualPeer{}
	from, to := hosts[host], hosts[1-host]
	p := newPeer(Config{
		Listen: from, Peer: to, Key: testKey(1), Agreement: Agreement{Index: uint8(host), Loops: 2, First: 1024, Last: 65535},
		Table: table, OnChange: v.add,
	}, n.listen(from))
	p.dial = func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, from, to) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		time.Sleep(time.Microsecond) // in virtual time: peers that start together both listen before one dials
		p.Run(ctx)
		close(done)
	}()
	v.Peer, v.stop = p, func() { stop(); <-done }
	t.Cleanup(v.stop)
	return v
}

// virtualPeer is a Peer and what it has reported.
type virtualPeer struct {
	*Peer
	stop func()

	mu     sync.Mutex
	events []Event
}

func (v *virtualPeer) add(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = append(v.events, e)
}

// reported returns how many events there were.
func (v *virtualPeer) reported() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.events)
}

func testKey(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// soon waits for a condition in virtual time.
func soon(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
	synctest.Wait()
}

// expectBounded expects that no connection had more on its way than the sockets of its ends hold.
func (n *network) expectBounded(t *testing.T) {
	t.Helper()
	for _, c := range n.conns {
		if c.most > window {
			t.Errorf("%d bytes are under way", c.most)
		}
	}
}
