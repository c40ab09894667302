package socket

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// selfAddrs are the addresses by which a host reaches itself: its own, and the loopback networks.
var selfAddrs = []string{addrA, addrA6, "127.0.0.1", "127.255.0.9", "::1"}

// TestAHostReachesItself: sockets of one stack connect to each other by each of its addresses, on one loop and several; no
// device sees that. A listener at one loopback address is not reached by another one.
func TestAHostReachesItself(t *testing.T) {
	for _, loops := range []int{1, 3} {
		x := newTestbed(t, testbedConfig{loops: loops})
		before := x.a.sentByDevices()
		for _, addr := range selfAddrs {
			for _, at := range []string{addr, ""} {
				name := fmt.Sprintf("%d loops, %s by %q", loops, addr, at)
				l, err := x.a.Listen("tcp", net.JoinHostPort(at, "80"))
				if err != nil {
					t.Fatal(name, err)
				}
				f, ch := report(x.a)
				to := netip.MustParseAddrPort(net.JoinHostPort(addr, "80"))
				if _, err := x.a.Connect(&Dialer{}, to, f); err != nil {
					t.Fatal(name, err)
				}
				r := awaitConnect(t, ch)
				if r.err != nil {
					t.Fatal(name, r.err)
				}
				c := r.in.Conn()
				s, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				if a, b := s.RemoteAddr().String(), c.LocalAddr().String(); a != b {
					t.Errorf("%s: from %s, accepted from %s", name, b, a)
				}
				if a := c.LocalAddr().(*net.TCPAddr).IP; a.IsLoopback() != net.ParseIP(addr).IsLoopback() {
					t.Errorf("%s: from %s", name, a)
				}
				data := make([]byte, 300_000)
				go func() {
					_, _ = c.Write(data)
					_ = c.CloseWrite()
				}()
				if got, err := io.ReadAll(s); len(got) != len(data) || err != nil {
					t.Errorf("%s: %d bytes, %v", name, len(got), err)
				}
				_, _, _ = c.Abort(), s.Close(), l.Close()
			}
			p := x.listenPacket(t, x.a, "udp", net.JoinHostPort(addr, "0"), nil)
			u, err := x.a.Dial("udp", p.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = u.Write([]byte("x"))
			_ = p.SetReadDeadline(time.Now().Add(time.Minute))
			if n, from, err := p.ReadFrom(make([]byte, 9)); n != 1 || err != nil || from.String() != u.LocalAddr().String() {
				t.Error(addr, n, from, err)
			}
			_, _ = u.Close(), p.Close()
		}
		l, err := x.a.Listen("tcp", "127.0.0.1:81")
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"127.0.0.2:81", addrA + ":81"} {
			_, err := x.a.Dial("tcp", to)
			checkOpError(t, err, "dial", syscall.ECONNREFUSED)
		}
		_, err = x.b.Dial("tcp", addrA+":81")
		checkOpError(t, err, "dial", syscall.ECONNREFUSED)
		_ = l.Close()
		if sent := x.a.sentByDevices() - before; sent > 20 { // resolution and the refused dial
			t.Errorf("%d packets left by the devices", sent)
		}
	}
}

// sentByDevices returns how many packets the loops have forwarded to devices.
func (s *Stack) sentByDevices() (n uint64) {
	for _, l := range s.Loops() {
		n += l.Stats().Forwarded
	}
	return n
}

// TestListenersShareAPort: connections are spread by their flows, one that closes passes on what waits for it and what comes, and
// a new backlog holds.
func TestListenersShareAPort(t *testing.T) {
	for _, loops := range []int{1, 2} {
		x := newTestbed(t, testbedConfig{loops: loops})
		at := netip.MustParseAddrPort(addrB + ":80")
		var all []*Listener
		for range 3 {
			b, err := x.b.Bind(&BindConfig{ReusePort: true, User: 7}, "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			l, err := b.Listen(&ListenConfig{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		dial := func(n int) (conns []net.Conn) {
			for range n {
				c, err := x.a.Dial("tcp", at.String())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
			return conns
		}
		accept := func(l *Listener) (n int) {
			for {
				_ = l.SetDeadline(time.Now().Add(50 * time.Millisecond))
				c, err := l.Accept()
				if err != nil {
					return n
				}
				_ = c.Close()
				n++
			}
		}
		const n = 60
		conns := dial(n)
		first := accept(all[0])
		if first == 0 || first > n/2 {
			t.Errorf("the first listener has %d of %d connections", first, n)
		}
		_ = all[1].Close()
		conns = append(conns, dial(n)...)
		if got := first + accept(all[0]) + accept(all[2]); got != 2*n {
			t.Errorf("%d of %d connections were accepted after one listener has left", got, 2*n)
		}
		_ = all[2].Close()
		if err := all[0].SetBacklog(1); err != nil {
			t.Fatal(err)
		}
		for range 2 * loops { // the handshakes may end, and beyond the backlog nobody gets them
			c, err := x.a.StartDial(&Dialer{}, at)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		time.Sleep(50 * time.Millisecond)
		if got := accept(all[0]); got == 0 || got > loops {
			t.Errorf("%d connections waited, with a backlog of 1 on each of %d loops", got, loops)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		_ = all[0].Close()
	}
}
