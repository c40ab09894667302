package socket

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/udp"
)

func TestMulticast(t *testing.T) {
	for _, loops := range []int{1, 2} {
		testMulticast(t, testbedConfig{loops: loops})
	}
}

func testMulticast(t *testing.T, w testbedConfig) {
	x := newTestbed(t, w)
	group := netip.MustParseAddr("239.1.2.3")
	source := netip.MustParseAddr(addrA)
	b := x.listenPacket(t, x.b, "udp4", ":5", nil)
	a := x.listenPacket(t, x.a, "udp4", ":0", &udp.Options{MulticastInterface: 1, NoLoop: true})
	received := func() bool {
		if _, err := a.WriteToUDPAddrPort([]byte("all"), netip.AddrPortFrom(group, 5)); err != nil {
			t.Fatal(err)
		}
		_ = b.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, from, err := b.ReadFromUDPAddrPort(make([]byte, 10))
		return err == nil && from.Addr() == source
	}
	for _, c := range []struct {
		what string
		do   func() error
		want bool
	}{
		{"before", func() error { return nil }, false},
		{"joined", func() error { return b.Join(1, group, netip.Addr{}) }, true},
		{"source blocked", func() error { return b.Block(1, group, source) }, false},
		{"left", func() error { return b.Leave(1, group, netip.Addr{}) }, false},
		{"joined another source", func() error { return b.Join(1, group, netip.MustParseAddr(addrB)) }, false},
		{"joined the source", func() error { return b.Join(1, group, source) }, true},
		{"left the source", func() error { return b.Leave(1, group, source) }, false},
	} {
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := received(); got != c.want {
			t.Errorf("%s: received %v", c.what, got)
		}
	}
	checkOpError(t, b.Leave(1, group, source), "set", syscall.EADDRNOTAVAIL)
	checkOpError(t, b.Join(1, source, netip.Addr{}), "set", syscall.EINVAL)
}

func TestBroadcast(t *testing.T) {
	for _, loops := range []int{1, 2} {
		testBroadcast(t, testbedConfig{loops: loops})
	}
}

func testBroadcast(t *testing.T, w testbedConfig) {
	x := newTestbed(t, w)
	b := x.listenPacket(t, x.b, "udp4", ":5", nil)
	a := x.listenPacket(t, x.a, "udp4", ":0", nil)
	to := netip.MustParseAddrPort("198.18.0.255:5")
	_ = a.SetOptions(func(o *udp.Options) { o.Broadcast = false })
	_, err := a.WriteToUDPAddrPort([]byte("x"), to)
	checkOpError(t, err, "write", syscall.EACCES)
	_ = a.SetOptions(func(o *udp.Options) { o.Broadcast = true })
	if _, err := a.WriteToUDPAddrPort([]byte("all"), to); err != nil {
		t.Fatal(err)
	}
	receive := func(want string) {
		t.Helper()
		buf := make([]byte, 20)
		if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("%q, %v", buf[:n], err)
		}
	}
	receive("all")
	// Package net sets SO_BROADCAST on every UDP socket.
	for _, to := range []string{"198.18.0.255:5", "255.255.255.255:5"} {
		p, err := x.a.ListenPacket("udp4", ":0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WriteTo([]byte("unconnected"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		receive("unconnected")
		c, err := x.a.Dial("udp4", to)
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		if _, err := c.Write([]byte("connected")); err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		receive("connected")
	}
}

// TestMulticastLoops: the sockets of the sending host that are in the group get what it sends, unless the sender has NoLoop.
func TestMulticastLoops(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	for _, c := range []struct{ network, group string }{{"udp4", "224.1.1.1"}, {"udp6", "ff15::77"}} {
		in := x.listenPacket(t, x.a, c.network, ":0", nil)
		if err := in.Join(1, netip.MustParseAddr(c.group), netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(c.group), in.LocalAddr().(*net.UDPAddr).AddrPort().Port())
		for _, text := range []string{"not looped", "looped"} {
			out := x.listenPacket(t, x.a, c.network, ":0", &udp.Options{MulticastInterface: 1, NoLoop: text != "looped"})
			if _, err := out.WriteToUDPAddrPort([]byte(text), to); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 100)
		if err := in.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := in.ReadFromUDPAddrPort(buf); err != nil || string(buf[:n]) != "looped" {
			t.Errorf("%s: %q, %v", c.network, buf[:n], err)
		}
	}
}
