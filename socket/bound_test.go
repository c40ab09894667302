package socket

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/ip"
)

// tcpSocket is a TCP socket that binds before it listens or connects: the kernel's or ours. The errors have the numbers
// of system calls.
type tcpSocket interface {
	bind(network string, at netip.AddrPort) error
	listen() error
	connect(to netip.AddrPort) error // to a server that accepts all
	close() error
	addr() netip.AddrPort
}

// socketOptions are what bind(2) looks at.
type socketOptions struct{ reuseAddr, reusePort, v6Only bool }

// kernelTCP is a socket of the kernel.
type kernelTCP struct{ fd int }

// newKernelTCP returns a socket of a namespace.
func newKernelTCP(ns *testnet.Namespace, v6 bool, o socketOptions) (s *kernelTCP, err error) {
	s = new(kernelTCP)
	domain := map[bool]int{false: unix.AF_INET, true: unix.AF_INET6}[v6]
	err = ns.Do(func() (err error) {
		s.fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	set := func(level, opt int, on bool) error {
		return unix.SetsockoptInt(s.fd, level, opt, map[bool]int{false: 0, true: 1}[on])
	}
	err = errors.Join(set(unix.SOL_SOCKET, unix.SO_REUSEADDR, o.reuseAddr), set(unix.SOL_SOCKET, unix.SO_REUSEPORT, o.reusePort))
	if v6 {
		err = errors.Join(err, set(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, o.v6Only))
	}
	return s, errors.Join(err, unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

func (s *kernelTCP) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if domain, _ := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN); domain == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: a.Addr().Unmap().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func (s *kernelTCP) bind(_ string, at netip.AddrPort) error { return unix.Bind(s.fd, s.sockaddr(at)) }
func (s *kernelTCP) listen() error                          { return unix.Listen(s.fd, 8) }
func (s *kernelTCP) connect(to netip.AddrPort) error        { return unix.Connect(s.fd, s.sockaddr(to)) }
func (s *kernelTCP) close() error                           { return unix.Close(s.fd) }
func (s *kernelTCP) addr() netip.AddrPort {
	switch a, _ := unix.Getsockname(s.fd); a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// ownTCP is a socket of a Stack.
type ownTCP struct {
	s *Stack
	o socketOptions
	b *Bound
	l *Listener
	c *TCPConn
}

func (s *ownTCP) bind(network string, at netip.AddrPort) (err error) {
	cfg := &BindConfig{ReuseAddr: s.o.reuseAddr, ReusePort: s.o.reusePort, V6Only: s.o.v6Only}
	s.b, err = s.s.Bind(cfg, network, at)
	return err
}

func (s *ownTCP) listen() (err error) {
	s.l, err = s.b.Listen(&ListenConfig{})
	return err
}

func (s *ownTCP) connect(to netip.AddrPort) error {
	done := make(chan error, 1)
	_, err := s.s.Connect(&Dialer{Bound: s.b}, to, func(in LoopConn, err error) {
		if err == nil {
			s.c = in.Conn()
		}
		done <- err
	})
	if err != nil {
		return err
	}
	return <-done
}

func (s *ownTCP) close() error {
	if s.l != nil {
		_ = s.l.Close()
	}
	if s.c != nil {
		_ = s.c.Abort()
	}
	if s.b != nil {
		return s.b.Close()
	}
	return nil
}

func (s *ownTCP) addr() netip.AddrPort { return s.b.Addr() }

// boundWorld is a host of the kernel in a namespace and stack b of a testbed, with the same addresses, and each with a server at
// addrA and addrA6 that accepts connections at port 80.
func boundWorld(t *testing.T, loops int) (*testnet.Namespace, *testbed) {
	n := testnet.For(t, "mr-bound")
	host, peer := n.Namespace("host"), n.Namespace("peer")
	if err := n.Link(host, "eth0", peer, "eth0"); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(host.Up("eth0", addrB+"/24", addrB2+"/24", addrB6+"/64", addrB62+"/64"), peer.Up("eth0", addrA+"/24", addrA6+"/64"),
		peer.Do(func() error { return testnet.ServeTCP(t, ":80", drainConn) }))
	if err != nil {
		t.Fatal(err)
	}
	x := newTestbed(t, testbedConfig{loops: loops})
	for _, a := range []string{addrB2 + "/24", addrB62 + "/64"} {
		if err := x.b.group.AddAddr(0, netip.MustParsePrefix(a), ip.Static, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.b.group.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := x.a.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go drainConn(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return host, x
}

func drainConn(c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// TestBoundSocketsAreThoseOfLinux runs random programs of bind, listen, connect and close on a few sockets with random options
// on the kernel and on a stack: each call must return the same.
func TestBoundSocketsAreThoseOfLinux(t *testing.T) {
	const programs, sockets, calls = 400, 4, 14
	ns, x := boundWorld(t, 2)
	addrs := [2][]string{{"0.0.0.0", addrB, addrB2}, {"::", addrB6, addrB62, "::ffff:" + addrB}}
	failed, skipped := map[string]int{}, 0
	for program := range programs {
		rnd := rand.New(rand.NewPCG(7, uint64(program)))
		port := uint16(10000 + program)
		var log strings.Builder
		var kernel, own [sockets]tcpSocket
		var v6 [sockets]bool
		var state [sockets]string // of the kernel's
		over := false
		closeAll := func() {
			for i := range kernel {
				if kernel[i] != nil {
					_, _ = kernel[i].close(), own[i].close()
				}
			}
		}
		// call makes one call on both kinds of socket, and reports whether it succeeded.
		call := func(i int, what string, f func(s tcpSocket) error) bool {
			want, got := errnoName(f(kernel[i])), errnoName(f(own[i]))
			fmt.Fprintf(&log, "%d.%s: %s\n", i, what, want)
			if o := own[i].(*ownTCP).o; got == "EADDRINUSE" && want == "ok" && (o.reusePort || o.reuseAddr) && what != "listen" {
				// The kernel remembers with a port that the last socket had such an option, and then looks no further.
				skipped++
				over = true
				return false
			}
			if got != want {
				t.Fatalf("program %d: the last call returns %s here\n%s", program, got, &log)
			}
			if want != "ok" {
				failed[what[:4]+want]++
			}
			return want == "ok"
		}
		for n := 0; n < calls && !over; n++ {
			i := rnd.IntN(sockets)
			switch {
			case kernel[i] == nil:
				o := socketOptions{rnd.IntN(2) == 0, rnd.IntN(3) == 0, rnd.IntN(2) == 0}
				v6[i] = rnd.IntN(2) == 0
				k, err := newKernelTCP(ns, v6[i], o)
				if err != nil {
					t.Fatal(err)
				}
				o.v6Only = o.v6Only && v6[i]
				kernel[i], own[i] = k, &ownTCP{s: x.b, o: o}
				fmt.Fprintf(&log, "%d: IPv6 %v %+v\n", i, v6[i], o)
				list := addrs[map[bool]int{false: 0, true: 1}[v6[i]]]
				at := list[rnd.IntN(len(list))]
				if o.v6Only && strings.HasPrefix(at, "::ffff") {
					at = addrB6 // for which the kernel has an error of its own
				}
				network := map[bool]string{false: "tcp4", true: "tcp"}[v6[i]]
				state[i] = ""
				if call(i, "bind "+at, func(s tcpSocket) error { return s.bind(network, netip.AddrPortFrom(netip.MustParseAddr(at), port)) }) {
					state[i] = "bound"
				} else {
					_, _ = kernel[i].close(), own[i].close()
					kernel[i] = nil
				}
			case state[i] == "bound" && rnd.IntN(3) == 0:
				if call(i, "listen", tcpSocket.listen) {
					state[i] = "listens"
				}
			case state[i] == "bound" && rnd.IntN(2) == 0:
				to := addrA
				if own[i].addr().Addr() == netip.IPv6Unspecified() && own[i].(*ownTCP).o.v6Only {
					continue // once it is connected the kernel lets others bind to its address now and then
				}
				switch a := own[i].addr().Addr(); {
				case a.Is4() && v6[i], a.Is6() && a.IsUnspecified() && !own[i].(*ownTCP).o.v6Only:
					// Over IPv6 the kernel would still keep others from the addresses of IPv4, for which it has a field of its own.
					to = "::ffff:" + addrA
				case a.Is6():
					to = addrA6
				}
				if call(i, "connect "+to, func(s tcpSocket) error { return s.connect(netip.AddrPortFrom(netip.MustParseAddr(to), 80)) }) {
					state[i] = "connected"
				} else {
					_, _ = kernel[i].close(), own[i].close()
					kernel[i] = nil
				}
			case rnd.IntN(2) == 0:
				fmt.Fprintf(&log, "%d.close\n", i)
				_, _ = kernel[i].close(), own[i].close()
				kernel[i] = nil
			}
		}
		closeAll()
	}
	if skipped > programs/20 {
		t.Errorf("%d of %d programs ended where the kernel looks no further", skipped, programs)
	}
	t.Log(failed, skipped)
	for _, what := range []string{"bindEADDRINUSE", "listEADDRINUSE", "connEADDRNOTAVAIL"} {
		if failed[what] == 0 {
			t.Errorf("no program met %s: %v", what, failed)
		}
	}
}

// TestBindChoosesAPort: it is known at once, nothing else gets it, and its socket can reach what connections of others
// have reached.
func TestBindChoosesAPort(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	l, err := x.b.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go drainConn(c)
		}
	}()
	seen := map[uint16]bool{}
	for range 50 {
		b, err := x.a.Bind(&BindConfig{}, "tcp4", netip.MustParseAddrPort("0.0.0.0:0"))
		if err != nil {
			t.Fatal(err)
		}
		port := b.Addr().Port()
		if port == 0 || seen[port] || b.Addr().Addr() != netip.IPv4Unspecified() {
			t.Fatal(b.Addr())
		}
		seen[port] = true
		_, err = x.a.Bind(&BindConfig{}, "tcp", netip.AddrPortFrom(netip.MustParseAddr(addrA), port))
		checkOpError(t, err, "bind", syscall.EADDRINUSE)
		_, err = x.a.Listen("tcp", net.JoinHostPort(addrA, fmt.Sprint(port)))
		checkOpError(t, err, "listen", syscall.EADDRINUSE)
		d := &Dialer{Local: netip.AddrPortFrom(netip.MustParseAddr(addrA), port)}
		_, err = x.a.DialWith(t.Context(), d, "tcp", addrB+":80")
		checkOpError(t, err, "dial", syscall.EADDRINUSE)
		c, err := x.a.DialWith(t.Context(), &Dialer{Bound: b}, "tcp", addrB+":80")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.LocalAddr().String(); got != net.JoinHostPort(addrA, fmt.Sprint(port)) {
			t.Error(got)
		}
		_, err = x.a.DialWith(t.Context(), &Dialer{Bound: b}, "tcp", addrB+":80")
		checkOpError(t, err, "dial", syscall.EINVAL)
		_ = b.Close() // the connection keeps the port
		_, err = x.a.Bind(&BindConfig{}, "tcp", netip.AddrPortFrom(netip.MustParseAddr(addrA), port))
		checkOpError(t, err, "bind", syscall.EADDRINUSE)
		defer c.Close()
	}
	_, err = x.a.Bind(&BindConfig{}, "tcp", netip.MustParseAddrPort("198.18.0.99:0"))
	checkOpError(t, err, "bind", syscall.EADDRNOTAVAIL)
	b, err := x.a.Bind(&BindConfig{FreeBind: true}, "tcp", netip.MustParseAddrPort("198.18.0.99:0"))
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if _, err = b.Listen(&ListenConfig{}); !errors.Is(err, syscall.EINVAL) {
		t.Error("a closed one listens:", err)
	}
}

// TestBoundAfterAFailure: a connect that fails or is canceled leaves the port bound, for another one; what closes frees it at
// once, though other loops learn of it later.
func TestBoundAfterAFailure(t *testing.T) {
	for _, loops := range []int{1, 3} {
		x := newTestbed(t, testbedConfig{loops: loops})
		l, err := x.b.Listen("tcp", ":80")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		at := netip.MustParseAddrPort(addrA + ":7000")
		bind := func() *Bound {
			t.Helper()
			b, err := x.a.Bind(&BindConfig{}, "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		for range 20 {
			b := bind()
			d := &Dialer{Bound: b}
			for loop := -1; loop < loops; loop++ {
				f, ch := report(x.a)
				_, err := x.connectFrom(loop, d, addrB+":81", f)
				if err == nil {
					err = awaitConnect(t, ch).err
				}
				checkOpError(t, err, "dial", syscall.ECONNREFUSED)
				eventually(t, "the port is in use still", func() bool {
					k, err := x.connectFrom(loop, d, "198.18.0.99:80", func(LoopConn, error) { t.Error("called") })
					return err == nil && k.Cancel()
				})
				eventually(t, "the canceled connect has the port", func() bool { return b.take() == nil })
				b.drop(nil)
			}
			_, err := x.a.DialWith(t.Context(), d, "tcp", addrB+":81")
			checkOpError(t, err, "dial", syscall.ECONNREFUSED)
			c, err := x.a.DialWith(t.Context(), d, "tcp", addrB+":80")
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.(*TCPConn).Abort(), s.Close() // the port is free
			b = bind()
			k, err := b.Listen(&ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if k.Addr().String() != at.String() {
				t.Error(k.Addr())
			}
			_, err = b.Listen(&ListenConfig{})
			checkOpError(t, err, "listen", syscall.EINVAL)
			_, _ = b.Close(), k.Close()
			sd, err := x.a.StartDial(&Dialer{Bound: bind()}, netip.MustParseAddrPort(addrB+":81"))
			if err != nil {
				t.Fatal(err)
			}
			_ = sd.Close()
		}
		b := bind()
		_, err = x.b.Connect(&Dialer{Bound: b}, netip.MustParseAddrPort(addrA+":80"), nil)
		checkOpError(t, err, "dial", errBoundElsewhere)
		_, err = x.a.Connect(&Dialer{Bound: b}, netip.MustParseAddrPort("[2001:db8::b]:80"), nil)
		if err == nil {
			t.Error("IPv6 from an address of IPv4")
		}
		time.Sleep(time.Millisecond)
		if x.a.freeing.Load() != 0 {
			t.Error("ports are being freed")
		}
		_ = x.a.Close() // closes b
		if err := b.take(); err != syscall.EINVAL {
			t.Error(err)
		}
	}
}

// TestUsersDoNotShareAPort: SO_REUSEPORT is for the sockets of one user.
func TestUsersDoNotShareAPort(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	at := netip.MustParseAddrPort(addrB + ":80")
	open := func(user uint32) (*Bound, error) {
		return x.b.Bind(&BindConfig{ReusePort: true, User: user}, "tcp", at)
	}
	b, err := open(1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // bound, then listening
		_, err = open(2)
		checkOpError(t, err, "bind", syscall.EADDRINUSE)
		c, err := open(1)
		if err != nil {
			t.Fatal(err)
		}
		if b.taken {
			l, err := c.Listen(&ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			continue
		}
		_ = c.Close()
		l, err := b.Listen(&ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
