package ip

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fastPath has the engine look at a frame and asks for the decision.
func (s *station) fastPath(frame []byte) (p FastPacket, ok bool) {
	d := s.describe(frame)
	ok = s.FastPath(frame, &d, &p)
	return p, ok
}

func TestFastPathTakesUnfragmentedUnicast(t *testing.T) {
	for _, c := range pairs {
		_, a, x := meetOwn(t, c)
		h := Header{Src: addr(c.b), Dst: addr(c.a), TTL: 63, TOS: 0xb9}
		f := ipFrame(a, x, &h, udpTo(&h, 10))
		f = append(f, 0, 0, 0) // padding
		p, ok := a.fastPath(f)
		if !ok || p.Is4 != (c.name == "IPv4") || p.TTL != 63 || p.TOS != 0xb9 || p.Payload != 18 || &p.L3[0] != &f[14] {
			t.Errorf("%s: %v, %+v", c.name, ok, p)
		}
		for name, spoil := range map[string]func(f []byte){
			"to another link address":               func(f []byte) { f[5]++ },
			"to all link addresses":                 func(f []byte) { copy(f, wire.Broadcast[:]) },
			"from its destination":                  func(f []byte) { source(f, h.Dst) },
			"unspecified":                           func(f []byte) { source(f, wire.AddrFrom4([4]byte{})) },
			"from the loopback":                     func(f []byte) { source(f, addr(map[string]string{"IPv4": "127.0.0.1", "IPv6": "::1"}[c.name])) },
			"from a group":                          func(f []byte) { source(f, addr(map[string]string{"IPv4": "224.0.0.5", "IPv6": "ff02::5"}[c.name])) },
			"from another own address":              func(f []byte) { source(f, addr(ownOf[c.name].other)) },
			"from an own address of another device": func(f []byte) { source(f, addr(ownOf[c.name].far)) },
			"from an own link-local address":        func(f []byte) { source(f, addr(ownOf[c.name].link)) },
			"from a directed broadcast":             func(f []byte) { source(f, addr(ownOf[c.name].broadcast)) },
			"of another protocol":                   func(f []byte) { f[map[string]int{"IPv4": 23, "IPv6": 20}[c.name]] = wire.ProtoSCTP; sum4(f) },
			"to another host":                       func(f []byte) { f[map[string]int{"IPv4": 33, "IPv6": 53}[c.name]]++; sum4(f) },
			"with options": func(f []byte) {
				f[map[string]int{"IPv4": 14, "IPv6": 20}[c.name]] = map[string]byte{"IPv4": 0x46}[c.name]
				sum4(f)
			},
			"cut short": func(f []byte) { f[map[string]int{"IPv4": 17, "IPv6": 19}[c.name]] += 100; sum4(f) },
		} {
			g := append([]byte(nil), f...)
			spoil(g)
			if _, ok := a.fastPath(g); ok {
				t.Errorf("%s: a packet %s is on the fast path", c.name, name)
			}
		}
		f[len(f)-4]++ // the transport checksum is the caller's to verify
		if _, ok := a.fastPath(f); !ok {
			t.Errorf("%s: a wrong transport checksum", c.name)
		}
	}
}

// source writes a source address, in the form of the frame's version, and the header checksum.
func source(f []byte, a wire.Addr) {
	if f[14]>>4 == 4 {
		copy(f[26:], a[12:])
		sum4(f)
		return
	}
	copy(f[22:38], a[:])
}

func sum4(f []byte) {
	if f[14]>>4 == 4 && wire.IPv4(f[14:]).Valid() {
		wire.IPv4(f[14:]).FillChecksum()
	}
}

// ownOf are addresses by which meetOwn extends a host: another one of its device, one of a second device, a link-local
// one, and the directed broadcast of a network (IPv6 has none: one of many own addresses stands there).
var ownOf = map[string]struct{ other, far, link, broadcast string }{
	"IPv4": {"198.18.0.9", "192.0.2.1", "169.254.3.4", "198.18.0.255"},
	"IPv6": {"2001:db8::9", "2001:db8:2::1", "fe80::9", "2001:db8::a"},
}

