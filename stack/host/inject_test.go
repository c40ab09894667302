package host

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// bench is one host whose wire ends at the test, which sends any frames and sees what comes back.
type bench struct {
	*world
	h    *Host
	loop *stack.Loop
	far  *pmd.Memory
	pool *ring.Pool
	rx   *packet.Batch
	sent int
}

var farMAC = wire.MAC{2, 0, 0, 0, 0, 0xA}

func newBench(t testing.TB, engine gpukern.Config) *bench {
	t.Helper()
	w := &world{t: t, now: clock.Time(time.Hour)}
	var err error
	w.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 512, Huge: ring.HugeOff})
	w.must(err)
	t.Cleanup(func() { w.arena.Close() })
	b := &bench{world: w, rx: packet.NewBatch(w.arena.View(), 512)}
	b.pool, _ = w.arena.Cut(256)
	near, _ := w.arena.Cut(256)
	var drv *pmd.Memory
	b.far, drv, err = pmd.NewMemory(pmd.MemoryConfig{A: b.pool, B: near})
	w.must(err)
	s := setting{engine: engine}
	w.a = w.host([]stack.Config{w.loop(drv, near, &s)}, &s, 1)
	w.b = &Group{}
	w.hold = append(w.hold, b.pool, near, b.far, drv)
	b.h, b.loop = w.a.Hosts[0], w.loops[w.a][0]
	for _, p := range []struct{ us, them string }{{"198.18.0.1", "198.18.0.2"}, {"2001:db8::1", "2001:db8::2"}} {
		_ = p
	}
	w.must(w.a.AddAddr(0, addrA4, ip.Static, true))
	w.must(w.a.AddAddr(0, addrA6, ip.Static, true))
	w.must(w.a.AddNeighbor(0, wire.AddrFrom(addrB4.Addr()), farMAC))
	w.must(w.a.AddNeighbor(0, wire.AddrFrom(addrB6.Addr()), farMAC))
	b.poll()
	return b
}

// inject sends a frame in pieces of the given lengths; the last piece has the rest.
func (b *bench) inject(frame []byte, cuts ...int) {
	b.t.Helper()
	batch := packet.NewBatch(b.arena.View(), 64)
	for len(frame) > 0 {
		n := min(len(frame), 1900)
		if len(cuts) > 0 {
			n, cuts = min(n, cuts[0]), cuts[1:]
		}
		off, ok := b.pool.Get()
		if !ok {
			b.t.Fatal("no frame")
		}
		d := packet.Desc{Off: off + 100, Len: uint16(n)}
		copy(b.arena.Bytes(&d), frame[:n])
		if frame = frame[n:]; len(frame) > 0 {
			d.Flags = packet.FlagMore
		}
		batch.Append(d)
	}
	if n, err := b.far.Tx(b.now, batch); err != nil || n != batch.Len() {
		b.t.Fatalf("sent %d of %d, %v", n, batch.Len(), err)
	}
	b.sent++
}

// poll runs a few iterations of the host and returns the frames that it sent.
func (b *bench) poll() (out [][]byte) {
	b.t.Helper()
	for range 4 {
		b.loop.Poll(b.now)
		b.now += 1000
	}
	_, err := b.far.Rx(b.now, b.rx)
	b.must(err)
	for i := 0; i < len(b.rx.D); {
		var f []byte
		for n := packet.Chain(b.rx.D[i:]); n > 0; n-- {
			f = append(f, b.rx.Bytes(i)...)
			b.pool.Put(b.rx.D[i].Off)
			i++
		}
		out = append(out, f)
	}
	b.rx.Reset()
	return out
}

// packetTo returns a frame from the far end.
func packetTo(v4 bool, proto uint8, l4 []byte) []byte {
	f := wire.AppendEthernet(nil, wire.MAC{2, 0, 0, 0, 0, 0xB}, farMAC, wire.EtherTypeIPv6)
	if v4 {
		wire.Ethernet(f).SetEtherType(wire.EtherTypeIPv4)
		f = wire.AppendIPv4(f, &wire.IPv4Header{Src: addrB4.Addr().As4(), Dst: addrA4.Addr().As4(), Proto: proto, TTL: 64, TOS: 2, PayloadLen: len(l4)})
		wire.IPv4(f[wire.EthernetLen:]).FillChecksum()
	} else {
		f = wire.AppendIPv6(f, &wire.IPv6Header{Src: addrB6.Addr().As16(), Dst: addrA6.Addr().As16(), NextHeader: proto, HopLimit: 64, TrafficClass: 2, PayloadLen: len(l4)})
	}
	return append(f, l4...)
}

