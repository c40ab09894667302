package stack

import (
	"bytes"
	"errors"
	"math/rand/v2"
	gonet "net" // net is a topology of the mesh tests
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// frameOf serializes layers behind an Ethernet header: gopacket builds what the table has to read.
func frameOf(t testing.TB, kind layers.EthernetType, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: gonet.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: gonet.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: kind}
	buf := gopacket.NewSerializeBuffer()
	opt := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opt, append([]gopacket.SerializableLayer{eth}, ls...)...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buf.Bytes())
}

// header4 returns an IPv4 header.
func header4(src, dst string, proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: gonet.ParseIP(src).To4(), DstIP: gonet.ParseIP(dst).To4()}
}

// udp4 returns a frame with a datagram between two "address:port".
func udp4(t testing.TB, src, dst string) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	h := header4(s.Addr().String(), d.Addr().String(), layers.IPProtocolUDP)
	u := &layers.UDP{SrcPort: layers.UDPPort(s.Port()), DstPort: layers.UDPPort(d.Port())}
	if err := u.SetNetworkLayerForChecksum(h); err != nil {
		t.Fatal(err)
	}
	return frameOf(t, layers.EthernetTypeIPv4, h, u, gopacket.Payload("payload"))
}

// udp6 is udp4 for IPv6.
func udp6(t testing.TB, src, dst string) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: s.Addr().AsSlice(), DstIP: d.Addr().AsSlice()}
	u := &layers.UDP{SrcPort: layers.UDPPort(s.Port()), DstPort: layers.UDPPort(d.Port())}
	if err := u.SetNetworkLayerForChecksum(h); err != nil {
		t.Fatal(err)
	}
	return frameOf(t, layers.EthernetTypeIPv6, h, u, gopacket.Payload("payload"))
}

// arpFor returns a request for an address.
func arpFor(t testing.TB, target string) []byte {
	return frameOf(t, layers.EthernetTypeARP, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
		SourceHwAddress: []byte{2, 0, 0, 0, 0, 1}, SourceProtAddress: []byte{198, 18, 0, 1},
		DstHwAddress: make([]byte, 6), DstProtAddress: gonet.ParseIP(target).To4(),
	})
}

// recorder is a handler that notes the frames it got, delivers them, and counts ticks.
type recorder struct {
	frames  [][]byte
	devs    []uint8
	verdict packet.Verdict
	matches []packet.Match
	matched [][]byte // their frames
	decided int      // packets that came with a verdict
	batches int
	next    clock.Time
}

func (r *recorder) Handle(_ clock.Time, b *packet.Batch) {
	r.batches++
	for _, m := range b.Matches {
		r.matches, r.matched = append(r.matches, m), append(r.matched, slices.Clone(b.Bytes(int(m.D))))
	}
	for i := range b.D {
		r.frames = append(r.frames, slices.Clone(b.Bytes(i)))
		r.devs = append(r.devs, b.D[i].Port)
		if b.D[i].Verdict != packet.Undecided {
			r.decided++
		}
		b.D[i].Verdict = r.verdict
	}
}

func (r *recorder) Tick(clock.Time) clock.Time { return r.next }

// board is an arena with an engine, to make batches of frames as a loop does.
type testBatches struct {
	pool   *ring.Pool
	engine gpukern.Engine
}

func newTestBatches(t testing.TB) *testBatches {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 512, FrameSize: 2048})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	pool, err := arena.Cut(512)
	if err != nil {
		t.Fatal(err)
	}
	return &testBatches{pool, gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse, Depth: 1})}
}

// batch puts frames into an arena and has the engine parse them.
func (tb *testBatches) batch(t testing.TB, frames ...[]byte) *packet.Batch {
	t.Helper()
	b := packet.NewBatch(tb.pool.Arena().View(), max(len(frames), 1))
	for _, f := range frames {
		off, ok := tb.pool.Get()
		if !ok {
			t.Fatal("no frame is free")
		}
		d := packet.Desc{Off: off, Len: uint16(len(f))}
		copy(b.Arena.Bytes(&d), f)
		b.Append(d)
	}
	if err := tb.engine.Submit(b); err != nil {
		t.Fatal(err)
	}
	var done [1]*packet.Batch
	if tb.engine.Poll(done[:]) != 1 {
		t.Fatal("the engine kept the batch")
	}
	t.Cleanup(func() {
		for _, d := range b.D[:len(frames)] {
			tb.pool.Put(d.Off)
		}
	})
	return b
}

const udp, tcp, icmp = 17, 6, 1

func to(addr string, proto uint8, lo, hi uint16, target Target) Claim {
	return Claim{pmd.Rule{Addr: netip.MustParseAddr(addr), Proto: proto, PortLo: lo, PortHi: hi}, target}
}