// meetOwn is meet with a host of several addresses and two devices.
func meetOwn(t testing.TB, c struct{ name, a, b, bits string }) (*lan, *station, *station) {
	l, a, x := meet(t, c, func(cfg *Config) {
		cfg.Links = append(cfg.Links, Link{MAC: wire.MAC{2, 0, 0, 0, 1, 1}, MTU: 1500})
	})
	o := ownOf[c.name]
	for dev, list := range [][]string{{o.other, o.link}, {o.far}} {
		for _, s := range list {
			if err := a.AddAddr(l.now, uint8(dev), netip.MustParsePrefix(s+c.bits), Static, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.name == "IPv6" {
		if err := a.AddAddr(l.now, 0, netip.MustParsePrefix(o.broadcast+c.bits), Static, true); err != nil {
			t.Fatal(err)
		}
	}
	return l, a, x
}

// A source that has been the host's own is another host's after the address is removed, and the other way round.
func TestFastPathFollowsOwnAddresses(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meetOwn(t, c)
		h := Header{Src: addr(ownOf[c.name].other), Dst: addr(c.a)}
		f := ipFrame(a, x, &h, udpTo(&h, 10))
		for i, own := range []bool{true, false, true} {
			switch {
			case i > 0 && own:
				if err := a.AddAddr(l.now, 0, netip.MustParsePrefix(ownOf[c.name].other+c.bits), Static, true); err != nil {
					t.Fatal(err)
				}
			case i > 0:
				if err := a.DelAddr(l.now, 0, h.Src); err != nil {
					t.Fatal(err)
				}
			}
			if _, fast := a.fastPath(f); fast == own {
				t.Errorf("%s: own %v, on the fast path %v", c.name, own, fast)
			}
			if v := a.feed(0, f); (v == packet.DropMartian) != own {
				t.Errorf("%s: own %v: %v", c.name, own, v)
			}
		}
	}
}

// What the fast path takes, Input passes to the transport too, with the same findings.
func TestFastPathAgreesWithInput(t *testing.T) {
	for _, c := range pairs {
		l, a, x := meetOwn(t, c)
		own := ownOf[c.name]
		sources := []string{c.a, c.b, own.other, own.far, own.link, own.broadcast, c.b, c.b}
		r := rand.New(rand.NewPCG(4, uint64(len(c.name))))
		h := Header{Src: addr(c.b), Dst: addr(c.a), TTL: 64}
		taken := 0
		for range 20000 {
			h.Src = addr(sources[r.IntN(len(sources))])
			f := ipFrame(a, x, &h, udpTo(&h, 30))
			for range r.IntN(3) {
				f[12+r.IntN(50)] = byte(r.IntN(256))
			}
			sum4(f)
			d := a.describe(f)
			var p FastPacket
			if !a.FastPath(f, &d, &p) || !d.Flags.Has(packet.FlagL4ChecksumOK) {
				continue
			}
			taken++
			var g Datagram
			if v := a.Input(l.now, 0, f, &d, &g); v != packet.Undecided {
				t.Fatalf("%s: %v for %x", c.name, v, f)
			}
			if g.TOS != p.TOS || g.TTL != p.TTL || len(g.Payload) != p.Payload || g.Dst.Is4() != p.Is4 {
				t.Fatalf("%s: %+v and %+v of %x", c.name, g, p, f)
			}
		}
		if taken < 2500 {
			t.Errorf("%s: only %d packets on the fast path", c.name, taken)
		}
	}
}

func BenchmarkFastPath(b *testing.B) {
	for _, c := range pairs {
		b.Run(c.name, func(b *testing.B) {
			_, a, x := meet(b, c, nil)
			h := Header{Src: addr(c.b), Dst: addr(c.a)}
			f := ipFrame(a, x, &h, udpTo(&h, 10))
			d := a.describe(f)
			var p FastPacket
			for b.Loop() {
				if !a.FastPath(f, &d, &p) {
					b.Fatal("slow")
				}
			}
		})
	}
}