func pseudoTo(v4 bool, proto uint8, n int) uint32 {
	if v4 {
		return wire.PseudoHeader4(addrB4.Addr().As4(), addrA4.Addr().As4(), proto, uint32(n))
	}
	return wire.PseudoHeader6(addrB6.Addr().As16(), addrA6.Addr().As16(), proto, uint32(n))
}

func segmentTo(v4 bool, h wire.TCPHeader, payload []byte) []byte {
	seg := wire.TCP(append(wire.AppendTCP(nil, &h), payload...))
	seg.FillChecksum(pseudoTo(v4, wire.ProtoTCP, len(seg)))
	return packetTo(v4, wire.ProtoTCP, seg)
}

func datagramTo(v4 bool, src, dst uint16, payload []byte) []byte {
	u := wire.UDP(append(wire.AppendUDP(nil, src, dst, len(payload)), payload...))
	u.FillChecksum(pseudoTo(v4, wire.ProtoUDP, len(u)))
	return packetTo(v4, wire.ProtoUDP, u)
}

// reader is a UDP socket's owner that takes what comes.
type inbox struct {
	b    *bench
	s    *udp.Socket
	got  [][]byte
	msgs []udp.Message
}

func (x *inbox) Ready(udp.Events) {
	for {
		var buf [70000]byte
		m := []udp.Message{{Buffers: [][]byte{buf[:]}}}
		if n := x.s.Read(x.b.now, m); n == 0 {
			return
		}
		x.got = append(x.got, bytes.Clone(buf[:m[0].N]))
		m[0].Buffers = nil
		x.msgs = append(x.msgs, m[0])
	}
}

func (b *bench) bind(port uint16, o *udp.Options) *inbox {
	b.t.Helper()
	x := &inbox{b: b}
	b.must(b.h.locked(func(now clock.Time, h *Host) error {
		var err error
		x.s, err = h.UDP.Bind(wire.Addr{}, port, o, x)
		return err
	}))
	return x
}

// engines are those that verify checksums and those that do not look.
var engines = map[string]gpukern.Config{"verifying": {}, "blind": {Ops: gpukern.OpParse | gpukern.OpHash}}

func TestChecksumsAreVerifiedByEngineOrHost(t *testing.T) {
	for name, engine := range engines {
		for _, v4 := range []bool{true, false} {
			if name == "blind" && v4 {
				continue // such an engine does not verify the IPv4 header either
			}
			b := newBench(t, engine)
			x := b.bind(9, nil)
			r := rand.New(rand.NewPCG(1, 2))
			good := 0
			for i := range 60 {
				f := datagramTo(v4, 5, 9, text(1+r.IntN(3000), uint64(i)))
				wrong := i%3 == 0
				if wrong {
					f[len(f)-1-r.IntN(8)] ^= 1 << r.IntN(8)
				} else {
					good++
				}
				if i%2 == 0 {
					b.inject(f, 60+r.IntN(200), 1+r.IntN(200), 1+r.IntN(200))
				} else if len(f) < 1900 {
					b.inject(f)
				} else {
					b.inject(f, 1001)
				}
				b.poll()
			}
			s := b.loop.Stats()
			if len(x.got) != good || int(s.Dropped[packet.DropL4Checksum]) != 60-good {
				t.Errorf("%s, IPv4 %v: %d of %d came, %+v", name, v4, len(x.got), good, s)
			}
			b.balance()
		}
	}
}

// balance holds the books of the one host against each other.
func (b *bench) balance() {
	b.t.Helper()
	s := b.loop.Stats()
	if s.InFlight() != 0 || int(s.Received) != b.sent {
		b.t.Errorf("%d sent: %+v", b.sent, s)
	}
	b.must(ring.Audit(b.arena, b.hold...))
}

