package afpacket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// run executes a program on x/net's machine.
func run(t testing.TB, prog []unix.SockFilter, p []byte) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, i := range prog {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	insns, all := bpf.Disassemble(raw)
	if !all {
		t.Fatal("an instruction is not one")
	}
	vm, err := bpf.NewVM(insns)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(p)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// takes decides about a packet, rule by rule.
func takes(rules []Rule, p []byte) bool {
	keep, wide := false, false
	for _, r := range rules {
		switch {
		case r.Kind == pmd.Keep:
			keep = keep || dstOf(p) == r.Addr
		case !matches(r, p):
		case r.Kind == pmd.From || r.Bits != 0:
			wide = true
		default:
			return true
		}
	}
	return wide && !keep
}

func dstOf(p []byte) netip.Addr {
	switch binary.BigEndian.Uint16(p[12:]) {
	case wire.EtherTypeIPv4:
		return wire.IPv4(p[14:]).DstAddr()
	case wire.EtherTypeIPv6:
		return wire.IPv6(p[14:]).DstAddr()
	}
	return netip.Addr{}
}

// matches is the slow, obvious form of a rule.
func matches(r Rule, p []byte) bool {
	switch binary.BigEndian.Uint16(p[12:]) {
	case wire.EtherTypeARP:
		return r.Kind == pmd.Neighbor && netip.AddrFrom4([4]byte(p[38:42])) == r.Addr
	case wire.EtherTypeIPv4:
		ip := wire.IPv4(p[14:])
		return matchesIP(r, ip.SrcAddr(), ip.DstAddr(), ip.Proto(), p[14+ip.HeaderLen():], ip.FragmentOffset() != 0)
	case wire.EtherTypeIPv6:
		ip := wire.IPv6(p[14:])
		proto, off, frag, ok := wire.Upper6(ip)
		if !ok {
			return matchesIP(r, ip.SrcAddr(), ip.DstAddr(), 255, nil, true)
		}
		return matchesIP(r, ip.SrcAddr(), ip.DstAddr(), proto, ip[off:], frag.Offset != 0)
	}
	return false
}

func matchesIP(r Rule, src, dst netip.Addr, proto uint8, transport []byte, rest bool) bool {
	addr, port := src, 0
	if r.Kind == pmd.To {
		addr, port = dst, 2
	}
	discovery := dst.Is6() && proto == wire.ProtoICMPv6 && !rest && transport[0] >= 133 && transport[0] <= 137
	switch {
	case r.Kind == pmd.Neighbor:
		return discovery && (transport[0] == 135 && netip.AddrFrom16([16]byte(transport[8:24])) == r.Addr || transport[0] == 136 && dst == r.Addr)
	case r.Bits != 0 && !netip.PrefixFrom(r.Addr, int(r.Bits)).Contains(addr), r.Bits == 0 && addr != r.Addr:
		return false
	case r.Proto != 0 && (r.Proto != proto || discovery):
		return false
	case r.LaterFragments:
		return rest
	case r.PortLo == 0 && r.PortHi == 0:
		return true
	case rest:
		return false
	}
	v := uint16(transport[0])
	if pmd.HasPorts(proto) {
		v = binary.BigEndian.Uint16(transport[port:])
	}
	return v >= r.PortLo && v <= max(r.PortLo, r.PortHi)
}

// world is small, so that random rules and packets meet often.
type world struct{ *rand.Rand }

func (w world) addr(v6 bool) netip.Addr {
	if v6 {
		a := [16]byte{0x20, 1, 0xd, 0xb8}
		a[3+4*w.IntN(4)] ^= byte(w.IntN(2)) // differs in any of the four words
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(w.IntN(3))})
}

func (w world) proto() uint8 { return []uint8{6, 17, 58, 132, 1}[w.IntN(5)] }

func (w world) rule() Rule {
	r := Rule{Addr: w.addr(w.IntN(2) == 0), Kind: pmd.RuleKind(w.IntN(4))}
	if r.Kind >= pmd.Neighbor {
		return r
	}
	if w.IntN(2) == 0 {
		r.Proto = w.proto()
	}
	switch ports := pmd.HasPorts(r.Proto) || pmd.HasTypes(r.Proto); {
	case ports && w.IntN(3) > 0:
		r.PortLo = uint16(w.IntN(6))
		if pmd.HasTypes(r.Proto) && w.IntN(2) == 0 {
			r.PortLo += 130
		}
		r.PortHi = r.PortLo + uint16(w.IntN(3))
		if w.IntN(2) == 0 {
			r.PortHi = 0
		}
	case ports && w.IntN(2) == 0:
		r.LaterFragments = pmd.HasPorts(r.Proto) || w.IntN(2) == 0
		if !r.LaterFragments && r.Proto == wire.ProtoICMPv6 && r.Kind == pmd.To {
			if r.Addr.Is4() {
				r.Proto = wire.ProtoICMP
			}
			r.Bits = uint8(1 + w.IntN(r.Addr.BitLen()))
		}
	}
	return r
}

