package shim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/millrace/millrace/socket"
)

// localAddr checks the address of bind(2), and returns the network and the address as the stack has them.
func (k *sock) localAddr(proto string, a netip.AddrPort) (network string, at netip.AddrPort, err error) {
	ip := a.Addr()
	switch {
	case !ip.IsValid() || ip.Is4() == k.v6:
		return "", a, syscall.EAFNOSUPPORT
	case !k.v6:
		return proto + "4", a, nil
	case ip.Is4In6() && k.options.v6only:
		return "", a, syscall.EINVAL
	case ip.Is4In6():
		return proto + "4", netip.AddrPortFrom(ip.Unmap(), a.Port()), nil
	case k.options.v6only:
		return proto + "6", a, nil
	}
	return proto, a, nil // the unspecified address is that of both families
}

// bind reserves an address and port. The socket has it until it is closed.
func (k *sock) bind(c *channel, q *request, r *reply) error {
	if !c.permitted(q) {
		if err := c.mayBind(q.addr.Port()); err != nil {
			return err
		}
	}
	bind := k.bindStream
	if !k.stream {
		bind = k.bindPackets
	}
	if err := k.s.afterCloses(q.addr.Port(), func() error { return k.inRange(q.addr, bind) }); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			r.value = []byte(k.s.portCause(q.addr))
		}
		return err
	}
	k.chosen = q.addr
	r.local, r.remote = k.names()
	if q.arg&wantPermit != 0 {
		r.value = c.permit(r)
	}
	return nil
}

// automatic is the address for a socket whose program leaves the port to the stack: the address of a bind(2) of before, if there was one.
func (k *sock) automatic() netip.AddrPort {
	if k.chosen.IsValid() {
		return netip.AddrPortFrom(k.chosen.Addr(), 0)
	}
	return k.unspecified()
}

// mostRangeTries bounds how many ports of IP_LOCAL_PORT_RANGE a bind tries.
const mostRangeTries = 256

// inRange calls bind with ports of IP_LOCAL_PORT_RANGE where the program leaves the choice to the stack.
func (k *sock) inRange(a netip.AddrPort, bind func(netip.AddrPort) error) error {
	low, high := k.options.portRange[0], k.options.portRange[1]
	if a.Port() != 0 || low == 0 && high == 0 {
		return bind(a)
	}
	if low == 0 {
		low = min(high, firstFreePort)
	}
	if high == 0 {
		high = 65535
	}
	n := int(high) - int(low) + 1
	err, from := error(syscall.EADDRINUSE), rand.IntN(n)
	for i := 0; i < min(n, mostRangeTries) && errors.Is(err, syscall.EADDRINUSE); i++ {
		err = bind(netip.AddrPortFrom(a.Addr(), low+uint16((from+i)%n)))
	}
	return err
}

// portCause returns why no program can have an address and port that are in use, "" if another one has them.
func (s *Server) portCause(a netip.AddrPort) string {
	if s.cfg.Service == nil {
		return ""
	}
	name := s.cfg.Service(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	if name == "" {
		return ""
	}
	return fmt.Sprintf("port %d is that of the node's service %s: start the node without it (millrace stack up -c FILE)", a.Port(), name)
}

// How afterCloses waits.
const (
	closeTime  = 200 * time.Millisecond // at most
	closePause = closeTime / 1000       // before the first further try; twice as long before each that follows
)

// afterCloses calls bind, again if a program has closed a socket with the port and the node has yet to release it: on
// Linux the port is free when close(2) returns, and programs look for a free port that way.
func (s *Server) afterCloses(port uint16, bind func() error) error {
	err := bind()
	end, pause := time.Now().Add(closeTime), closePause
	for wait := true; wait && port != 0 && errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		if wait = s.closing(port); wait {
			time.Sleep(pause)
			pause *= 2
		}
		err = bind() // also if none is closing now: one may have been when bind failed
	}
	return err
}

// mostLooked is the number of sockets of a port that one call looks at: the kernel is asked about each, and one user may have thousands
// there. Which ones is random.
const mostLooked = 64

// closing reports whether a socket with the port may have been closed and is not free yet. It releases what programs have closed,
// which the watcher may report late.
func (s *Server) closing(port uint16) (ends bool) {
	var closed []*sock
	s.mu.Lock()
	ends = len(s.bound[port]) > mostLooked
	looked := 0
	for k := range s.bound[port] {
		if looked++; looked > mostLooked {
			break
		}
		s.stats.looked.Add(1)
		k.mu.Lock()
		left := hungUp(k.fd)
		ends = ends || left || k.state == released
		if left && k.stream && (k.state == idle || k.state == listening) { // no bytes are on their way
			closed = append(closed, k)
		}
		k.mu.Unlock()
	}
	s.mu.Unlock()
	for _, k := range closed {
		k.release(0)
		k.closeAll() // it has an address, so that no request of its own waits for another socket
	}
	return ends
}

// enterPort notes that k has reserved a port. leave undoes it.
func (k *sock) enterPort(port uint16) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if _, open := k.s.all[k]; open {
		k.port = port
		put(k.s.bound, port, k)
	}
}

// leave removes k from the tables, once what it had is free.
func (k *sock) leave() {
	k.s.mu.Lock()
	delete(k.s.all, k)
	if k.s.leaving[k.cookie] == k {
		delete(k.s.leaving, k.cookie)
	}
	drop(k.s.bound, k.port, k)
	k.s.mu.Unlock()
	k.s.gone.Broadcast()
}

// leavePort notes that k has given its port back, and goes on without.
func (s *Server) leavePort(k *sock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	drop(s.bound, k.port, k)
	k.port = 0
}

// put and drop keep sets of what has a port.
func put[T comparable](sets map[uint16]map[T]struct{}, port uint16, x T) {
	if sets[port] == nil {
		sets[port] = map[T]struct{}{}
	}
	sets[port][x] = struct{}{}
}

func drop[T comparable](sets map[uint16]map[T]struct{}, port uint16, x T) {
	if delete(sets[port], x); len(sets[port]) == 0 {
		delete(sets, port)
	}
}

func (k *sock) bindStream(a netip.AddrPort) error {
	if k.bound != nil || k.current() != idle {
		return syscall.EINVAL
	}
	network, at, err := k.localAddr("tcp", a)
	if err != nil {
		return err
	}
	o := k.options
	cfg := &socket.BindConfig{ReuseAddr: o.reuse, ReusePort: o.share, V6Only: o.v6only, FreeBind: o.freeBind, User: k.user.uid}
	bound, err := k.s.cfg.Stack.Bind(cfg, network, at)
	if err != nil {
		return err
	}
	k.enterPort(bound.Addr().Port())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bound = bound
	k.local = k.shown(bound.Addr())
	if k.state == released { // closeAll waits for ops, which the caller holds
		return syscall.ENETDOWN
	}
	return nil
}

func (k *sock) current() state {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}