func TestDatagramsOfABurstAreMerged(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		b := newBench(t, gpukern.Config{})
		x := b.bind(9, &udp.Options{GRO: true})
		sizes := []int{100, 100, 100, 40, 100, 200, 200}
		var want []byte
		for i, n := range sizes {
			p := text(n, uint64(i))
			want = append(want, p...)
			b.inject(datagramTo(v4, 5, 9, p))
		}
		b.poll()
		if got := bytes.Join(x.got, nil); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came, want %d", len(got), len(want))
		}
		if len(x.msgs) != 3 || x.msgs[0].SegmentSize != 100 || x.msgs[0].N != 340 || x.msgs[2].SegmentSize != 200 || x.msgs[2].N != 400 {
			t.Errorf("IPv4 %v: %+v", v4, x.msgs)
		}
		if m := x.msgs[0]; m.TTL != 64 || m.TOS != 2 || m.Interface != 1 || m.RemotePort != 5 || m.Remote.Is4() != v4 {
			t.Errorf("%+v", m)
		}
		b.balance()
	}
}

func TestClosedPortsAreAnswered(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		b := newBench(t, gpukern.Config{})
		head := wire.EthernetLen + wire.IPv6Len
		unreachable := uint8(wire.ICMPv6Unreachable)
		if v4 {
			head, unreachable = wire.EthernetLen+wire.IPv4Len, wire.ICMPUnreachable
		}
		b.inject(segmentTo(v4, wire.TCPHeader{SrcPort: 5, DstPort: 99, Seq: 7, Flags: wire.FlagSYN, Window: 1}, nil))
		out := b.poll()
		if len(out) != 1 || wire.TCP(out[0][head:]).Flags() != wire.FlagRST|wire.FlagACK || wire.TCP(out[0][head:]).Ack() != 8 {
			t.Errorf("IPv4 %v: to a segment %x", v4, out)
		}
		b.inject(datagramTo(v4, 5, 99, []byte("no socket")))
		out = b.poll()
		if len(out) != 1 || out[0][head] != unreachable || !bytes.Contains(out[0], []byte("no socket")) {
			t.Errorf("IPv4 %v: to a datagram %x", v4, out)
		}
		s := b.loop.Stats()
		if s.Dropped[packet.DropNoSocket] != 2 {
			t.Errorf("%+v", s)
		}
		b.balance()
	}
}

func TestPaddingIsNoPayload(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, nil)
	f := append(datagramTo(true, 5, 9, []byte("ab")), make([]byte, 16)...)
	b.inject(f)
	b.inject(f, 50)
	b.poll()
	if len(x.got) != 2 || string(x.got[0]) != "ab" || string(x.got[1]) != "ab" {
		t.Errorf("%q", x.got)
	}
	b.balance()
}

func TestPacketsForOtherHostsAreDropped(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f []byte)
		why    packet.Verdict
	}{
		"to another link address": {func(f []byte) { f[5]++ }, packet.DropNotOurs},
		"to another address":      {func(f []byte) { ip := wire.IPv4(f[14:]); ip.SetDst([4]byte{198, 18, 0, 77}); refill(f) }, packet.DropNotOurs},
		"from the loopback":       {func(f []byte) { ip := wire.IPv4(f[14:]); ip.SetSrc([4]byte{127, 0, 0, 1}); refill(f) }, packet.DropMartian},
		"from a group":            {func(f []byte) { ip := wire.IPv4(f[14:]); ip.SetSrc([4]byte{224, 0, 0, 9}); refill(f) }, packet.DropMartian},
		"from broadcast":          {func(f []byte) { ip := wire.IPv4(f[14:]); ip.SetSrc([4]byte{255, 255, 255, 255}); refill(f) }, packet.DropMartian},
		"from ourselves":          {func(f []byte) { ip := wire.IPv4(f[14:]); ip.SetSrc(ip.Dst()); refill(f) }, packet.DropMartian},
		"with a broken IP header": {func(f []byte) { f[14+8]++ }, packet.DropIPChecksum},
		"with a short UDP length": {func(f []byte) { wire.UDP(f[34:]).SetLen(7) }, packet.DropMalformed},
	} {
		b := newBench(t, gpukern.Config{})
		x := b.bind(9, nil)
		f := datagramTo(true, 5, 9, []byte("payload"))
		c.change(f)
		b.inject(f)
		b.poll()
		if s := b.loop.Stats(); len(x.got) != 0 || s.Dropped[c.why] != 1 {
			t.Errorf("%s: %d came, %+v", name, len(x.got), s.Dropped)
		}
		b.balance()
	}
}

