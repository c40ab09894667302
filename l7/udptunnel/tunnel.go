package udptunnel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of targets and tunnels.
var (
	ErrTarget  = errors.New("udptunnel: not a target")
	ErrDenied  = errors.New("udptunnel: the target is not permitted")
	ErrResolve = errors.New("udptunnel: the name has no address")
	ErrFull    = errors.New("udptunnel: as many tunnels are open as may be")
)

const (
	// mostQueued bounds the datagrams of a target that wait for the loop: UDP loses the rest, as a full socket would.
	mostQueued = 256
	// mostPayload is the largest payload of a datagram (RFC 9298 5).
	mostPayload = 65527
)

// Options configure a Service.
type Options struct {
	Targets []Target
	Tunnels int           // open at a time
	Idle    time.Duration // without a datagram in either direction, after which a tunnel ends

	// Resolve returns the addresses of a name, and Own those of the machine; nil asks the system.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Own     func() []netip.Addr
}

// Counts count what a Service does. They outlive reloads.
type Counts struct {
	Opened, Denied, Failed, Full             atomic.Uint64 // tunnels
	Sent, Received, SentBytes, ReceivedBytes atomic.Uint64 // datagrams to and from targets
	Dropped                                  atomic.Uint64 // datagrams
	Open                                     atomic.Int64
}

// Service opens tunnels. Any goroutine may call it. It is not changed: a reload makes another one with the same counts.
type Service struct {
	Options
	*Counts
}

// NewService returns a service.
func NewService(o Options, c *Counts) *Service {
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.Own == nil {
		o.Own = machine
	}
	return &Service{o, c}
}

// machine returns the addresses of the interfaces of the machine.
func machine() (list []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list
}

// Open opens a tunnel to a target, after a look-up of its name. The socket is connected to the address that was checked: later answers of DNS
// change nothing, and the kernel drops datagrams of other senders.
func (s *Service) Open(ctx context.Context, host string, port uint16) (*Tunnel, error) {
	if s.Counts.Open.Add(1) > int64(s.Tunnels) {
		s.Counts.Open.Add(-1)
		s.Full.Add(1)
		return nil, ErrFull
	}
	t, err := s.open(ctx, host, port)
	switch {
	case err == nil:
		s.Opened.Add(1)
		return t, nil
	case errors.Is(err, ErrDenied):
		s.Denied.Add(1)
	default:
		s.Failed.Add(1)
	}
	s.Counts.Open.Add(-1)
	return nil, err
}

func (s *Service) open(ctx context.Context, host string, port uint16) (*Tunnel, error) {
	list, err := s.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	own := s.Own()
	for _, a := range list {
		to := netip.AddrPortFrom(a.Unmap(), port)
		if denied := permits(s.Targets, to, own); denied != nil {
			err = denied
			continue
		}
		c, failed := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if failed != nil {
			err = failed
			continue
		}
		raw, failed := c.SyscallConn()
		if failed != nil {
			_ = c.Close()
			return nil, failed
		}
		return &Tunnel{s: s, Target: to, conn: c, raw: raw}, nil
	}
	return nil, err
}

func (s *Service) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	list, err := s.Resolve(ctx, host)
	if err != nil || len(list) == 0 {
		return nil, ErrResolve
	}
	return list, nil
}

// Tunnel is a socket that is connected to a target.
type Tunnel struct {
	Target netip.AddrPort

	s    *Service
	conn *net.UDPConn
	raw  syscall.RawConn

	mu     sync.Mutex
	queue  [][]byte
	err    error // why nothing more comes
	closed bool
}

// Start has datagrams of the target read on a goroutine. notify is called there when the queue is no longer empty, and when the tunnel fails.
func (t *Tunnel) Start(notify func()) {
	go func() {
		buf := make([]byte, mostPayload+1)
		for {
			n, err := t.conn.Read(buf)
			if err != nil && unreachable(err) { // the target may be there later: ICMP errors end no tunnel
				continue
			}
			if t.enter(buf[:n], err) {
				notify()
			}
			if err != nil {
				return
			}
		}
	}()
}

func unreachable(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// enter puts a datagram into the queue, or the error. It reports whether the loop has to be notified.
func (t *Tunnel) enter(p []byte, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.err = err
		return !t.closed
	}
	if len(t.queue) >= mostQueued {
		t.s.Dropped.Add(1)
		return false
	}
	t.s.Received.Add(1)
	t.s.ReceivedBytes.Add(uint64(len(p)))
	t.queue = append(t.queue, append([]byte(nil), p...))
	return len(t.queue) == 1 && !t.closed
}

// Take returns the datagrams that have come, and why no more will.
func (t *Tunnel) Take() (list [][]byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, t.queue = t.queue, nil
	return list, t.err
}

// Send sends a datagram to the target. It does not wait: what the socket does not take is lost, and counted.
func (t *Tunnel) Send(p []byte) {
	var err error
	if len(p) > mostPayload {
		t.s.Dropped.Add(1)
		return
	}
	failed := t.raw.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), p)
		return true
	})
	if err != nil && unreachable(err) { // of a datagram before: this one was not sent
		failed = t.raw.Write(func(fd uintptr) bool {
			_, err = unix.Write(int(fd), p)
			return true
		})
	}
	if err != nil || failed != nil {
		t.s.Dropped.Add(1)
		return
	}
	t.s.Sent.Add(1)
	t.s.SentBytes.Add(uint64(len(p)))
}

// Close closes the socket. It may be called again.
func (t *Tunnel) Close() {
	t.mu.Lock()
	was := t.closed
	t.closed = true
	t.mu.Unlock()
	if !was {
		_ = t.conn.Close()
		t.s.Counts.Open.Add(-1)
	}
}