func tableOf(t testing.TB, claims ...Claim) *AddressTable {
	t.Helper()
	table := NewAddressTable()
	if err := table.Replace(claims); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTheMoreSpecificClaimWins(t *testing.T) {
	a, b, c := ToHandler(0), ToHandler(1), ToHandler(2)
	neighbor := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Kind: pmd.Neighbor}, b}
	from := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.5.5"), Kind: pmd.From, Proto: udp, PortLo: 8080, PortHi: 8080}, c}
	prefix := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.9.0"), Bits: 24}, a}
	longer := Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.9.128"), Bits: 25}, b}
	table := tableOf(t,
		to("198.18.0.10", 0, 0, 0, a), to("198.18.0.10", udp, 0, 0, b), to("198.18.0.10", udp, 1000, 1999, c),
		to("198.18.0.10", udp, 1500, 1500, ToDrop), to("198.18.0.10", udp, 1600, 1650, ToKernel), neighbor,
		to("2001:db8::10", udp, 53, 53, c), from, longer, prefix,
	)
	vlan := slices.Insert(udp4(t, "198.18.1.1:9", "198.18.0.10:1000"), 12, 0x81, 0, 0, 7)
	for _, tt := range []struct {
		what  string
		frame []byte
		want  Target
	}{
		{"another address", udp4(t, "198.18.1.1:9", "198.18.0.11:1000"), 0},
		{"a protocol", udp4(t, "198.18.1.1:9", "198.18.0.10:999"), b},
		{"the first port of a range", udp4(t, "198.18.1.1:9", "198.18.0.10:1000"), c},
		{"the last one", udp4(t, "198.18.1.1:9", "198.18.0.10:1999"), c},
		{"behind it", udp4(t, "198.18.1.1:9", "198.18.0.10:2000"), b},
		{"one port inside of a range", udp4(t, "198.18.1.1:9", "198.18.0.10:1500"), ToDrop},
		{"a range inside of a range", udp4(t, "198.18.1.1:9", "198.18.0.10:1650"), ToKernel},
		{"a VLAN tag", vlan, c},
		{"another protocol of the address", frameOf(t, layers.EthernetTypeIPv4, header4("198.18.1.1", "198.18.0.10", 99), gopacket.Payload("x")), a},
		{"ARP for the address", arpFor(t, "198.18.0.10"), b},
		{"ARP for another", arpFor(t, "198.18.0.11"), 0},
		{"IPv6", udp6(t, "[2001:db8::1]:9", "[2001:db8::10]:53"), c},
		{"another port of IPv6", udp6(t, "[2001:db8::1]:9", "[2001:db8::10]:54"), 0},
		{"from a source and port", udp4(t, "198.18.5.5:8080", "203.0.113.1:9"), c},
		{"from another port", udp4(t, "198.18.5.5:8081", "203.0.113.1:9"), 0},
		{"to an address wins over from", udp4(t, "198.18.5.5:8080", "198.18.0.10:1"), b},
		{"a prefix", udp4(t, "198.18.1.1:9", "198.18.9.127:9"), a},
		{"a longer prefix", udp4(t, "198.18.1.1:9", "198.18.9.128:9"), b},
		{"an empty frame", nil, 0},
	} {
		d, err := NewDispatcher(table, new(recorder), new(recorder), new(recorder))
		if err != nil {
			t.Fatal(err)
		}
		bt := newTestBatches(t).batch(t, tt.frame)
		if got, _ := d.classify(0, bt); got != tt.want {
			t.Errorf("%s: target %s, want %s", tt.what, got, tt.want)
		}
	}
}

// slowTarget tries every claim and keeps the one with the highest rank: what AddressTable documents,
// written as plainly as can be.
func slowReference(claims []Claim, s *selector) Target {
	best, bestRank := Target(0), -1
	for _, c := range claims {
		if rank, ok := rankOf(&c, s); ok && rank > bestRank {
			best, bestRank = c.Target, rank
		}
	}
	return best
}

func rankOf(c *Claim, s *selector) (rank int, ok bool) {
	addr, port := s.dst, s.dport
	rank = 3 << 20
	if c.Kind == pmd.From {
		addr, port, rank = s.src, s.sport, 1<<20
	}
	if c.Bits != 0 {
		p := netip.PrefixFrom(c.Addr, int(c.Bits))
		return 2<<20 + int(c.Bits), p.Contains(netip.AddrFrom16(addr).Unmap()) && (c.Proto == 0 || c.Proto == s.proto)
	}
	if addrKey(c.Addr.As16()) != addr {
		return 0, false
	}
	if c.Proto == 0 {
		return rank, true
	}
	lo, hi := int(c.PortLo), int(c.PortHi)
	if lo == 0 && hi == 0 {
		return rank + 1, c.Proto == s.proto
	}
	return rank + 1<<16 + 1 - (hi - lo), c.Proto == s.proto && s.hasPorts && lo <= int(port) && int(port) <= hi
}

func TestTableAgreesWithTheSlowReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(r.IntN(2)), byte(r.IntN(4))}) }
	matched := 0
	for range 3000 {
		var claims []Claim
		table := NewAddressTable()
		for range 1 + r.IntN(12) {
			c := Claim{pmd.Rule{Addr: addr()}, Target(1 + r.IntN(6))}
			switch r.IntN(6) {
			case 0:
				c.Bits = uint8(20 + r.IntN(13))
			case 1:
				c.Kind = pmd.From
				fallthrough
			default:
				if c.Proto = []uint8{0, tcp, udp}[r.IntN(3)]; c.Proto != 0 && r.IntN(3) > 0 {
					c.PortLo = uint16(1 + r.IntN(20))
					c.PortHi = c.PortLo + uint16(r.IntN(10))
				}
			}
			c.Addr = netip.PrefixFrom(c.Addr, max(int(c.Bits), 0)).Addr()
			if table.Replace(append(slices.Clone(claims), c)) == nil {
				claims = append(claims, c)
			}
		}
		if err := table.Replace(claims); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			s := selector{datagram: datagram{src: addr().As16(), dst: addr().As16(), proto: []uint8{tcp, udp, 99}[r.IntN(3)]}}
			if s.proto != 99 {
				s.hasPorts, s.sport, s.dport = true, uint16(r.IntN(32)), uint16(r.IntN(32))
			}
			got, want := table.current.Load().target(&s, 0), slowReference(claims, &s)
			if got != want {
				t.Fatalf("claims %v, packet %+v: target %s, the reference says %s", claims, s, got, want)
			}
			if want != 0 {
				matched++
			}
		}
	}
	if matched < 10_000 {
		t.Errorf("only %d packets had a target", matched)
	}
}

