package inspect

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/wire"
)

// framed returns a packet of IP between two hosts, with tags before it and a payload behind its header.
func framed(a, b netip.Addr, tags []byte, payload []byte) []byte {
	f := append(make([]byte, 12), tags...)
	if a.Is4() {
		f = append(f, 8, 0)
		return append(wire.AppendIPv4(f, &wire.IPv4Header{Src: a.As4(), Dst: b.As4(), Proto: wire.ProtoUDP, TTL: 64, PayloadLen: len(payload)}), payload...)
	}
	f = append(f, 0x86, 0xdd)
	return append(wire.AppendIPv6(f, &wire.IPv6Header{Src: a.As16(), Dst: b.As16(), NextHeader: wire.ProtoUDP, HopLimit: 64, PayloadLen: len(payload)}), payload...)
}

// TestShardsAreThoseOfHosts has the same number for both directions, whatever is around and behind the addresses, and spreads pairs.
func TestShardsAreThoseOfHosts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	vlan := []byte{0x81, 0, 0, 5, 0x88, 0xa8, 0, 6}
	for _, six := range []bool{false, true} {
		const shards, pairs = 8, 4000
		var counts [shards]int
		for i := range pairs {
			host := func() netip.Addr {
				if six {
					return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(rnd.Uint32()), 15: byte(rnd.Uint32())})
				}
				return netip.AddrFrom4([4]byte{198, 18, byte(rnd.Uint32()), byte(rnd.Uint32())})
			}
			a, b := host(), host()
			h := Shard(framed(a, b, nil, make([]byte, 8)))
			for _, other := range [][]byte{framed(b, a, nil, make([]byte, 30)), framed(a, b, vlan[:4], nil), framed(b, a, vlan, nil)} {
				if Shard(other) != h {
					t.Fatalf("pair %d, %v and %v: another shard", i, a, b)
				}
			}
			counts[h%shards]++
		}
		for i, n := range counts {
			if n < pairs/shards*8/10 || n > pairs/shards*12/10 {
				t.Errorf("shard %d has %d pairs of %d", i, n, pairs)
			}
		}
	}
	for _, odd := range [][]byte{nil, make([]byte, 13), make([]byte, 60), append(make([]byte, 12), 8, 0, 0x45), append(make([]byte, 12), 0x86, 0xdd, 0x60)} {
		if Shard(odd) != 0 {
			t.Errorf("% x has a shard", odd)
		}
	}
}
