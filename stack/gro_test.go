package stack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// groSegment describes a segment of a test. Its zero value, but for what newGROFlow sets, is data of an open connection.
type groSegment struct {
	six        bool
	udp        bool // a datagram: nothing of TCP
	src        wire.MAC
	client     byte // last byte of the source address
	port       uint16
	tos, ttl   uint8
	df         bool
	id         uint16
	label      uint32
	seq, ack   uint32
	flags      wire.TCPFlags
	ae         bool
	window     uint16
	stamp      uint32 // timestamp; 0 is a header without options
	size       int    // payload
	trailer    int    // bytes behind the packet, as Ethernet pads
	badIP, bad bool   // checksums
	noSum      bool   // a datagram without a checksum
	beyond     int    // bytes of a datagram's packet that its own length does not count
	vlan       bool
}

func newGROFlow(port uint16, six bool) groSegment {
	return groSegment{
		six: six, src: wire.MAC{2, 1}, client: 9, port: port, ttl: 64, df: true, id: 7, seq: 1 << 31, ack: 5,
		flags: wire.FlagACK, window: 500, stamp: 77, size: 1000,
	}
}

func (s *groSegment) bytes() []byte {
	p := wire.AppendEthernet(nil, wire.MAC{2, 2}, s.src, wire.EtherTypeIPv4)
	if s.vlan {
		p = append(p[:12], 0x81, 0, 0, 5, 8, 0)
	}
	var options []byte
	if s.stamp != 0 {
		options = wire.AppendTimestamps([]byte{wire.OptionNOP, wire.OptionNOP}, s.stamp, 1)
	}
	l3, n, proto := len(p), wire.TCPLen+len(options)+s.size, uint8(wire.ProtoTCP)
	if s.udp {
		n, proto = wire.UDPLen+s.size, wire.ProtoUDP
	}
	if s.six {
		wire.Ethernet(p).SetEtherType(wire.EtherTypeIPv6)
		p = wire.AppendIPv6(p, &wire.IPv6Header{
			Src: [16]byte{0x20, 1, 0xd, 0xb8, 15: s.client}, Dst: [16]byte{0x20, 1, 0xd, 0xb8, 15: 200}, NextHeader: proto,
			HopLimit: s.ttl, TrafficClass: s.tos, FlowLabel: s.label, PayloadLen: n,
		})
	} else {
		p = wire.AppendIPv4(p, &wire.IPv4Header{
			Src: [4]byte{198, 18, 0, s.client}, Dst: [4]byte{198, 18, 1, 1}, Proto: proto,
			TTL: s.ttl, TOS: s.tos, DontFragment: s.df, ID: s.id, PayloadLen: n,
		})
	}
	l4, pseudo := len(p), wire.IPv4(p[l3:]).Pseudo
	if s.six {
		pseudo = wire.IPv6(p[l3:]).Pseudo
	}
	if s.udp {
		p = wire.AppendUDP(p, s.port, 80, s.size)
	} else {
		p = wire.AppendTCP(p, &wire.TCPHeader{SrcPort: s.port, DstPort: 80, Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: s.window, Options: options})
		wire.TCP(p[l4:]).SetAE(s.ae)
	}
	for i := range s.size {
		p = append(p, byte(int(s.seq)+i)^byte(i>>8))
	}
	at := 16 // of the checksum
	if udp := wire.UDP(p[l4:]); s.udp {
		at = 6
		if udp.SetLen(udp.Len() - uint16(s.beyond)); !s.noSum {
			udp.FillChecksum(pseudo() - uint32(s.beyond))
		}
	} else {
		wire.TCP(p[l4:]).FillChecksum(pseudo())
	}
	if s.bad {
		p[l4+at] ^= 1
	}
	if s.badIP && !s.six {
		wire.IPv4(p[l3:]).SetChecksum(wire.IPv4(p[l3:]).Checksum() ^ 0x100)
	}
	return append(p, make([]byte, s.trailer)...)
}