func TestClaimsThatContradictAreRefusedAndTheTableStays(t *testing.T) {
	good := to("198.18.0.10", udp, 1, 10, ToHandler(0))
	table := tableOf(t, good)
	for what, claims := range map[string][]Claim{
		"one port for two":              {to("198.18.0.10", udp, 5, 5, ToHandler(0)), to("198.18.0.10", udp, 5, 5, ToHandler(1))},
		"ranges that overlap":           {to("198.18.0.10", udp, 1, 5, ToHandler(0)), to("198.18.0.10", udp, 5, 9, ToHandler(1))},
		"equal ranges":                  {to("198.18.0.10", udp, 1, 5, ToHandler(0)), to("198.18.0.10", udp, 1, 5, ToHandler(1))},
		"an address for two":            {to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToKernel)},
		"no target":                     {to("198.18.0.10", 0, 0, 0, 0)},
		"no address":                    {{pmd.Rule{}, ToHandler(0)}},
		"a rule for the kernel":         {{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Kind: pmd.Keep}, ToKernel}},
		"ports without a protocol":      {to("198.18.0.10", 0, 5, 5, ToHandler(0))},
		"the same prefix for two":       {{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.0"), Bits: 24}, ToHandler(0)}, {pmd.Rule{Addr: netip.MustParseAddr("198.18.0.0"), Bits: 24}, ToHandler(1)}},
		"the neighbour of two handlers": {{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Kind: pmd.Neighbor}, ToHandler(0)}, {pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Kind: pmd.Neighbor}, ToHandler(1)}},
	} {
		if err := table.Replace(claims); !errors.Is(err, ErrClaim) {
			t.Errorf("%s: %v, want ErrClaim", what, err)
		}
	}
	if !slices.Equal(table.Claims(), []Claim{good}) {
		t.Errorf("the table has %v, want what it had", table.Claims())
	}
}

func TestRulesBringDriversWhatHandlersServe(t *testing.T) {
	addr := netip.MustParseAddr("198.18.0.10")
	web := to("198.18.0.10", tcp, 80, 80, ToHandler(0))
	got := Rules([]Claim{web, web, to("198.18.0.11", 0, 0, 0, ToKernel), to("198.18.0.11", tcp, 22, 22, ToKernel), to("198.18.0.10", tcp, 81, 81, ToDrop), {pmd.Rule{Addr: addr, Kind: pmd.Neighbor}, ToHandler(1)}})
	want := []pmd.Rule{
		web.Rule,
		{Addr: netip.MustParseAddr("198.18.0.11"), Kind: pmd.Keep},
		{Addr: addr, Proto: tcp, PortLo: 81, PortHi: 81},
		{Addr: addr, Kind: pmd.Neighbor},
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules %v, want %v", got, want)
	}
}

func TestAMixedBatchReachesEachHandlerInOrder(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.11", 0, 0, 0, ToHandler(1)),
		to("198.18.0.12", 0, 0, 0, ToDrop), to("198.18.0.13", 0, 0, 0, ToKernel))
	a, b := &recorder{verdict: packet.Forward, next: 70}, &recorder{verdict: packet.Deliver, next: 50}
	d, err := NewDispatcher(table, a, b)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	var frames, wantA, wantB [][]byte
	dropped := map[packet.Verdict]int{}
	for i := range 200 {
		src := netip.AddrPortFrom(netip.MustParseAddr("198.18.1.1"), uint16(i+1)).String()
		switch r.IntN(5) {
		case 0:
			frames = append(frames, udp4(t, src, "198.18.0.10:80"))
			wantA = append(wantA, frames[i])
		case 1:
			frames = append(frames, udp4(t, src, "198.18.0.11:80"))
			wantB = append(wantB, frames[i])
		case 2:
			frames = append(frames, udp4(t, src, "198.18.0.12:80"))
			dropped[packet.DropRule]++
		case 3:
			frames = append(frames, udp4(t, src, "198.18.0.13:80"))
			dropped[packet.DropNotOurs]++
		default:
			frames = append(frames, udp4(t, src, "198.18.0.10:81")) // nobody's
			dropped[packet.DropNotOurs]++
		}
	}
	bt := newTestBatches(t).batch(t, frames...)
	offs := map[uint32]bool{}
	for _, x := range bt.D {
		offs[x.Off] = true
	}
	for i := range bt.D {
		bt.Matches = append(bt.Matches, packet.Match{D: uint32(i), Rule: uint32(i), End: 1})
	}
	d.Handle(5, bt)
	if !slices.EqualFunc(a.frames, wantA, slices.Equal) || !slices.EqualFunc(b.frames, wantB, slices.Equal) {
		t.Errorf("handlers got %d and %d frames, want %d and %d in the order in which they came", len(a.frames), len(b.frames), len(wantA), len(wantB))
	}
	for i, m := range a.matches {
		if int(m.D) != i || !slices.Equal(frames[m.Rule], a.frames[i]) {
			t.Errorf("match %+v: not that of packet %d of the handler", m, i)
		}
	}
	count := map[packet.Verdict]int{}
	for _, x := range bt.D {
		if !offs[x.Off] {
			t.Errorf("frame %d is in the batch twice, or was never in it", x.Off)
		}
		delete(offs, x.Off)
		count[x.Verdict]++
	}
	if len(offs) != 0 || len(bt.D) != len(frames) {
		t.Errorf("%d frames are lost", len(offs))
	}
	if count[packet.Forward] != len(wantA) || count[packet.Deliver] != len(wantB) || count[packet.DropRule] != dropped[packet.DropRule] ||
		count[packet.DropNotOurs] != dropped[packet.DropNotOurs] {
		t.Errorf("verdicts %v, want forward %d, deliver %d, %v", count, len(wantA), len(wantB), dropped)
	}
	if next := d.Tick(6); next != 50 {
		t.Errorf("Tick says %d, want 50, the earlier of both", next)
	}
}

func TestABatchForOneHandlerIsPassedOnAsItIs(t *testing.T) {
	a, b := new(recorder), new(recorder)
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(1))), a, b)
	bt := newTestBatches(t).batch(t, udp4(t, "198.18.1.1:1", "198.18.0.10:1"), udp4(t, "198.18.1.1:1", "198.18.0.10:2"))
	d.Handle(1, bt)
	if b.batches != 1 || len(b.frames) != 2 || a.batches != 0 {
		t.Errorf("handlers got %d and %d batches", a.batches, b.batches)
	}
}

func TestPiecesOfAPacketStayTogether(t *testing.T) {
	a, b := &recorder{verdict: packet.Forward}, &recorder{verdict: packet.Deliver}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.11", 0, 0, 0, ToHandler(1))), a, b)
	other := udp4(t, "198.18.1.1:1", "198.18.0.11:1")
	bt := newTestBatches(t).batch(t, udp4(t, "198.18.1.1:1", "198.18.0.10:1"), other, other, udp4(t, "198.18.1.1:1", "198.18.0.11:9"))
	bt.D[0].Flags |= packet.FlagMore // the packet goes on in the second descriptor, whatever lies there
	d.Handle(1, bt)
	if len(a.frames) != 2 || len(b.frames) != 2 {
		t.Errorf("the handlers got %d and %d descriptors, want 2 and 2", len(a.frames), len(b.frames))
	}
}

