package socket

import (
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
)

// optionSocket is an unbound UDP socket of the kernel, which carries no packets. It is for programs that set
// options by setsockopt on the file descriptor of a packet socket, such as quic-go: the UDPConn reads back
// what they set.
type optionSocket struct {
	mu          sync.Mutex
	fd          int
	open        bool
	closed      bool
	read, write int // buffer sizes that were set before it was opened
	ttl, hops   int // the kernel's defaults
}

// SyscallConn returns a RawConn over a kernel socket that carries no packets. After its function, Control
// reads the options of that socket and applies them to c: the control messages to receive (TOS or traffic
// class, TTL or hop limit, packet information, GRO), and TOS, TTL and fragmentation of sent datagrams. Other
// options have no effect. Read and Write fail.
func (c *UDPConn) SyscallConn() (syscall.RawConn, error) {
	if err := c.options.init(c.local.Load().IP.To4() != nil); err != nil {
		return nil, c.wrapError("raw-control", nil, err)
	}
	return rawConn{c: c}, nil
}

// openOptionSocket opens a socket of the kernel that is there for its options.
func openOptionSocket(v4 bool, kind int) (fd int, err error) {
	kind |= unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	if !v4 {
		if fd, err = unix.Socket(unix.AF_INET6, kind, 0); err == nil {
			return fd, nil
		}
	} // or the kernel has no IPv6
	fd, err = unix.Socket(unix.AF_INET, kind, 0)
	return fd, os.NewSyscallError("socket", err)
}

// optionsOnly has the Read and Write of a syscall.RawConn over such a socket: they fail.
type optionsOnly struct{}

// Read implements syscall.RawConn.
func (optionsOnly) Read(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// Write implements syscall.RawConn.
func (optionsOnly) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// init opens the socket on first use.
func (s *optionSocket) init(v4 bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if s.open {
		return nil
	}
	fd, err := openOptionSocket(v4, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	s.fd, s.open = fd, true
	s.ttl, s.hops = s.getsockopt(unix.IPPROTO_IP, unix.IP_TTL), s.getsockopt(unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS)
	s.applyBuffers()
	return nil
}

// setBuffers sets the buffer sizes that getsockopt returns.
func (s *optionSocket) setBuffers(read, write int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.write = max(s.read, read), max(s.write, write)
	if s.open {
		s.applyBuffers()
	}
}

// applyBuffers sets the sizes on the kernel socket. The kernel may allow less, which has no effect on c.
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

// rawConn is the syscall.RawConn of a UDPConn.
type rawConn struct {
	c *UDPConn
	optionsOnly
}

// Control implements syscall.RawConn.
func (r rawConn) Control(f func(fd uintptr)) error {
	s := &r.c.options
	s.mu.Lock()
	if !s.open {
		s.mu.Unlock()
		return net.ErrClosed
	}
	f(uintptr(s.fd))
	// A setsockopt on fd cannot be observed: read every option that has an effect, after each call.
	w, set := s.requested(), s.sendOptions()
	s.mu.Unlock()
	r.c.cmsgs.Store(uint32(w))
	return r.c.SetOptions(func(o *udp.Options) {
		set(o)
		o.GRO = w&cmsgGRO != 0
	})
}

// requested returns the control messages that the program requested.
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

// getsockopt returns an option, 0 if the socket does not have it.
func (s *optionSocket) getsockopt(level, name int) int {
	v, err := unix.GetsockoptInt(s.fd, level, name)
	if err != nil {
		return 0
	}
	return v
}

// sendOptions returns a function that sets the options for sent datagrams. On a dual-stack socket the
// program may have set them for either version of IP.
func (s *optionSocket) sendOptions() func(o *udp.Options) {
	tos := s.getsockopt(unix.IPPROTO_IP, unix.IP_TOS)
	if v := s.getsockopt(unix.IPPROTO_IPV6, unix.IPV6_TCLASS); v > 0 {
		tos = v
	}
	// 0 is the default of the host. The kernel returns its own default where the program set none, so that
	// only a value other than the initial one is the program's.
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

// dontFragment reports whether an option has one of the two values that forbid fragmentation.
func (s *optionSocket) dontFragment(level, name, do, probe int) bool {
	v := s.getsockopt(level, name)
	return v == do || v == probe
}
