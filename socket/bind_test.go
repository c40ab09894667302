package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/udp"
)

// The second addresses of the host that the tests of this file bind to.
const (
	addrB2  = "198.18.0.22"
	addrB62 = "2001:db8::22"
)

// bound is a listener or an unconnected UDP socket.
type bound interface{ Close() error }

// bindings are the sockets of one kind of host: the kernel's or ours.
type bindings interface {
	bind(network, addr string, share bool) (bound, error)
	// probe returns the index of the socket that gets what is sent to addr, or why none does.
	probe(network, addr string, sockets []bound) string
}

// ownBindings are the sockets of stack b of a testbed.
type ownBindings struct{ x *testbed }

func (o ownBindings) bind(network, addr string, share bool) (bound, error) {
	cfg := &ListenConfig{
		TCPOptions: func(o *TCPOptions) { o.Share = share },
		UDPOptions: func(o *UDPOptions) { o.Share = share },
	}
	if strings.HasPrefix(network, "udp") {
		return o.x.b.ListenPacketWith(context.Background(), cfg, network, addr)
	}
	return o.x.b.ListenWith(context.Background(), cfg, network, addr)
}

func (o ownBindings) probe(network, addr string, sockets []bound) string {
	return probe(o.x.a.Dial, network[:3], addr, sockets)
}

// kernelBindings are sockets of package net in a namespace.
type kernelBindings struct {
	ns     *testnet.Namespace
	reuses bool // dialers always set SO_REUSEADDR
}

func (k kernelBindings) bind(network, addr string, share bool) (b bound, err error) {
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if share {
			e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
			err = errors.Join(err, e)
		}
		return err
	}}
	err = k.ns.Do(func() (err error) {
		if strings.HasPrefix(network, "udp") {
			b, err = cfg.ListenPacket(context.Background(), network, addr)
		} else {
			b, err = cfg.Listen(context.Background(), network, addr)
		}
		return err
	})
	return b, err
}

func (k kernelBindings) probe(network, addr string, sockets []bound) (got string) {
	_ = k.ns.Do(func() error {
		got = probe(net.Dial, network[:3], addr, sockets)
		return nil
	})
	return got
}

// probeTime is how long a probe waits. A socket gets what is sent, or the sender an error, long before on an idle machine.
const probeTime = 20 * time.Second

// probe sends to addr and asks each socket whether it has got something.
func probe(dial func(network, addr string) (net.Conn, error), network, addr string, sockets []bound) string {
	c, err := dial(network, addr)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = c.Write([]byte("x"))
	udp := network == "udp"
	for end := time.Now().Add(probeTime); time.Now().Before(end); {
		for i, s := range sockets {
			if took(s) {
				return fmt.Sprint(i)
			}
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); udp && errors.Is(err, syscall.ECONNREFUSED) {
			return "refused"
		}
	}
	return "lost"
}

