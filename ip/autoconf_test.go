package ip

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// own returns the state of an address of the station.
func (s *station) stateOf(a string) string {
	for _, x := range s.Addrs() {
		if x.Prefix.Addr() == netip.MustParseAddr(a) {
			return x.State
		}
	}
	return "none"
}

// countChanges returns how many changes of kind k the station reported.
func (s *station) countChanges(k ChangeKind) (n int) {
	for _, c := range s.changes {
		if c.Kind == k {
			n++
		}
	}
	return n
}

// RFC 5227 2.1, RFC 4862 5.4: an address is assigned once no other host has claimed it.
func TestDuplicateAddressDetection(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			l.keep = true
			a := l.add(1, nil)
			if err := a.AddAddr(l.now, 0, netip.MustParsePrefix(c.a+c.bits), Static, false); err != nil {
				t.Fatal(err)
			}
			if a.Local(0, addr(c.a)) != NotLocal || a.Usable(addr(c.a)) || a.stateOf(c.a) != "tentative" {
				t.Error("in use at once")
			}
			l.after(12 * time.Second)
			if a.Local(0, addr(c.a)) != Unicast || a.countChanges(AddrUp) != 1 || a.stateOf(c.a) != "preferred" {
				t.Fatalf("%v", a.Addrs())
			}
			probes, announcements := 0, 0
			for _, f := range l.seen {
				p := f[14:]
				switch {
				case c.name == "IPv4" && wire.AddrFrom4(wire.ARP(p).Sender()) == wire.Unspecified4 && wire.AddrFrom4(wire.ARP(p).Target()) == addr(c.a):
					probes++
				case c.name == "IPv4" && wire.AddrFrom4(wire.ARP(p).Sender()) == addr(c.a) && wire.AddrFrom4(wire.ARP(p).Target()) == addr(c.a):
					announcements++
				case c.name == "IPv6" && p[40] == wire.ICMPv6NeighborSolicit && wire.Addr(wire.IPv6(p).Src()) == wire.Addr{}:
					probes++
				case c.name == "IPv6" && p[40] == wire.ICMPv6NeighborAdvert:
					announcements++
				}
			}
			want := map[string]int{"IPv4": 3, "IPv6": 1}[c.name]
			if probes != want || announcements != 2 {
				t.Errorf("%d probes, %d announcements", probes, announcements)
			}
			b := l.add(2, nil)
			if err := b.AddAddr(l.now, 0, netip.MustParsePrefix(c.a+c.bits), Static, false); err != nil {
				t.Fatal(err)
			}
			l.after(12 * time.Second)
			if b.stateOf(c.a) != "duplicate" || b.countChanges(AddrDuplicate) != 1 || b.Local(0, addr(c.a)) != NotLocal || a.Local(0, addr(c.a)) != Unicast {
				t.Errorf("the second host: %v", b.Addrs())
			}
		})
	}
}

// RFC 5227 2.1.1, RFC 4862 5.4.3: of two hosts that check an address at a time none gets it.
func TestSimultaneousDetection(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a, b := l.add(1, nil), l.add(2, nil)
		for _, s := range []*station{a, b} {
			if err := s.AddAddr(l.now, 0, netip.MustParsePrefix(c.a+c.bits), Static, false); err != nil {
				t.Fatal(err)
			}
		}
		l.after(12 * time.Second)
		if x, y := a.stateOf(c.a), b.stateOf(c.a); x == "preferred" && y == "preferred" {
			t.Errorf("%s: %s and %s", c.name, x, y)
		}
	}
}

// RFC 5227 2.4: a claim of an address in use is answered by an announcement, once in ten seconds.
func TestDefence(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, nil).addAddr("198.18.0.1/24")
	x := l.tap(9)
	l.after(5 * time.Second)
	x.inbox = nil
	for range 30 {
		x.inject(arpFrame(wire.ARPRequest, wire.Broadcast, x.mac, wire.ARPHost{MAC: x.mac, Addr: addr("198.18.0.1").As4()}, wire.ARPHost{Addr: addr("198.18.0.1").As4()}))
		l.after(time.Second)
	}
	if k := len(x.inbox); k != 3 {
		t.Errorf("%d answers in half a minute", k)
	}
	if a.Local(0, addr("198.18.0.1")) != Unicast || a.Stats().Duplicates != 30 {
		t.Errorf("%v, %d", a.Addrs(), a.Stats().Duplicates)
	}
}