// groBench passes packets through the engine and gro.
type groBench struct {
	t    *testing.T
	pool *ring.Pool
	eng  *gpukern.CPU
	gro  gro
}

func newGROBench(t *testing.T) *groBench {
	w := newWorld(t)
	return &groBench{t: t, pool: w.pool, eng: gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum})}
}

// receive puts packets into frames, at most a burst, and has the engine process them.
func (g *groBench) receive(packets [][]byte, headroom int) *packet.Batch {
	g.t.Helper()
	b := packet.NewBatch(g.pool.Arena().View(), packet.BatchSize)
	for _, p := range packets {
		off, ok := g.pool.Get()
		if !ok {
			g.t.Fatal("no frame")
		}
		d := packet.Desc{Off: off + uint32(headroom), Len: uint16(len(p))}
		copy(b.Arena.Bytes(&d), p)
		b.Append(d)
	}
	if err := g.eng.Submit(b); err != nil {
		g.t.Fatal(err)
	}
	done := [4]*packet.Batch{}
	if g.eng.Poll(done[:]) != 1 || done[0] != b {
		g.t.Fatal("the engine did not return the batch")
	}
	return b
}

// merge returns the packets that gro makes of a burst, each as the wire-sized packets that a device cuts it into.
func (g *groBench) merge(packets [][]byte) (out [][][]byte) {
	g.t.Helper()
	b := g.receive(packets, 256)
	g.gro.udp = true
	fewer := g.gro.merge(b)
	if got := packet.Packets(b.D); got+fewer != uint64(len(packets)) || len(b.D) != len(packets) {
		g.t.Fatalf("%d packets became %d of %d frames, and %d fewer", len(packets), got, len(b.D), fewer)
	}
	for i := 0; i < len(b.D); {
		n := packet.Chain(b.D[i:])
		out = append(out, g.cut(b.Arena, b.D[i:i+n]))
		i += n
	}
	for i := range b.D {
		g.pool.Put(b.D[i].Off)
	}
	return out
}

// cut segments a packet as virtio 1.2 5.1.6.2 has a device do it, in the most obvious way.
func (g *groBench) cut(a *packet.Arena, d []packet.Desc) (out [][]byte) {
	g.t.Helper()
	p := a.Gather(nil, d, 1<<17)
	if !d[0].Flags.Has(packet.FlagOffload) {
		if len(d) > 1 {
			g.t.Fatal("a chain that no device is asked to cut")
		}
		return [][]byte{p}
	}
	o, start := a.Offload(&d[0]), a.Headroom(&d[0])
	headers, l4 := int(o.HeadersEnd)-start, int(o.ChecksumFrom)-start
	want := packet.Offload{Flags: 1, GSO: 1, HeadersEnd: o.HeadersEnd, SegmentSize: o.SegmentSize, ChecksumFrom: o.ChecksumFrom, ChecksumAt: 16}
	six, udp, at := p[12] == 0x86, p[23] == wire.ProtoUDP, 16
	if six {
		want.GSO, udp = 4, p[20] == wire.ProtoUDP
	}
	if udp {
		want.GSO, want.ChecksumAt, at = 5, 6, 6
		if int(wire.UDP(p[l4:]).Len()) != len(p)-l4 {
			g.t.Fatalf("a datagram of %d bytes in %d", wire.UDP(p[l4:]).Len(), len(p)-l4)
		}
	}
	if o != want || headers != int(d[0].Payload) || l4 != int(d[0].L4) {
		g.t.Fatalf("offload %+v, headers of %d bytes", o, headers)
	}
	if l, sum := len(p)-l4, binary.BigEndian.Uint16(p[l4+at:]); six {
		if ip := wire.IPv6(p[14:]); !ip.Valid() || int(ip.PayloadLen()) != l || sum != ^wire.Fold(ip.Pseudo()) {
			g.t.Fatalf("IPv6 header % x for %d bytes, checksum %#x", p[14:54], l, sum)
		}
	} else if ip := wire.IPv4(p[14:]); !ip.Valid() || !ip.ChecksumOK() || int(ip.TotalLen()) != l+20 || sum != ^wire.Fold(ip.Pseudo()) {
		g.t.Fatalf("IPv4 header % x for %d bytes, checksum %#x", p[14:34], l, sum)
	}
	for at := headers; at < len(p); at += int(o.SegmentSize) {
		part := p[at:min(at+int(o.SegmentSize), len(p))]
		s := append(bytes.Clone(p[:headers]), part...)
		var pseudo uint32
		if six {
			ip := wire.IPv6(s[14:])
			ip.SetPayloadLen(uint16(len(s) - 54))
			pseudo = ip.Pseudo()
		} else {
			ip := wire.IPv4(s[14:])
			ip.SetTotalLen(uint16(len(s) - 14))
			ip.SetID(ip.ID() + uint16(len(out)))
			ip.FillChecksum()
			pseudo = ip.Pseudo()
		}
		if udp {
			wire.UDP(s[l4:]).SetLen(uint16(len(s) - l4))
			wire.UDP(s[l4:]).FillChecksum(pseudo)
		} else {
			tcp := wire.TCP(s[l4:])
			tcp.SetSeq(tcp.Seq() + uint32(at-headers))
			if at+len(part) < len(p) {
				tcp.SetFlags(tcp.Flags() &^ (wire.FlagFIN | wire.FlagPSH))
			}
			tcp.FillChecksum(pseudo)
		}
		out = append(out, s)
	}
	if len(out) < 2 {
		g.t.Fatal("one segment needs no device to cut it")
	}
	return out
}

