package interop

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"time"

	oracle "github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip/dhcp"
	"github.com/millrace/millrace/wire"
)

var (
	mac    = [6]byte{2, 0, 0, 0, 0, 1}
	server = net.IPv4(198, 18, 0, 1)
	given  = net.IPv4(198, 18, 0, 77)
)

// network is a client in virtual time whose messages an independent implementation reads, and its answers
// writes.
type network struct {
	t       *testing.T
	now     clock.Time
	c       *dhcp.Client
	sent    []*oracle.DHCPv4
	to      []wire.Addr
	bound   []dhcp.Lease
	lost    []dhcp.Lease
	respond func(m *oracle.DHCPv4) *oracle.DHCPv4 // nil is silence
	replies [][]byte
}

func newNetwork(t *testing.T, change func(*dhcp.Config)) *network {
	n := &network{t: t, now: clock.Time(time.Hour)}
	cfg := dhcp.Config{
		Now: n.now, Seed: 7, MAC: mac, Hostname: "mill",
		Send: func(_ clock.Time, to wire.Addr, b []byte) {
			m, err := oracle.FromBytes(b)
			if err != nil {
				t.Fatalf("the oracle cannot read %x: %v", b, err)
			}
			n.sent, n.to = append(n.sent, m), append(n.to, to)
			if n.respond != nil {
				if r := n.respond(m); r != nil {
					n.replies = append(n.replies, r.ToBytes())
				}
			}
		},
		Bound: func(_ clock.Time, l dhcp.Lease) { n.bound = append(n.bound, l) },
		Lost:  func(_ clock.Time, l dhcp.Lease) { n.lost = append(n.lost, l) },
	}
	if change != nil {
		change(&cfg)
	}
	n.c = dhcp.New(cfg)
	return n
}

// after lets time pass.
func (n *network) after(d time.Duration) {
	end := n.now.Add(d)
	for {
		for len(n.replies) > 0 {
			b := n.replies[0]
			n.replies = n.replies[1:]
			n.c.Input(n.now, b)
		}
		next := n.c.Poll(n.now)
		if len(n.replies) > 0 {
			continue
		}
		if next > end {
			break
		}
		n.now = max(n.now, next)
	}
	n.now = end
}

// types returns the types of the messages that were sent.
func (n *network) types() (list []oracle.MessageType) {
	for _, m := range n.sent {
		list = append(list, m.MessageType())
	}
	return list
}

// serve answers as a server does.
func serve(lease time.Duration, more ...oracle.Modifier) func(*oracle.DHCPv4) *oracle.DHCPv4 {
	return func(m *oracle.DHCPv4) *oracle.DHCPv4 {
		typ := map[oracle.MessageType]oracle.MessageType{
			oracle.MessageTypeDiscover: oracle.MessageTypeOffer, oracle.MessageTypeRequest: oracle.MessageTypeAck,
		}[m.MessageType()]
		if typ == 0 {
			return nil
		}
		return reply4(m, typ, lease, more...)
	}
}

func reply4(m *oracle.DHCPv4, typ oracle.MessageType, lease time.Duration, more ...oracle.Modifier) *oracle.DHCPv4 {
	r, err := oracle.NewReplyFromRequest(m, append([]oracle.Modifier{
		oracle.WithMessageType(typ), oracle.WithYourIP(given), oracle.WithServerIP(server),
		oracle.WithOption(oracle.OptServerIdentifier(server)),
		oracle.WithNetmask(net.CIDRMask(24, 32)), oracle.WithRouter(net.IPv4(198, 18, 0, 254)),
		oracle.WithDNS(net.IPv4(198, 18, 0, 53), net.IPv4(198, 18, 0, 54)), oracle.WithLeaseTime(uint32(lease / time.Second)),
		oracle.WithOption(oracle.OptDomainName("example.net")),
	}, more...)...)
	if err != nil {
		panic(err)
	}
	return r
}

var addrGiven = wire.AddrFrom4([4]byte{198, 18, 0, 77})