// raFrame makes a router advertisement.
func raFrame(router wire.MAC, lifetime uint16, options ...[]byte) []byte {
	m := []byte{wire.ICMPv6RouterAdvert, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(m[6:], lifetime)
	for _, o := range options {
		m = append(m, o...)
	}
	return icmp6Frame(wire.MulticastMAC6(wire.AllNodes), router, addr("fe80::99"), allNodes, 255, m)
}

// TestFollowersLearnTheHopLimit: a flow has the hop limit that a router says whatever loop it is on (RFC 4861 6.3.4).
func TestFollowersLearnTheHopLimit(t *testing.T) {
	l := newLAN(t)
	leader := l.add(1, auto)
	follower := l.add(3, func(c *Config) {
		auto(c)
		c.Follower, c.Links[0].MAC = true, leader.mac
	})
	leader.cfg.Changed = func(now clock.Time, ch Change) { follower.Apply(now, &ch) }
	leader.feed(0, raFrame(wire.MAC{2, 9}, 1800))
	for _, n := range []*station{leader, follower} {
		if p, _ := n.Route(l.now, addr("2001:db8::1"), wire.Addr{}, AnyDev); p == nil || p.TTL != 77 {
			t.Errorf("follower %v: %+v", n == follower, p)
		}
	}
}

// prefixOption makes a prefix information option.
func prefixOption(p string, flags byte, valid, preferred uint32) []byte {
	x := netip.MustParsePrefix(p)
	b := []byte{wire.NDOptPrefix, 4, byte(x.Bits()), flags}
	b = binary.BigEndian.AppendUint32(b, valid)
	b = binary.BigEndian.AppendUint32(b, preferred)
	b = append(b, 0, 0, 0, 0)
	a := x.Addr().As16()
	return append(b, a[:]...)
}

const onLinkAuto = 0xc0

func auto(c *Config) { c.Links[0].Accept, c.Links[0].LinkLocal = true, true }

// RFC 4862, RFC 4861 6.3: a link-local address, a solicitation, an advertisement, an address, a route.
func TestStatelessAutoconfiguration(t *testing.T) {
	l := newLAN(t)
	a, router := l.add(1, auto), l.tap(9)
	l.after(10 * time.Second)
	solicits := 0
	for _, f := range router.inbox {
		if f[20] == wire.ProtoICMPv6 && f[54] == wire.ICMPv6RouterSolicit {
			solicits++
			if s := wire.RouterSolicit(f[54:]); !wire.Addr(wire.IPv6(f[14:]).Src()).LinkLocal() || f[21] != 255 {
				t.Errorf("%x", s)
			}
		}
	}
	if solicits < 1 || solicits > 3 {
		t.Errorf("%d solicitations", solicits)
	}
	rdnss := append([]byte{wire.NDOptRDNSS, 3, 0, 0, 0, 0, 2, 88}, addrBytes("2001:db8::53")...)
	router.inject(raFrame(router.mac, 1800, prefixOption("2001:db8:1::/64", onLinkAuto, 7200, 3600), []byte{wire.NDOptMTU, 1, 0, 0, 0, 0, 5, 200}, rdnss))
	l.after(5 * time.Second)
	var got *AddrInfo
	for _, x := range a.Addrs() {
		if x.Origin == RouterAdvert {
			got = &x
		}
	}
	if got == nil || got.State != "preferred" || !netip.MustParsePrefix("2001:db8:1::/64").Contains(got.Prefix.Addr()) {
		t.Fatalf("%v", a.Addrs())
	}
	p, v := a.Route(l.now, addr("2001:db8:ffff::1"), wire.Addr{}, AnyDev)
	if p == nil || p.NextHop != addr("fe80::99") || p.TTL != 77 || p.MTU != 1480 {
		t.Fatalf("%+v, %v", p, v)
	}
	if p, _ := a.Route(l.now, addr("2001:db8:1::5"), wire.Addr{}, AnyDev); p == nil || p.NextHop != addr("2001:db8:1::5") {
		t.Errorf("on link: %+v", p)
	}
	if src, ok := a.Source(l.now, addr("2001:db8:ffff::1"), AnyDev); !ok || src != wire.AddrFrom(got.Prefix.Addr()) {
		t.Errorf("source %v", src)
	}
	if src, _ := a.Source(l.now, addr("fe80::99"), AnyDev); !src.LinkLocal() {
		t.Errorf("source for the link %v", src)
	}
	if a.countChanges(DNSServers) != 1 {
		t.Error("no name servers")
	}
	solicited := len(router.inbox)
	l.after(10 * time.Minute)
	for _, f := range router.inbox[solicited:] {
		if f[20] == wire.ProtoICMPv6 && f[54] == wire.ICMPv6RouterSolicit {
			t.Error("asks on after an answer")
		}
	}
	l.after(25 * time.Minute)
	if p, v := a.Route(l.now, addr("2001:db8:ffff::1"), wire.Addr{}, AnyDev); p != nil {
		t.Errorf("the router's time is over: %v %v", p, v)
	}
	l.after(30 * time.Minute)
	if s := a.stateOf(got.Prefix.Addr().String()); s != "deprecated" {
		t.Errorf("after an hour: %s", s)
	}
	l.after(time.Hour)
	if s := a.stateOf(got.Prefix.Addr().String()); s != "none" {
		t.Errorf("after two hours: %s", s)
	}
	if p, _ := a.Route(l.now, addr("2001:db8:1::5"), wire.Addr{}, AnyDev); p != nil {
		t.Error("the prefix stays on link")
	}
}

func addrBytes(s string) []byte {
	a := addr(s)
	return a[:]
}

// RFC 7217: stable in a net, different in others and for others.
func TestStableAddresses(t *testing.T) {
	ids := map[[8]byte]string{}
	for _, id := range []byte{1, 2, 1} {
		l := newLAN(t)
		a, router := l.add(id, auto), l.tap(9)
		for _, p := range []string{"2001:db8:1::/64", "2001:db8:2::/64"} {
			router.inject(raFrame(router.mac, 1800, prefixOption(p, onLinkAuto, 7200, 3600)))
			l.settle()
		}
		for _, x := range a.Addrs() {
			b := x.Prefix.Addr().As16()
			name := string(id) + x.Prefix.Masked().String()
			if other, ok := ids[[8]byte(b[8:])]; ok && other != name {
				t.Errorf("%q and %q have one identifier", name, other)
			}
			ids[[8]byte(b[8:])] = name
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d identifiers for 2 hosts and 3 prefixes", len(ids))
	}
}

// RFC 7217 6: where another host has the address, another one is made.
func TestStableAddressAfterConflict(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, auto)
	x := l.tap(9)
	first := a.Addrs()[0].Prefix.Addr().String()
	l.lose = func(f []byte) bool {
		if f[20] == wire.ProtoICMPv6 && f[54] == wire.ICMPv6NeighborSolicit && wire.Addr(wire.NeighborSolicit(f[54:]).Target()) == addr(first) {
			l.lose = nil
			x.inject(naFrame(x.mac, addr(first), allNodes, addr(first), x.mac, wire.NAOverride, wire.MulticastMAC6(wire.AllNodes)))
		}
		return false
	}
	l.after(6 * time.Second)
	if a.stateOf(first) != "duplicate" || len(a.Addrs()) != 2 || a.Addrs()[1].State != "preferred" {
		t.Errorf("%v", a.Addrs())
	}
}

// RFC 4862 5.5.3 e: an advertisement does not cut a validity below two hours.
func TestTwoHours(t *testing.T) {
	for _, c := range []struct {
		first, then uint32
		want        time.Duration
	}{
		{86400, 60, 2 * time.Hour},
		{86400, 40000, 40000 * time.Second},
		{3600, 60, time.Hour},
		{3600, 1800, time.Hour},
		{60, 3600, time.Hour},
	} {
		l := newLAN(t)
		a, router := l.add(1, auto), l.tap(9)
		for _, s := range []uint32{c.first, c.then} {
			router.inject(raFrame(router.mac, 0, prefixOption("2001:db8:1::/64", 0x40, s, s)))
			l.settle()
		}
		x := a.Addrs()[1]
		if got := x.Valid.Sub(l.now); got != c.want {
			t.Errorf("%d s and then %d s: %v, want %v", c.first, c.then, got, c.want)
		}
	}
}

// RFC 5942 4: an address does not put its prefix on link; RFC 4862 5.5.3: other lengths than 64 and
// contradicting times make no address.
func TestPrefixFlags(t *testing.T) {
	l := newLAN(t)
	a, router := l.add(1, auto), l.tap(9)
	router.inject(raFrame(router.mac, 0,
		prefixOption("2001:db8:1::/64", 0x40, 7200, 3600),
		prefixOption("2001:db8:2::/48", 0x40, 7200, 3600),
		prefixOption("2001:db8:3::/64", 0x40, 3600, 7200),
		prefixOption("fe80::/64", onLinkAuto, 7200, 3600),
		prefixOption("2001:db8:4::/64", 0x80, 7200, 3600)))
	l.after(5 * time.Second)
	if n := len(a.Addrs()); n != 2 {
		t.Errorf("%v", a.Addrs())
	}
	if p, _ := a.Route(l.now, addr("2001:db8:1::1"), wire.Addr{}, AnyDev); p != nil {
		t.Error("on link without the flag")
	}
	if p, _ := a.Route(l.now, addr("2001:db8:4::1"), wire.Addr{}, AnyDev); p == nil {
		t.Error("not on link with the flag")
	}
}

// An advertisement that is not from a router, or with values out of bounds, changes nothing.
func TestForgedAdvertisements(t *testing.T) {
	good := raFrame(wire.MAC{2, 0, 0, 0, 0, 9}, 1800)
	from := append([]byte(nil), good...)
	copy(from[22:], addrBytes("2001:db8::99"))
	wire.ICMPv6(from[54:]).SetChecksum(0)
	wire.ICMPv6(from[54:]).FillChecksum(wire.IPv6(from[14:]).Pseudo())
	far := append([]byte(nil), good...)
	far[21] = 254
	for name, f := range map[string][]byte{"global source": from, "forwarded": far} {
		l := newLAN(t)
		a := l.add(1, auto)
		if v := a.feed(0, f); v != packet.DropNeighbor || len(a.Routes()) != 0 {
			t.Errorf("%s: %v, %v", name, v, a.Routes())
		}
	}
	l := newLAN(t)
	a := l.add(1, func(c *Config) { c.Links[0].LinkLocal = true })
	if v := a.feed(0, good); v != packet.DropICMP || len(a.Routes()) != 0 {
		t.Errorf("without Accept: %v", v)
	}
	b := l.add(2, auto)
	low := append([]byte(nil), good...)
	low[58] = 1 // hop limit
	wire.ICMPv6(low[54:]).SetChecksum(0)
	wire.ICMPv6(low[54:]).FillChecksum(wire.IPv6(low[14:]).Pseudo())
	b.feed(0, low)
	b.feed(0, raFrame(wire.MAC{2, 0, 0, 0, 0, 9}, 1800, []byte{wire.NDOptMTU, 1, 0, 0, 0, 0, 2, 64}))
	if p, _ := b.Route(l.now, addr("2001:db8::1"), wire.Addr{}, AnyDev); p == nil || p.TTL != 77 || p.MTU != 1500 {
		t.Errorf("%+v", p)
	}
}

// RFC 4861 6.3.6, RFC 4191: the preferred router, and another one when it does not answer.
func TestDefaultRouters(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, auto)
	low := raFrame(wire.MAC{2, 0, 0, 0, 0, 8}, 1800)
	low[59] = 0x18 // preference low
	copy(low[22:], addrBytes("fe80::8"))
	wire.ICMPv6(low[54:]).SetChecksum(0)
	wire.ICMPv6(low[54:]).FillChecksum(wire.IPv6(low[14:]).Pseudo())
	a.feed(0, low)
	a.feed(0, raFrame(wire.MAC{2, 0, 0, 0, 0, 9}, 1800))
	l.after(3 * time.Second)
	a.addAddr("2001:db8::1/64")
	hop := func() wire.Addr {
		p, _ := a.Route(l.now, addr("2001:db8:ff::1"), wire.Addr{}, AnyDev)
		return p.NextHop
	}
	if hop() != addr("fe80::99") {
		t.Fatalf("%v", hop())
	}
	a.udp("2001:db8::1", "2001:db8:ff::1", nil, nil)
	l.after(5 * time.Second)
	if hop() != addr("fe80::8") {
		t.Errorf("the router without an answer is still used: %v, %v %v", hop(), a.Neighbors(), a.Routes())
	}
	a.feed(0, raFrame(wire.MAC{2, 0, 0, 0, 0, 9}, 0))
	if len(a.Table().Lookup(addr("2001:db8:ff::1"), AnyDev)) != 1 {
		t.Error("a lifetime of zero removes no router")
	}
}