// train returns n segments in order.
func train(s groSegment, n int) (list []groSegment) {
	for range n {
		list = append(list, s)
		s.seq += uint32(s.size)
		s.id++
	}
	return list
}

func wireForm(list []groSegment) (out [][]byte) {
	for i := range list {
		out = append(out, list[i].bytes())
	}
	return out
}

// TestGROFollowsLinux joins what tcp_gro_receive joins, and nothing else: each case changes the third of five segments.
func TestGROFollowsLinux(t *testing.T) {
	mergesWithOneChanged(t, newGROFlow, []groChange{
		{"nothing", func(*groSegment) {}, "[5]"},
		{"push", func(s *groSegment) { s.flags |= wire.FlagPSH }, "[3 2]"},
		{"sequence", func(s *groSegment) { s.seq++ }, "[2 1 2]"},
		{"acknowledgment", func(s *groSegment) { s.ack++ }, "[2 1 2]"},
		{"window", func(s *groSegment) { s.window++ }, "[2 1 2]"},
		{"timestamp", func(s *groSegment) { s.stamp++ }, "[2 1 2]"},
		{"no options", func(s *groSegment) { s.stamp = 0 }, "[2 1 2]"},
		{"FIN", func(s *groSegment) { s.flags |= wire.FlagFIN }, "[2 1 2]"},
		{"URG", func(s *groSegment) { s.flags |= wire.FlagURG }, "[2 1 2]"},
		{"RST", func(s *groSegment) { s.flags |= wire.FlagRST }, "[2 1 2]"},
		{"SYN", func(s *groSegment) { s.flags |= wire.FlagSYN }, "[2 1 2]"},
		{"CWR", func(s *groSegment) { s.flags |= wire.FlagCWR }, "[2 1 2]"},
		{"ECE", func(s *groSegment) { s.flags |= wire.FlagECE }, "[2 1 2]"},
		{"AE", func(s *groSegment) { s.ae = true }, "[2 1 2]"},
		{"CE", func(s *groSegment) { s.tos |= 3 }, "[2 1 2]"},
		{"TTL", func(s *groSegment) { s.ttl-- }, "[2 1 2]"},
		{"source MAC", func(s *groSegment) { s.src[5]++ }, "[2 1 2]"},
		{"padding", func(s *groSegment) { s.trailer = 2 }, "[2 1 2]"},
		{"wrong checksum", func(s *groSegment) { s.bad = true }, "[2 1 2]"},
		{"no data", func(s *groSegment) { s.size = 0 }, "[2 1 2]"},
		{"longer", func(s *groSegment) { s.size++ }, "[2 1 2]"},
		{"shorter", func(s *groSegment) { s.size-- }, "[3 2]"},
		{"another client", func(s *groSegment) { s.client++ }, "[2 1 2]"},
		{"IPv4: checksum", func(s *groSegment) { s.badIP = true }, "[2 1 2]"},
		{"IPv4: may be fragmented", func(s *groSegment) { s.df = false }, "[2 1 2]"},
		{"IPv4: identification", func(s *groSegment) { s.id += 5 }, "[2 1 2]"},
		{"IPv4: tag", func(s *groSegment) { s.vlan = true }, "[2 1 2]"},
		{"IPv6: flow label", func(s *groSegment) { s.label++ }, "[2 1 2]"},
	})
}

