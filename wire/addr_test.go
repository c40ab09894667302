package wire

import (
	"net/netip"
	"testing"
)

func TestAddr(t *testing.T) {
	for _, c := range []struct {
		addr                                          string
		martian, group, linkLocal, loopback, anywhere bool
	}{
		{addr: "198.18.0.1"},
		{addr: "10.0.0.1"},
		{addr: "1.0.0.0"},
		{addr: "223.255.255.255"},
		{addr: "126.1.1.1"},
		{addr: "128.0.0.1"},
		{addr: "0.0.0.0", martian: true, anywhere: true},
		{addr: "0.1.2.3", martian: true},
		{addr: "127.0.0.1", martian: true, loopback: true},
		{addr: "127.255.255.255", martian: true, loopback: true},
		{addr: "169.254.1.1", linkLocal: true},
		{addr: "224.0.0.1", martian: true, group: true},
		{addr: "239.255.255.255", martian: true, group: true},
		{addr: "240.0.0.1", martian: true},
		{addr: "255.255.255.255", martian: true},
		{addr: "2001:db8::1"},
		{addr: "fe80::1", linkLocal: true},
		{addr: "fec0::1"},
		{addr: "64:ff9b::1"},
		{addr: "0:0:0:1::"},
		{addr: "::", martian: true, anywhere: true},
		{addr: "::1", martian: true, loopback: true},
		{addr: "::198.18.0.1", martian: true},
		{addr: "ff02::1", martian: true, group: true},
		{addr: "ff00::", martian: true, group: true},
	} {
		n := netip.MustParseAddr(c.addr)
		a := AddrFrom(n)
		if a.Netip() != n || a.String() != n.String() || a.Is4() != n.Is4() {
			t.Errorf("%s is %v", c.addr, a)
		}
		if a.Martian() != c.martian || a.Multicast() != c.group || a.LinkLocal() != c.linkLocal || a.Loopback() != c.loopback || a.Unspecified() != c.anywhere {
			t.Errorf("%s: martian %v, multicast %v, link-local %v, loopback %v, unspecified %v",
				c.addr, a.Martian(), a.Multicast(), a.LinkLocal(), a.Loopback(), a.Unspecified())
		}
		if a.Is4() {
			b := AppendIPv4(nil, &IPv4Header{Src: a.As4(), Dst: [4]byte{1, 2, 3, 4}})
			if AddrFrom4(a.As4()) != a || IPv4(b).MartianSrc() != c.martian {
				t.Errorf("%s: from a header", c.addr)
			}
			continue
		}
		if b := AppendIPv6(nil, &IPv6Header{Src: a, Dst: [16]byte{1}}); IPv6(b).MartianSrc() != c.martian {
			t.Errorf("%s: from a header", c.addr)
		}
	}
}

func TestTupleReverse(t *testing.T) {
	x := Tuple{AddrFrom4([4]byte{1}), AddrFrom4([4]byte{2}), 3, 4}
	if y := x.Reverse(); y != (Tuple{AddrFrom4([4]byte{2}), AddrFrom4([4]byte{1}), 4, 3}) || y.Reverse() != x {
		t.Errorf("%+v", y)
	}
}

func TestPseudoHeaderIsThatOfTheVersion(t *testing.T) {
	a4, b4 := [4]byte{198, 18, 0, 1}, [4]byte{198, 18, 0, 2}
	if got := PseudoHeader(AddrFrom4(a4), AddrFrom4(b4), ProtoTCP, 70000); got != PseudoHeader4(a4, b4, ProtoTCP, 70000) {
		t.Errorf("IPv4: %#x", got)
	}
	a6, b6 := Addr{0x20, 1, 15: 1}, Addr{0x20, 1, 15: 2}
	if got := PseudoHeader(a6, b6, ProtoUDP, 70000); got != PseudoHeader6(a6, b6, ProtoUDP, 70000) {
		t.Errorf("IPv6: %#x", got)
	}
}
