package socket

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
)

// optionSocket is a kernel's UDP socket that is bound to nothing and carries nothing. It is there for programs
// that ask a packet socket for its file descriptor to set options with setsockopt, such as quic-go: they
// find what they ask for, and what they have set is read back and holds for the UDPConn.
type optionSocket struct {
	mu          sync.Mutex
	fd          int
	open        bool
	closed      bool
	read, write int // sizes of buffers that were asked for before it was opened
	ttl, hops   int // what the kernel uses where nobody has set any
}

// SyscallConn returns the RawConn of a kernel's socket that carries no packets. Control calls its function
// with that socket, and then applies to c what was set: reception of TOS or traffic class, TTL or hop
// limit, packet information and GRO; TOS or traffic class, TTL or hop limit of unicast, and whether to
// fragment, for what is sent. Other options have no effect. Read and Write fail: nothing ever becomes
// readable.
func (c *UDPConn) SyscallConn() (syscall.RawConn, error) {
	if err := c.options.init(c.local.IP.To4() != nil); err != nil {
		return nil, c.wrapError("raw-control", nil, err)
	}
	return rawConn{c}, nil
}

// init opens the socket, once.
func (s *optionSocket) init(v4 bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if s.open {
		return nil
	}
	domain := unix.AF_INET6
	if v4 {
		domain = unix.AF_INET
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil && !v4 { // a kernel without IPv6
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	}
	if err != nil {
		return err
	}
	s.fd, s.open = fd, true
	s.ttl, s.hops = s.getsockopt(unix.IPPROTO_IP, unix.IP_TTL), s.getsockopt(unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS)
	s.applyBuffers()
	return nil
}

// setBuffers notes the sizes of buffers, so that whoever asks the kernel's socket finds them.
func (s *optionSocket) setBuffers(read, write int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.write = max(s.read, read), max(s.write, write)
	if s.open {
		s.applyBuffers()
	}
}

// applyBuffers tells the kernel, which may allow less: nothing depends on it.
func (s *optionSocket) applyBuffers() {
	if s.read > 0 && unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, s.read) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, s.read)
	}
	if s.write > 0 && unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, s.write) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, s.write)
	}
}

func (s *optionSocket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if !s.open {
		return nil
	}
	s.open = false
	return unix.Close(s.fd)
}

// rawConn is the shadow socket as programs get it.
type rawConn struct{ c *UDPConn }

// Control implements syscall.RawConn.
func (r rawConn) Control(f func(fd uintptr)) error {
	s := &r.c.options
	s.mu.Lock()
	if !s.open {
		s.mu.Unlock()
		return net.ErrClosed
	}
	f(uintptr(s.fd))
	w, set := s.requested(), s.sendOptions()
	s.mu.Unlock()
	r.c.cmsgs.Store(uint32(w))
	return r.c.SetOptions(func(o *udp.Options) {
		set(o)
		o.GRO = w&cmsgGRO != 0
	})
}

// Read implements syscall.RawConn: it fails.
func (r rawConn) Read(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// Write implements syscall.RawConn: it fails.
func (r rawConn) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// requested reads which control messages were asked for.
func (s *optionSocket) requested() (w cmsgSet) {
	for _, o := range [...]struct {
		level, name int
		bit         cmsgSet
	}{
		{unix.IPPROTO_IP, unix.IP_RECVTOS, cmsgTOS},
		{unix.IPPROTO_IP, unix.IP_PKTINFO, cmsgPktInfo4},
		{unix.IPPROTO_IP, unix.IP_RECVTTL, cmsgTTL},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, cmsgTrafficClass},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, cmsgPktInfo6},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, cmsgHopLimit},
		{unix.IPPROTO_UDP, unix.UDP_GRO, cmsgGRO},
	} {
		if v, err := unix.GetsockoptInt(s.fd, o.level, o.name); err == nil && v != 0 {
			w |= o.bit
		}
	}
	return w
}

// getsockopt reads an option, 0 where the socket has none of that kind.
func (s *optionSocket) getsockopt(level, name int) int {
	v, err := unix.GetsockoptInt(s.fd, level, name)
	if err != nil {
		return 0
	}
	return v
}

// sendOptions reads what was set for datagrams that are sent. A socket of both versions may have set it for
// either.
func (s *optionSocket) sendOptions() func(o *udp.Options) {
	tos := s.getsockopt(unix.IPPROTO_IP, unix.IP_TOS)
	if v := s.getsockopt(unix.IPPROTO_IPV6, unix.IPV6_TCLASS); v > 0 {
		tos = v
	}
	ttl := 0
	if v := s.getsockopt(unix.IPPROTO_IP, unix.IP_TTL); v != s.ttl {
		ttl = v
	}
	if v := s.getsockopt(unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS); v != s.hops {
		ttl = v
	}
	whole := s.dontFragment(unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_PMTUDISC_PROBE) ||
		s.dontFragment(unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_PMTUDISC_PROBE)
	return func(o *udp.Options) {
		if tos != 0 {
			o.TOS = uint8(tos)
		}
		if ttl > 0 {
			o.TTL = uint8(ttl)
		}
		o.DontFragment = o.DontFragment || whole
	}
}

// dontFragment reports whether an option says, by one of two values, that datagrams are not to be fragmented.
func (s *optionSocket) dontFragment(level, name, do, probe int) bool {
	v := s.getsockopt(level, name)
	return v == do || v == probe
}
