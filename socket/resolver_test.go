package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers queries for names of "example.test.", over UDP and TCP of one stack.
type nameServer struct {
	names        map[string][]netip.Addr
	truncate     bool // over UDP: the resolver then asks over TCP
	udp, tcp     atomic.Int32
	packets      net.PacketConn
	streams      net.Listener
	withoutReply bool
}

func serveNames(t *testing.T, s *Stack, v *nameServer) netip.AddrPort {
	t.Helper()
	var err error
	if v.packets, err = s.ListenPacket("udp", ":0"); err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.MustParseAddr(addrB), v.packets.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	if v.streams, err = s.Listen("tcp", at.String()); err != nil {
		t.Fatal(err)
	}
	go v.servePackets()
	go v.serveStreams()
	return at
}

func (v *nameServer) servePackets() {
	b := make([]byte, 1500)
	for {
		n, from, err := v.packets.ReadFrom(b)
		if err != nil {
			return
		}
		v.udp.Add(1)
		if !v.withoutReply {
			_, _ = v.packets.WriteTo(v.answer(b[:n], v.truncate), from)
		}
	}
}

func (v *nameServer) serveStreams() {
	for {
		c, err := v.streams.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			b := make([]byte, int(size[0])<<8|int(size[1]))
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			v.tcp.Add(1)
			a := v.answer(b, false)
			_, _ = c.Write(append([]byte{byte(len(a) >> 8), byte(len(a))}, a...))
		}()
	}
}

// answer returns the answer to a query (RFC 1035 4.1).
func (v *nameServer) answer(query []byte, truncate bool) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Additionals, m.Truncated = true, nil, truncate
	addrs, known := v.names[strings.TrimSuffix(q.Name.String(), ".")]
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}
		switch {
		case truncate:
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := m.Pack()
	return b
}

// TestDialResolvesNamesOverTheStack dials names that only a server behind the stack knows.
func TestDialResolvesNamesOverTheStack(t *testing.T) {
	for _, truncate := range []bool{false, true} {
		x := newTestbed(t, testbedConfig{loops: 2})
		v := &nameServer{truncate: truncate, names: map[string][]netip.Addr{
			"both.example.test": {netip.MustParseAddr(addrB), netip.MustParseAddr(addrB6)},
			"four.example.test": {netip.MustParseAddr(addrB)},
		}}
		at := serveNames(t, x.b, v)
		s := Attach(x.a.group, AttachConfig{NameServers: []netip.AddrPort{at}})
		serveEcho(t, x.b)
		for _, c := range []struct{ network, host string }{
			{"tcp", "both.example.test"}, {"tcp4", "both.example.test"}, {"tcp6", "both.example.test"}, {"tcp", "four.example.test"},
		} {
			conn, err := s.Dial(c.network, c.host+":7")
			if err != nil {
				t.Fatalf("%v: %v", c, err)
			}
			if is4 := conn.RemoteAddr().(*net.TCPAddr).IP.To4() != nil; c.network == "tcp4" != is4 && c.network != "tcp" {
				t.Errorf("%v: connected to %v", c, conn.RemoteAddr())
			}
			_ = conn.Close()
		}
		var e *net.DNSError
		if _, err := s.Dial("tcp", "no.example.test:7"); !errors.As(err, &e) || !e.IsNotFound {
			t.Errorf("a name that does not exist: %v", err)
		}
		if _, err := s.Dial("tcp6", "four.example.test:7"); err == nil {
			t.Error("tcp6 takes an IPv4 address")
		}
		if v.udp.Load() == 0 || truncate != (v.tcp.Load() > 0) {
			t.Errorf("%d queries over UDP, %d over TCP, truncated %v", v.udp.Load(), v.tcp.Load(), truncate)
		}
	}
}