func TestFragmentsFollowTheFirst(t *testing.T) {
	a, b := new(recorder), new(recorder)
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))), a, b)
	whole := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	fragment := func(id, off uint16, more bool) []byte {
		h := header4("198.18.1.1", "198.18.0.10", layers.IPProtocolUDP)
		h.Id, h.FragOffset = id, off
		if more {
			h.Flags = layers.IPv4MoreFragments
		}
		if off == 0 {
			return frameOf(t, layers.EthernetTypeIPv4, h, gopacket.Payload(whole[34:42]))
		}
		return frameOf(t, layers.EthernetTypeIPv4, h, gopacket.Payload("rest"))
	}
	bs := newTestBatches(t)
	d.Handle(0, bs.batch(t, fragment(7, 1, false)))
	if len(a.frames) != 0 || len(b.frames) != 1 {
		t.Errorf("a fragment whose first has not come: handlers have %d and %d, want the address's", len(a.frames), len(b.frames))
	}
	d.Handle(1, bs.batch(t, fragment(8, 0, true)))
	d.Handle(2, bs.batch(t, fragment(8, 1, false)))
	if len(a.frames) != 2 {
		t.Errorf("the handler of the port has %d fragments, want both", len(a.frames))
	}
	d.Handle(3, bs.batch(t, fragment(9, 1, false)))
	if len(a.frames) != 2 {
		t.Error("a fragment of another datagram followed the first of this one")
	}
	d.Handle(clock.Time(2+fragmentLife), bs.batch(t, fragment(8, 1, false)))
	if len(a.frames) != 2 {
		t.Error("the first fragment is remembered for longer than a datagram may take")
	}
	a.frames, b.frames = nil, nil
	d.Handle(clock.Time(3*fragmentLife), bs.batch(t, fragment(10, 2, false), whole, fragment(10, 1, true), fragment(10, 0, true), fragment(11, 1, false)))
	if len(a.frames) != 4 || len(b.frames) != 1 {
		t.Errorf("behind others in a batch: handlers have %d and %d, want 4 and 1", len(a.frames), len(b.frames))
	}
}

func TestErrorsGoToWhoSentThePacketThatTheyAreAbout(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 53, 53, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)),
		to("2001:db8::10", udp, 53, 53, ToHandler(0)), to("2001:db8::10", 0, 0, 0, ToHandler(1)))
	d, _ := NewDispatcher(table, new(recorder), new(recorder))
	error4 := func(src string) []byte {
		quote := udp4(t, src, "198.18.1.1:9")[14:42]
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}
		return frameOf(t, layers.EthernetTypeIPv4, header4("198.18.1.1", "198.18.0.10", layers.IPProtocolICMPv4), icmp, gopacket.Payload(quote))
	}
	error6 := func(src string) []byte {
		quote := udp6(t, src, "[2001:db8::1]:9")[14:62]
		h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: gonet.ParseIP("2001:db8::1"), DstIP: gonet.ParseIP("2001:db8::10")}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 4)}
		_ = icmp.SetNetworkLayerForChecksum(h)
		return frameOf(t, layers.EthernetTypeIPv6, h, icmp, gopacket.Payload(append(make([]byte, 4), quote...)))
	}
	echo := frameOf(t, layers.EthernetTypeIPv4, header4("198.18.1.1", "198.18.0.10", layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)})
	for _, tt := range []struct {
		what  string
		frame []byte
		want  Target
	}{
		{"about the service's port", error4("198.18.0.10:53"), ToHandler(0)},
		{"about another port", error4("198.18.0.10:54"), ToHandler(1)},
		{"about a packet that nobody here sent", error4("198.18.7.7:53"), ToHandler(1)},
		{"IPv6, about the service's port", error6("[2001:db8::10]:53"), ToHandler(0)},
		{"IPv6, about another port", error6("[2001:db8::10]:54"), ToHandler(1)},
		{"an echo request", echo, ToHandler(1)},
	} {
		bt := newTestBatches(t).batch(t, tt.frame)
		if got, _ := d.classify(0, bt); got != tt.want {
			t.Errorf("%s: target %s, want %s", tt.what, got, tt.want)
		}
	}
}

// refuser is a handler that declines what it is offered, and answers when it is asked again.
type refuser struct {
	recorder
	offer   packet.Verdict // of Offer; that of Handle and Refuse is the recorder's
	offered int            // packets
	refused int            // packets
	flags   packet.Flags   // of the last one that was refused

	elsewhere [][]byte
}

func (r *refuser) Offer(_ clock.Time, b *packet.Batch) {
	r.offered += len(b.D)
	for i := range b.D {
		b.D[i].Verdict = r.offer
	}
}

func (r *refuser) Refuse(now clock.Time, b *packet.Batch) {
	r.refused += len(b.D)
	r.flags = b.D[0].Flags
	r.Handle(now, b)
}

func (r *refuser) Elsewhere(d *packet.Desc, frame []byte) { r.elsewhere = append(r.elsewhere, frame) }

