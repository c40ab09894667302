package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
)

// options returns the options in force of a connection.
func options(t *testing.T, c *TCPConn) (got TCPOptions) {
	t.Helper()
	if err := c.SetOptions(func(o *TCPOptions) { got = *o }); err != nil {
		t.Fatal(err)
	}
	return got
}

// dialWith connects a to a new listener of b and returns both ends.
func (x *testbed) dialWith(t *testing.T, d *Dialer, lc *ListenConfig) (client, server *TCPConn) {
	t.Helper()
	l, err := x.b.ListenWith(t.Context(), lc, "tcp", addrB+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := x.a.DialWith(t.Context(), d, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*TCPConn), s
}

// TestOptionsStartFromDefaults sets one option and expects all others as the stack has them.
func TestOptionsStartFromDefaults(t *testing.T) {
	defaults := tcp.Options{Congestion: "reno", ECN: tcp.ECNOff, UserTimeout: time.Minute}
	x := newTestbed(t, testbedConfig{tcp: tcp.Config{Defaults: defaults}})
	bbr := func(o *TCPOptions) { o.Congestion = "bbr" }
	c, s := x.dialWith(t, &Dialer{TCPOptions: bbr}, &ListenConfig{TCPOptions: bbr})
	usual, _ := x.pair(t)
	want := options(t, usual)
	if !want.NoDelay || want.UserTimeout != time.Minute {
		t.Errorf("defaults %+v, want NoDelay and those of the stack", want)
	}
	want.Congestion = "bbr"
	for _, c := range []*TCPConn{c, s} {
		if got := options(t, c); got != want {
			t.Errorf("options %+v, want %+v", got, want)
		}
	}
}

// TestUDPOptions sets options of a connected and of an unconnected socket.
func TestUDPOptions(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	set := func(o *UDPOptions) { o.TOS = 0x20 }
	c, err := x.a.DialWith(t.Context(), &Dialer{UDPOptions: set}, "udp", addrB+":1")
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.a.ListenPacketWith(t.Context(), &ListenConfig{UDPOptions: set}, "udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*UDPConn{c.(*UDPConn), p} {
		var got udp.Options
		if err := c.SetOptions(func(o *UDPOptions) { got = *o }); err != nil || got != (udp.Options{TOS: 0x20, Broadcast: true}) {
			t.Errorf("options %+v, %v", got, err)
		}
	}
}

// TestBindToForeignAddress uses local addresses that the stack does not have.
func TestBindToForeignAddress(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	for _, c := range []struct{ network, local, remote string }{
		{"tcp", "198.18.0.77", addrB},
		{"tcp4", "192.0.2.1", addrB},
		{"tcp", addrB, addrB},
		{"tcp6", "2001:db8::77", addrB6},
		{"udp", "198.18.0.77", addrB},
		{"udp6", "2001:db8::77", addrB6},
	} {
		local := net.JoinHostPort(c.local, "0")
		d := Dialer{Local: netip.MustParseAddrPort(local), Timeout: 5 * time.Second}
		_, err := x.a.DialWith(t.Context(), &d, c.network, net.JoinHostPort(c.remote, "9"))
		notAvailable(t, err, "dial")
		var e *net.OpError
		if errors.As(err, &e) && (e.Source == nil || e.Source.String() != local) {
			t.Errorf("%s from %s: source %v", c.network, local, e.Source)
		}
		if c.network[:3] == "tcp" {
			_, err = x.a.Listen(c.network, local)
		} else {
			_, err = x.a.ListenPacket(c.network, local)
		}
		notAvailable(t, err, "listen")
	}
	_, err := x.a.Listen("tcp", "239.1.2.3:1")
	notAvailable(t, err, "listen")
	_ = x.a.group.Each(func(_ clock.Time, h *host.Host) error {
		if n := h.TCP.Stats().ActiveOpens; n != 0 {
			t.Errorf("%d SYNs left from addresses of others", n)
		}
		return nil
	})
	x.checkEmpty(t)
}

// notAvailable checks that err is what package net returns for an address of another host.
func notAvailable(t *testing.T, err error, name string) {
	t.Helper()
	checkOpError(t, err, name, syscall.EADDRNOTAVAIL)
	var call *os.SyscallError
	if !errors.As(err, &call) || call.Syscall != "bind" {
		t.Errorf("%v, want an error of bind", err)
	}
}

// TestBindToOwnAddress uses every kind of local address that is allowed.
func TestBindToOwnAddress(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	for _, c := range []struct {
		network, local string
		freeBind       bool
	}{
		{"udp", addrA, false},
		{"udp", addrA6, false},
		{"udp", "127.0.0.1", false},
		{"udp", "::1", false},
		{"udp", "0.0.0.0", false},
		{"udp", "::", false},
		{"udp", "239.1.2.3", false},
		{"udp", "ff02::99", false},
		{"udp", "198.18.0.255", false},
		{"udp", "255.255.255.255", false},
		{"udp", "192.0.2.1", true},
		{"tcp", addrA, false},
		{"tcp", addrA6, false},
		{"tcp", "127.0.0.1", false},
		{"tcp", "::1", false},
		{"tcp", "192.0.2.1", true},
	} {
		at := net.JoinHostPort(c.local, "0")
		var s interface{ Close() error }
		var err error
		if lc := (&ListenConfig{FreeBind: c.freeBind}); c.network == "tcp" {
			s, err = x.a.ListenWith(t.Context(), lc, c.network, at)
		} else {
			s, err = x.a.ListenPacketWith(t.Context(), lc, c.network, at)
		}
		if err != nil {
			t.Errorf("%s %s: %v", c.network, at, err)
			continue
		}
		_ = s.Close()
	}
	d := Dialer{Local: netip.MustParseAddrPort(addrA + ":0")}
	if c, err := x.a.DialWith(t.Context(), &d, "udp", addrB+":9"); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}

// netKeepAlive is the keepalive of a connection of package net by default.
var netKeepAlive = tcp.KeepAlive{Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 9}

// TestKeepAliveAsNet holds the fields of Dialer and ListenConfig against their meaning in package net.
func TestKeepAliveAsNet(t *testing.T) {
	custom := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: 2 * time.Second, Count: 3}
	for _, c := range []struct {
		name   string
		period time.Duration
		config net.KeepAliveConfig
		want   tcp.KeepAlive
	}{
		{"zero", 0, net.KeepAliveConfig{}, netKeepAlive},
		{"period", time.Minute, net.KeepAliveConfig{}, tcp.KeepAlive{Idle: time.Minute, Interval: 15 * time.Second, Count: 9}},
		{"negative", -1, net.KeepAliveConfig{}, tcp.KeepAlive{}},
		{"config", -1, custom, tcp.KeepAlive{Idle: time.Second, Interval: 2 * time.Second, Count: 3}},
		{"config of zeros", 0, net.KeepAliveConfig{Enable: true}, netKeepAlive},
		{"config of negatives", 0, net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}, netKeepAlive},
		{"config not enabled", time.Minute, net.KeepAliveConfig{Idle: 1}, tcp.KeepAlive{Idle: time.Minute, Interval: 15 * time.Second, Count: 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTestbed(t, testbedConfig{})
			client, server := x.dialWith(t,
				&Dialer{KeepAlive: c.period, KeepAliveConfig: c.config},
				&ListenConfig{KeepAlive: c.period, KeepAliveConfig: c.config})
			for _, conn := range []*TCPConn{client, server} {
				if got := options(t, conn).KeepAlive; got.Idle != c.want.Idle || got.Idle != 0 && got != c.want {
					t.Errorf("keepalive %+v, want %+v", got, c.want)
				}
			}
		})
	}
}

