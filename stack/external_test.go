package stack

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// lender is a driver whose large packets have external payload, valid until its next Rx, and that sends such packets. It
// keeps no frame.
type lender struct {
	pool   *ring.Pool
	caps   pmd.Caps
	placer pmd.Placer
	in     [][]byte // packets to come
	room   int      // descriptors that Tx takes for each call
	sent   [][]byte
	down   bool
	lent   [][]byte // of the last Rx
}

const lentHead = 100 // bytes of a packet that are in its frame

func (l *lender) Rx(_ clock.Time, b *packet.Batch) (n int, err error) {
	for _, p := range l.lent {
		for i := range p {
			p[i] = 0xDB
		}
	}
	l.lent = l.lent[:0]
	for len(l.in) > 0 && b.Room() > 0 && l.pool.Free() > 40 {
		how := pmd.PlaceInFrames
		if len(l.in[0]) > 2048 {
			how, _, _ = l.placer.Place(l.in[0], len(l.in[0]))
		}
		if how == pmd.PlaceLater && b.Len() > 0 {
			break
		}
		if how != pmd.PlaceExternal {
			if !testpackets.Append(b, l.pool, l.in[0]) {
				break
			}
			n, l.in = b.Len(), l.in[1:]
			continue
		}
		p := bytes.Clone(l.in[0])
		off, _ := l.pool.Get()
		d := packet.Desc{Off: off + 256, Len: lentHead, Flags: packet.FlagOffload}
		copy(b.Arena.Bytes(&d), p)
		b.Arena.SetOffload(&d, &packet.Offload{SegmentSize: 1000})
		b.Arena.SetExternal(&d, p[lentHead:])
		b.Append(d)
		l.lent, l.in, n = append(l.lent, p), l.in[1:], b.Len()
	}
	return n, nil
}

func (l *lender) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if l.down {
		return 0, pmd.ErrDown
	}
	n := packet.Whole(b.D, l.room)
	for d := b.D[:n]; len(d) > 0; {
		k := packet.Chain(d)
		p := b.Arena.Gather(nil, d[:k], 1<<17)
		if d[0].Flags.Has(packet.FlagOffload) {
			p = append(p, b.Arena.External(&d[0])...)
		}
		l.sent = append(l.sent, p)
		for i := range d[:k] {
			l.pool.Put(d[i].Off)
		}
		d = d[k:]
	}
	return n, nil
}

func (l *lender) Info() pmd.Info {
	return pmd.Info{Driver: "lender", Caps: l.caps, FD: -1, Placer: &l.placer}
}
func (l *lender) Close() error { return nil }

// payloadForwarder is a gateway: it decides by the first byte of a packet, and reads no payload.
type payloadForwarder struct{ Bridge }

func (payloadForwarder) ForwardsExternal() {}

func (payloadForwarder) Handle(_ clock.Time, b *packet.Batch) {
	first := true
	for i := range b.D {
		d := &b.D[i]
		if first {
			switch b.Bytes(i)[0] {
			case 'd':
				d.Verdict = packet.DropRule
			case 'h':
				d.Verdict, d.Flow = packet.Handover, 1
				if d.Flags.Has(packet.FlagHanded) {
					d.Verdict, d.Port = packet.Forward, 1
				}
			default:
				d.Verdict, d.Port = packet.Forward, d.Port^1
			}
		} else {
			d.Verdict, d.Port = b.D[i-1].Verdict, b.D[i-1].Port
		}
		first = !d.Flags.Has(packet.FlagMore)
	}
}

// lending is a loop, or a mesh of two, over lenders.
type lending struct {
	arena *ring.Arena
	pools []*ring.Pool
	loops []*Loop
	ends  [][2]*lender // by loop
	polls int
}

const lenderCaps = pmd.CapOffload | pmd.CapExternal

