package socket

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// Connecting is a connect that a loop reports the end of, without a goroutine that waits.
type Connecting struct {
	s       *Stack
	d       *Dialer
	options *tcp.Options
	to      netip.AddrPort
	tuple   wire.Tuple // without a local port where that is to be chosen
	f       func(in LoopConn, err error)
	tries   int // loops whose ports were not tried yet

	state atomic.Uint32             // connectPending, and then one of the others
	at    atomic.Pointer[host.Host] // the loop that connects; nil before
	c     *TCPConn                  // that loop guards it
}

// States of a Connecting.
const (
	connectPending uint32 = iota
	connectEnded
	connectCanceled
)

// Connect begins to connect to a numeric address and does not wait. What fails at once is returned, as by connect(2) of a
// non-blocking socket: no route, no local port, an address in use. Otherwise a loop calls f once, and holds the connection
// then: with the connection, which is established and has no callback yet (LoopConn.OnReady), or with the error. After
// Cancel, and once the loops have ended, f is not called.
//
// f may run before Connect returns. The caller holds no loop: callbacks have LoopStack.Connect. Timeout, FallbackDelay and
// FastOpen of d have no effect.
func (s *Stack) Connect(d *Dialer, to netip.AddrPort, f func(in LoopConn, err error)) (*Connecting, error) {
	k, err := s.newConnecting(d, to, f)
	if err == nil {
		k.tuple, err = s.tuple(d, to)
	}
	if err == nil {
		err = s.takeBound(d)
	}
	if err != nil {
		return nil, k.opError(err)
	}
	err = s.eachHost(&k.tuple, func(h *host.Host) error {
		h.Enter()
		defer h.Exit()
		return k.start(h)
	})
	if err != nil {
		d.dropBound(nil)
		return nil, k.opError(err)
	}
	return k, nil
}

func (s *Stack) newConnecting(d *Dialer, to netip.AddrPort, f func(in LoopConn, err error)) (*Connecting, error) {
	to = netip.AddrPortFrom(to.Addr().WithZone("").Unmap(), to.Port())
	o := s.tcpOptions(d.KeepAlive, d.KeepAliveConfig, d.TCPOptions)
	k := &Connecting{s: s, d: d, to: to, f: f, tries: len(s.group.Hosts), options: o}
	if s.isClosed() {
		return k, net.ErrClosed
	}
	return k, nil
}

// opError returns err as that of a dial.
func (k *Connecting) opError(err error) error {
	return opError("dial", "tcp", k.d.sourceAddr("tcp"), net.TCPAddrFromAddrPort(k.to), connectError(err))
}

// startIn is start on loop h or, without waiting for it, on another one: that of a flow whose local port is given.
func (k *Connecting) startIn(h *host.Host) error {
	if k.tuple.LocalPort != 0 {
		if owner := k.s.group.Owner(&k.tuple); owner != h {
			passTo(owner, k.resume)
			return nil
		}
	}
	return k.next(h, k.start(h))
}

// start sends the SYN on loop h, which the caller holds.
func (k *Connecting) start(h *host.Host) error {
	k.at.Store(h)
	if k.state.Load() != connectPending {
		k.d.dropBound(h) // Cancel came first, or has found h and waits for it
		return nil
	}
	c := &TCPConn{h: h, flags: connecting, extra: &extra{connecting: k}}
	conn, err := connectTCP(h, k.d, k.tuple, k.options, c)
	if err != nil {
		return err
	}
	c.c, c.tuple, k.c = conn, conn.Tuple(), c
	LoopConn{c}.SetProcess(k.d.Process)
	return nil
}

// next goes on after start on loop h has returned err: later with the search for a port, or on the next loop, which has
// other ports. It returns the error that is final.
func (k *Connecting) next(h *host.Host, err error) error {
	switch {
	case err == tcp.ErrPortSearch:
		passTo(h, k.resume)
	case err == tcp.ErrNoPort && k.tries > 1:
		k.tries--
		passTo(k.s.group.Hosts[(h.Index()+1)%len(k.s.group.Hosts)], k.resume)
	default:
		return err
	}
	return nil
}

// resume is start by a command of loop h.
func (k *Connecting) resume(h *host.Host) {
	if err := k.next(h, k.start(h)); err != nil {
		k.d.dropBound(h)
		k.end(LoopConn{}, err)
	}
}

// finish is called on the loop of c when the handshake has ended.
func (k *Connecting) finish() {
	c := k.c
	c.extra.connecting = nil
	if c.c.State() != tcp.StateClosed {
		if !k.end(LoopConn{c}, nil) {
			k.abort()
		}
		return
	}
	err := c.c.Err()
	if err == nil {
		err = syscall.ECONNABORTED
	}
	k.abort()
	k.end(LoopConn{}, err)
}

// abort ends a connection that was not passed on. Its Bound can be used again.
func (k *Connecting) abort() {
	b := k.c.leaveBound()
	k.c.abort(k.c.h.Now())
	b.drop(k.c.h)
}

// end calls f, unless Cancel came first.
func (k *Connecting) end(in LoopConn, err error) bool {
	if !k.state.CompareAndSwap(connectPending, connectEnded) {
		return false
	}
	if err != nil {
		err = k.opError(err)
	}
	k.f(in, err)
	return true
}

// Cancel ends the connect: f is not called any more, and what was sent is reset soon. False means that f was called or
// is about to be. Any goroutine may call it, and callbacks of any loop.
func (k *Connecting) Cancel() bool {
	if !k.state.CompareAndSwap(connectPending, connectCanceled) {
		return false
	}
	if h := k.at.Load(); h != nil {
		passTo(h, func(h *host.Host) {
			if k.c != nil && k.c.h == h && k.c.c != nil {
				k.c.extra.connecting = nil
				k.abort()
			}
		})
	}
	return true
}
