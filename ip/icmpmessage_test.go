package ip

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// network returns a packet of proto without its Ethernet header.
func network(src, dst string, proto uint8, payload []byte) []byte {
	h := Header{Src: addr(src), Dst: addr(dst), Proto: proto}
	b := make([]byte, 54+len(payload))
	n := (&Path{TTL: 64}).Put(b, &h, len(payload))
	return append(b[:n], payload...)[wire.EthernetLen:]
}

func TestNoErrorsAboutErrors(t *testing.T) { // RFC 1122 3.2.2, RFC 4443 2.4 (e)
	for _, c := range pairs {
		proto := wire.ProtoICMP
		if c.name == "IPv6" {
			proto = wire.ProtoICMPv6
		}
		for typ := range 256 {
			want := typ >= 128 && typ != int(wire.ICMPv6Redirect)
			if c.name == "IPv4" {
				want = typ == 0 || typ == 8 || typ >= 13 && typ <= 18
			}
			if got := ErrorAllowed(network(c.a, c.b, proto, wire.AppendICMP(nil, uint8(typ), 0, 0))); got != want {
				t.Errorf("%s: type %d: %v", c.name, typ, got)
			}
		}
		if !ErrorAllowed(network(c.a, c.b, wire.ProtoUDP, make([]byte, 8))) {
			t.Errorf("%s: UDP", c.name)
		}
		if ErrorAllowed(network(c.a, c.b, proto, nil)) {
			t.Errorf("%s: an ICMP message without its type", c.name)
		}
	}
	late := wire.IPv4(network("198.18.0.1", "198.18.0.2", wire.ProtoUDP, make([]byte, 8)))
	late.SetFragmentOffset(8)
	if ErrorAllowed(late) {
		t.Error("a later fragment of IPv4")
	}
}

func TestMessagesAndKindsCorrespond(t *testing.T) {
	for k := NetUnreachable; k <= ParameterProblem; k++ {
		if m := k.Message(true); kind4(m.Type, m.Code) != k {
			t.Errorf("ICMP: %v is %+v, which is %v", k, m, kind4(m.Type, m.Code))
		}
		if m := k.Message(false); kind6(m.Type, m.Code) != k {
			t.Errorf("ICMPv6: %v is %+v, which is %v", k, m, kind6(m.Type, m.Code))
		}
	}
}

func TestAppendFillsTheChecksum(t *testing.T) {
	quote := network("198.18.0.2", "198.18.0.1", wire.ProtoUDP, make([]byte, 9)) // odd
	for _, c := range pairs {
		src, dst := addr(c.a), addr(c.b)
		m := TooBig.Message(src.Is4())
		m.Rest = 1400
		b := append(m.Append([]byte{1, 2}, src, dst, quote), quote...)[2:]
		var acc uint32
		if !src.Is4() {
			acc = wire.PseudoHeader6(src, dst, wire.ProtoICMPv6, uint32(len(b)))
		}
		if wire.Fold(wire.SumPlain(b, acc)) != 0 || b[0] != m.Type || b[1] != m.Code || wire.ICMP(b).MTU() != 1400 {
			t.Errorf("%s: %x", c.name, b)
		}
	}
}

func TestReadQuote(t *testing.T) {
	udp := wire.AppendUDP(nil, 40001, 40002, 100)
	for _, c := range pairs {
		whole := network(c.a, c.b, wire.ProtoUDP, append(udp, make([]byte, 100)...))
		head := len(whole) - 108
		want := Quote{
			Flow:  wire.Tuple{Local: addr(c.a), Remote: addr(c.b), LocalPort: 40001, RemotePort: 40002},
			Proto: wire.ProtoUDP, L4: head, Size: len(whole),
		}
		for n := range len(whole) + 1 {
			q, why := ReadQuote(whole[:n])
			switch {
			case n >= head+8 && (why != packet.Forward || q != want):
				t.Fatalf("%s: %d bytes: %v, %+v", c.name, n, why, q)
			case n >= head && n < head+8 && (why != packet.DropTruncated || q.L4 != head || q.Proto != wire.ProtoUDP),
				n < head && (why != packet.DropTruncated || q.L4 != 0):
				t.Fatalf("%s: %d bytes: %v, %+v", c.name, n, why, q)
			}
		}
	}
	for name, c := range map[string]struct {
		spoil func(b []byte)
		want  packet.Verdict
	}{
		"version 5":              {func(b []byte) { b[0] = 0x55 }, packet.DropMalformed},
		"a short header":         {func(b []byte) { b[0] = 0x44 }, packet.DropMalformed},
		"a length without UDP's": {func(b []byte) { wire.IPv4(b).SetTotalLen(27) }, packet.DropMalformed},
		"a later fragment":       {func(b []byte) { wire.IPv4(b).SetFragmentOffset(8) }, packet.DropFragment},
		"a first fragment":       {func(b []byte) { wire.IPv4(b).SetMoreFragments(true) }, packet.Forward},
	} {
		b := network("198.18.0.1", "198.18.0.2", wire.ProtoUDP, udp)
		c.spoil(b)
		if _, why := ReadQuote(b); why != c.want {
			t.Errorf("%s: %v, want %v", name, why, c.want)
		}
	}
}

func FuzzReadQuote(f *testing.F) {
	for _, c := range pairs {
		f.Add(network(c.a, c.b, wire.ProtoUDP, make([]byte, 20)))
	}
	f.Add([]byte{0x60, 0, 0, 0, 0, 8, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, why := ReadQuote(b); why == packet.Forward && (q.L4 < wire.IPv4Len || q.L4+8 > len(b) || q.Size < q.L4+8) {
			t.Errorf("%+v of %x", q, b)
		}
	})
}