// A packet that no handler takes returns to the one that it was offered first, which may answer it.
func TestWhatNobodyTakesReturnsToTheFirst(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)), to("198.18.0.11", 0, 0, 0, ToHandler(0)))
	shared, alone := udp4(t, "198.18.1.1:1", "198.18.0.10:80"), udp4(t, "198.18.1.1:1", "198.18.0.11:80")
	const noFlow, deliver, forward = packet.DropNoFlow, packet.Deliver, packet.Forward
	for _, tt := range []struct {
		what            string
		second          packet.Verdict
		frames          [][]byte
		want            []packet.Verdict
		refused, gotten int // by the first, and by the second
	}{
		{"no other claim", deliver, [][]byte{alone, alone}, []packet.Verdict{forward, forward}, 2, 0},
		{"the other takes it", deliver, [][]byte{shared}, []packet.Verdict{deliver}, 0, 1},
		{"the other declines it too", packet.DropNoService, [][]byte{shared}, []packet.Verdict{forward}, 1, 1},
		{"the other drops it", packet.DropNoBackend, [][]byte{shared}, []packet.Verdict{packet.DropNoBackend}, 0, 1},
		{"some of each", deliver, [][]byte{alone, shared, alone, shared}, []packet.Verdict{forward, deliver, forward, deliver}, 2, 2},
	} {
		a, b := &refuser{offer: noFlow, recorder: recorder{verdict: forward}}, &recorder{verdict: tt.second}
		d, _ := NewDispatcher(table, a, b)
		bt := newTestBatches(t).batch(t, tt.frames...)
		for i := range bt.D {
			bt.Matches = append(bt.Matches, packet.Match{D: uint32(i), Rule: uint32(i)})
		}
		d.Handle(1, bt)
		var got []packet.Verdict
		for i := range bt.D {
			got = append(got, bt.D[i].Verdict)
			if !slices.Equal(bt.Bytes(i), tt.frames[i]) {
				t.Errorf("%s: packet %d is at another place", tt.what, i)
			}
		}
		if !slices.Equal(got, tt.want) || a.offered != len(tt.frames) || a.refused != tt.refused || len(b.frames) != tt.gotten || a.decided != 0 {
			t.Errorf("%s: verdicts %s, want %s; the first was offered %d and refused %d, %d of them decided; the second got %d",
				tt.what, got, tt.want, a.offered, a.refused, a.decided, len(b.frames))
		}
		for i, m := range a.matches {
			if !slices.Equal(tt.frames[m.Rule], a.matched[i]) {
				t.Errorf("%s: packet %d has another's match", tt.what, i)
			}
		}
		if len(a.matches) != tt.refused {
			t.Errorf("%s: %d matches", tt.what, len(a.matches))
		}
	}
}

// A mixed batch returns what each handler has declined to that handler.
func TestEachHandlerRefusesItsOwn(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.11", 0, 0, 0, ToHandler(1)))
	a, b := &refuser{offer: packet.DropNoFlow, recorder: recorder{verdict: packet.Forward}}, &refuser{offer: packet.DropNoService, recorder: recorder{verdict: packet.Deliver}}
	d, _ := NewDispatcher(table, a, b)
	x, y := udp4(t, "198.18.1.1:1", "198.18.0.10:80"), udp4(t, "198.18.1.1:1", "198.18.0.11:80")
	bt := newTestBatches(t).batch(t, x, y, y, x, y)
	d.Handle(1, bt)
	for i := range bt.D {
		want := packet.Forward
		if slices.Equal(bt.Bytes(i), y) {
			want = packet.Deliver
		}
		if bt.D[i].Verdict != want {
			t.Errorf("packet %d: %s, want %s", i, bt.D[i].Verdict, want)
		}
	}
	if a.refused != 2 || b.refused != 3 {
		t.Errorf("refused %d and %d", a.refused, b.refused)
	}
}

// Of two that can answer, the first does. Where the first cannot, the second is the last one to decide.
func TestTheFirstThatCanAnswerRefuses(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)))
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	declines := func() *refuser {
		return &refuser{offer: packet.DropNoFlow, recorder: recorder{verdict: packet.Forward}}
	}
	a, b := declines(), declines()
	d, _ := NewDispatcher(table, a, b)
	d.Handle(1, newTestBatches(t).batch(t, frame))
	if a.offered != 1 || b.offered != 1 || a.refused != 1 || b.refused != 0 || len(b.frames) != 0 {
		t.Errorf("two: offered %d and %d, refused %d and %d", a.offered, b.offered, a.refused, b.refused)
	}
	b = declines()
	d, _ = NewDispatcher(table, &recorder{verdict: packet.DropNoService}, b)
	bt := newTestBatches(t).batch(t, frame)
	d.Handle(1, bt)
	if b.offered != 0 || b.refused != 0 || len(b.frames) != 1 || bt.D[0].Verdict != packet.Forward {
		t.Errorf("the second alone: offered %d, refused %d, decided %d as %s", b.offered, b.refused, len(b.frames), bt.D[0].Verdict)
	}
}

func TestAHandlerAloneIsOfferedNothing(t *testing.T) {
	a := &refuser{offer: packet.DropNoFlow, recorder: recorder{verdict: packet.Forward}}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(0))), a)
	d.Handle(1, newTestBatches(t).batch(t, udp4(t, "198.18.1.1:1", "198.18.0.10:80")))
	if a.offered != 0 || a.refused != 0 || len(a.frames) != 1 {
		t.Errorf("offered %d, refused %d, decided %d", a.offered, a.refused, len(a.frames))
	}
}

// A packet that came from another loop is still one when it is refused, so that it is not handed over again.
func TestARefusedPacketStaysHandedOver(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)))
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	for _, by := range []Target{ToHandler(0), ToHandler(1) | offered} {
		a, b := &refuser{offer: packet.DropNoFlow}, &refuser{offer: packet.DropNoFlow}
		d, _ := NewDispatcher(table, a, b)
		bt := newTestBatches(t).batch(t, frame)
		bt.D[0].Flags |= packet.FlagHanded
		bt.D[0].Flow = uint32(by) << targetShift
		d.Handle(1, bt)
		has, other := a, b
		if by&offered != 0 { // the first has declined it on the other loop, and the second has handed it over
			has, other = b, a
		}
		if has.refused != 1 || other.refused != 0 || !has.flags.Has(packet.FlagHanded) {
			t.Errorf("by %s: refused %d, and %d by the other; flags %x", by, has.refused, other.refused, has.flags)
		}
	}
}

// What a Refuse hands over is marked as its handler's.
func TestARefusedPacketMayBeHandedOver(t *testing.T) {
	a := &refuser{offer: packet.DropNoFlow, recorder: recorder{verdict: packet.Handover}}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(0))), a, &recorder{})
	bt := newTestBatches(t).batch(t, udp4(t, "198.18.1.1:1", "198.18.0.10:80"))
	d.Handle(1, bt)
	if bt.D[0].Verdict != packet.Handover || Target(bt.D[0].Flow>>targetShift) != ToHandler(0) {
		t.Errorf("%+v", bt.D[0])
	}
}