// took reports whether a connection or a datagram has come.
func took(s bound) bool {
	soon := time.Now().Add(200 * time.Microsecond)
	if p, ok := s.(net.PacketConn); ok {
		_ = p.SetReadDeadline(soon)
		_, _, err := p.ReadFrom(make([]byte, 10))
		return err == nil
	}
	l := s.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	_ = l.SetDeadline(soon)
	c, err := l.Accept()
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// TestBindConflictsAreThoseOfLinux binds every pair of scopes, with and without sharing, to the kernel's
// sockets and to ours, and compares which are rejected and which socket gets what is sent to each address.
func TestBindConflictsAreThoseOfLinux(t *testing.T) {
	n := testnet.For(t, "mr-bind")
	ns := n.Namespace("host")
	for _, args := range []string{
		"link set lo up", "addr add " + addrB + "/24 dev lo", "addr add " + addrB2 + "/24 dev lo",
		"addr add " + addrB6 + "/64 dev lo nodad", "addr add " + addrB62 + "/64 dev lo nodad",
	} {
		if out, err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatal(out, err)
		}
	}
	awaitRoutes(t, ns, addrB6, addrB62)
	x := newTestbed(t, testbedConfig{loops: 2})
	for _, p := range []string{addrB2 + "/24", addrB62 + "/64"} {
		if err := x.b.group.AddAddr(0, netip.MustParsePrefix(p), ip.Static, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.b.group.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	kernel, own := kernelBindings{ns: ns}, ownBindings{x}
	port := 5000
	for _, proto := range []string{"tcp", "udp"} {
		scopes := scopesOf(proto)
		for _, first := range scopes {
			for _, second := range scopes {
				for share := range 4 {
					port++
					want := try(kernel, first, second, share, port)
					if got := try(own, first, second, share, port); got != want {
						t.Errorf("%s %s, then %s %s, shared by %02b: %s; the kernel %s",
							first.network, first.host, second.network, second.host, share, got, want)
					}
				}
			}
		}
	}
}

// awaitRoutes waits until the kernel has the routes of IPv6 addresses of a namespace: it adds them later, also without
// duplicate address detection.
func awaitRoutes(t *testing.T, ns *testnet.Namespace, addrs ...string) {
	for _, addr := range addrs {
		var err error
		for end := time.Now().Add(probeTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
			err = ns.Do(func() error {
				c, err := net.Dial("udp", net.JoinHostPort(addr, "9"))
				if err == nil {
					c.Close()
				}
				return err
			})
			if err == nil {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// scope is a network with the address to bind to.
type scope struct{ network, host string }

func scopesOf(proto string) []scope {
	return []scope{
		{proto, ""},
		{proto + "4", ""},
		{proto + "6", ""},
		{proto + "4", addrB},
		{proto + "4", addrB2},
		{proto + "6", addrB6},
		{proto + "6", addrB62},
		{proto, "::ffff:" + addrB},
	}
}

// try binds two sockets, the first and the second with bits 0 and 1 of share, and says what came of it.
func try(b bindings, first, second scope, share, port int) string {
	at := func(host string) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
	a, err := b.bind(first.network, at(first.host), share&1 != 0)
	if err != nil {
		return "rejects the first: " + err.Error()
	}
	defer a.Close()
	c, err := b.bind(second.network, at(second.host), share&2 != 0)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "rejects the second"
	}
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, v4 := strings.CutPrefix(first.host, "::ffff:")
	switch {
	case first == second, v4 && second.host == addrB, first.host == addrB && strings.HasPrefix(second.host, "::ffff:"):
		return "takes both" // of one scope: a hash of the flow chooses
	case first.host == "" && second.host == "" && !strings.HasSuffix(first.network, "4") && !strings.HasSuffix(second.network, "4"):
		return "takes both" // Linux takes the earlier of :: for both versions and :: for IPv6 alone, we the latter
	}
	got := "takes both; receivers"
	for _, host := range []string{addrB, addrB2, addrB6} {
		got += fmt.Sprint(" ", b.probe(first.network, at(host), []bound{a, c}))
	}
	return got
}

// TestDialTakesEveryPortOfEveryLoop dials UDP from two loops, of which one owns two of three ports and the
// other one: dialing from the loops in turn is not enough.
func TestDialTakesEveryPortOfEveryLoop(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2, udp: udp.Config{PortFirst: 60000, PortLast: 60002}})
	for peer := range 16 {
		to := net.JoinHostPort(addrB, fmt.Sprint(1000+17*peer))
		seen := map[string]bool{}
		for range 3 {
			c, err := x.a.Dial("udp", to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			seen[c.LocalAddr().String()] = true
		}
		if len(seen) != 3 {
			t.Errorf("%d ports of 3", len(seen))
		}
		_, err := x.a.Dial("udp", to)
		checkOpError(t, err, "dial", syscall.EADDRNOTAVAIL)
	}
}

// reuse is what the program allows others that bind to its address and port.
type reuse uint8

const (
	noReuse   reuse = iota // as dialers of package net
	reuseAddr              // SO_REUSEADDR, as listeners of package net
	reusePort              // SO_REUSEADDR and SO_REUSEPORT: Share
)

// dialFrom dials TCP from a local address. The stack has no SO_REUSEADDR: it does without what the option is for.
func (o ownBindings) dialFrom(local, remote string, r reuse) (net.Conn, error) {
	d := &Dialer{Local: netip.MustParseAddrPort(local), TCPOptions: func(o *TCPOptions) { o.Share = r == reusePort }}
	return o.x.b.DialWith(context.Background(), d, "tcp", remote)
}

func (k kernelBindings) dialFrom(local, remote string, r reuse) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local)), Control: func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			if r >= reuseAddr || k.reuses {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
			if r >= reusePort {
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			}
		})
		return errors.Join(err, e)
	}}
	err = k.ns.Do(func() (err error) {
		c, err = d.Dial("tcp", remote)
		return err
	})
	return c, err
}

// dialBindings are bindings that also dial.
type dialBindings interface {
	bindings
	dialFrom(local, remote string, r reuse) (net.Conn, error)
}

