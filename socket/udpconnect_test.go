package socket

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// kernelUDP opens a UDP socket of the kernel in a namespace, bound to an address.
func kernelUDP(ns *testnet.Namespace, at netip.AddrPort, o socketOptions) (fd int, err error) {
	err = ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	on := map[bool]int{true: 1}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, on[o.reuseAddr]), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, on[o.reusePort]))
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// TestUDPBindsWithReuseAreThoseOfLinux binds random sockets to the kernel and to a stack: both reject the same, and give a
// datagram to the same one where SO_REUSEADDR alone lets several have an address.
func TestUDPBindsWithReuseAreThoseOfLinux(t *testing.T) {
	ns, x := boundWorld(t, 2)
	rejected, chosen := 0, 0
	for program := range 150 {
		rnd := rand.New(rand.NewPCG(11, uint64(program)))
		port := uint16(20000 + program)
		var log strings.Builder
		var fds []int
		var own []*UDPConn
		shared := 0
		for range 4 {
			o := socketOptions{reuseAddr: rnd.IntN(4) > 0, reusePort: rnd.IntN(4) == 0}
			at := netip.AddrPortFrom(netip.MustParseAddr([]string{"0.0.0.0", addrB, addrB2}[rnd.IntN(3)]), port)
			fd, want := kernelUDP(ns, at, o)
			c, got := x.b.ListenPacketWith(t.Context(), &ListenConfig{UDPOptions: func(u *UDPOptions) { u.Reuse, u.Share = o.reuseAddr, o.reusePort }}, "udp4", at.String())
			fmt.Fprintf(&log, "%v %+v: %s\n", at, o, errnoName(want))
			if want == nil && errors.Is(got, syscall.EADDRINUSE) && o.reusePort && shared > 0 {
				_ = unix.Close(fd) // the kernel asks only the first socket that it finds
				shared++
				break
			}
			if errnoName(got) != errnoName(want) {
				t.Fatalf("program %d: %v here\n%s", program, got, &log)
			}
			if want != nil {
				rejected++
				continue
			}
			if o.reusePort {
				shared++
			}
			fds, own = append(fds, fd), append(own, c)
		}
		for _, dst := range []string{addrB, addrB2} {
			if shared > 0 { // whom a hash chooses, or the mixture of both options, is not compared
				break
			}
			to := netip.AddrPortFrom(netip.MustParseAddr(dst), port)
			if want, got := whoGets(t, ns, to, fds), whoGetsOwn(t, x, to, own); want != got {
				t.Errorf("program %d: socket %d gets what is sent to %v, of the kernel's %d\n%s", program, got, to, want, &log)
			} else if len(fds) > 1 {
				chosen++
			}
		}
		for i := range fds {
			_, _ = unix.Close(fds[i]), own[i].Close()
		}
	}
	if rejected < 50 || chosen < 50 {
		t.Errorf("%d binds were rejected, %d datagrams had a choice", rejected, chosen)
	}
}