// Pieces of a packet are refused together, and the other fragments of a datagram follow a first one that is.
func TestPiecesAndFragmentsThatAreRefusedStayTogether(t *testing.T) {
	a, b := &refuser{offer: packet.DropNoFlow, recorder: recorder{verdict: packet.Forward}}, &recorder{verdict: packet.DropNoService}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))), a, b)
	whole := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	bt := newTestBatches(t).batch(t, whole, []byte("the second piece of the same packet"), whole)
	bt.D[0].Flags |= packet.FlagMore
	d.Handle(1, bt)
	if len(a.frames) != 3 || string(a.frames[1]) != "the second piece of the same packet" || bt.D[1].Verdict != packet.Forward {
		t.Errorf("refused %q", a.frames)
	}
	first, last := header4("198.18.1.1", "198.18.0.10", layers.IPProtocolUDP), header4("198.18.1.1", "198.18.0.10", layers.IPProtocolUDP)
	first.Id, first.Flags, last.Id, last.FragOffset = 7, layers.IPv4MoreFragments, 7, 1
	d.Handle(2, newTestBatches(t).batch(t, frameOf(t, layers.EthernetTypeIPv4, first, gopacket.Payload(whole[34:42]))))
	before := a.offered
	d.Handle(3, newTestBatches(t).batch(t, frameOf(t, layers.EthernetTypeIPv4, last, gopacket.Payload("rest"))))
	if a.offered != before+1 {
		t.Error("the last fragment did not follow the first back to the first handler")
	}
}

// A first fragment that goes to another handler is told to those that may hold others of its datagram, and to no other.
func TestAFirstFragmentIsToldToTheOtherHandlers(t *testing.T) {
	a, b, c := &refuser{recorder: recorder{verdict: packet.Forward}}, &recorder{verdict: packet.Deliver}, &refuser{recorder: recorder{verdict: packet.Forward}}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)),
		Claim{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.11")}, ToDrop}), a, b, c)
	fragment := func(dst string, more bool, offset uint16) []byte {
		h := header4("198.18.1.1", dst[:len(dst)-3], layers.IPProtocolUDP)
		h.Id, h.FragOffset = 7, offset
		if more {
			h.Flags = layers.IPv4MoreFragments
		}
		return frameOf(t, layers.EthernetTypeIPv4, h, gopacket.Payload(udp4(t, "198.18.1.1:1", dst)[34:42]))
	}
	for _, tt := range []struct {
		what  string
		frame []byte
		a, c  int
	}{
		{"a whole packet", udp4(t, "198.18.1.1:1", "198.18.0.10:81"), 0, 0},
		{"a later fragment", fragment("198.18.0.10:81", true, 1), 0, 0},
		{"a first to the second handler", fragment("198.18.0.10:81", true, 0), 1, 1},
		{"a first to the first handler", fragment("198.18.0.10:80", true, 0), 0, 1},
		{"a first that is dropped", fragment("198.18.0.11:80", true, 0), 0, 0},
	} {
		a.elsewhere, c.elsewhere = nil, nil
		d.Handle(1, newTestBatches(t).batch(t, tt.frame))
		if len(a.elsewhere) != tt.a || len(c.elsewhere) != tt.c {
			t.Errorf("%s: told %d and %d times, want %d and %d", tt.what, len(a.elsewhere), len(c.elsewhere), tt.a, tt.c)
		}
		if tt.c == 1 && !bytes.Equal(c.elsewhere[0], tt.frame) {
			t.Errorf("%s: told of %x", tt.what, c.elsewhere[0])
		}
	}
}

func TestWhatAHandlerHasNoFlowForGoesToTheNextClaim(t *testing.T) {
	claims := []Claim{
		to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", udp, 81, 81, ToHandler(0)), to("198.18.0.10", udp, 50, 99, ToHandler(2)),
		to("198.18.0.10", 0, 0, 0, ToHandler(1)), to("198.18.0.11", 0, 0, 0, ToHandler(0)),
		{pmd.Rule{Addr: netip.MustParseAddr("198.18.0.0"), Bits: 24}, ToKernel},
	}
	src := func(i int) string { return netip.AddrPortFrom(netip.MustParseAddr("198.18.1.1"), uint16(i+1)).String() }
	for _, why := range []packet.Verdict{packet.DropNoService, packet.DropNoFlow, packet.DropNoBackend} {
		a, b, c := &recorder{verdict: why}, &recorder{verdict: packet.Deliver}, &recorder{verdict: packet.Forward}
		d, _ := NewDispatcher(tableOf(t, claims[:2]...), a, b, c)
		if err := d.table.Replace(claims); err != nil {
			t.Fatal(err)
		}
		frames := [][]byte{udp4(t, src(0), "198.18.0.10:80"), udp4(t, src(1), "198.18.0.10:81")}
		want := packet.Forward // the range of ports comes before the address
		if why == packet.DropNoBackend {
			want = why // the service is there, so that the packet is its own
		}
		bt := newTestBatches(t).batch(t, frames...)
		d.Handle(1, bt)
		if bt.D[0].Verdict != want || bt.D[1].Verdict != want || len(a.frames) != 2 || len(b.frames) != 0 {
			t.Errorf("%s: verdicts %s and %s, want %s", why, bt.D[0].Verdict, bt.D[1].Verdict, want)
		}
		bt = newTestBatches(t).batch(t, udp4(t, src(2), "198.18.0.11:80"))
		if d.Handle(2, bt); bt.D[0].Verdict != why {
			t.Errorf("%s: a packet that is in no other handler's claim has the verdict %s", why, bt.D[0].Verdict)
		}
	}
}

