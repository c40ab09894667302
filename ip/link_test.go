package ip

import (
	"testing"
	"time"

	"github.com/millrace/millrace/wire"
)

// mtuOption makes an MTU option of a router advertisement (RFC 4861 4.6.4).
func mtuOption(mtu uint16) []byte {
	return []byte{wire.NDOptMTU, 1, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
}

// Paths that connections hold follow a new MTU and link address of their link, and the leader announces the address to
// neighbours. What routers advertise to IPv6 stays where it is less than the link's (RFC 4861 6.3.4).
func TestPathsFollowTheirLink(t *testing.T) {
	for _, follower := range []bool{false, true} {
		l := newLAN(t)
		a := l.add(1, func(c *Config) { auto(c); c.Follower = follower })
		x := l.tap(9)
		for _, p := range []string{"198.18.0.1/24", "2001:db8::1/64"} {
			a.addAddr(p)
		}
		four, six := addr("198.18.0.9"), addr("2001:db8::9")
		for _, dst := range []wire.Addr{four, six} {
			if err := a.AddNeighbor(l.now, 0, dst, x.mac); err != nil {
				t.Fatal(err)
			}
		}
		l.after(10 * time.Second)
		p4, _ := a.Route(l.now, four, wire.Addr{}, AnyDev)
		p6, _ := a.Route(l.now, six, wire.Addr{}, AnyDev)
		a.feed(0, raFrame(wire.MAC{2, 9}, 1800, mtuOption(1400)))
		x.inbox = nil
		moved := wire.MAC{2, 0, 0, 0, 7, 7}
		for _, s := range []struct {
			mac         wire.MAC
			mtu, v4, v6 int
		}{
			{a.mac, 1500, 1500, 1400}, // the first is as at the start
			{a.mac, 1300, 1300, 1300},
			{a.mac, 1450, 1450, 1450},
			{moved, 1450, 1450, 1450},
			{moved, 0, 1450, 1450},
		} {
			a.SetLink(l.now, 0, s.mac, s.mtu)
			want4, want6 := s.v4, s.v6
			if follower && s.mtu == 1500 {
				want6 = 1500 // it hears of advertisements by Apply
			}
			if p4.MTU != want4 || p6.MTU != want6 {
				t.Errorf("follower %v, MTU %d: paths of %d and %d, want %d and %d", follower, s.mtu, p4.MTU, p6.MTU, want4, want6)
			}
			for _, p := range []*Path{p4, p6} {
				if e := wire.Ethernet(p.Header[:]); e.Src() != s.mac || e.Dst() != x.mac {
					t.Errorf("follower %v: a path from %x to %x", follower, e.Src(), e.Dst())
				}
			}
		}
		l.after(5 * time.Second)
		arp, advert := 0, 0
		for _, f := range x.inbox {
			switch e := wire.Ethernet(f); {
			case e.Src() != moved:
				t.Errorf("a frame from %x", e.Src())
			case e.EtherType() == wire.EtherTypeARP && wire.ARP(f[14:]).SenderMAC() == moved:
				arp++
			case e.EtherType() == wire.EtherTypeIPv6 && f[54] == wire.ICMPv6NeighborAdvert:
				advert++
			}
		}
		if want := announceNum; follower && arp+advert != 0 || !follower && (arp != want || advert < want) {
			t.Errorf("follower %v: %d announcements by ARP, %d advertisements", follower, arp, advert)
		}
	}
}