// RFC 2131 3.1: discover, offer, request, acknowledgment.
func TestLease(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(time.Hour)
	n.after(5 * time.Second)
	if want := []oracle.MessageType{oracle.MessageTypeDiscover, oracle.MessageTypeRequest}; !slices.Equal(n.types(), want) {
		t.Fatalf("sent %v", n.types())
	}
	d, r := n.sent[0], n.sent[1]
	if !d.IsBroadcast() || !bytes.Equal(d.ClientHWAddr, mac[:]) || d.HostName() != "mill" || n.to[0] != (wire.Addr{}) {
		t.Errorf("discover: %v", d)
	}
	if !r.RequestedIPAddress().Equal(given) || !r.ServerIdentifier().Equal(server) || r.TransactionID != d.TransactionID {
		t.Errorf("request: %v", r)
	}
	for _, o := range []oracle.OptionCode{oracle.OptionSubnetMask, oracle.OptionRouter, oracle.OptionClasslessStaticRoute} {
		if !d.IsOptionRequested(o) {
			t.Errorf("%v is not asked for", o)
		}
	}
	if len(n.bound) != 1 || n.c.State() != dhcp.Bound {
		t.Fatalf("bound %v, state %v", n.bound, n.c.State())
	}
	l := n.bound[0]
	if l.Addr != addrGiven || l.Bits != 24 || len(l.Routers) != 1 || len(l.DNS) != 2 || l.Domain != "example.net" ||
		l.DNS[1] != wire.AddrFrom4([4]byte{198, 18, 0, 54}) || l.Until.Sub(n.now) < 59*time.Minute || l.Until.Sub(n.now) > time.Hour {
		t.Errorf("%+v", l)
	}
}

// RFC 2131 4.4.5: at T1 the server is asked, at T2 anybody, and at the end the address is lost.
func TestRenewRebindExpire(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(time.Hour)
	n.after(5 * time.Second)
	n.after(32 * time.Minute)
	if len(n.bound) != 2 || len(n.sent) != 3 || n.to[2] != wire.AddrFrom4([4]byte{198, 18, 0, 1}) {
		t.Fatalf("%d leases, sent %v to %v", len(n.bound), n.types(), n.to)
	}
	m := n.sent[2]
	if !m.ClientIPAddr.Equal(given) || m.IsBroadcast() || m.ServerIdentifier() != nil || m.RequestedIPAddress() != nil {
		t.Errorf("renewal: %v", m) // RFC 2131 4.3.6
	}
	n.respond = nil
	renewed := n.bound[1].Until
	n.sent, n.to = nil, nil
	for n.c.State() != dhcp.Rebinding && n.now < renewed {
		n.after(time.Minute)
	}
	if left := renewed.Sub(n.now); left > time.Hour/8+time.Minute || left < time.Hour/16 {
		t.Errorf("rebinding %v before the end", left)
	}
	if k := len(n.sent); k < 4 || k > 12 {
		t.Errorf("%d attempts to renew", k)
	}
	n.after(20 * time.Minute)
	if len(n.lost) != 1 || n.lost[0].Addr != addrGiven {
		t.Fatalf("lost %v", n.lost)
	}
	if last := n.sent[len(n.sent)-1]; last.MessageType() != oracle.MessageTypeDiscover {
		t.Errorf("then %v", last.MessageType())
	}
	if n.to[len(n.to)-2] != (wire.Addr{}) {
		t.Error("a rebinding client speaks to one server")
	}
}

// RFC 2131 3.1.5: an address that another host has is declined; after ten seconds all starts again.
func TestDecline(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(time.Hour)
	n.after(5 * time.Second)
	n.c.Decline(n.now)
	m := n.sent[2]
	if m.MessageType() != oracle.MessageTypeDecline || !m.RequestedIPAddress().Equal(given) || !m.ServerIdentifier().Equal(server) || len(n.lost) != 1 {
		t.Fatalf("%v, lost %v", m, n.lost)
	}
	n.after(9 * time.Second)
	if len(n.sent) != 3 {
		t.Errorf("starts again too early: %v", n.types())
	}
	n.after(2 * time.Second)
	if len(n.bound) != 2 {
		t.Errorf("does not start again: %v", n.types())
	}
}

