package udptunnel

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testport"
)

func TestPathsOfTargets(t *testing.T) {
	for path, want := range map[string]netip.AddrPort{
		"/.well-known/masque/udp/192.0.2.6/443/":          netip.MustParseAddrPort("192.0.2.6:443"),
		"/.well-known/masque/udp/192.0.2.6/443":           netip.MustParseAddrPort("192.0.2.6:443"),
		"/.well-known/masque/udp/2001%3Adb8%3A%3A42/53/":  netip.MustParseAddrPort("[2001:db8::42]:53"),
		"/.well-known/masque/udp/192.0.2.6/0/":            {},
		"/.well-known/masque/udp/192.0.2.6/65536/":        {},
		"/.well-known/masque/udp/192.0.2.6/-1/":           {},
		"/.well-known/masque/udp/192.0.2.6/443/x":         {},
		"/.well-known/masque/udp/192.0.2.6//":             {},
		"/.well-known/masque/udp//443/":                   {},
		"/.well-known/masque/udp/fe80%3A%3A1%25eth0/443/": {},
		"/.well-known/masque/udp/0x7f.1/443/":             {},
		"/.well-known/masque/udp/127.1/443/":              {},
		"/.well-known/masque/udp/2130706433/443/":         {},
		"/.well-known/masque/udp/a%00.example/443/":       {},
		"/.well-known/masque/udp/a..example/443/":         {},
		"/.well-known/masque/udp/a%2Fb.example/443/":      {},
		"/.well-known/masque/udp/a%zz/443/":               {},
		"/other/192.0.2.6/443/":                           {},
		"/.well-known/masque/udp/":                        {},
		"/.well-known/masque/udp/[2001:db8::42]/53/":      {},
	} {
		host, port, err := ParsePath(path)
		if !want.IsValid() {
			if !errors.Is(err, ErrTarget) {
				t.Errorf("%s: %s port %d, %v", path, host, port, err)
			}
			continue
		}
		if a, _ := netip.ParseAddr(host); err != nil || netip.AddrPortFrom(a, port) != want {
			t.Errorf("%s: %s port %d, %v, want %s", path, host, port, err, want)
		}
	}
	if host, port, err := ParsePath("/.well-known/masque/udp/target.example/443/"); host != "target.example" || port != 443 || err != nil {
		t.Errorf("%s %d %v", host, port, err)
	}
}

// A wide prefix means no address of this machine, of its links or of loopback; one that has nothing else does.
func TestTargetsThatArePermitted(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	every := []Target{{netip.MustParsePrefix("0.0.0.0/0"), 1, 65535}, {netip.MustParsePrefix("::/0"), 1, 65535}}
	one := func(prefix string, first, last uint16) []Target {
		return []Target{{netip.MustParsePrefix(prefix), first, last}}
	}
	for _, c := range []struct {
		targets []Target
		to      string
		ok      bool
	}{
		{every, "192.0.2.8:53", true},
		{every, "[2001:db8::8]:53", true},
		{every, "127.0.0.1:53", false},
		{every, "127.8.8.8:53", false},
		{every, "[::1]:53", false},
		{every, "[::ffff:127.0.0.1]:53", false},
		{every, "169.254.169.254:80", false},
		{every, "[fe80::1]:53", false},
		{every, "192.0.2.7:53", false},
		{every, "[2001:db8::7]:53", false},
		{every, "[::ffff:192.0.2.7]:53", false},
		{every, "[64:ff9b::7f00:1]:53", false},
		{every, "[64:ff9b::c000:207]:53", false},
		{every, "[64:ff9b::c000:208]:53", true},
		{every, "0.0.0.0:53", false},
		{every, "0.1.2.3:53", false},
		{every, "[::]:53", false},
		{every, "224.0.0.1:53", false},
		{every, "[ff02::1]:53", false},
		{every, "255.255.255.255:53", false},
		{one("127.0.0.0/8", 53, 53), "127.0.0.1:53", true},
		{one("127.0.0.0/8", 53, 53), "127.0.0.1:54", false},
		{one("::1/128", 1, 99), "[::1]:53", true},
		{one("126.0.0.0/7", 53, 53), "127.0.0.1:53", false},
		{one("169.254.0.0/16", 80, 80), "169.254.169.254:80", true},
		{one("192.0.2.7/32", 53, 53), "192.0.2.7:53", true},
		{one("192.0.2.6/31", 53, 53), "192.0.2.7:53", false},
		{one("192.0.2.0/24", 50, 60), "192.0.2.8:50", true},
		{one("192.0.2.0/24", 50, 60), "192.0.2.8:61", false},
		{one("192.0.2.0/24", 50, 60), "192.0.3.8:50", false},
		{nil, "192.0.2.8:53", false},
	} {
		if err := permits(c.targets, netip.MustParseAddrPort(c.to), own); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrDenied) {
			t.Errorf("%v to %s: %v, want permitted: %v", c.targets, c.to, err, c.ok)
		}
	}
}