// TestKeepAliveOfTheStack has defaults of its own, and none.
func TestKeepAliveOfTheStack(t *testing.T) {
	own := tcp.KeepAlive{Idle: time.Minute, Interval: time.Second, Count: 2}
	x := newTestbed(t, testbedConfig{tcp: tcp.Config{Defaults: tcp.Options{KeepAlive: own}}, keepAlive: -1})
	c, _ := x.pair(t)
	if got := options(t, c).KeepAlive; got != own {
		t.Errorf("keepalive %+v, want the options' %+v", got, own)
	}
	c, _ = x.dialWith(t, &Dialer{KeepAlive: time.Hour}, &ListenConfig{})
	if got := options(t, c).KeepAlive; got != (tcp.KeepAlive{Idle: time.Hour, Interval: 15 * time.Second, Count: 9}) {
		t.Errorf("keepalive %+v, want the Dialer's", got)
	}
	x = newTestbed(t, testbedConfig{keepAlive: -1})
	c, _ = x.pair(t)
	if got := options(t, c).KeepAlive; got.Idle != 0 {
		t.Errorf("keepalive %+v, want none", got)
	}
}

// TestSetKeepAlive calls the setters of a connection as programs do on a *net.TCPConn.
func TestSetKeepAlive(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	const sec = time.Second
	check := func(what string, err error, want tcp.KeepAlive) {
		t.Helper()
		if got := options(t, c).KeepAlive; got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	check("period", c.SetKeepAlivePeriod(20*sec), tcp.KeepAlive{Idle: 20 * sec, Interval: 15 * sec, Count: 9})
	check("on again", c.SetKeepAlive(true), tcp.KeepAlive{Idle: 20 * sec, Interval: 15 * sec, Count: 9})
	check("config", c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: sec, Interval: -1, Count: 4}),
		tcp.KeepAlive{Idle: sec, Interval: 15 * sec, Count: 4})
	if err := c.SetKeepAlive(false); err != nil || options(t, c).KeepAlive.Idle != 0 {
		t.Errorf("off: %+v, %v", options(t, c).KeepAlive, err)
	}
	check("on", c.SetKeepAlive(true), tcp.KeepAlive{Idle: sec, Interval: 15 * sec, Count: 4})
	if err := c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: false, Idle: 7 * sec}); err != nil || options(t, c).KeepAlive.Idle != 0 {
		t.Errorf("config off: %+v, %v", options(t, c).KeepAlive, err)
	}
	check("on after config", c.SetKeepAlive(true), tcp.KeepAlive{Idle: 7 * sec, Interval: 15 * sec, Count: 9})
	_ = c.Close()
	checkOpError(t, c.SetKeepAlive(true), "set", net.ErrClosed)
}