// refill makes the checksums of a UDP packet over IPv4 right.
func refill(f []byte) {
	q := wire.IPv4(f[wire.EthernetLen:])
	q.FillChecksum()
	wire.UDP(q.Payload()).FillChecksum(q.Pseudo())
}

func TestEchoIsAnswered(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	m := wire.ICMP(append(wire.AppendICMP(nil, wire.ICMPEcho, 0, 0x00010002), "ping"...))
	m.FillChecksum()
	b.inject(packetTo(true, wire.ProtoICMP, m))
	out := b.poll()
	if len(out) != 1 || wire.ICMP(out[0][34:]).Type() != wire.ICMPEchoReply || string(out[0][42:46]) != "ping" {
		t.Errorf("%x", out)
	}
	b.balance()
}

// TestABurstIsHandledWithoutAllocation has a host take and answer bursts of several flows.
func TestABurstIsHandledWithoutAllocation(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, nil)
	x.s.Close(b.now)
	frames := [][]byte{}
	for i := range 16 {
		frames = append(frames, segmentTo(i%2 == 0, wire.TCPHeader{SrcPort: uint16(i), DstPort: 99, Seq: 7, Flags: wire.FlagACK, Ack: 3}, []byte("x")))
	}
	batch := packet.NewBatch(b.arena.View(), 64)
	if n := testing.AllocsPerRun(200, func() {
		for _, f := range frames {
			off, _ := b.pool.Get()
			d := packet.Desc{Off: off + 100, Len: uint16(len(f))}
			copy(b.arena.Bytes(&d), f)
			batch.Append(d)
		}
		n, _ := b.far.Tx(b.now, batch)
		batch.Consume(n)
		b.sent += n
		b.loop.Poll(b.now)
		b.now += 1000
		b.loop.Poll(b.now)
		_, _ = b.far.Rx(b.now, b.rx)
		b.pool.PutBatch(b.rx)
	}); n != 0 {
		t.Errorf("%v allocations for a burst", n)
	}
	b.balance()
}

// TestFlowsOfABurstAreNotMixed has more flows in a burst than GRO slots, each going on where the one before
// ended.
func TestFlowsOfABurstAreNotMixed(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, &udp.Options{GRO: true})
	const flows = 4 * groSlots
	for i := range flows {
		b.inject(datagramTo(true, uint16(1000+i), 9, []byte{byte(i)}))
		b.inject(segmentTo(true, wire.TCPHeader{SrcPort: uint16(1000 + i), DstPort: 99, Seq: uint32(i), Ack: uint32(i), Flags: wire.FlagACK}, []byte{byte(i)}))
	}
	resets := map[uint16]bool{}
	for _, f := range b.poll() {
		if r := wire.TCP(f[34:]); r.Flags().Has(wire.FlagRST) && r.Seq() == uint32(r.DstPort()-1000) {
			resets[r.DstPort()] = true
		}
	}
	if len(x.got) != flows || len(resets) != flows {
		t.Fatalf("%d datagrams, %d resets", len(x.got), len(resets))
	}
	for i, m := range x.msgs {
		if int(m.RemotePort)-1000 != int(x.got[i][0]) {
			t.Errorf("%x from %d", x.got[i], m.RemotePort)
		}
	}
	b.balance()
}

// TestEmptyDatagramsStayApart has one between others that are merged: it is a message of its own.
func TestEmptyDatagramsStayApart(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, &udp.Options{GRO: true})
	for _, n := range []int{100, 0, 100, 100} {
		b.inject(datagramTo(true, 5, 9, make([]byte, n)))
	}
	b.poll()
	if len(x.msgs) != 3 || x.msgs[0].N != 100 || x.msgs[1].N != 0 || x.msgs[2].N != 200 {
		t.Errorf("%+v", x.msgs)
	}
	b.balance()
}

// TestBytesBehindADatagramAreIgnored has IP packets that are longer than the datagrams in them.
func TestBytesBehindADatagramAreIgnored(t *testing.T) {
	for name, engine := range engines {
		b := newBench(t, engine)
		x := b.bind(9, nil)
		for n := 1; n < 20; n++ {
			u := wire.UDP(append(wire.AppendUDP(nil, 5, 9, 3), "abc"...))
			u.FillChecksum(pseudoTo(false, wire.ProtoUDP, len(u)))
			b.inject(packetTo(false, wire.ProtoUDP, append(u, bytes.Repeat([]byte{0xee}, n)...)))
			b.poll()
			if len(x.got) != n || string(x.got[n-1]) != "abc" {
				t.Fatalf("%s, %d bytes behind it: %q", name, n, x.got)
			}
		}
		b.balance()
	}
}