func loopback(tunnels int) (*Service, *Counts) {
	c := &Counts{}
	return NewService(Options{Targets: []Target{{netip.MustParsePrefix("127.0.0.0/8"), 1, 65535}}, Tunnels: tunnels}, c), c
}

func TestATunnelRelays(t *testing.T) {
	s, counts := loopback(1)
	at := testport.EchoUDP(t).AddrPort()
	tunnel, err := s.Open(context.Background(), at.Addr().String(), at.Port())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(context.Background(), at.Addr().String(), at.Port()); !errors.Is(err, ErrFull) {
		t.Errorf("a second tunnel: %v", err)
	}
	woken := make(chan bool, 16)
	tunnel.Start(func() { woken <- true })
	for _, p := range [][]byte{[]byte("hello"), {}, bytes.Repeat([]byte("x"), 9000)} {
		tunnel.Send(p)
		<-woken
		if list, err := tunnel.Take(); len(list) != 1 || !bytes.Equal(list[0], p) || err != nil {
			t.Errorf("%d datagrams, %v, want one of %d bytes", len(list), err, len(p))
		}
	}
	tunnel.Send(make([]byte, mostPayload+1))
	if counts.Sent.Load() != 3 || counts.Received.Load() != 3 || counts.Dropped.Load() != 1 || counts.ReceivedBytes.Load() != 9005 {
		t.Errorf("%d sent, %d received, %d dropped", counts.Sent.Load(), counts.Received.Load(), counts.Dropped.Load())
	}
	tunnel.Close()
	tunnel.Close()
	if counts.Open.Load() != 0 || counts.Full.Load() != 1 || counts.Opened.Load() != 1 {
		t.Errorf("%d open, %d full, %d opened", counts.Open.Load(), counts.Full.Load(), counts.Opened.Load())
	}
}

// A name leads to the address that was checked: those that are denied are passed over, and all of them deny it.
func TestNamesOfTargets(t *testing.T) {
	at := testport.EchoUDP(t).AddrPort()
	s, counts := loopback(9)
	for _, c := range []struct {
		list []string
		err  error
	}{
		{[]string{"127.0.0.1"}, nil},
		{[]string{"192.0.2.1", "127.0.0.1"}, nil},
		{[]string{"192.0.2.1", "169.254.169.254"}, ErrDenied},
		{nil, ErrResolve},
	} {
		s.Resolve = func(_ context.Context, host string) (list []netip.Addr, err error) {
			for _, a := range c.list {
				list = append(list, netip.MustParseAddr(a))
			}
			return list, nil
		}
		tunnel, err := s.Open(context.Background(), "target.example", at.Port())
		if !errors.Is(err, c.err) || err == nil && tunnel.Target != at {
			t.Errorf("%v: %v, want %v", c.list, err, c.err)
		}
		if tunnel != nil {
			tunnel.Close()
		}
	}
	if counts.Open.Load() != 0 || counts.Denied.Load() != 1 || counts.Failed.Load() != 1 {
		t.Errorf("%d open, %d denied, %d failed", counts.Open.Load(), counts.Denied.Load(), counts.Failed.Load())
	}
}

// A target without a listener ends no tunnel, and the next datagram reaches it once it has one.
func TestATargetThatIsNotThere(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	at := c.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = c.Close()
	s, _ := loopback(1)
	tunnel, err := s.Open(context.Background(), "127.0.0.1", at.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	tunnel.Start(func() {})
	tunnel.Send([]byte("lost"))
	c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Skip("the port was taken meanwhile: ", err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make(chan string, 1)
	go func() {
		b := make([]byte, 100)
		n, _ := c.Read(b)
		got <- string(b[:n])
	}()
	for range 100 {
		tunnel.Send([]byte("again"))
		select {
		case s := <-got:
			if s != "again" {
				t.Errorf("the target has %q", s)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Error("nothing reaches the target")
}

func FuzzParsePath(f *testing.F) {
	f.Add(Prefix + "192.0.2.1/53/")
	f.Fuzz(func(t *testing.T, path string) {
		host, port, err := ParsePath(path)
		if err == nil && (host == "" || port == 0 || len(host) > 253) {
			t.Errorf("%q: %q %d", path, host, port)
		}
	})
}