// groChange is a change of one packet of a flow.
type groChange struct {
	name   string // begins with IPv4 or IPv6 where it is of one family
	change func(s *groSegment)
	want   string // segments or datagrams of each packet
}

// mergesWithOneChanged changes the third of five packets of a flow, in each family.
func mergesWithOneChanged(t *testing.T, flow func(port uint16, six bool) groSegment, changes []groChange) {
	for _, six := range []bool{false, true} {
		for _, c := range changes {
			if six && strings.HasPrefix(c.name, "IPv4") || !six && strings.HasPrefix(c.name, "IPv6") {
				continue
			}
			t.Run(fmt.Sprintf("%s,IPv6=%v", c.name, six), func(t *testing.T) {
				list := train(flow(4000, six), 5)
				c.change(&list[2])
				mergesTo(t, list, c.want)
			})
		}
	}
}

// mergesTo expects packets of so many segments, and that they leave as they came.
func mergesTo(t *testing.T, list []groSegment, want string) {
	t.Helper()
	in := wireForm(list)
	got, flat := []int{}, [][]byte(nil)
	for _, p := range newGROBench(t).merge(in) {
		got, flat = append(got, len(p)), append(flat, p...)
	}
	if fmt.Sprint(got) != want {
		t.Errorf("packets of %v segments, want %s", got, want)
	}
	for i := range in {
		if !bytes.Equal(in[i], flat[i]) {
			t.Errorf("segment %d came as\n% x and left as\n% x", i, in[i], flat[i])
		}
	}
}

func newGRODatagram(port uint16, six bool) groSegment {
	s := newGROFlow(port, six)
	s.udp, s.size = true, 900
	return s
}

// TestGROJoinsDatagramsAsLinux joins what udp_gro_receive_segment joins, and nothing else: each case changes the third of five
// datagrams.
func TestGROJoinsDatagramsAsLinux(t *testing.T) {
	mergesWithOneChanged(t, newGRODatagram, []groChange{
		{"nothing", func(*groSegment) {}, "[5]"},
		{"shorter", func(s *groSegment) { s.size-- }, "[3 2]"},
		{"longer", func(s *groSegment) { s.size++ }, "[2 2 1]"},
		{"empty", func(s *groSegment) { s.size = 0 }, "[2 1 2]"},
		{"no checksum", func(s *groSegment) { s.noSum = true }, "[2 1 2]"},
		{"wrong checksum", func(s *groSegment) { s.bad = true }, "[2 1 2]"},
		{"its length is less", func(s *groSegment) { s.beyond = 2 }, "[2 1 2]"},
		{"padding", func(s *groSegment) { s.trailer = 2 }, "[2 1 2]"},
		{"TTL", func(s *groSegment) { s.ttl-- }, "[2 1 2]"},
		{"CE", func(s *groSegment) { s.tos |= 3 }, "[2 1 2]"},
		{"source MAC", func(s *groSegment) { s.src[5]++ }, "[2 1 2]"},
		{"another client", func(s *groSegment) { s.client++ }, "[2 1 2]"},
		{"a segment of TCP", func(s *groSegment) { s.udp, s.size = false, 900 }, "[2 1 2]"},
		{"IPv4: checksum", func(s *groSegment) { s.badIP = true }, "[2 1 2]"},
		{"IPv4: identification", func(s *groSegment) { s.id += 5 }, "[2 1 2]"},
		{"IPv4: tag", func(s *groSegment) { s.vlan = true }, "[2 1 2]"},
		{"IPv6: flow label", func(s *groSegment) { s.label++ }, "[2 1 2]"},
	})
}

