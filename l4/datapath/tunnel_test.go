package datapath

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/wire"
)

func TestTheHeadroomHoldsEveryTunnel(t *testing.T) {
	for _, w := range []Mode{ModeNAT, ModeIPIP, ModeGUE, ModeL2} {
		for _, is4 := range []bool{false, true} {
			if n := w.overhead(is4) + wire.VLANLen; n > Headroom {
				t.Errorf("mode %d takes %d bytes of %d", w, n, Headroom)
			}
		}
	}
}

func TestHostsOfAPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, low, high string }{
		{"198.18.5.0/24", "198.18.5.0", "198.18.5.255"},
		{"198.18.5.7/32", "198.18.5.7", "198.18.5.7"},
		{"198.18.0.0/15", "198.18.0.0", "198.19.255.255"},
		{"2001:db8:5::/64", "2001:db8:5::", "2001:db8:5::ffff:ffff:ffff:ffff"},
		{"2001:db8::/32", "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"2001:db8::7/128", "2001:db8::7", "2001:db8::7"},
	} {
		p := netip.MustParsePrefix(c.prefix)
		tun := NewTunnel(0, []netip.Prefix{p}, false)
		is4 := p.Addr().Is4()
		if low, high := tun.source(0, is4).Addr().String(), tun.source(^uint64(0)>>0, is4).Addr().String(); low != c.low || is4 && high != c.high {
			t.Errorf("%s: %s to %s", c.prefix, low, high)
		}
		for i := range uint64(1000) {
			if a := tun.source(spreading.sum(addr{0, i}, i), is4).Addr(); !p.Contains(a) {
				t.Fatalf("%s: %s", c.prefix, a)
			}
		}
	}
}

// A flow label of 0 says that there is none (RFC 6437 3): flows whose hash has 20 zeros there get another.
func TestFlowLabelIsNeverZero(t *testing.T) {
	for v := (view{dport: 53}); ; v.sport++ {
		if v.spread()>>24&0xfffff != 0 {
			if v.sport == 65535 {
				v.src.lo++
			}
			continue
		}
		if label := flowLabel(v.spread()) & 0xfffff; label != 1 {
			t.Errorf("label %d", label)
		}
		return
	}
}

// The path of a tunnel is remembered as long as an endpoint in use has the address of its backend.
func TestPathsOfBackendsThatAreGoneAreForgotten(t *testing.T) {
	kept, gone := addrOf(netip.MustParseAddr("198.18.2.11")), addrOf(netip.MustParseAddr("198.18.2.12"))
	s := &Snapshot{Endpoints: []*Endpoint{{addr: kept, InUse: true}, {addr: gone}}}
	s.Index(nil)
	s.SetOwn(nil, nil)
	var snap atomic.Pointer[Snapshot]
	snap.Store(s)
	h := New(Options{Loops: 1, Table: 64, HalfOpen: 16, Fragments: 64, SNATPorts: PortRange{First: 1024, Last: 2047}}, &snap)
	h.paths = map[addr]tunnelPath{kept: {}, gone: {}}
	next := *s
	next.Round++ // a reload
	snap.Store(&next)
	h.refresh()
	if _, ok := h.paths[kept]; !ok || len(h.paths) != 1 {
		t.Errorf("paths %v", h.paths)
	}
}

// The MTU of a path is the least that is known: of the device, and of the errors that came.
func TestMTUOfAPath(t *testing.T) {
	h := &Handler{snap: &Snapshot{Devices: []Device{{MTU: 1400}}}, paths: map[addr]tunnelPath{}}
	to := &Endpoint{addr: addrOf(netip.MustParseAddr("198.18.2.1"))}
	expect := func(what string, want int) {
		t.Helper()
		if got := h.tunneler().tunnelMTU(to); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
		if got := h.tunneler().roomTo(to, ModeIPIP); got != want-20 {
			t.Errorf("%s: room for %d, want %d", what, got, want-20)
		}
	}
	expect("the device's", 1400)
	h.tunneler().learnPath(to.addr, 1300)
	expect("an error's", 1300)
	h.tunneler().learnPath(to.addr, 1350)
	expect("an error about an earlier packet", 1300)
	h.tunneler().learnPath(to.addr, 100)
	expect("one that is too small", leastPath4)
	h.paths[to.addr] = tunnelPath{mtu: 1300, until: h.paths[to.addr].until}
	h.snap.Devices[0].MTU = 1200
	expect("the device's has become smaller", 1200)
	h.now += ticksIn(2 * pathLife)
	h.snap.Devices[0].MTU = 1500
	expect("the path's has expired", 1500)
}