func newLending(t testing.TB, loops, frames, burst int) *lending {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: loops * frames, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	w := &lending{arena: arena}
	for range loops {
		pool, err := arena.Cut(frames)
		if err != nil {
			t.Fatal(err)
		}
		ends := [2]*lender{{pool: pool, caps: lenderCaps, room: 1 << 20}, {pool: pool, caps: lenderCaps, room: 1 << 20}}
		l, err := NewLoop(Config{
			Devices: []pmd.Driver{ends[0], ends[1]}, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse}),
			Handler: payloadForwarder{}, Burst: burst,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		w.pools, w.loops, w.ends = append(w.pools, pool), append(w.loops, l), append(w.ends, ends)
	}
	if loops > 1 {
		if _, err := Join(w.loops...); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *lending) poll(times int) {
	for range times {
		w.polls++
		for _, l := range w.loops {
			l.Poll(clock.Time(w.polls) * 1000)
		}
	}
}

// balance checks that each packet and each frame is where the counters say.
func (w *lending) balance(t testing.TB) (sum Stats) {
	t.Helper()
	for i, l := range w.loops {
		s := l.Stats()
		if s.InFlight() != 0 {
			t.Errorf("loop %d: %d packets in flight: %+v", i, s.InFlight(), s)
		}
		sum.add(&s)
		if n := w.pools[i].Free(); n != w.pools[i].Size() {
			t.Errorf("loop %d: %d of %d frames are free", i, n, w.pools[i].Size())
		}
	}
	return sum
}

func (s *Stats) add(o *Stats) {
	s.Received, s.ReceivedBytes, s.Forwarded, s.Placed = s.Received+o.Received, s.ReceivedBytes+o.ReceivedBytes, s.Forwarded+o.Forwarded, s.Placed+o.Placed
	for i := range s.Dropped {
		s.Dropped[i] += o.Dropped[i]
	}
}

// large returns a packet of n bytes that begins with kind.
func large(kind byte, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8)
	}
	p[0] = kind
	return p
}

func same(t testing.TB, what string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d packets, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%s: packet %d of %d bytes is not what was received, %d bytes", what, i, len(got[i]), len(want[i]))
		}
	}
}

// Payload leaves from where the driver has it, in the iteration that receives it, and needs one frame.
func TestExternalPayloadIsForwarded(t *testing.T) {
	w := newLending(t, 1, 256, 64)
	in := [][]byte{large('f', 65_000), large('f', 60), large('d', 40_000), large('f', 3000)}
	w.ends[0][0].in = append([][]byte(nil), in...)
	w.poll(1)
	same(t, "forwarded", w.ends[0][1].sent, [][]byte{in[0], in[1], in[3]})
	s := w.balance(t)
	if w.loops[0].out.external {
		t.Error("every iteration looks for external payload from now on")
	}
	if s.Received != 4 || s.ReceivedBytes != 65_000+60+40_000+3000 || s.Placed != 3 || s.Dropped[packet.DropRule] != 1 {
		t.Errorf("%+v", s)
	}
}

// What the device does not take is copied to frames before the driver uses its memory again.
func TestExternalPayloadThatWaitsIsCopied(t *testing.T) {
	w := newLending(t, 1, 256, 64)
	a, b := w.ends[0][0], w.ends[0][1]
	b.room = 0
	in := [][]byte{large('f', 65_000), large('f', 60), large('f', 2049), large('f', 2048+lentHead)}
	a.in = append([][]byte(nil), in...)
	w.poll(2) // the second Rx overwrites what the first has lent
	if len(b.sent) != 0 || w.pools[0].Free() != w.pools[0].Size()-(1+32)-1-2-2 {
		t.Errorf("%d packets sent, %d frames free", len(b.sent), w.pools[0].Free())
	}
	b.room = 1 << 20
	w.poll(1)
	same(t, "sent later", b.sent, in)
	w.balance(t)
}

// A queue without room, and a pool without frames, drop what waits, as they do packets in frames.
func TestExternalPayloadThatFindsNoRoomIsDropped(t *testing.T) {
	for _, c := range []struct {
		frames, burst int
		why           packet.Verdict
	}{{1024, 16, packet.DropTxFull}, {100, 64, packet.DropNoFrame}} { // a queue of 128 or 512 descriptors
		w := newLending(t, 1, c.frames, c.burst)
		a, b := w.ends[0][0], w.ends[0][1]
		b.room = 0
		var in [][]byte
		for i := range 5 {
			in = append(in, large('f', 60_000+i))
		}
		a.in = append([][]byte(nil), in...)
		w.poll(2)
		b.room = 1 << 20
		w.poll(1)
		n := len(b.sent)
		if s := w.balance(t); n == 0 || n == 5 || s.Dropped[c.why] != uint64(5-n) {
			t.Errorf("%v: %d of 5 sent: %+v", c.why, n, s.Dropped)
		}
		same(t, c.why.String(), b.sent, in[:n])
	}
}