// TestDialsFromOnePortAreThoseOfLinux dials from a port that connections and listeners have, to one destination and
// to several, and compares the errors with those of the kernel's sockets with SO_REUSEADDR, which package net sets
// on listeners and a Control function on dialers. It also names the cases in which that option decides.
func TestDialsFromOnePortAreThoseOfLinux(t *testing.T) {
	n := testnet.For(t, "mr-dialbind")
	ns := n.Namespace("host")
	for _, args := range []string{
		"link set lo up", "addr add " + addrA + "/32 dev lo", "addr add " + addrB + "/24 dev lo", "addr add " + addrB2 + "/24 dev lo",
	} {
		if out, err := ns.Run("ip", strings.Fields(args)...); err != nil {
			t.Fatal(out, err)
		}
	}
	x := newTestbed(t, testbedConfig{loops: 2})
	if err := x.b.group.AddAddr(0, netip.MustParsePrefix(addrB2+"/24"), ip.Static, true); err != nil {
		t.Fatal(err)
	}
	if err := x.b.group.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	const to, to2 = addrA + ":80", addrA + ":81"
	for _, at := range []string{to, to2} {
		l, err := x.a.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		k, err := kernelBindings{ns: ns}.bind("tcp", at, false)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
	}
	const at = addrB + ":7000"
	type step = func(b dialBindings) (bound, error)
	dial := func(remote string, r reuse) step {
		return func(b dialBindings) (bound, error) { return b.dialFrom(at, remote, r) }
	}
	listen := func(local string, share bool) step {
		return func(b dialBindings) (bound, error) { return b.bind("tcp", local, share) }
	}
	for _, tc := range []struct {
		name   string
		steps  []step
		differ bool // the kernel keeps others from a port without SO_REUSEADDR, which a dialer here always has
	}{
		{"one destination twice", []step{dial(to, reuseAddr), dial(to, reuseAddr)}, false},
		{"one destination twice, shared", []step{dial(to, reusePort), dial(to, reusePort)}, false},
		{"two destinations", []step{dial(to, reuseAddr), dial(to2, reuseAddr)}, false},
		{"listen beside", []step{dial(to, reuseAddr), listen(at, false)}, false},
		{"listen beside at all addresses", []step{dial(to, reuseAddr), listen(":7000", false)}, false},
		{"from where a listener is", []step{listen(at, false), dial(to, reuseAddr)}, false},
		{"from where a listener at all addresses is", []step{listen(":7000", false), dial(to, reuseAddr)}, false},
		{"from where a listener at another address is", []step{listen(addrB2+":7000", false), dial(to, reuseAddr)}, false},
		{"from where a listener shares", []step{listen(at, true), dial(to, reusePort)}, false},
		{"from where a listener would share", []step{listen(at, true), dial(to, reuseAddr)}, false},
		{"sharing from where a listener does not", []step{listen(at, false), dial(to, reusePort)}, false},
		{"none: one destination twice", []step{dial(to, noReuse), dial(to, noReuse)}, true},
		{"none: two destinations", []step{dial(to, noReuse), dial(to2, noReuse)}, true},
		{"none: after one that reuses", []step{dial(to, reuseAddr), dial(to2, noReuse)}, true},
		{"none: before one that reuses", []step{dial(to, noReuse), dial(to2, reuseAddr)}, true},
		{"none: before one that shares", []step{dial(to, noReuse), dial(to2, reusePort)}, true},
		{"none: listen beside", []step{dial(to, noReuse), listen(at, false)}, true},
		{"none: listen beside, sharing", []step{dial(to, noReuse), listen(at, true)}, true},
		{"none: listen beside at all addresses", []step{dial(to, noReuse), listen(":7000", false)}, true},
		{"none: listen beside at another address", []step{dial(to, noReuse), listen(addrB2+":7000", false)}, false},
		{"none: from where a listener is", []step{listen(at, false), dial(to, noReuse)}, false},
		{"none: from where a listener shares", []step{listen(at, true), dial(to, noReuse)}, false},
		{"none: from where a listener at all addresses is", []step{listen(":7000", false), dial(to, noReuse)}, false},
		{"none: from where a listener at another address is", []step{listen(addrB2+":7000", false), dial(to, noReuse)}, false},
	} {
		play := func(b dialBindings) (results string) {
			for _, step := range tc.steps {
				s, err := step(b)
				if err != nil {
					var call *os.SyscallError
					errors.As(err, &call)
					return results + fmt.Sprint(call)
				}
				results += "ok, "
				defer reset(s)
			}
			return results
		}
		strict, want := play(kernelBindings{ns: ns}), play(kernelBindings{ns: ns, reuses: true})
		if (strict != want) != tc.differ {
			t.Errorf("%s: the kernel: %s; with SO_REUSEADDR %s", tc.name, strict, want)
		}
		if got := play(ownBindings{x}); got != want {
			t.Errorf("%s: %s; the kernel: %s", tc.name, got, want)
		}
	}
}

// reset closes a socket without TIME-WAIT.
func reset(s bound) {
	if c, ok := s.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = s.Close()
}