// Kernels before 6.9 reject a packet of more than 64 datagrams.
func TestGROEndsPacketsAtWhatLinuxTakes(t *testing.T) {
	s := newGRODatagram(4000, false)
	s.size = 20
	mergesTo(t, train(s, 150), "[64 64 22]")
	s.size = 1472
	mergesTo(t, train(s, 50), "[44 6]")
}

// Datagrams are joined only where the handler treats all of a flow alike.
func TestGROJoinsDatagramsOnlyWhenAsked(t *testing.T) {
	g := newGROBench(t)
	if n := g.gro.merge(g.receive(wireForm(train(newGRODatagram(1, false), 3)), 256)); n != 0 {
		t.Errorf("%d datagrams joined", n)
	}
}

// Two flows whose ports select the same slot, and a fragment, close the packets of datagrams too.
func TestGROKeepsDatagramsApart(t *testing.T) {
	slot := func(port uint16) uint32 { return (uint32(port)<<16 | 80) * 0x9e3779b1 >> 27 }
	a, b := newGRODatagram(4000, false), newGRODatagram(4001, false)
	for slot(b.port) != slot(a.port) {
		b.port++
	}
	b.id = a.id + 1
	if got := newGROBench(t).merge([][]byte{a.bytes(), b.bytes()}); len(got) != 2 {
		t.Errorf("two flows became %d packets", len(got))
	}
	list := wireForm(train(a, 3))
	fragment := bytes.Clone(list[1])
	binary.BigEndian.PutUint16(fragment[20:], 0x2000)
	wire.IPv4(fragment[14:]).FillChecksum()
	list[1] = fragment
	if got := newGROBench(t).merge(list); len(got) != 3 {
		t.Errorf("a fragment between two datagrams: %d packets", len(got))
	}
}

// Flows whose ports select the same slot close each other's packets, though sequence numbers may seem to go on.
func TestGROTellsFlowsOfOneSlotApart(t *testing.T) {
	slot := func(port uint16) uint32 { return (uint32(port)<<16 | 80) * 0x9e3779b1 >> 27 }
	a, b := newGROFlow(4000, false), newGROFlow(4001, false)
	for slot(b.port) != slot(a.port) {
		b.port++
	}
	b.seq, b.id = a.seq+uint32(a.size), a.id+1
	if got := newGROBench(t).merge([][]byte{a.bytes(), b.bytes()}); len(got) != 2 {
		t.Errorf("two flows became %d packets", len(got))
	}
}

// Identifications of packets that are never fragmented may all be the same; of others they must count up.
func TestGROIdentifications(t *testing.T) {
	for _, df := range []bool{false, true} {
		list := train(newGROFlow(4000, false), 3)
		for i := range list {
			list[i].id, list[i].df = 9, df
		}
		if got, want := len(newGROBench(t).merge(wireForm(list))), map[bool]int{false: 3, true: 1}[df]; got != want {
			t.Errorf("do not fragment %v: %d packets, want %d", df, got, want)
		}
	}
}

func TestGROEndsPacketsAtWhatIPCanExpress(t *testing.T) {
	for _, six := range []bool{false, true} {
		s := newGROFlow(4000, six)
		s.size = 1448
		list := train(s, 100)
		got := newGROBench(t).merge(wireForm(list))
		if len(got) != 3 || len(got[0]) != 45 || len(got[1]) != 45 || len(got[2]) != 10 {
			t.Errorf("IPv6 %v: %d packets, the first of %d segments", six, len(got), len(got[0]))
		}
	}
}