// A copy takes no room from packets that wait behind it.
func TestExternalPayloadLeavesRoomForOthers(t *testing.T) {
	w := newLending(t, 1, 1024, 16)
	a, b := w.ends[0][0], w.ends[0][1]
	b.room = 0
	for range 96 {
		a.in = append(a.in, large('f', 60))
	}
	w.poll(6)
	a.in = append(a.in, large('f', 60_000)) // 31 descriptors, where 32 are free
	for range 15 {
		a.in = append(a.in, large('f', 61))
	}
	w.poll(1)
	if q := w.loops[0].out.queues[1].out; q.Len() != 96+15 || cap(q.D) != txBacklog*16 {
		t.Errorf("%d descriptors wait in a queue of %d", q.Len(), cap(q.D))
	}
	b.room = 1 << 20
	w.poll(1)
	if s := w.balance(t); len(b.sent) != 96+15 || s.Dropped[packet.DropTxFull] != 1 {
		t.Errorf("%d sent: %+v", len(b.sent), s.Dropped)
	}
}

// A link that is down drops what waits.
func TestExternalPayloadForALinkThatIsDown(t *testing.T) {
	w := newLending(t, 1, 256, 64)
	w.ends[0][1].down = true
	w.ends[0][0].in = [][]byte{large('f', 65_000), large('f', 65_000)}
	w.poll(2)
	if s := w.balance(t); s.Dropped[packet.DropLinkDown] != 2 {
		t.Errorf("%+v", s)
	}
}

// A packet for another loop goes there in frames. A burst has no more of them than the rings between loops hold, so none is lost.
func TestExternalPayloadIsHandedOverInFrames(t *testing.T) {
	w := newLending(t, 2, 8192, 128)
	a := w.ends[0][0]
	var in, kept, handed [][]byte
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		p := large("fh"[i%2], 2049+r.IntN(60_000))
		if in = append(in, p); p[0] == 'h' {
			handed = append(handed, p)
		} else {
			kept = append(kept, p)
		}
	}
	a.in = append([][]byte(nil), in...)
	w.poll(2000)
	same(t, "kept", w.ends[0][1].sent, kept)
	same(t, "handed over", w.ends[1][1].sent, handed)
	if s := w.balance(t); s.TotalDropped() != 0 || s.Placed < 390 {
		t.Errorf("%+v", s)
	}
}

// A loop stops receiving before a burst could find no room between it and one that is slow, external payload in frames included.
func TestLoopsWaitWithExternalPayload(t *testing.T) {
	const burst = 128
	w := newLending(t, 2, 8192, burst)
	var in [][]byte
	for i := range 20 {
		in = append(in, large('h', 60_000+i), large('h', 60_100+i))
		for range burst - 2 {
			in = append(in, large('h', 60))
		}
	}
	w.ends[0][0].in = append([][]byte(nil), in...)
	for i := range 100 {
		w.loops[0].Poll(clock.Time(i))
	}
	if len(w.ends[0][0].in) == 0 {
		t.Error("it received all")
	}
	w.polls = 1
	w.poll(2000)
	same(t, "handed over", w.ends[1][1].sent, in)
	if s := w.balance(t); s.TotalDropped() != 0 {
		t.Errorf("%+v", s.Dropped)
	}
}

