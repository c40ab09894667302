package ip

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// entry returns what a station knows of a neighbour.
func (s *station) entry(a string) NeighborInfo {
	for _, e := range s.Neighbors() {
		if e.Addr == addr(a) {
			return e
		}
	}
	return NeighborInfo{State: "none"}
}

// arp makes an ARP frame.
func arpFrame(op uint16, dst, src wire.MAC, sender wire.ARPHost, target wire.ARPHost) []byte {
	return wire.AppendARP(wire.AppendEthernet(nil, dst, src, wire.EtherTypeARP), op, sender, target)
}

// advert makes a neighbour advertisement from src to dst.
func naFrame(mac wire.MAC, src, dst, target wire.Addr, said wire.MAC, flags wire.NAFlags, to wire.MAC) []byte {
	return icmp6Frame(to, mac, src, dst, 255, wire.AppendNeighborAdvert(nil, target, said, flags))
}

// icmp6Frame makes a frame of an ICMPv6 message without checksum.
func icmp6Frame(to, from wire.MAC, src, dst wire.Addr, hops uint8, m []byte) []byte {
	b := wire.AppendEthernet(nil, to, from, wire.EtherTypeIPv6)
	b = wire.AppendIPv6(b, &wire.IPv6Header{Src: src, Dst: dst, NextHeader: wire.ProtoICMPv6, HopLimit: hops, PayloadLen: len(m)})
	b = append(b, m...)
	wire.ICMPv6(b[54:]).FillChecksum(wire.PseudoHeader6(src, dst, wire.ProtoICMPv6, uint32(len(m))))
	return b
}

// claim is a frame by which mac claims c.b: unsolicited, by broadcast or to a.
func claim(is4 bool, mac wire.MAC, who string, a *station, whose string) []byte {
	if is4 {
		return arpFrame(wire.ARPReply, a.mac, mac, wire.ARPHost{MAC: mac, Addr: addr(who).As4()}, wire.ARPHost{MAC: a.mac, Addr: addr(whose).As4()})
	}
	return naFrame(mac, addr(who), addr(whose), addr(who), mac, wire.NAOverride|wire.NASolicited, a.mac)
}

// RFC 4861 7.3.2: reachable, stale, delay, probe, and back by an answer.
func TestNeighbourStates(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			l.after(3 * time.Second)
			a.udp(c.a, c.b, nil, nil)
			if e := a.entry(c.b); e.State != "incomplete" || e.Queued != 1 {
				t.Fatalf("%+v", e)
			}
			l.settle()
			if e := a.entry(c.b); e.State != "reachable" || e.MAC != b.mac || len(b.got) != 1 {
				t.Fatalf("%+v", e)
			}
			l.after(46 * time.Second)
			if e := a.entry(c.b); e.State != "stale" {
				t.Fatalf("after its time: %+v", e)
			}
			l.keep = true
			a.udp(c.a, c.b, nil, nil)
			l.settle()
			if e := a.entry(c.b); e.State != "delay" || len(b.got) != 2 {
				t.Fatalf("used: %+v", e)
			}
			l.after(4900 * time.Millisecond)
			if len(l.seen) != 1 {
				t.Fatalf("asked before five seconds: %d frames", len(l.seen))
			}
			l.after(200 * time.Millisecond)
			if e := a.entry(c.b); e.State != "reachable" || len(l.seen) != 3 || wire.Ethernet(l.seen[1]).Dst() != b.mac {
				t.Fatalf("verified: %+v, %d frames", e, len(l.seen))
			}
		})
	}
}