// Without headroom there is no place for what the device has to do.
func TestGRONeedsHeadroom(t *testing.T) {
	g := newGROBench(t)
	for headroom, want := range map[int]uint64{packet.OffloadLen - 1: 0, packet.OffloadLen: 2} {
		b := g.receive(wireForm(train(newGROFlow(1, false), 3)), headroom)
		if fewer := g.gro.merge(b); fewer != want {
			t.Errorf("headroom of %d: %d fewer packets, want %d", headroom, fewer, want)
		}
	}
}

// Matches name descriptors by their place, which joining changes.
func TestGROLeavesBurstsWithMatches(t *testing.T) {
	g := newGROBench(t)
	b := g.receive(wireForm(train(newGROFlow(1, false), 3)), 256)
	b.Matches = []packet.Match{{D: 1}}
	if g.gro.merge(b) != 0 || packet.Packets(b.D) != 3 {
		t.Error("joined")
	}
}

// TestGROKeepsEveryFlow merges random bursts of several flows, with packets in between that are no segments, and expects that
// a device that cuts the result sends the packets of each flow byte for byte, in their order.
func TestGROKeepsEveryFlow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	g := newGROBench(t)
	joined := 0
	for range 400 {
		var flows []groSegment
		for range 1 + r.IntN(6) {
			f := newGROFlow(uint16(r.IntN(1<<16)), r.IntN(3) == 0)
			f.client, f.size, f.udp = byte(r.IntN(3)), 1+r.IntN(60), r.IntN(3) == 0
			flows = append(flows, f)
		}
		var in [][]byte
		for range 1 + r.IntN(packet.BatchSize) {
			f := &flows[r.IntN(len(flows))]
			s := *f
			f.id++
			mutate(r, &s)
			if r.IntN(9) > 0 { // of a datagram, what its payload begins with
				f.seq += uint32(s.size)
			}
			if r.IntN(10) == 0 {
				in = append(in, other(r, &s))
			}
			in = append(in, s.bytes())
		}
		out := g.merge(in)
		want, got := byFlow(in), map[string][][]byte{}
		for _, p := range out {
			k := flowOf(p[0])
			got[k] = append(got[k], p...)
		}
		joined += len(in) - len(out)
		for k := range want {
			for i := range want[k] {
				if i >= len(got[k]) || !bytes.Equal(want[k][i], got[k][i]) {
					t.Fatalf("packet %d of flow %x differs\n% x\n% x", i, k, want[k][i], got[k][i])
				}
			}
			if len(got[k]) != len(want[k]) {
				t.Fatalf("flow %x: %d packets became %d", k, len(want[k]), len(got[k]))
			}
		}
	}
	if joined < 10000 {
		t.Errorf("%d segments were joined to others: the test shows little", joined)
	}
}

// mutate changes a segment, rarely.
func mutate(r *rand.Rand, s *groSegment) {
	switch r.IntN(60) {
	case 0:
		s.flags |= wire.TCPFlags(1 << r.IntN(8))
	case 1:
		s.seq += uint32(r.IntN(100))
	case 2:
		s.size = r.IntN(s.size + 1)
	case 3:
		s.bad = true
	case 4:
		s.tos = uint8(r.IntN(256))
	case 5:
		s.trailer = 1 + r.IntN(4)
	case 6:
		s.window = 0
	case 7:
		s.badIP = true
	case 8:
		s.noSum = true
	case 9:
		s.size++
	}
}

