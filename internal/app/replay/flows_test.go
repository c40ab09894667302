package replay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// ends makes an IP header with ports behind it, as the header pass describes it.
func ends(src, dst netip.AddrPort, proto uint8) ([]byte, *packet.Desc) {
	p := make([]byte, 64)
	d := &packet.Desc{Flags: packet.FlagIPv4, L4: 20, Proto: proto}
	at := 12
	if src.Addr().Is6() {
		d.Flags, d.L4, at = packet.FlagIPv6, 40, 8
	}
	copy(p[at+copy(p[at:], src.Addr().AsSlice()):], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(p[d.L4:], src.Port())
	binary.BigEndian.PutUint16(p[d.L4+2:], dst.Port())
	return p, d
}

// TestFlowsDifferByEveryField counts flows whose ends differ in few bits, in both
// directions, against a map.
func TestFlowsDifferByEveryField(t *testing.T) {
	var all []netip.AddrPort
	for _, a := range []string{
		"192.0.2.1", "192.0.2.2", "198.18.0.1", "0.0.0.0", "255.255.255.255",
		"2001:db8::1", "2001:db8::2", "2001:db8:1::1", "::192.0.2.1", "::c000:201:0:0", "c000:201::", "::",
	} {
		for _, port := range []uint16{0, 1, 2, 256, 65535} {
			all = append(all, netip.AddrPortFrom(netip.MustParseAddr(a), port))
		}
	}
	r := rand.New(rand.NewPCG(3, 3))
	f, want := newFlows(0), map[string]bool{}
	f.begin()
	for range 8000 {
		a, b := all[r.IntN(len(all))], all[r.IntN(len(all))]
		if a.Addr().Is4() != b.Addr().Is4() {
			continue
		}
		proto := []uint8{wire.ProtoTCP, wire.ProtoUDP, wire.ProtoSCTP, wire.ProtoESP}[r.IntN(4)]
		p, d := ends(a, b, proto)
		f.add(p, d, len(p), 0)
		if proto == wire.ProtoESP { // no ports: whatever stands there is no part of the flow
			a, b = netip.AddrPortFrom(a.Addr(), 0), netip.AddrPortFrom(b.Addr(), 0)
		}
		if a.Compare(b) > 0 {
			a, b = b, a
		}
		want[fmt.Sprint(a, b, proto)] = true
	}
	if f.used != len(want) || f.inFile != uint64(len(want)) || f.beyond != 0 {
		t.Errorf("%d flows, %d in the file, %d unknown; want %d", f.used, f.inFile, f.beyond, len(want))
	}
}

func TestEveryWordOfAKeyCounts(t *testing.T) {
	k := flowKey{1, 2, 3, 4, 5}
	for i := range k {
		l := k
		if !k.is(&l) {
			t.Error("a key is not itself")
		}
		l[i] ^= 1 << 40
		if k.is(&l) {
			t.Errorf("keys that differ in word %d are the same", i)
		}
	}
}

func TestAFlowCountsOnceInEachFile(t *testing.T) {
	f := newFlows(3000)
	flow := func(i int) ([]byte, *packet.Desc) {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
		return ends(a, netip.MustParseAddrPort("192.0.2.1:1"), wire.ProtoTCP)
	}
	for file, n := range []int{1000, 2000, 2900} {
		f.begin()
		for range 2 {
			for i := range n {
				p, d := flow(i)
				f.add(p, d, len(p), 0)
			}
		}
		if f.inFile != uint64(n) || f.used != n {
			t.Errorf("file %d: %d flows of it, %d in all; want %d", file, f.inFile, f.used, n)
		}
	}
	for i := range 3500 {
		p, d := flow(i)
		f.add(p, d, len(p), 0)
	}
	if f.used != 3000 || f.beyond != 500 {
		t.Errorf("%d flows and %d unknown, with a bound of 3000", f.used, f.beyond)
	}
}