// packet makes one with the fields that rules look at, and some that they must not.
func (w world) packet() []byte {
	p := make([]byte, 200)
	for i := range p {
		p[i] = byte(w.IntN(3))
	}
	put := func(at int, v uint16) { binary.BigEndian.PutUint16(p[at:], v) }
	switch w.IntN(5) {
	case 0:
		put(12, wire.EtherTypeARP)
		copy(p[38:], w.addr(false).AsSlice())
	case 1, 2:
		put(12, wire.EtherTypeIPv4)
		ip := wire.IPv4(p[14:])
		ip.SetHeaderLen(20 + 4*w.IntN(3))
		ip.SetTotalLen(186)
		ip.SetProto(w.proto())
		put(20, uint16(w.IntN(2)*w.IntN(2)*(1+w.IntN(100))|w.IntN(8)<<13))
		ip.SetSrc(w.addr(false).As4())
		ip.SetDst(w.addr(false).As4())
	case 3, 4:
		put(12, wire.EtherTypeIPv6)
		p[14] = 0x60
		put(18, 146)
		src, dst := w.addr(true).As16(), w.addr(true).As16()
		copy(p[22:], src[:])
		copy(p[38:], dst[:])
		at, next := 54, 20
		for i := range w.IntN(5) {
			kind := []byte{60, 43, 60, 44}[w.IntN(4)]
			if i == 0 && w.IntN(4) == 0 {
				kind = 0 // hop-by-hop options come first or not at all (RFC 8200 4.1)
			}
			p[next], next = kind, at
			if kind == 44 {
				put(at+2, uint16(w.IntN(2)*8|w.IntN(2)))
				at += 8
				if p[at-5]&0xf8 != 0 {
					break
				}
				continue
			}
			p[at+1] = byte(w.IntN(2))
			at += 8 + 8*int(p[at+1])
		}
		p[next] = w.proto()
		if w.IntN(2) == 0 {
			p[next] = 58
			p[at] = 134 + byte(w.IntN(4))
			target := w.addr(true).As16()
			copy(p[at+8:], target[:])
		}
	}
	return p
}

func TestFilterAgreesWithTheReference(t *testing.T) {
	w := world{rand.New(rand.NewPCG(1, 2))}
	hits := 0
	for range 1500 {
		var rules []Rule
		for range w.IntN(6) {
			rules = append(rules, w.rule())
		}
		m, err := compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			p := w.packet()
			want := takes(rules, p)
			if got := run(t, m.socket(), p) != 0; got != want {
				t.Fatalf("rules %+v take %x: %v, want %v", rules, p[:80], got, want)
			}
			if got := run(t, m.ingress(), p) == 2; got != want {
				t.Fatalf("at ingress rules %+v take %x: %v, want %v", rules, p[:80], got, want)
			}
			if want {
				hits++
			}
		}
	}
	if hits < 3000 {
		t.Errorf("only %d packets met a rule: the test sees little", hits)
	}
}

func TestFilterLeavesShortPackets(t *testing.T) {
	m, err := compile([]Rule{{Addr: netip.MustParseAddr("192.0.2.1"), Proto: 6, PortLo: 80}, {Addr: netip.MustParseAddr("2001:db8::1")}})
	if err != nil {
		t.Fatal(err)
	}
	w := world{rand.New(rand.NewPCG(3, 4))}
	for range 300 {
		p := w.packet()
		for n := range 34 {
			if run(t, m.socket(), p[:n]) != 0 {
				t.Fatalf("took %x", p[:n])
			}
			if v := run(t, m.ingress(), p[:n]); v != 0 && v != 1<<32-1 {
				t.Fatalf("ingress says %d of %x", v, p[:n])
			}
		}
	}
}

func TestInvalidRulesAreRejected(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	for _, r := range []Rule{{}, {Addr: a, Kind: 4}, {Addr: a, Kind: pmd.Keep, Proto: 6}, {Addr: a, Proto: 6, Bits: 8}, {Addr: a, Proto: 6, LaterFragments: true, PortLo: 5}, {Addr: a, Kind: pmd.Neighbor, Proto: 6}, {Addr: a, PortLo: 80}, {Addr: a, Proto: 1, PortLo: 256}, {Addr: a, Proto: 6, PortLo: 80, PortHi: 79}} {
		if _, err := compile([]Rule{r}); !errors.Is(err, ErrRule) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	var many []Rule
	for i := range 2000 {
		many = append(many, Rule{Addr: a, Proto: 6, PortLo: uint16(i + 1)})
	}
	if _, err := compile(many); !errors.Is(err, ErrRule) {
		t.Error("2000 rules were accepted:", err)
	}
	if _, err := compile(many[:390]); err != nil {
		t.Error(fmt.Sprint("390 rules: ", err))
	}
}
