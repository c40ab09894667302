package gpukern_test

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// rssVectors are those of "Verifying the RSS Hash Calculation" (Microsoft, Windows hardware
// documentation).
var rssVectors = []struct {
	dst, src     string
	plain, ports uint32
}{
	{"161.142.100.80:1766", "66.9.149.187:2794", 0x323e8fc2, 0x51ccc178},
	{"65.69.140.83:4739", "199.92.111.2:14230", 0xd718262a, 0xc626b0ea},
	{"12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0a5de, 0x5c2b394a},
	{"209.142.163.6:2217", "38.27.205.30:48228", 0x82989176, 0xafc7327f},
	{"202.188.127.2:1303", "153.39.163.191:44251", 0x5d1809c5, 0x10e828a2},
	{"[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc18cd5, 0x40207d3d},
	{"[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c461c, 0xdde51bbf},
	{"[fe80::200:f8ff:fe21:67cf]:38024", "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", 0x4b61e985, 0x02d1feef},
}

func TestToeplitzGivesMicrosoftsVectors(t *testing.T) {
	h := NewHasher(DefaultHashKey)
	for _, v := range rssVectors {
		src, dst := netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst)
		in := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
		if got := kernref.Toeplitz(DefaultHashKey[:], in); got != v.plain {
			t.Errorf("%s > %s: reference %08x, want %08x", v.src, v.dst, got, v.plain)
		}
		in = binary.BigEndian.AppendUint16(in, src.Port())
		in = binary.BigEndian.AppendUint16(in, dst.Port())
		if got := kernref.Toeplitz(DefaultHashKey[:], in); got != v.ports {
			t.Errorf("%s > %s with ports: reference %08x, want %08x", v.src, v.dst, got, v.ports)
		}
		if got := h.Tables(in); got != v.ports {
			t.Errorf("%s > %s: tables %08x, want %08x", v.src, v.dst, got, v.ports)
		}
	}
}

func TestBothDirectionsOfAFlowHashAlike(t *testing.T) {
	g := kernref.NewGenerator(1)
	h := NewHasher([40]byte(g.Bytes(40)))
	different := map[uint32]bool{}
	for i := range 2000 {
		q := g.Query(i%2 == 0)
		if i%50 == 0 {
			q.Src = q.Dst
		}
		sport, dport := uint16(q.SrcPort), uint16(q.DstPort)
		src6, dst6 := q.Src.As16(), q.Dst.As16()
		if a, b := h.Flow6(src6, dst6, sport, dport), h.Flow6(dst6, src6, dport, sport); a != b {
			t.Fatalf("%+v: %08x, back %08x", q, a, b)
		}
		src4, dst4 := [4]byte(src6[12:]), [4]byte(dst6[12:])
		if a, b := h.Flow4(src4, dst4, sport, dport), h.Flow4(dst4, src4, dport, sport); a != b {
			t.Fatalf("%+v: %08x, back %08x", q, a, b)
		}
		different[h.Flow6(src6, dst6, sport, dport)] = true
	}
	if len(different) < 1900 {
		t.Errorf("2000 flows have only %d hashes", len(different))
	}
}

func TestAHasherTellsWhatTheEngineWillWrite(t *testing.T) {
	g := kernref.NewGenerator(7)
	key := [40]byte(g.Bytes(40))
	h := NewHasher(key)
	c := NewCPU(Config{HashKey: key, Ops: OpParse | OpHash})
	for _, text := range []string{"198.18.0.1:80 198.18.0.2:49152", "198.18.0.2:7 198.18.0.1:7", "[2001:db8::2]:443 [2001:db8::1]:5", "[2001:db8::1]:5 [2001:db8::1]:6"} {
		from, to, _ := strings.Cut(text, " ")
		a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
		want := engineHash(t, c, a, b)
		var got, back uint32
		if a.Addr().Is4() {
			got, back = h.Flow4(a.Addr().As4(), b.Addr().As4(), a.Port(), b.Port()), h.Flow4(b.Addr().As4(), a.Addr().As4(), b.Port(), a.Port())
		} else {
			got, back = h.Flow6(a.Addr().As16(), b.Addr().As16(), a.Port(), b.Port()), h.Flow6(b.Addr().As16(), a.Addr().As16(), b.Port(), a.Port())
		}
		if got != want || back != want || want == 0 {
			t.Errorf("%s: %08x and back %08x, the engine writes %08x", text, got, back, want)
		}
	}
}

// engineHash has an engine look at a UDP packet.
func engineHash(t *testing.T, c *CPU, from, to netip.AddrPort) uint32 {
	t.Helper()
	arena := &packet.Arena{Mem: make([]byte, 2048), Shift: 11}
	b := arena.Mem[:0]
	if from.Addr().Is4() {
		b = wire.AppendEthernet(b, wire.MAC{}, wire.MAC{}, wire.EtherTypeIPv4)
		b = wire.AppendIPv4(b, &wire.IPv4Header{Src: from.Addr().As4(), Dst: to.Addr().As4(), Proto: wire.ProtoUDP, TTL: 1, PayloadLen: 8})
	} else {
		b = wire.AppendEthernet(b, wire.MAC{}, wire.MAC{}, wire.EtherTypeIPv6)
		b = wire.AppendIPv6(b, &wire.IPv6Header{Src: from.Addr().As16(), Dst: to.Addr().As16(), NextHeader: wire.ProtoUDP, HopLimit: 1, PayloadLen: 8})
	}
	b = wire.AppendUDP(b, from.Port(), to.Port(), 0)
	batch := packet.NewBatch(arena, 1)
	batch.Append(packet.Desc{Len: uint16(len(b))})
	if err := c.Submit(batch); err != nil {
		t.Fatal(err)
	}
	if c.Poll(make([]*packet.Batch, 1)) != 1 {
		t.Fatal("the engine keeps the batch")
	}
	return batch.D[0].Hash
}
