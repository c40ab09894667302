package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// answers serves datagrams: f returns the answer, nil for none.
func answers(t *testing.T, f func(q string) []byte) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if a := f(string(buf[:n])); a != nil {
				c.WriteTo(a, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

func TestADatagramIsAnswered(t *testing.T) {
	echo := answers(t, func(q string) []byte { return []byte("<" + q + ">") })
	empty := answers(t, func(string) []byte { return []byte{} })
	mute := answers(t, func(string) []byte { return nil })
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		name, at string
		udp      UDP
		want     string
	}{
		{"any answer", echo, UDP{}, ""},
		{"an empty one", empty, UDP{}, ""},
		{"the right one", echo, UDP{Expect: []byte("ing>")}, ""},
		{"a wrong one", echo, UDP{Expect: []byte("pong")}, `wrong answer: the datagram (6 bytes) lacks "pong"`},
		{"what is behind the answer is none of it", echo, UDP{Expect: []byte(">\x00")}, "wrong answer"},
		{"a wrong one is no silence", echo, UDP{Expect: []byte("pong"), Silence: SilenceSuccess}, "wrong answer"},
		{"none", mute, UDP{}, "no answer within 100ms"},
		{"none, and that is well", mute, UDP{Silence: SilenceSuccess}, ""},
		{"an answer where none is needed", echo, UDP{Silence: SilenceSuccess}, ""},
		{"unreachable", closed.LocalAddr().String(), UDP{}, "connection refused"},
		{"unreachable is no silence", closed.LocalAddr().String(), UDP{Silence: SilenceSuccess}, "connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := New()
			check.Type, check.UDP = TypeUDP, c.udp
			check.UDP.Send = []byte("ping")
			check.Timeout = 10 * time.Second
			if c.at == mute {
				check.Timeout = 100 * time.Millisecond
			}
			expect(t, once(t, check, c.at), c.want)
		})
	}
}

// A stranger's datagram to our port is not an answer.
func TestOnlyTheTargetAnswers(t *testing.T) {
	stranger, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		buf := make([]byte, 10)
		if _, from, err := c.ReadFrom(buf); err == nil {
			stranger.WriteTo([]byte("here"), from)
		}
	}()
	check := New()
	check.Type, check.UDP.Send, check.Timeout = TypeUDP, []byte("ping"), 200*time.Millisecond
	if err := once(t, check, c.LocalAddr().String()); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

func TestStoppingEndsASilentProbe(t *testing.T) {
	check := New()
	check.Type, check.UDP = TypeUDP, UDP{Send: []byte("x"), Silence: SilenceSuccess}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	at := answers(t, func(string) []byte { return nil })
	if err := newProbe(check, nil)(ctx, Target{At: netip.MustParseAddrPort(at)}); err == nil {
		t.Error("a probe that was broken off is a success")
	}
}

// The kernel is the oracle. Two hosts have the same address: by routes a probe gets to the one that
// answers, by its device to the other, which refuses. A host that is not there at all is heard of
// by ARP, though the socket is UDP's and no answer would be a success.
func TestProbesLeaveByTheirDeviceAndHearOfHostsThatAreGone(t *testing.T) {
	n := testnet.For(t, "hlth")
	us, good, bad := n.Namespace("us"), n.Namespace("good"), n.Namespace("bad")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.Link(us, "u0", good, "g0"))
	must(n.Link(us, "u1", bad, "b0"))
	must(us.Up("u0", "198.18.70.1/24", "2001:db8:70::1/64"))
	must(us.Up("u1", "198.18.71.1/16", "2001:db8:71::1/32"))
	for _, ns := range []*testnet.Namespace{good, bad} {
		must(ns.Up(map[*testnet.Namespace]string{good: "g0", bad: "b0"}[ns], "198.18.70.2/16", "2001:db8:70::2/32"))
	}
	must(us.Sysctl("net.ipv4.neigh.u0.retrans_time_ms", "100"))
	must(us.Sysctl("net.ipv6.neigh.u0.retrans_time_ms", "100"))
	must(good.Do(func() error {
		c, err := net.ListenPacket("udp", "[::]:7")
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		go echo(c)
		return nil
	}))
	for _, c := range []struct{ name, at, device, want string }{
		{"by routes", "198.18.70.2:7", "", ""},
		{"by routes, IPv6", "[2001:db8:70::2]:7", "", ""},
		{"by a device", "198.18.70.2:7", "u1", "connection refused"},
		{"by a device, IPv6", "[2001:db8:70::2]:7", "u1", "connection refused"},
		{"by one that is not there", "198.18.70.2:7", "u2", "bind to u2: no such device"},
		{"nobody has the address", "198.18.70.3:7", "", "no route to host"},
		{"nobody has the address, IPv6", "[2001:db8:70::3]:7", "", "no route to host"},
	} {
		check := New()
		check.Type, check.Device, check.Timeout = TypeUDP, c.device, 20*time.Second
		check.UDP = UDP{Send: []byte("x"), Silence: SilenceSuccess}
		t.Run(c.name, func(t *testing.T) {
			must(us.Do(func() error {
				expect(t, once(t, check, c.at), c.want)
				return nil
			}))
		})
	}
}

// echo sends back what comes, until c is closed.
func echo(c net.PacketConn) {
	buf := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		c.WriteTo(buf[:n], from)
	}
}
