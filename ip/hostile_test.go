package ip

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// heap returns the bytes in use on the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// nth returns address i of the net of c.
func nth(c struct{ name, a, b, bits string }, i int) wire.Addr {
	a := addr(c.a)
	binary.BigEndian.PutUint16(a[14:], uint16(i))
	return a
}

// Packets to very many neighbours that do not answer: memory keeps its bound, neighbours in use stay, and a new one is
// found.
func TestNeighbourStorm(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			c.bits = map[string]string{"IPv4": "/16", "IPv6": "/64"}[c.name]
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			a.udp(c.a, c.b, nil, nil)
			l.after(5 * time.Second)
			b.got, b.gotBytes = nil, nil
			before := heap()
			late := l.add(9, nil)
			late.addAddr(nth(c, 0xfff0).String() + c.bits)
			found := 0
			for i := range 60000 {
				h := Header{Src: addr(c.a), Dst: nth(c, 1000+i%50000), Proto: wire.ProtoUDP}
				if p, _ := a.Route(l.now, h.Dst, h.Src, AnyDev); p != nil {
					a.Node.Send(l.now, p, &h, make([]byte, 1000))
				}
				if i%100 == 0 {
					if v := a.udp(c.a, c.b, []byte{1}, nil); v != packet.Forward {
						t.Fatalf("a packet to a neighbour in use: %v", v)
					}
				}
				if i%1000 == 0 {
					a.udp(c.a, nth(c, 0xfff0).String(), []byte{2}, nil)
				}
				if i%20 == 0 {
					l.after(time.Millisecond)
				}
				if s := a.Stats(); s.Neighbors > 1024 || s.NeighborMem > 512<<10 {
					t.Fatalf("%d entries, %d bytes", s.Neighbors, s.NeighborMem)
				}
			}
			found = len(late.got)
			if len(b.got) != 600 || found == 0 {
				t.Errorf("%d of 600 to a neighbour in use, %d to a new one", len(b.got), found)
			}
			l.after(20 * time.Second)
			if s := a.Stats(); s.NeighborMem != 0 {
				t.Errorf("%d bytes wait on", s.NeighborMem)
			}
			if grown := heap() - before; grown > 4<<20 {
				t.Errorf("%d bytes of heap", grown)
			}
		})
	}
}

// Forged ARP and neighbour discovery for all addresses: nothing is learned, and what is asked of this node
// is answered.
func TestNeighbourFlood(t *testing.T) {
	for _, c := range pairs {
		t.Run(c.name, func(t *testing.T) {
			l := newLAN(t)
			a, b := l.add(1, nil).addAddr(c.a+c.bits), l.add(2, nil).addAddr(c.b+c.bits)
			a.udp(c.a, c.b, nil, nil)
			l.settle()
			r := rand.New(rand.NewPCG(1, 1))
			x := l.tap(66)
			for i := range 20000 {
				mac := wire.MAC{2, 6, 6, 6, byte(i >> 8), byte(i)}
				who := nth(c, 2+r.IntN(3000)).String()
				a.feed(0, claim(c.name == "IPv4", mac, who, a, c.a))
				if c.name == "IPv4" {
					a.feed(0, arpFrame(wire.ARPRequest, wire.Broadcast, mac, wire.ARPHost{MAC: mac, Addr: addr(who).As4()}, wire.ARPHost{Addr: nth(c, r.IntN(3000)).As4()}))
				} else {
					tgt := nth(c, r.IntN(3000))
					a.feed(0, icmp6Frame(wire.MulticastMAC6(wire.SolicitedNode(tgt)), mac, addr(who), wire.Addr(wire.SolicitedNode(tgt)), 255, wire.AppendNeighborSolicit(nil, tgt, mac)))
				}
				l.air = nil
				if i%100 == 0 {
					l.after(time.Millisecond)
				}
			}
			l.after(3 * time.Second)
			b.got = nil
			a.udp(c.a, c.b, []byte("still"), nil)
			l.settle()
			if a.Stats().Neighbors != 1 || a.entry(c.b).MAC != b.mac || len(b.got) != 1 {
				t.Errorf("%d entries, %v, %d datagrams", a.Stats().Neighbors, a.entry(c.b), len(b.got))
			}
			_ = x
		})
	}
}