// TestKeepAliveProbes sees a probe on an idle connection.
func TestKeepAliveProbes(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	idle := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Millisecond, Interval: 10 * time.Millisecond}
	c, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := x.a.DialWith(context.Background(), &Dialer{KeepAliveConfig: idle}, "tcp", addrB+":80"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no probe was sent", func() (sent bool) {
		_ = x.a.group.Each(func(_ clock.Time, h *host.Host) error {
			sent = sent || h.TCP.Stats().KeepAlive > 0
			return nil
		})
		return sent
	})
}

// TestOptionErrorsAsPackageNet compares the errors of a bad option with that of package net, in their fields.
func TestOptionErrorsAsPackageNet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	shape := func(err error) string {
		o, call := new(net.OpError), new(os.SyscallError)
		if !errors.As(err, &o) || !errors.As(err, &call) {
			return fmt.Sprintf("%#v", err)
		}
		return fmt.Sprint(o.Op, o.Net, o.Source != nil, o.Addr != nil, call.Syscall, call.Err)
	}
	tooLong := 40000 * time.Second // TCP_KEEPIDLE takes 32767
	want := shape(k.(*net.TCPConn).SetKeepAlivePeriod(tooLong))
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	for what, err := range map[string]error{
		"SetOption":  c.SetOption(OptKeepIdle, 40000),
		"SetOptions": c.SetOptions(func(o *TCPOptions) { o.MSS = -1 }),
	} {
		if got := shape(err); got != want {
			t.Errorf("%s: %s, package net: %s", what, got, want)
		}
	}
	own, err := x.b.Listen("tcp", addrB+":81")
	if err != nil {
		t.Fatal(err)
	}
	err = own.(*Listener).SetOption(OptKeepIdle, 40000)
	checkOpError(t, err, "set", syscall.EINVAL)
}