// RFC 4861 7.3.3: a neighbour that is gone gets three unicast and three multicast requests, and its
// route is no longer used.
func TestNeighbourGone(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			a.udp(c.a, c.b, nil, nil)
			l.after(50 * time.Second)
			p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
			ref := p.Ref
			if a.Path(l.now, ref) == nil {
				t.Fatal("the path is not found again")
			}
			l.lose = func(f []byte) bool { return wire.Ethernet(f).Src() == b.mac }
			l.keep, l.seen = true, nil
			a.udp(c.a, c.b, nil, nil)
			l.after(5*time.Second + 2500*time.Millisecond)
			a.udp(c.a, c.b, nil, nil)
			l.after(4 * time.Second)
			unicast, group := 0, 0
			for _, f := range l.seen[1:] {
				switch d := wire.Ethernet(f).Dst(); {
				case wire.Ethernet(f).Src() != a.mac:
				case d == b.mac:
					unicast++
				case d.Multicast():
					group++
				}
			}
			if unicast != 3+1 || group != 3 { // one is the datagram
				t.Errorf("asked %d times itself, %d times by group", unicast-1, group)
			}
			if e := a.entry(c.b); e.State != "failed" || a.Path(l.now, ref) != nil {
				t.Errorf("%+v", e)
			}
			if v := a.udp(c.a, c.b, nil, nil); v != packet.DropNoNeighbor {
				t.Errorf("a packet to a failed neighbour: %v", v)
			}
			l.lose = nil
			l.after(time.Second)
			a.udp(c.a, c.b, []byte("again"), nil)
			l.settle()
			if e := a.entry(c.b); e.State != "reachable" {
				t.Errorf("back: %+v", e)
			}
		})
	}
}

// Confirmations by a transport keep an entry reachable without asking (RFC 4861 7.3.1).
func TestConfirm(t *testing.T) {
	for _, c := range pairs {
		l := newLAN(t)
		a := l.add(1, nil).addAddr(c.a + c.bits)
		l.add(2, nil).addAddr(c.b + c.bits)
		l.after(3 * time.Second)
		a.udp(c.a, c.b, nil, nil)
		l.settle()
		p, _ := a.Route(l.now, addr(c.b), wire.Addr{}, AnyDev)
		l.keep = true
		for range 200 {
			l.after(time.Second)
			if a.Path(l.now, p.Ref) == nil {
				t.Fatal("no path")
			}
			a.Confirm(l.now, p.Ref)
		}
		if len(l.seen) != 0 || a.entry(c.b).State != "reachable" {
			t.Errorf("%s: %d frames, %v", c.name, len(l.seen), a.entry(c.b))
		}
	}
}

// No unsolicited message is stored: neither for an unknown address nor against one that
// is, as long as its owner answers.
func TestForgedLinkAddresses(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			mallory := l.tap(66)
			lie := claim(c.name == "IPv4", mallory.mac, c.b, a, c.a)
			mallory.inject(lie)
			l.settle()
			if e := a.entry(c.b); e.State != "none" || a.verdicts[packet.DropNeighbor] == 0 {
				t.Fatalf("an unsolicited answer: %+v", e)
			}
			a.udp(c.a, c.b, nil, nil)
			l.settle()
			for _, pause := range []time.Duration{0, time.Second, 40 * time.Second, 10 * time.Second} {
				l.after(pause)
				l.keep, l.seen = true, nil
				for range 100 {
					mallory.inject(lie)
					l.settle()
					a.udp(c.a, c.b, nil, nil)
					l.settle()
					l.after(10 * time.Millisecond)
				}
				if e := a.entry(c.b); e.MAC != b.mac {
					t.Fatalf("after %v: %+v", pause, e)
				}
				asked := 0
				for _, f := range l.seen {
					if f[12] == 8 && f[13] == 6 && wire.ARP(f[14:]).Op() == wire.ARPRequest || f[12] == 0x86 && f[54] == wire.ICMPv6NeighborSolicit {
						asked++
					}
				}
				if asked > 3 {
					t.Errorf("after %v: %d questions in a second", pause, asked)
				}
			}
			for _, f := range mallory.inbox {
				if !wire.Ethernet(f).Dst().Multicast() {
					t.Fatal("the liar got a packet")
				}
			}
			if a.Stats().Conflicts < 100 {
				t.Errorf("%d conflicts counted", a.Stats().Conflicts)
			}
		})
	}
}