// Router advertisements without end: addresses and routes keep their bounds, and the router that was there
// first stays.
func TestAdvertisementFlood(t *testing.T) {
	l := newLAN(t)
	a, router := l.add(1, auto), l.tap(9)
	router.inject(raFrame(router.mac, 1800, prefixOption("2001:db8:1::/64", onLinkAuto, 7200, 3600)))
	l.after(5 * time.Second)
	before := heap()
	for i := range 5000 {
		f := raFrame(wire.MAC{2, 6, 6, 6, byte(i >> 8), byte(i)}, 1800,
			prefixOption("2001:db8:"+string("0123456789abcdef"[i&15])+string("0123456789abcdef"[i>>4&15])+string("123456789abcdef0"[i>>8&15])+"::/64", onLinkAuto, 7200, 3600))
		f[36] = byte(i)
		f[37] = byte(i >> 8)
		wire.ICMPv6(f[54:]).SetChecksum(0)
		wire.ICMPv6(f[54:]).FillChecksum(wire.IPv6(f[14:]).Pseudo())
		router.inject(f)
		if i%10 == 0 {
			l.after(100 * time.Millisecond)
		}
	}
	l.after(10 * time.Second)
	if n := len(a.Addrs()); n > 1+maxAutoAddrs {
		t.Errorf("%d addresses", n)
	}
	if n := len(a.Routes()); n > 1+maxLearnedDev {
		t.Errorf("%d routes", n)
	}
	if a.verdicts[packet.DropRateLimit] == 0 {
		t.Error("no limit")
	}
	found := false
	for _, r := range a.Routes() {
		found = found || r.Gateway == addr("fe80::99")
	}
	if !found {
		t.Error("the first router is gone")
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes of heap", grown)
	}
}

// FuzzInput gives a node sequences of frames: nothing panics, what is sent can be read by another
// implementation, what is held keeps its bounds, and an honest exchange goes through afterwards.
func FuzzInput(f *testing.F) {
	for _, c := range pairs {
		_, a, x := meet(f, c, nil)
		h := Header{Src: addr(c.b), Dst: addr(c.a)}
		f.Add(ipFrame(a, x, &h, udpTo(&h, 20)))
		f.Add(claim(c.name == "IPv4", x.mac, c.b, a, c.a))
		f.Add(errorFrame(a, x, c.b, c.a, 3, 4, 1300, ipFrame(a, x, &Header{Src: addr(c.a), Dst: addr(c.b), Proto: 17}, udpTo(&h, 20))[14:]))
		f.Add(fragmentFrame(a, x, c, 17, 5, whole(c, 64), part{off: 0, end: 32, more: true}))
		f.Add(errorFrame(a, x, c.b, c.a, 8, 0, 1, []byte("echo")))
		f.Add(errorFrame(a, x, c.b, c.a, 128, 0, 1, []byte("echo")))
	}
	f.Add(raFrame(wire.MAC{2, 0, 0, 0, 0, 2}, 1800, prefixOption("2001:db8:1::/64", onLinkAuto, 7200, 3600)))
	f.Add(igmpFrame([]byte{0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0}, "224.0.0.1"))
	f.Fuzz(func(t *testing.T, in []byte) {
		l := newLAN(t)
		a := l.add(1, auto).addAddr("198.18.0.1/24").addAddr("2001:db8::1/64")
		x := l.tap(2)
		a.Serve(253, true)
		if len(in) > 2000 {
			in = in[:2000]
		}
		for i := range 3 {
			f := append([]byte(nil), in...)
			if len(f) > 14 && i > 0 {
				fixLengths(a, f)
			}
			a.feed(0, f)
			l.after(700 * time.Millisecond)
			if s := a.Stats(); s.FragmentMem > 1<<20 || s.Neighbors > 1024 || s.NeighborMem > 256<<10 {
				t.Fatalf("%+v", s)
			}
		}
		l.after(20 * time.Second)
		if err := a.AddNeighbor(l.now, 0, addr("198.18.0.2"), x.mac); err != nil {
			t.Fatal(err)
		}
		x.inbox = nil
		h := Header{Src: addr("198.18.0.2"), Dst: addr("198.18.0.1"), Proto: wire.ProtoICMP}
		m := wire.AppendICMP(nil, wire.ICMPEcho, 0, 1)
		wire.ICMP(m).FillChecksum()
		x.inject(ipFrame(a, x, &h, m))
		l.settle()
		if len(x.inbox) != 1 {
			t.Fatalf("an echo request afterwards has %d answers", len(x.inbox))
		}
	})
}

// fixLengths corrects lengths and checksums of a frame, so that it passes the first checks.
func fixLengths(a *station, f []byte) {
	copy(f, a.mac[:])
	switch ip := wire.IPv4(f[14:]); {
	case wire.Ethernet(f).EtherType() == wire.EtherTypeIPv4 && len(ip) >= 20:
		ip.SetTotalLen(uint16(len(ip)))
		if ip.ValidHeader() {
			ip.FillChecksum()
			if p := ip.Payload(); ip.Proto() == wire.ProtoICMP && len(p) >= 8 {
				wire.ICMP(p).FillChecksum()
			}
		}
	case wire.Ethernet(f).EtherType() == wire.EtherTypeIPv6 && len(ip) >= 40:
		q := wire.IPv6(ip)
		q.SetPayloadLen(uint16(len(ip) - 40))
		if proto, off, _, ok := wire.Upper6(q); ok && proto == wire.ProtoICMPv6 && len(q)-off >= 8 {
			wire.ICMPv6(q[off:]).SetChecksum(0)
			wire.ICMPv6(q[off:]).FillChecksum(wire.PseudoHeader6(q.Src(), q.Dst(), proto, uint32(len(q)-off)))
		}
	}
}