// Only loops that forward external payload keep room for it.
func TestOnlyForwardersNeedRoomForExternalPayload(t *testing.T) {
	table := new(AddressTable)
	forwarding, err := NewDispatcher(table, Bridge{}, payloadForwarder{})
	if err != nil {
		t.Fatal(err)
	}
	hosting, err := NewDispatcher(table, placingHandler{}, Bridge{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		handler Handler
		want    int
	}{{payloadForwarder{}, 96}, {forwarding, 96}, {hosting, 64}, {placingHandler{}, 64}} {
		w := newLending(t, 1, 64, 64)
		l := w.loops[0]
		l.handler = nil
		if l.SetHandler(c.handler); l.burstFrames() != c.want {
			t.Errorf("%T: a burst of %d frames, want %d", c.handler, l.burstFrames(), c.want)
		}
	}
}

// A ring that is empty has room for what it ever has room for, however many devices may add a burst.
func TestAnEmptyRingIsNotCongested(t *testing.T) {
	w := newLending(t, 2, 64, 256)
	l := w.loops[0]
	if l.inside = 3; l.congested(1) {
		t.Error("a loop with four devices never receives by the last one")
	}
	l.inside = 0
}

// What other loops could not take over in one burst stays in frames, or with the driver.
func TestAPacketLongerThanABurstIsNotExternalInAMesh(t *testing.T) {
	w := newLending(t, 2, 256, 32)
	for size, want := range map[int]pmd.Placement{30 * 2048: pmd.PlaceExternal, 31 * 2048: pmd.PlaceInFrames} {
		w.loops[0].externalFrames = 0
		if how, _, _ := w.ends[0][0].placer.Place(nil, size); how != want {
			t.Errorf("%d bytes: %v, want %v", size, how, want)
		}
	}
}

// A model of the loop knows only that packets are received whole and leave in order: whatever the devices take, and whatever is
// external, those that leave are what came, and all others are counted.
func TestExternalPayloadAgainstAModel(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newLending(t, 1+int(seed%2), 300+r.IntN(2000), 40+r.IntN(100))
		want := map[string]int{}
		for range 200 {
			for _, ends := range w.ends {
				for _, e := range ends {
					e.room = []int{0, 1, 40, 1000}[r.IntN(4)]
				}
			}
			kind := "fffd"[r.IntN(4)]
			if len(w.loops) > 1 && r.IntN(3) == 0 {
				kind = 'h'
			}
			size := 100 + r.IntN(2000)
			if r.IntN(2) == 0 {
				size = 2049 + r.IntN(63_000)
			}
			p := large(kind, size)
			want[string(p)]++
			e := w.ends[0][r.IntN(2)]
			e.in = append(e.in, p)
			w.poll(r.IntN(3))
		}
		for _, ends := range w.ends {
			ends[0].room, ends[1].room = 1<<20, 1<<20
		}
		w.poll(300)
		sent := 0
		for _, ends := range w.ends {
			for _, e := range ends {
				for _, p := range e.sent {
					sent++
					if want[string(p)]--; want[string(p)] < 0 {
						t.Fatalf("seed %d: a packet of %d bytes that was not received", seed, len(p))
					}
				}
			}
		}
		if s := w.balance(t); s.Received != 200 || s.Forwarded != uint64(sent) || s.Forwarded+s.TotalDropped() != 200 || sent < 20 {
			t.Fatalf("seed %d: %d sent: %+v", seed, sent, s)
		}
	}
}

// Payload stays with the driver only where it can leave by each device, and comes back from the engine in the iteration that
// received it.
func TestWhenPayloadStaysWithTheDriver(t *testing.T) {
	cpu := func(depth int) gpukern.Engine { return gpukern.NewCPU(gpukern.Config{Depth: depth}) }
	for _, c := range []struct {
		what    string
		caps    pmd.Caps // of the second device
		engine  gpukern.Engine
		handler Handler
		want    pmd.Placement
	}{
		{"a gateway", lenderCaps, cpu(2), payloadForwarder{}, pmd.PlaceExternal},
		{"a device that cannot send it", pmd.CapOffload, cpu(2), payloadForwarder{}, pmd.PlaceInFrames},
		{"an engine for fewer batches", lenderCaps, cpu(1), payloadForwarder{}, pmd.PlaceInFrames},
		{"an engine that keeps batches", lenderCaps, later{cpu(4)}, payloadForwarder{}, pmd.PlaceInFrames},
		{"a handler that may keep packets", lenderCaps, cpu(2), Bridge{}, pmd.PlaceInFrames},
	} {
		w := newLending(t, 1, 64, 64)
		a, b := &lender{pool: w.pools[0], caps: lenderCaps}, &lender{pool: w.pools[0], caps: c.caps}
		l, err := NewLoop(Config{Devices: []pmd.Driver{a, b}, Pool: w.pools[0], Engine: c.engine, Handler: c.handler})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if how, _, _ := a.placer.Place(nil, 60_000); how != c.want {
			t.Errorf("%s: %v, want %v", c.what, how, c.want)
		}
		if c.want != pmd.PlaceExternal {
			continue
		}
		if _, err := l.Replace(1, &lender{pool: w.pools[0], caps: pmd.CapOffload}); err != nil {
			t.Fatal(err)
		}
		if how, _, _ := a.placer.Place(nil, 60_000); how != pmd.PlaceInFrames {
			t.Errorf("%s: %v with a new device that cannot send it", c.what, how)
		}
	}
}

