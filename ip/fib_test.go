package ip

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/wire"
)

// lookup is the reference of Table.Lookup: of all routes that cover dst, those with the longest prefix
// that has one by way of dev.
func lookup(routes []Route, dst wire.Addr, dev uint8) (best netip.Prefix, ok bool) {
	bits := -1
	for _, r := range routes {
		if r.Prefix.Masked().Contains(dst.Netip()) && (dev == AnyDev || r.Dev == dev) && r.Prefix.Bits() > bits {
			best, bits, ok = r.Prefix.Masked(), r.Prefix.Bits(), true
		}
	}
	return best, ok
}

func randomAddr(r *rand.Rand, is4 bool) netip.Addr {
	// Few different bits, so that prefixes nest and share paths.
	if is4 {
		return netip.AddrFrom4([4]byte{198, 18 + byte(r.IntN(2)), byte(r.IntN(4)) << 6, byte(r.IntN(256))})
	}
	a := netip.MustParseAddr("2001:db8::").As16()
	a[4], a[7], a[8], a[15] = byte(r.IntN(4))<<6, byte(r.IntN(4)), byte(r.IntN(2))<<7, byte(r.IntN(256))
	return netip.AddrFrom16(a)
}

func TestTableAgainstReference(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var routes []Route
		for range r.IntN(60) {
			a := randomAddr(r, r.IntN(2) == 0)
			bits := r.IntN(a.BitLen() + 1)
			if r.IntN(4) == 0 {
				bits = a.BitLen()
			}
			routes = append(routes, Route{Prefix: netip.PrefixFrom(a, bits), Dev: uint8(r.IntN(3)), Metric: uint32(r.IntN(3))})
		}
		table := NewTable(routes)
		for range 300 {
			dst, dev := wire.AddrFrom(randomAddr(r, r.IntN(2) == 0)), uint8(r.IntN(4))
			if dev == 3 {
				dev = AnyDev
			}
			want, ok := lookup(routes, dst, dev)
			got := table.Lookup(dst, dev)
			if ok != (len(got) > 0) || ok && got[0].Prefix != want {
				t.Fatalf("seed %d: %v by device %d: got %v, want %v %v", seed, dst, dev, got, want, ok)
			}
			for i := 1; i < len(got); i++ {
				if got[i].Prefix != want || got[i].Metric < got[i-1].Metric {
					t.Fatalf("seed %d: %v: order %v", seed, dst, got)
				}
			}
		}
	}
}

func TestTableDefaultsAreOfOneVersion(t *testing.T) {
	table := NewTable([]Route{{Prefix: netip.MustParsePrefix("::/0")}})
	if table.Lookup(addr("198.18.0.1"), AnyDev) != nil {
		t.Error("an IPv6 default route serves IPv4")
	}
	if table.Lookup(addr("2001:db8::1"), AnyDev) == nil {
		t.Error("no default route")
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Fuzz(func(t *testing.T, b []byte) {
		var routes []Route
		for ; len(b) >= 6; b = b[6:] {
			a := netip.AddrFrom4([4]byte(b[:4]))
			if b[5]&1 != 0 {
				a = netip.AddrFrom16([16]byte{0: b[0], 1: b[1], 8: b[2], 15: b[3]})
			}
			routes = append(routes, Route{Prefix: netip.PrefixFrom(a, int(b[4])%(a.BitLen()+1)), Dev: b[5] >> 1 & 3})
		}
		table := NewTable(routes)
		for _, r := range routes {
			for _, dev := range []uint8{AnyDev, 0, 1} {
				dst := wire.AddrFrom(r.Prefix.Addr())
				want, ok := lookup(routes, dst, dev)
				if got := table.Lookup(dst, dev); ok != (len(got) > 0) || ok && got[0].Prefix != want {
					t.Fatalf("%v: got %v, want %v %v", dst, got, want, ok)
				}
			}
		}
	})
}
