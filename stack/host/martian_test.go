package host

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// echoer is a UDP service that sends each datagram back, as far as limit.
type echoer struct {
	*inbox
	sent, limit int
}

func (e *echoer) Ready(ev udp.Events) {
	e.inbox.Ready(ev)
	for i, m := range e.msgs {
		if e.sent == e.limit {
			break
		}
		e.sent++
		e.s.Write(e.b.now, []udp.Message{{
			Buffers: [][]byte{e.got[i]}, Local: m.Local, Remote: m.Remote, RemotePort: m.RemotePort,
		}})
	}
	e.got, e.msgs = nil, nil
}

// A datagram from outside whose source is another address of the host would go back and forth between two services of it
// for ever, without a packet on the wire (RFC 1122 3.2.1.3, RFC 1812 5.3.7).
func TestForgedOwnSourcesDoNotCirculate(t *testing.T) {
	for _, c := range []struct{ name, src, dst string }{
		{"another address", "198.18.0.9", "198.18.0.1"},
		{"the destination", "198.18.0.1", "198.18.0.1"},
		{"a directed broadcast", "198.18.0.255", "198.18.0.1"},
		{"another address of IPv6", "2001:db8::9", "2001:db8::1"},
		{"the link-local address", "fe80::9", "2001:db8::1"},
		{"from an address to the link-local one", "2001:db8::9", "fe80::9"},
	} {
		b := newBench(t, gpukern.Config{})
		for _, p := range []string{"198.18.0.9/24", "2001:db8::9/64", "fe80::9/64"} {
			b.must(b.a.AddAddr(0, netip.MustParsePrefix(p), ip.Static, true))
		}
		b.poll() // the addresses are announced
		x := &echoer{inbox: b.bind(7, nil), limit: 1000}
		x.s.SetOwner(x)
		b.inject(datagramBetween(c.src, c.dst, 7))
		sent := 0
		for range 100 {
			sent += len(b.poll())
		}
		if s := b.loop.Stats(); s.Dropped[packet.DropMartian] != 1 || x.sent != 0 || sent != 0 {
			t.Errorf("%s: %d echoes, %d packets on the wire, dropped %v", c.name, x.sent, sent, s.Dropped)
		}
		b.inject(datagramTo(true, 7, 7, []byte("honest")))
		if out := b.poll(); len(out) != 1 || x.sent != 1 {
			t.Errorf("%s: an honest datagram was answered by %d", c.name, len(out))
		}
		b.balance()
	}
}

// datagramBetween returns a frame from the far end to port and from it, with addresses of the caller's choice.
func datagramBetween(src, dst string, port uint16) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	f := datagramTo(s.Is4(), port, port, []byte("forged"))
	if s.Is4() {
		wire.IPv4(f[wire.EthernetLen:]).SetSrc(s.As4())
		wire.IPv4(f[wire.EthernetLen:]).SetDst(d.As4())
		refill(f)
		return f
	}
	q := wire.IPv6(f[wire.EthernetLen:])
	a, z := s.As16(), d.As16()
	copy(q[8:24], a[:])
	copy(q[24:40], z[:])
	u := wire.UDP(q[wire.IPv6Len:])
	u.FillChecksum(wire.PseudoHeader6(a, z, wire.ProtoUDP, uint32(len(u))))
	return f
}