// RFC 2131 4.4.6.
func TestRelease(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(time.Hour)
	n.after(5 * time.Second)
	n.c.Release(n.now)
	m := n.sent[2]
	if m.MessageType() != oracle.MessageTypeRelease || !m.ClientIPAddr.Equal(given) || n.to[2] != wire.AddrFrom4([4]byte{198, 18, 0, 1}) {
		t.Fatalf("%v to %v", m, n.to[2])
	}
	n.after(24 * time.Hour)
	if len(n.sent) != 3 {
		t.Error("speaks on")
	}
	n.c.Restart(n.now)
	n.after(time.Second)
	if len(n.bound) != 2 {
		t.Error("does not start again")
	}
}

// RFC 2131 4.4.2, 3.2: the last address is asked for at once; a refusal sends the client to the start.
func TestReboot(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		n := newNetwork(t, func(c *dhcp.Config) { c.Last = addrGiven })
		n.respond = func(m *oracle.DHCPv4) *oracle.DHCPv4 {
			if refuse && len(n.sent) == 1 {
				return reply4(m, oracle.MessageTypeNak, 0)
			}
			return serve(time.Hour)(m)
		}
		n.after(10 * time.Second)
		m := n.sent[0]
		if m.MessageType() != oracle.MessageTypeRequest || !m.RequestedIPAddress().Equal(given) || m.ServerIdentifier() != nil {
			t.Errorf("first %v", m)
		}
		want := 1
		if refuse {
			want = 3
		}
		if len(n.bound) != 1 || len(n.sent) != want {
			t.Errorf("refused %v: %d leases after %v", refuse, len(n.bound), n.types())
		}
	}
}

// RFC 2131 4.1: without an answer the client asks ever more seldom.
func TestBackoff(t *testing.T) {
	n := newNetwork(t, nil)
	n.after(10 * time.Minute)
	if k := len(n.sent); k < 10 || k > 15 {
		t.Errorf("%d messages in ten minutes", k)
	}
	n.respond = func(m *oracle.DHCPv4) *oracle.DHCPv4 {
		if m.MessageType() == oracle.MessageTypeDiscover {
			return reply4(m, oracle.MessageTypeOffer, time.Hour)
		}
		return nil
	}
	n.sent = nil
	n.after(10 * time.Minute)
	k := 0
	for _, m := range n.types() {
		if m == oracle.MessageTypeRequest {
			k++
		}
	}
	if k < 28 || k > 48 {
		t.Errorf("%d requests of offers", k)
	}
}

// What is not for this client, or from another server than the one that was chosen, changes nothing.
func TestForeignMessages(t *testing.T) {
	other := oracle.WithOption(oracle.OptServerIdentifier(net.IPv4(198, 18, 0, 66)))
	cases := map[string]func(*oracle.DHCPv4) *oracle.DHCPv4{
		"transaction": serve(time.Hour, func(d *oracle.DHCPv4) { d.TransactionID[0]++ }),
		"hardware":    serve(time.Hour, func(d *oracle.DHCPv4) { d.ClientHWAddr = net.HardwareAddr{2, 0, 0, 0, 0, 9} }),
		"no server":   serve(time.Hour, func(d *oracle.DHCPv4) { d.Options.Del(oracle.OptionServerIdentifier) }),
		"group":       serve(time.Hour, oracle.WithYourIP(net.IPv4(224, 0, 0, 5))),
		"loopback":    serve(time.Hour, oracle.WithYourIP(net.IPv4(127, 0, 0, 5))),
		"no time":     serve(0),
		"bad mask":    serve(time.Hour, oracle.WithNetmask(net.IPMask{255, 0, 255, 0})),
		"request":     serve(time.Hour, func(d *oracle.DHCPv4) { d.OpCode = oracle.OpcodeBootRequest }),
		"other acks": func(m *oracle.DHCPv4) *oracle.DHCPv4 {
			if m.MessageType() == oracle.MessageTypeDiscover {
				return serve(time.Hour)(m)
			}
			return serve(time.Hour, other)(m)
		},
		"other refuses": func(m *oracle.DHCPv4) *oracle.DHCPv4 {
			if m.MessageType() == oracle.MessageTypeDiscover {
				return serve(time.Hour)(m)
			}
			return reply4(m, oracle.MessageTypeNak, 0, other)
		},
		"other address": func(m *oracle.DHCPv4) *oracle.DHCPv4 {
			if m.MessageType() == oracle.MessageTypeDiscover {
				return serve(time.Hour)(m)
			}
			return serve(time.Hour, oracle.WithYourIP(net.IPv4(198, 18, 0, 78)))(m)
		},
	}
	for name, respond := range cases {
		n := newNetwork(t, nil)
		n.respond = respond
		n.after(15 * time.Second)
		if len(n.bound) != 0 {
			t.Errorf("%s: %+v", name, n.bound[0])
		}
		if k := len(n.sent); k < 2 || k > 6 {
			t.Errorf("%s: %d messages", name, k)
		}
	}
}