// An address that moves to another host is found again: its old owner does not answer.
func TestFailover(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			a.udp(c.a, c.b, nil, nil)
			l.after(3 * time.Second)
			if err := b.DelAddr(l.now, 0, addr(c.b)); err != nil {
				t.Fatal(err)
			}
			n := l.add(3, nil).addAddr(c.b + c.bits) // announces itself
			l.after(2 * time.Second)
			a.udp(c.a, c.b, []byte("new"), nil)
			l.after(time.Second)
			if e := a.entry(c.b); e.MAC != n.mac || len(n.got) != 1 {
				t.Errorf("%+v, %d datagrams", e, len(n.got))
			}
		})
	}
}

// RFC 826: a request for an address of this host is answered to its sender; one for others is not.
func TestARPAnswers(t *testing.T) {
	l := newLAN(t)
	l.add(1, nil).addAddr("198.18.0.1/24")
	x := l.tap(9)
	l.settle()
	x.inbox = nil
	ask := func(target string) {
		x.inject(arpFrame(wire.ARPRequest, wire.Broadcast, x.mac, wire.ARPHost{MAC: x.mac, Addr: addr("198.18.0.9").As4()}, wire.ARPHost{Addr: addr(target).As4()}))
		l.settle()
	}
	ask("198.18.0.7")
	if len(x.inbox) != 0 {
		t.Error("answered for another host")
	}
	ask("198.18.0.1")
	if len(x.inbox) != 1 {
		t.Fatalf("%d answers", len(x.inbox))
	}
	r := wire.ARP(x.inbox[0][14:])
	if r.Op() != wire.ARPReply || r.SenderMAC() != (wire.MAC{2, 0, 0, 0, 0, 1}) || wire.AddrFrom4(r.Sender()) != addr("198.18.0.1") ||
		r.TargetMAC() != x.mac || wire.AddrFrom4(r.Target()) != addr("198.18.0.9") || wire.Ethernet(x.inbox[0]).Dst() != x.mac {
		t.Errorf("%x", r)
	}
}

// RFC 4861 7.1: what a router forwarded, or is not whole, is not neighbour discovery.
func TestNeighbourDiscoveryChecks(t *testing.T) {
	l := newLAN(t)
	a := l.add(1, nil).addAddr("2001:db8::1/64")
	x := wire.MAC{2, 0, 0, 0, 0, 9}
	from, own := addr("2001:db8::9"), addr("2001:db8::1")
	group := wire.Addr(wire.SolicitedNode(own))
	ns := wire.AppendNeighborSolicit(nil, own, x)
	all := wire.MulticastMAC6(group)
	short := append([]byte(nil), ns...)
	short[25] = 0 // an option of no length
	coded := append([]byte(nil), ns...)
	coded[1] = 1
	for name, c := range map[string]struct {
		f    []byte
		want packet.Verdict
	}{
		"good":              {icmp6Frame(all, x, from, group, 255, ns), packet.Deliver},
		"hop limit":         {icmp6Frame(all, x, from, group, 254, ns), packet.DropNeighbor},
		"code":              {icmp6Frame(all, x, from, group, 255, coded), packet.DropNeighbor},
		"option":            {icmp6Frame(all, x, from, group, 255, short), packet.DropNeighbor},
		"truncated":         {icmp6Frame(all, x, from, group, 255, ns[:20]), packet.DropNeighbor},
		"another address":   {icmp6Frame(all, x, from, group, 255, wire.AppendNeighborSolicit(nil, addr("2001:db8::fe:1"), x)), packet.DropNotOurs},
		"solicited to many": {naFrame(x, from, allNodes, from, x, wire.NASolicited, wire.MulticastMAC6(wire.AllNodes)), packet.DropNeighbor},
		"unsolicited":       {naFrame(x, from, own, from, x, wire.NASolicited, a.mac), packet.DropNeighbor},
	} {
		if v := a.feed(0, c.f); v != c.want {
			t.Errorf("%s: %v, want %v", name, v, c.want)
		}
	}
}