// other returns a packet of the same hosts that could not be joined: a fragment, one of the other protocol, or ARP.
func other(r *rand.Rand, s *groSegment) []byte {
	p := s.bytes()
	switch ip := wire.IPv4(p[14:]); r.IntN(3) {
	case 0:
		if !s.six {
			binary.BigEndian.PutUint16(ip[6:], 0x2000)
			ip.FillChecksum()
		}
	case 1:
		if !s.six {
			ip.SetProto(ip.Proto() ^ wire.ProtoTCP ^ wire.ProtoUDP)
			ip.FillChecksum()
		}
	case 2:
		wire.Ethernet(p).SetEtherType(wire.EtherTypeARP)
	}
	return p
}

// flowOf returns addresses, protocol and ports, of fragments too.
func flowOf(p []byte) string {
	if p[12] == 0x86 {
		return string(p[20:21]) + string(p[22:54]) + string(p[54:58])
	}
	return string(p[12:14]) + string(p[23:24]) + string(p[26:34]) + string(p[34:38])
}

func byFlow(packets [][]byte) map[string][][]byte {
	m := map[string][][]byte{}
	for _, p := range packets {
		m[flowOf(p)] = append(m[flowOf(p)], p)
	}
	return m
}

// A loop joins only where every device can cut, and its counters hold with what it joined.
func TestLoopCountsMergedSegments(t *testing.T) {
	for _, c := range []struct {
		can  bool
		join GRO
		kind groSegment
		want uint64 // packets
	}{
		{false, GROAll, newGROFlow(1, false), 10},
		{true, GROTCP, newGROFlow(1, false), 1},
		{true, GROTCP, newGRODatagram(1, false), 10},
		{true, GROAll, newGROFlow(1, false), 1},
		{true, GROAll, newGRODatagram(1, false), 1},
	} {
		w := newWorld(t)
		if both := pmd.CapOffload | pmd.CapOffloadUDP; c.can {
			w.port[0].caps, w.port[1].caps = both, both
		} else {
			w.port[0].caps = pmd.CapOffload
		}
		g := groBench{t: t, pool: w.pool, eng: gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum})}
		var err error
		w.loop, err = NewLoop(Config{Devices: []pmd.Driver{w.port[0], w.port[1]}, Pool: w.pool, Engine: g.eng, Handler: Bridge{}})
		if err != nil {
			t.Fatal(err)
		}
		b := g.receive(wireForm(train(c.kind, 10)), 256)
		burst := make([]packet.Desc, len(b.D))
		for i, d := range b.D {
			burst[i] = packet.Desc{Off: d.Off, Len: d.Len}
		}
		w.port[0].in = [][]packet.Desc{burst}
		if got := w.loop.SetGRO(c.join); got != c.join && c.can || got != GRONone && !c.can {
			t.Fatalf("SetGRO(%v) is %v", c.join, got)
		}
		w.loop.Poll(clock.Time(1))
		s := w.settled(t)
		if s.Received != 10 || s.Merged != 10-c.want || s.Forwarded != c.want || len(w.port[1].sent) != 10 {
			t.Errorf("can cut %v, joins %v, datagrams %v: %d descriptors left, stats %+v", c.can, c.join, c.kind.udp, len(w.port[1].sent), s)
		}
		w.loop.out.queues[1].caps &^= pmd.CapOffloadUDP
		if got := w.loop.SetGRO(GROAll); got != GROTCP && c.can {
			t.Errorf("SetGRO(GROAll) is %v, and a device cannot cut datagrams", got)
		}
		if got := w.loop.SetGRO(GRONone); got != GRONone {
			t.Errorf("SetGRO(GRONone) is %v", got)
		}
		if err := w.loop.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Joining allocates nothing once the loop has seen a full burst.
func TestGROAllocatesNothing(t *testing.T) {
	g := newGROBench(t)
	b := g.receive(wireForm(train(newGROFlow(1, false), 40)), 256)
	kept := append([]packet.Desc(nil), b.D...)
	first := bytes.Clone(b.Bytes(0))
	if n := testing.AllocsPerRun(20, func() {
		b.D = append(b.D[:0], kept...)
		copy(b.Bytes(0), first)
		if g.gro.merge(b) != 39 {
			t.Error("not joined")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