// TestTheResolverAsksTheNextServer has a first server that does not exist.
func TestTheResolverAsksTheNextServer(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	at := serveNames(t, x.b, &nameServer{names: map[string][]netip.Addr{"x.example.test": {netip.MustParseAddr(addrB)}}})
	r := x.a.Resolver(netip.AddrPortFrom(at.Addr(), at.Port()-1), at)
	list, err := r.LookupNetIP(t.Context(), "ip4", "x.example.test")
	if err != nil || len(list) != 1 || list[0].Unmap() != netip.MustParseAddr(addrB) {
		t.Errorf("%v, %v", list, err)
	}
}

func addrPorts(list ...string) (out []netip.AddrPort) {
	for _, a := range list {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), 7))
	}
	return out
}

// TestAddressesAreTriedInTurn holds the order of attempts against RFC 8305 4: unusable ones last, versions
// of IP alternate.
func TestAddressesAreTriedInTurn(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	list := addrPorts("192.0.2.1", addrB6, "2001:db8::77", "198.18.0.3", addrB, "2001:db8:1::1", "192.0.2.2")
	want := addrPorts(addrB6, "198.18.0.3", "2001:db8::77", addrB, "192.0.2.1", "2001:db8:1::1", "192.0.2.2")
	got := x.a.order(&Dialer{}, list)
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("order %v, want %v", got, want)
		}
	}
}

// TestAnAddressThatDoesNotAnswerDelaysLittle dials a name whose first addresses no host has.
func TestAnAddressThatDoesNotAnswerDelaysLittle(t *testing.T) {
	t.Parallel()
	x := newTestbed(t, testbedConfig{loops: 2})
	serveEcho(t, x.b)
	names := map[string][]netip.Addr{}
	s := Attach(x.a.group, AttachConfig{Resolver: func(_ context.Context, name string) ([]netip.Addr, error) {
		return names[name], nil
	}})
	for _, a := range []string{"2001:db8::99", "198.18.0.99", addrB6} {
		names["slow.test"] = append(names["slow.test"], netip.MustParseAddr(a))
	}
	for _, a := range []string{"2001:db8::98", "198.18.0.98", addrB6} {
		names["serial.test"] = append(names["serial.test"], netip.MustParseAddr(a))
	}
	for _, a := range []string{"192.0.2.1", "2001:db8:5::1", addrB} {
		names["noroute.test"] = append(names["noroute.test"], netip.MustParseAddr(a))
	}
	names["dead.test"] = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:5::1")}
	for _, c := range []struct {
		what  string
		name  string
		d     Dialer
		least time.Duration
		err   error
	}{
		{"two that do not answer", "slow.test:7", Dialer{FallbackDelay: 100 * time.Millisecond}, 200 * time.Millisecond, nil},
		{"by default", "slow.test:7", Dialer{}, 500 * time.Millisecond, nil},
		{"two without a route", "noroute.test:7", Dialer{FallbackDelay: time.Hour}, 0, nil},
		{"none works", "dead.test:7", Dialer{FallbackDelay: time.Hour}, 0, syscall.ENETUNREACH},
		{"one after the other, in parts of the time", "serial.test:7", Dialer{FallbackDelay: -1, Timeout: 6 * time.Second}, 3900 * time.Millisecond, nil},
	} {
		var conn net.Conn
		var err error
		began := time.Now()
		within(t, 30*time.Second, c.what, func() { conn, err = s.DialWith(t.Context(), &c.d, "tcp", c.name) })
		if now := time.Now(); now.Before(began.Add(c.least)) {
			t.Errorf("%s: %v, want at least %v", c.what, now.Sub(began), c.least)
		}
		if c.err != nil {
			checkOpError(t, err, "dial", c.err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		_ = conn.Close()
	}
}

// TestLostAttemptsAreClosed dials a name with two addresses that both answer, with no delay between them.
func TestLostAttemptsAreClosed(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, err := x.b.Listen("tcp", ":7")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	s := Attach(x.a.group, AttachConfig{Resolver: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(addrB), netip.MustParseAddr(addrB6)}, nil
	}})
	for range 100 {
		c, err := s.DialWith(t.Context(), &Dialer{FallbackDelay: 1}, "tcp", "both.test:7")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Close()
	eventually(t, "a lost attempt is left", func() bool {
		conns, _ := x.usage()
		return conns == 0
	})
}