// whoGets sends a datagram within the namespace and returns the socket that it comes to, -1 for none.
func whoGets(t *testing.T, ns *testnet.Namespace, to netip.AddrPort, fds []int) int {
	t.Helper()
	if err := ns.Do(func() error {
		c, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var buf [8]byte
	for i, fd := range fds { // within one host it is there as the write returns
		if n, _, _ := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT); n == 1 {
			return i
		}
	}
	return -1
}

func whoGetsOwn(t *testing.T, x *testbed, to netip.AddrPort, own []*UDPConn) int {
	t.Helper()
	c, err := x.a.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if len(own) == 0 {
		return -1
	}
	p := x.b.NewPoller()
	defer p.Close()
	for i, s := range own {
		if err := p.Add(s, Interest{Events: Readable, Data: i}); err != nil {
			t.Fatal(err)
		}
	}
	var ev [1]Event
	wait := 20 * time.Second
	if !covered(own, to) {
		wait = 20 * time.Millisecond
	}
	if n, _ := p.Wait(ev[:], wait); n == 0 {
		return -1
	}
	_, _, _ = own[ev[0].Data.(int)].ReadFrom(make([]byte, 8))
	return ev[0].Data.(int)
}

// covered reports whether some socket has the address.
func covered(own []*UDPConn, to netip.AddrPort) bool {
	for _, s := range own {
		if a := s.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(); a.IsUnspecified() || a == to.Addr() {
			return true
		}
	}
	return false
}

// TestConnectABoundUDPSocket: it gets a peer, another one and none, with its port and what it had received; then only that peer
// reaches it.
func TestConnectABoundUDPSocket(t *testing.T) {
	for _, loops := range []int{1, 3} {
		x := newTestbed(t, testbedConfig{loops: loops})
		c := x.listenPacket(t, x.a, "udp4", ":0", nil)
		port := c.LocalAddr().(*net.UDPAddr).Port
		me := net.JoinHostPort(addrA, fmt.Sprint(port))
		var peers []*UDPConn
		for i := range 3 {
			peers = append(peers, x.listenPacket(t, x.b, "udp4", fmt.Sprintf("%s:%d", addrB, 7000+i), nil))
		}
		to := func(i int) netip.AddrPort { return peers[i].LocalAddr().(*net.UDPAddr).AddrPort() }
		send := func(i int) {
			t.Helper()
			if _, err := peers[i].WriteToUDPAddrPort([]byte{byte(i)}, netip.MustParseAddrPort(me)); err != nil {
				t.Fatal(err)
			}
		}
		get := func(want int) {
			t.Helper()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			var b [8]byte
			n, from, err := c.ReadFromUDPAddrPort(b[:])
			if n != 1 || err != nil || int(b[0]) != want || from != to(want) {
				t.Fatalf("%d bytes, %d from %v, %v; want %d", n, b[0], from, err, want)
			}
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EDESTADDRREQ) {
			t.Error(err)
		}
		send(2)
		eventually(t, "the first datagram", func() bool {
			n := 0
			_ = c.each("", func(e *udpShard) error { n += e.u.Queued(); return nil })
			return n > 0
		})
		for i := range 2 {
			if err := c.Connect(to(i)); err != nil {
				t.Fatal(err)
			}
			if a, r := c.LocalAddr().String(), c.RemoteAddr().String(); a != me || r != to(i).String() {
				t.Error(a, r)
			}
			if i == 0 {
				get(2) // it had arrived before
			}
			send(1 - i) // not the peer
			send(i)
			get(i)
			if _, err := c.Write([]byte("y")); err != nil {
				t.Fatal(err)
			}
			_ = peers[i].SetReadDeadline(time.Now().Add(time.Minute))
			if n, from, err := peers[i].ReadFromUDPAddrPort(make([]byte, 8)); n != 1 || err != nil || from.String() != me {
				t.Error(n, from, err)
			}
		}
		other, err := x.a.DialWith(t.Context(), &Dialer{Local: netip.MustParseAddrPort(me)}, "udp4", to(2).String())
		if err == nil { // connected sockets may share a port
			if err := c.Connect(to(2)); !errors.Is(err, syscall.EADDRINUSE) {
				t.Error("two sockets with one tuple:", err)
			}
			if c.RemoteAddr().String() != to(1).String() {
				t.Error("the failed connect took its peer")
			}
			if err := other.(*UDPConn).Connect(to(0)); !errors.Is(err, syscall.EINVAL) {
				t.Error(err)
			}
			_ = other.Close()
		}
		if err := c.Connect(netip.AddrPort{}); err != nil {
			t.Fatal(err)
		}
		if a := c.LocalAddr().String(); c.RemoteAddr() != nil || !strings.HasSuffix(a, fmt.Sprint(":", port)) || !strings.HasPrefix(a, "0.0.0.0") {
			t.Error(a, c.RemoteAddr())
		}
		late := 2 // of others than the peer, which another loop may take only now
		for i := range peers {
			send(i)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			for from, err := (netip.AddrPort{}), error(nil); from != to(i); late-- {
				if _, from, err = c.ReadFromUDPAddrPort(make([]byte, 8)); err != nil || late < 0 {
					t.Fatal(err, late)
				}
				if from == to(i) {
					late++
				}
			}
		}
		checkOpError(t, c.Connect(netip.MustParseAddrPort("203.0.113.1:9")), "connect", syscall.ENETUNREACH)
		checkOpError(t, c.Connect(netip.MustParseAddrPort("[2001:db8::b]:9")), "connect", syscall.EINVAL)
	}
}