// RFC 3442: classless routes take the place of routers. RFC 3396: long options come in parts.
func TestClasslessRoutes(t *testing.T) {
	var routes oracle.Routes
	for i := range 40 {
		routes = append(routes, &oracle.Route{Dest: &net.IPNet{IP: net.IPv4(198, 19, byte(i), 0), Mask: net.CIDRMask(24, 32)}, Router: server})
	}
	routes[1] = &oracle.Route{Dest: &net.IPNet{IP: net.IPv4(0, 0, 0, 0), Mask: net.CIDRMask(0, 32)}, Router: server}
	n := newNetwork(t, nil)
	n.respond = serve(time.Hour, oracle.WithOption(oracle.OptClasslessStaticRoute(routes...)))
	n.after(5 * time.Second)
	if len(n.bound) != 1 {
		t.Fatalf("sent %v", n.types())
	}
	l := n.bound[0]
	want := dhcp.Route{Prefix: wire.AddrFrom4([4]byte{198, 19, 0, 0}), Bits: 24, Router: wire.AddrFrom4([4]byte{198, 18, 0, 1})}
	if len(l.Routers) != 0 || len(l.Routes) != 16 || l.Routes[0] != want || l.Routes[1].Bits != 0 {
		t.Errorf("%+v", l)
	}
}

// RFC 2131 4.1: options go on in file and sname where the overload option says so.
func TestOverload(t *testing.T) {
	n := newNetwork(t, nil)
	n.after(2 * time.Second)
	b := reply4(n.sent[0], oracle.MessageTypeOffer, time.Hour).ToBytes()
	const overload, messageType, leaseTime, serverID, end = 52, 53, 51, 54, 255 // RFC 2132
	const sname, file, options, offer = 44, 108, 240, 2                         // RFC 2131 2, RFC 2132 9.6
	b = append(b[:options], overload, 1, 3, end)
	copy(b[file:], []byte{messageType, 1, offer, leaseTime, 4, 0, 0, 14, 16, end})
	copy(b[sname:], []byte{serverID, 4, 198, 18, 0, 1, end})
	if !n.c.Input(n.now, b) || n.c.State() != dhcp.Requesting {
		t.Errorf("state %v", n.c.State())
	}
}

// A server that gives a second has the client back in no less than a quarter of a minute.
func TestShortLease(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(time.Second)
	n.after(10 * time.Minute)
	if k := len(n.sent); k > 30 {
		t.Errorf("%d messages in ten minutes", k)
	}
	if len(n.lost) != 0 {
		t.Error("lost")
	}
}

func TestForEver(t *testing.T) {
	n := newNetwork(t, nil)
	n.respond = serve(0xffffffff * time.Second)
	n.after(5 * time.Second)
	if len(n.bound) != 1 || n.bound[0].Until != clock.Never || n.c.Poll(n.now) != clock.Never {
		t.Errorf("%+v", n.bound)
	}
}