func TestAMixedBatchThatIsOfferedTwiceStaysWhole(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.11", udp, 80, 80, ToHandler(0)), to("198.18.0.12", 0, 0, 0, ToHandler(0)),
		to("198.18.0.10", 0, 0, 0, ToHandler(1)), to("198.18.0.11", 0, 0, 0, ToHandler(2)))
	a, b, c := &recorder{verdict: packet.DropNoFlow}, &recorder{verdict: packet.Deliver}, &recorder{verdict: packet.Forward}
	d, _ := NewDispatcher(table, a, b, c)
	r := rand.New(rand.NewPCG(5, 6))
	var frames [][]byte
	want := map[byte]int{} // by last number of the address
	for i := range 200 {
		last, port := byte(10+r.IntN(3)), 80+r.IntN(2)
		want[last]++
		dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, last}), uint16(port)).String()
		frames = append(frames, udp4(t, netip.AddrPortFrom(netip.MustParseAddr("198.18.1.1"), uint16(i+1)).String(), dst))
	}
	bt := newTestBatches(t).batch(t, frames...)
	for i := range bt.D {
		bt.Matches = append(bt.Matches, packet.Match{D: uint32(i), Rule: uint32(i), End: 1})
	}
	d.Handle(1, bt)
	seen := map[uint32]bool{}
	for i := range bt.D {
		verdict := map[byte]packet.Verdict{10: packet.Deliver, 11: packet.Forward, 12: packet.DropNoFlow}[bt.Bytes(i)[33]]
		if bt.D[i].Verdict != verdict || seen[bt.D[i].Off] {
			t.Fatalf("a packet to 198.18.0.%d has the verdict %s, or its frame is there twice", bt.Bytes(i)[33], bt.D[i].Verdict)
		}
		seen[bt.D[i].Off] = true
	}
	if len(b.frames) != want[10] || len(c.frames) != want[11] || len(bt.D) != len(frames) {
		t.Errorf("handlers got %d and %d packets, want %v", len(b.frames), len(c.frames), want)
	}
	for _, h := range []*recorder{b, c} { // matches of packets that came at once or as the second handler's
		if len(h.matches) != len(h.frames) {
			t.Errorf("%d matches for %d packets", len(h.matches), len(h.frames))
		}
		for i, f := range h.frames {
			if !slices.ContainsFunc(h.matches, func(m packet.Match) bool { return slices.Equal(frames[m.Rule], f) }) {
				t.Errorf("packet %d has lost its match", i)
			}
		}
	}
}

func TestPiecesAndFragmentsThatAreOfferedTwiceStayTogether(t *testing.T) {
	a, b := &recorder{verdict: packet.DropNoFlow}, &recorder{verdict: packet.Deliver}
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1))), a, b)
	whole := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	bt := newTestBatches(t).batch(t, whole, []byte("the second piece of the same packet"), whole)
	bt.D[0].Flags |= packet.FlagMore
	d.Handle(1, bt)
	if len(b.frames) != 3 || string(b.frames[1]) != "the second piece of the same packet" {
		t.Errorf("the second handler got %q", b.frames)
	}
	first, last := header4("198.18.1.1", "198.18.0.10", layers.IPProtocolUDP), header4("198.18.1.1", "198.18.0.10", layers.IPProtocolUDP)
	first.Id, first.Flags, last.Id, last.FragOffset = 7, layers.IPv4MoreFragments, 7, 1
	d.Handle(2, newTestBatches(t).batch(t, frameOf(t, layers.EthernetTypeIPv4, first, gopacket.Payload(whole[34:42]))))
	before := len(a.frames)
	d.Handle(3, newTestBatches(t).batch(t, frameOf(t, layers.EthernetTypeIPv4, last, gopacket.Payload("rest"))))
	if len(a.frames) != before || len(b.frames) != 5 {
		t.Errorf("handlers have %d and %d fragments: the last did not follow the first to the second handler", len(a.frames)-3, len(b.frames)-3)
	}
}

func TestADeclinedPacketIsHandedOverAndNotOfferedToTheFirstAgain(t *testing.T) {
	table := tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.10", 0, 0, 0, ToHandler(1)))
	a, b := &recorder{verdict: packet.DropNoFlow}, &handing{}
	d, _ := NewDispatcher(table, a, b)
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	for _, tt := range []struct {
		before, after packet.Flags
	}{{0, 0}, {packet.FlagHanded, 0}, {packet.FlagHanded | packet.FlagHandedAgain, packet.FlagHanded | packet.FlagHandedAgain}} {
		bt := newTestBatches(t).batch(t, frame)
		bt.D[0].Flags |= tt.before
		d.Handle(1, bt)
		const handed = packet.FlagHanded | packet.FlagHandedAgain
		if b.flags&handed != tt.after || bt.D[0].Verdict != packet.Handover || bt.D[0].Flow&loopMask != 1 {
			t.Errorf("handed over as %x, the second handler saw %x and said %+v", tt.before, b.flags, bt.D[0])
		}
		// As the mesh passes it on to the other loop, which has a dispatcher of the same kind.
		other := &recorder{verdict: packet.DropNoService}
		first := &recorder{verdict: packet.Deliver}
		d2, _ := NewDispatcher(table, first, other)
		next := newTestBatches(t).batch(t, frame)
		next.D[0].Flow, next.D[0].Flags = bt.D[0].Flow&^loopMask, next.D[0].Flags|packet.FlagHanded
		d2.Handle(2, next)
		if len(first.frames) != 0 || len(other.frames) != 1 || next.D[0].Verdict != packet.DropNoService {
			t.Errorf("on the other loop the handlers got %d and %d packets, verdict %s", len(first.frames), len(other.frames), next.D[0].Verdict)
		}
	}
	bt := newTestBatches(t).batch(t, frame)
	bt.D[0].Flow = uint32(ToHandler(0)) << targetShift // a slot of the engine's flow table
	before := len(a.frames)
	if d.Handle(3, bt); len(a.frames) != before+1 {
		t.Error("a packet that has not been handed over counts as declined")
	}
}

func TestAHandedOverPacketStaysWithItsHandlerWhenTheTableChanges(t *testing.T) {
	before, after := tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(1))), tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(1)), to("198.18.0.10", udp, 80, 80, ToHandler(0)))
	frame := udp4(t, "198.18.1.1:1", "198.18.0.10:80")
	d, _ := NewDispatcher(before, &handing{}, &handing{})
	bt := newTestBatches(t).batch(t, frame)
	d.Handle(1, bt)
	a, b := &recorder{verdict: packet.Deliver}, &recorder{verdict: packet.Deliver}
	d2, _ := NewDispatcher(after, a, b)
	next := newTestBatches(t).batch(t, frame)
	next.D[0].Flow, next.D[0].Flags = bt.D[0].Flow&^loopMask, next.D[0].Flags|packet.FlagHanded
	d2.Handle(2, next)
	if len(a.frames) != 0 || len(b.frames) != 1 {
		t.Errorf("the handlers of the other loop got %d and %d packets", len(a.frames), len(b.frames))
	}
}