// A Dispatcher leaves payload with the driver where its first claim is that of a forwarder, and no second handler may get the packet.
func TestADispatcherLeavesPayloadWithTheDriver(t *testing.T) {
	tb := newTestBatches(t)
	gateway, host := &forwardingRecorder{recorder: recorder{verdict: packet.DropNoFlow}}, &placingRecorder{recorder: recorder{verdict: packet.Deliver}}
	claims := []Claim{
		to("198.18.0.10", udp, 53, 53, ToHandler(0)),
		to("198.18.0.11", 0, 0, 0, ToHandler(1)), to("198.18.0.11", udp, 53, 53, ToHandler(0)),
	}
	table := tableOf(t, claims...)
	d, err := NewDispatcher(table, gateway, host)
	if err != nil {
		t.Fatal(err)
	}
	mine := udp4(t, "198.18.1.1:9", "198.18.0.10:53")
	for _, c := range []struct {
		frame []byte
		want  pmd.Placement
	}{
		{mine, pmd.PlaceExternal},
		{udp4(t, "198.18.1.1:9", "198.18.0.11:53"), pmd.PlaceInFrames}, // the host gets it where the gateway has no flow
		{udp4(t, "198.18.1.1:9", "198.18.0.11:54"), pmd.PlaceDirect},
		{udp4(t, "198.18.1.1:9", "198.18.0.12:53"), pmd.PlaceInFrames},
	} {
		if how, _, _ := d.PlacePayload(c.frame, 60_000); how != c.want {
			t.Errorf("%x: %v, want %v", c.frame, how, c.want)
		}
	}
	if err := table.Replace([]Claim{to("198.18.0.10", 0, 0, 0, ToHandler(1))}); err != nil {
		t.Fatal(err)
	}
	b := tb.batch(t, mine, mine)
	p := &b.D[0]
	copy(b.Arena.Mem[p.Off+64:], mine)
	p.Off += 64
	p.Flags |= packet.FlagOffload
	b.Arena.SetOffload(p, &packet.Offload{})
	b.Arena.SetExternal(p, make([]byte, 50_000))
	d.Handle(1, b)
	if len(gateway.frames) != 1 || len(host.frames) != 1 {
		t.Errorf("%d packets for the forwarder, whose payload is external, %d for the host", len(gateway.frames), len(host.frames))
	}
}

// forwardingRecorder is a recorder that is an ExternalForwarder.
type forwardingRecorder struct{ recorder }

func (*forwardingRecorder) ForwardsExternal() {}

func TestForwardingExternalPayloadDoesNotAllocate(t *testing.T) {
	w := newLending(t, 1, 256, 64)
	a, b := w.ends[0][0], w.ends[0][1]
	b.room = 0
	a.in = [][]byte{large('f', 65_000)}
	w.poll(1) // the scratch space of packets that wait
	b.room = 1 << 20
	w.poll(1)
	o := &w.loops[0].out
	ext := large('f', 60_000)
	got := testing.AllocsPerRun(100, func() {
		off, _ := w.pools[0].Get()
		d := packet.Desc{Off: off + 256, Len: lentHead, Flags: packet.FlagOffload}
		o.Arena().SetOffload(&d, &packet.Offload{})
		o.Arena().SetExternal(&d, ext)
		q := &o.queues[1]
		q.out.Append(d)
		o.keepExternal()
		for i := range q.out.D {
			w.pools[0].Put(q.out.D[i].Off)
		}
		q.out.Reset()
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