// TestOrderWithinAFlow has packets with and without IPv4 options come in one burst.
func TestOrderWithinAFlow(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, nil)
	for i := range 8 {
		f := datagramTo(true, 5, 9, []byte{byte(i)})
		if i%2 == 1 {
			f = append(append(bytes.Clone(f[:34]), 1, 1, 1, 0), f[34:]...)
			q := wire.IPv4(f[14:])
			q.SetHeaderLen(24)
			q.SetTotalLen(uint16(len(f) - 14))
			q.FillChecksum()
		}
		b.inject(f)
	}
	b.poll()
	if got := bytes.Join(x.got, nil); !bytes.Equal(got, []byte{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("%x", got)
	}
	b.balance()
}

func TestPacketsHaveIdentificationsOfTheirOwn(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	x := b.bind(9, nil)
	if _, v := x.s.Write(b.now, []udp.Message{{Buffers: [][]byte{make([]byte, 300)}, Remote: wire.AddrFrom(addrB4.Addr()), RemotePort: 9, SegmentSize: 100}}); v != packet.Forward {
		t.Fatal(v)
	}
	ids := map[uint16]bool{}
	for _, f := range b.poll() {
		if q := wire.IPv4(f[14:]); q.ChecksumOK() {
			ids[q.ID()] = true
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d identifications of 3 packets", len(ids))
	}
	b.balance()
}

// TestSegmentsHaveTheOptionsOfTheirSocket sees DSCP, hop limit and DF in the IP header of a SYN, and of the SYN-ACK
// of a listener.
func TestSegmentsHaveTheOptionsOfTheirSocket(t *testing.T) {
	b := newBench(t, gpukern.Config{})
	now := b.h.Enter()
	o := &tcp.Options{TOS: 0xb8 | 3, TTL: 9, PathMTU: tcp.FragmentPackets}
	_, err := b.h.TCP.Listen(wire.Addr{}, 7, 4, o, nil)
	if err == nil {
		_, err = b.h.TCP.Connect(now, wire.Tuple{Local: wire.AddrFrom(addrA4.Addr()), Remote: wire.AddrFrom(addrB4.Addr()), RemotePort: 80}, o, nil)
	}
	b.h.Exit()
	b.must(err)
	b.inject(segmentTo(true, wire.TCPHeader{SrcPort: 5, DstPort: 7, Flags: wire.FlagSYN}, nil))
	syns := 0
	for _, f := range b.poll() {
		q := wire.IPv4(f[14:])
		if q.Proto() != wire.ProtoTCP {
			continue
		}
		syns++
		if q.TOS() != 0xb8 || q.TTL() != 9 || q.DontFragment() {
			t.Errorf("TOS %#x, TTL %d, DF %v", q.TOS(), q.TTL(), q.DontFragment())
		}
	}
	if syns != 2 {
		t.Errorf("%d segments", syns)
	}
}

// FuzzHandle has any bytes come as a frame, in any pieces.
func FuzzHandle(f *testing.F) {
	f.Add(datagramTo(true, 5, 9, []byte("payload")), uint16(40))
	f.Add(segmentTo(false, wire.TCPHeader{SrcPort: 5, DstPort: 7, Flags: wire.FlagSYN}, nil), uint16(0))
	f.Add(packetTo(true, wire.ProtoICMP, wire.AppendICMP(nil, wire.ICMPEcho, 0, 1)), uint16(0))
	f.Add(packetTo(false, wire.ProtoFragment, make([]byte, 24)), uint16(70))
	f.Fuzz(func(t *testing.T, frame []byte, cut uint16) {
		if len(frame) == 0 || len(frame) > 20_000 {
			return
		}
		b := newBench(t, gpukern.Config{})
		b.bind(9, nil)
		b.listen(b.a, 7, true)
		for range 3 {
			if cut > 0 {
				b.inject(frame, int(cut))
			} else {
				b.inject(frame)
			}
		}
		b.poll()
		b.balance()
	})
}