// handing hands everything over to loop 1.
type handing struct{ flags packet.Flags }

func (h *handing) Handle(_ clock.Time, b *packet.Batch) {
	for i := range b.D {
		h.flags = b.D[i].Flags
		b.D[i].Verdict, b.D[i].Flow = packet.Handover, 1
	}
}

func (*handing) Tick(clock.Time) clock.Time { return clock.Never }

func TestNeighborDiscoveryGoesToTheOwnerOfTheAddress(t *testing.T) {
	mine := netip.MustParseAddr("2001:db8::10")
	d, _ := NewDispatcher(tableOf(t, Claim{pmd.Rule{Addr: mine, Kind: pmd.Neighbor}, ToHandler(0)}, to("2001:db8::10", 0, 0, 0, ToHandler(1))), new(recorder), new(recorder))
	message := func(dst string, typ uint8, target string) []byte {
		h := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: gonet.ParseIP("2001:db8::1"), DstIP: gonet.ParseIP(dst)}
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
		_ = icmp.SetNetworkLayerForChecksum(h)
		return frameOf(t, layers.EthernetTypeIPv6, h, icmp, gopacket.Payload(append(make([]byte, 4), gonet.ParseIP(target)...)))
	}
	for _, tt := range []struct {
		what  string
		frame []byte
		want  Target
	}{
		{"solicitation for the address", message("ff02::1:ff00:10", 135, "2001:db8::10"), ToHandler(0)},
		{"solicitation for another", message("ff02::1:ff00:11", 135, "2001:db8::11"), 0},
		{"advertisement to the address", message("2001:db8::10", 136, "2001:db8::1"), ToHandler(0)},
		{"redirect to the address", message("2001:db8::10", 137, "2001:db8::1"), ToHandler(1)},
	} {
		bt := newTestBatches(t).batch(t, tt.frame)
		if got, _ := d.classify(0, bt); got != tt.want {
			t.Errorf("%s: target %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestFallbackTakesWhatNoClaimNames(t *testing.T) {
	a, b := new(recorder), new(recorder)
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", 0, 0, 0, ToHandler(0)), to("198.18.0.20", 0, 0, 0, ToHandler(9))), a, b)
	d.SetFallback(1, ToHandler(1))
	bt := newTestBatches(t).batch(t, arpFor(t, "198.18.0.77"), arpFor(t, "198.18.0.77"), udp4(t, "198.18.1.1:1", "198.18.0.10:1"), udp4(t, "198.18.1.1:1", "198.18.0.20:1"))
	bt.D[1].Port, bt.D[2].Port, bt.D[3].Port = 1, 1, 1
	d.Handle(0, bt)
	if len(b.frames) != 1 || len(a.frames) != 1 {
		t.Errorf("the handlers have %d and %d frames, want 1 and 1", len(a.frames), len(b.frames))
	}
	dropped := 0
	for _, x := range bt.D {
		if x.Verdict == packet.DropNotOurs {
			dropped++
		}
	}
	if dropped != 2 { // of the device without a fallback, and for a handler that the loop does not have
		t.Errorf("%d packets are dropped, want 2", dropped)
	}
}

func TestDispatchingAllocatesNothing(t *testing.T) {
	d, _ := NewDispatcher(tableOf(t, to("198.18.0.10", udp, 80, 80, ToHandler(0)), to("198.18.0.11", 0, 0, 0, ToHandler(1))), discard{}, discard{})
	bt := newTestBatches(t).batch(t, udp4(t, "198.18.1.1:1", "198.18.0.10:80"), udp4(t, "198.18.1.1:1", "198.18.0.11:80"), arpFor(t, "198.18.0.1"))
	d.Handle(0, bt)
	if n := testing.AllocsPerRun(100, func() { d.Handle(1, bt) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// discard is a handler that does nothing.
type discard struct{}

func (discard) Handle(clock.Time, *packet.Batch) {}
func (discard) Tick(clock.Time) clock.Time       { return clock.Never }

func FuzzSelector(f *testing.F) {
	f.Add(udp4(f, "198.18.1.1:1", "198.18.0.10:80"))
	f.Add(udp6(f, "[2001:db8::1]:1", "[2001:db8::2]:80"))
	f.Add(arpFor(f, "198.18.0.1"))
	table := tableOf(f, to("198.18.0.10", udp, 80, 80, ToHandler(0)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if s, ok := selectorOf(frame); ok {
			_ = table.current.Load().target(&s, 0)
		}
	})
}

func BenchmarkDispatch(b *testing.B) {
	claims := []Claim{to("198.18.0.11", 0, 0, 0, ToHandler(1))}
	for port := range 1000 {
		claims = append(claims, to("198.18.0.10", udp, uint16(port+1), uint16(port+1), ToHandler(0)))
	}
	for _, bb := range []struct {
		name string
		dst  func(i int) string
	}{
		{"one handler, one flow", func(int) string { return "198.18.0.10:80" }},
		{"one handler, many flows", func(i int) string {
			return netip.AddrPortFrom(netip.MustParseAddr("198.18.0.10"), uint16(i+1)).String()
		}},
		{"two handlers in turn", func(i int) string { return []string{"198.18.0.10:80", "198.18.0.11:80"}[i%2] }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			d, _ := NewDispatcher(tableOf(b, claims...), discard{}, discard{})
			frames := make([][]byte, 64)
			for i := range frames {
				frames[i] = udp4(b, "198.18.1.1:1", bb.dst(i))
			}
			bt := newTestBatches(b).batch(b, frames...)
			b.ReportAllocs()
			for b.Loop() {
				d.Handle(1, bt)
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/64, "ns/packet")
		})
	}
}