// TestKeepIntervalDefault is the documentation of OptKeepInterval.
func TestKeepIntervalDefault(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 15, time.Minute: 15, -1: 75} {
		x := newTestbed(t, testbedConfig{keepAlive: keep})
		c, _ := x.pair(t)
		if v, err := c.Option(OptKeepInterval); v != want || err != nil {
			t.Errorf("Config.KeepAlive %v: %d, %v, want %d", keep, v, err, want)
		}
	}
}

// TestHopLimitOfARouterLikeLinux: a connection without a hop limit of its own reads the one that a router advertised.
// The kernel has it in a sysctl, which a router advertisement sets as well.
func TestHopLimitOfARouterLikeLinux(t *testing.T) {
	ns := testnet.For(t, "mr-hops").Namespace("host")
	for _, args := range []string{"link set lo up", "addr add " + addrB6 + "/64 dev lo nodad"} {
		if out, err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatal(out, err)
		}
	}
	hops := func(c syscall.Conn) (v int) {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Error(err)
			return 0
		}
		if e := raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS) }); e != nil || err != nil {
			t.Error(e, err)
		}
		return v
	}
	var want []int
	if err := ns.Do(func() error {
		var cfg net.ListenConfig
		cfg.SetMultipathTCP(false) // such a socket does not have the option
		l, err := cfg.Listen(t.Context(), "tcp", net.JoinHostPort(addrB6, "0"))
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		for range 200 { // the kernel adds the route to its own address in the background
			if err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
			c, err = net.Dial("tcp", l.Addr().String())
		}
		if err != nil {
			return err
		}
		defer c.Close()
		want = append(want, hops(l.(syscall.Conn)), hops(c.(syscall.Conn)))
		if err := ns.Sysctl("net.ipv6.conf.lo.hop_limit", "37"); err != nil {
			return err
		}
		want = append(want, hops(l.(syscall.Conn)), hops(c.(syscall.Conn)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	x := newTestbed(t, testbedConfig{})
	l, err := x.b.Listen("tcp", net.JoinHostPort(addrB6, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := x.a.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := []int{hops(l.(syscall.Conn)), hops(c.(syscall.Conn))}
	for _, s := range []*Stack{x.a, x.b} {
		_ = s.group.Each(func(now clock.Time, h *host.Host) error {
			h.IP.Apply(now, &ip.Change{Kind: ip.LinkHops6, HopLimit: 37})
			return nil
		})
	}
	if got = append(got, hops(l.(syscall.Conn)), hops(c.(syscall.Conn))); !slices.Equal(got, want) {
		t.Errorf("listener, connection, and both after the advertisement: %d, the kernel's %d", got, want)
	}
}

// TestUnknownCongestionLikeLinux: the error is that of setsockopt(2).
func TestUnknownCongestionLikeLinux(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	want := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "none such")
	if want == nil {
		t.Fatal("the kernel takes it")
	}
	x := newTestbed(t, testbedConfig{})
	c, _ := x.pair(t)
	checkOpError(t, c.SetCongestion("none such"), "set", want)
	unknown := func(o *TCPOptions) { o.Congestion = "none such" }
	_, err = x.a.DialWith(t.Context(), &Dialer{TCPOptions: unknown}, "tcp", addrB+":80")
	checkOpError(t, err, "dial", want)
	_, err = x.a.ListenWith(t.Context(), &ListenConfig{TCPOptions: unknown}, "tcp", ":80")
	checkOpError(t, err, "listen", want)
	l, err := x.a.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	checkOpError(t, l.(*Listener).SetOptions(unknown), "set", want)
}

// TestMinTTLOfTheNetwork: what has passed more routers than a listener permits does not reach it (RFC 5082), over the network's path too.
func TestMinTTLOfTheNetwork(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	lc := &ListenConfig{TCPOptions: func(o *TCPOptions) { o.MinTTL = 200 }}
	client, server := x.dialWith(t, &Dialer{TCPOptions: func(o *TCPOptions) { o.TTL = 210 }}, lc)
	if err := client.SetOption(OptTTL, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("far")); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := server.Read(make([]byte, 10)); err == nil {
		t.Fatalf("%d bytes from afar", n)
	}
	if err := client.SetOption(OptTTL, 255); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Time{})
	if n, err := server.Read(make([]byte, 10)); n != 3 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
