package stack

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// What a plan says, a byte for each loop that a packet meets, the lowest first: a number below
// planForward is the loop to hand over to.
const (
	planForward = 0x80 + iota // on port 0
	planDrop
	planDeliver
)

// plan returns the descriptor's Hash for the steps.
func plan(steps ...uint32) (h uint32) {
	for i, s := range steps {
		h |= s << (8 * i)
	}
	return h
}

// planner does what packets say and looks whether they came unharmed.
type planner struct {
	t       *testing.T
	seen    []packet.Desc
	kept    []uint32 // frames of delivered packets
	keeps   bool     // note what is seen
	decided int
}

func (h *planner) Handle(_ clock.Time, b *packet.Batch) {
	for i := 0; i < len(b.D); {
		n := packet.Chain(b.D[i:])
		if n == 0 {
			h.t.Fatalf("a packet without its end: %+v", b.D[i:])
		}
		h.decide(b, b.D[i:i+n])
		i += n
	}
}

func (h *planner) decide(b *packet.Batch, chain []packet.Desc) {
	d := &chain[0]
	if h.keeps {
		h.seen = append(h.seen, chain...)
	}
	for i := range chain {
		whole(h.t, b.Arena, &chain[i])
		if chain[i].Verdict != packet.Undecided || chain[i].Port != uint8(chain[i].Rule) || chain[i].L4 != 34 {
			h.t.Fatalf("came as %+v", chain[i])
		}
	}
	hop := 0
	switch {
	case d.Flags.Has(packet.FlagHanded | packet.FlagHandedAgain):
		hop = 2
	case d.Flags.Has(packet.FlagHanded):
		hop = 1
	}
	h.decided++
	switch step := d.Hash >> (8 * hop) & 0xff; step {
	case planForward:
		d.Verdict, d.Port = packet.Forward, 0
		h.decidedRest(chain)
	case planDrop:
		d.Verdict = packet.DropRule
	case planDeliver:
		d.Verdict = packet.Deliver
		for i := range chain {
			h.kept = append(h.kept, chain[i].Off)
		}
	default:
		d.Verdict, d.Flow = packet.Handover, step
		h.decided--
	}
}

func (h *planner) decidedRest(chain []packet.Desc) {
	for i := range chain {
		chain[i].Verdict, chain[i].Port = chain[0].Verdict, chain[0].Port
	}
}

func (h *planner) Tick(clock.Time) clock.Time { return clock.Never }

func (h *planner) Holds(visit func(uint32)) {
	for _, off := range h.kept {
		visit(off)
	}
}

// whole looks whether a frame holds what it was made with.
func whole(t *testing.T, a *packet.Arena, d *packet.Desc) {
	t.Helper()
	if got := binary.BigEndian.Uint32(a.Bytes(d)); got != d.Hash^d.Stamp {
		t.Fatalf("frame %#x holds %#x, not %#x", d.Off, got, d.Hash^d.Stamp)
	}
}

// net is some joined loops, each with two scripts for ports.
type net struct {
	t     *testing.T
	arena *ring.Arena
	mesh  *Mesh
	nodes []*node
	made  int
}

type node struct {
	loop *Loop
	pool *ring.Pool
	port [2]*script
	hand *planner
	held []uint32 // frames that the test took
}

func newNet(t *testing.T, loops, frames int) *net {
	t.Helper()
	a, err := ring.NewArena(ring.ArenaConfig{Frames: loops * frames, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	w := &net{t: t, arena: a}
	var all []*Loop
	for range loops {
		n := &node{hand: &planner{t: t, keeps: true}}
		if n.pool, err = a.Cut(frames); err != nil {
			t.Fatal(err)
		}
		for i := range n.port {
			n.port[i] = &script{pool: n.pool, room: 1 << 20, fd: -1, onTx: func(d packet.Desc) { whole(t, a.View(), &d) }}
		}
		n.loop, err = NewLoop(Config{
			Devices: []pmd.Driver{n.port[0], n.port[1]}, Pool: n.pool, Engine: &through{}, Handler: n.hand, Burst: 8,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.loop.Close() })
		w.nodes, all = append(w.nodes, n), append(all, n.loop)
	}
	if w.mesh, err = Join(all...); err != nil {
		t.Fatal(err)
	}
	return w
}

// chain returns a packet of so many pieces in frames of node i, that comes by port in; nil where
// the node has not that many.
func (w *net) chain(i, pieces int, in uint8, h uint32) (d []packet.Desc) {
	n := w.nodes[i]
	if n.pool.Free() < pieces {
		return nil
	}
	for p := range pieces {
		off, _ := n.pool.Get()
		w.made++
		one := packet.Desc{Off: off + 16, Len: 60, L4: 34, Hash: h, Rule: uint16(in), Stamp: uint32(w.made)}
		if p < pieces-1 {
			one.Flags = packet.FlagMore
		}
		binary.BigEndian.PutUint32(w.arena.View().Bytes(&one), one.Hash^one.Stamp)
		d = append(d, one)
	}
	return d
}

// give has packets of one piece come to port 0 of node i.
func (w *net) give(i int, plans ...uint32) {
	var burst []packet.Desc
	for _, h := range plans {
		burst = append(burst, w.chain(i, 1, 0, h)...)
	}
	w.nodes[i].port[0].in = append(w.nodes[i].port[0].in, burst)
}

func (w *net) poll(times int) {
	for range times {
		for _, n := range w.nodes {
			n.loop.Poll(0)
		}
	}
}

// Holds tells the frames that the loops, the scripts and the test hold.
func (w *net) Holds(visit func(uint32)) {
	for _, n := range w.nodes {
		for i := range n.port {
			for _, burst := range n.port[i].in {
				for _, d := range burst {
					visit(d.Off)
				}
			}
			for _, d := range n.loop.out.queues[i].out.D {
				visit(d.Off)
			}
		}
		for _, off := range n.held {
			visit(off)
		}
		if b := n.loop.waiting; b != nil {
			for _, d := range b.D {
				visit(d.Off)
			}
		}
	}
}

// audit checks that no frame is lost or in two places.
func (w *net) audit() {
	w.t.Helper()
	holders := []ring.Holder{w, w.mesh}
	for _, n := range w.nodes {
		holders = append(holders, n.pool, n.hand)
	}
	if err := ring.Audit(w.arena, holders...); err != nil {
		w.t.Fatal(err)
	}
}

// balance checks that each packet has met its end, and returns the sums.
func (w *net) balance() (sum Stats) {
	w.t.Helper()
	w.audit()
	for i, n := range w.nodes {
		s := n.loop.Stats()
		if s.InFlight() != 0 {
			w.t.Errorf("loop %d has %d packets in flight: %+v", i, s.InFlight(), s)
		}
		sum.Add(s)
	}
	if sum.HandedOver != sum.TakenOver || sum.Received+sum.Originated != sum.Forwarded+sum.Delivered+sum.TotalDropped() {
		w.t.Errorf("the loops together: %+v", sum)
	}
	return sum
}

// end ends all loops.
func (w *net) end() {
	for _, n := range w.nodes {
		n.loop.drain()
	}
}

func TestAPacketIsDecidedByTheLoopItIsHandedTo(t *testing.T) {
	w := newNet(t, 3, 64)
	w.give(0, plan(2, planForward), plan(planForward), plan(1, planDrop), plan(2, planDeliver), plan(2, planForward))
	w.poll(2)
	for i, want := range []Stats{
		{Received: 5, Forwarded: 1, HandedOver: 4}, {TakenOver: 1}, {TakenOver: 3, Forwarded: 2, Delivered: 1},
	} {
		got := w.nodes[i].loop.Stats()
		got = Stats{
			Received: got.Received, Forwarded: got.Forwarded, Delivered: got.Delivered, HandedOver: got.HandedOver, TakenOver: got.TakenOver,
		}
		if got != want {
			t.Errorf("loop %d: %+v, want %+v", i, got, want)
		}
	}
	saw := w.nodes[2].hand.seen
	if len(saw) != 3 || saw[0].Hash != plan(2, planForward) || saw[1].Hash != plan(2, planDeliver) || saw[0].Flags != packet.FlagHanded || saw[0].Flow != 0 {
		t.Errorf("loop 2 saw %+v", saw)
	}
	w.balance()
	w.end()
	for i, n := range w.nodes {
		if free := n.pool.Free() + len(n.hand.kept); free != 64 {
			t.Errorf("pool %d has %d frames", i, free)
		}
	}
}

func TestOnlyTheThirdLoopMustDecide(t *testing.T) {
	w := newNet(t, 3, 64)
	w.give(0, plan(1, 2, planForward), plan(1, 0, planForward), plan(1, 2, 0, planForward), plan(1, 0, 1), plan(0), plan(3))
	w.poll(4)
	s := w.balance()
	if s.Forwarded != 2 || s.Dropped[packet.DropUnsupported] != 4 || s.HandedOver != 8 {
		t.Errorf("stats %+v", s)
	}
	for _, d := range w.nodes[2].hand.seen {
		if d.Flags != packet.FlagHanded|packet.FlagHandedAgain {
			t.Errorf("the third loop saw %+v", d)
		}
	}
}

func TestALoopAloneHandsOverToNobody(t *testing.T) {
	w := newWorld(t)
	w.port[0].in = [][]packet.Desc{w.packets(t, 3, packet.Handover, 0)}
	w.loop.Poll(0)
	if s := w.settled(t); s.Dropped[packet.DropUnsupported] != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestPacketsOfSeveralFramesAreHandedOverWhole(t *testing.T) {
	w := newNet(t, 2, 256)
	to := plan(1, planForward)
	for range 10 { // 3+3+2 pieces: what the other takes at once never ends with a packet's end
		burst := append(w.chain(0, 3, 1, to), w.chain(0, 3, 1, to)...)
		w.nodes[0].port[1].in = append(w.nodes[0].port[1].in, append(burst, w.chain(0, 2, 1, to)...))
		w.nodes[0].loop.Poll(0)
		w.nodes[0].port[1].in = append(w.nodes[0].port[1].in, w.chain(0, 5, 1, to))
		w.nodes[0].loop.Poll(0)
		w.audit()
	}
	for range 40 {
		w.nodes[1].loop.Poll(0)
		w.audit()
	}
	w.poll(1)
	if s := w.balance(); s.Received != 40 || s.HandedOver != 40 || s.TakenOver != 40 || s.Forwarded != 40 || len(w.nodes[1].port[0].sent) != 130 {
		t.Errorf("%d descriptors sent, stats %+v", len(w.nodes[1].port[0].sent), s)
	}
}

// squeeze lets a pipe of the net hold fewer packets, so that tests fill it.
func (w *net) squeeze(most int) {
	for _, n := range w.nodes {
		for i := range n.loop.peers {
			if p := n.loop.peers[i].to; p != nil {
				p.credits = most
			}
		}
	}
}

func TestAFullRingDropsWhatDoesNotFit(t *testing.T) {
	w := newNet(t, 2, 64)
	w.squeeze(10)
	a, b := w.nodes[0], w.nodes[1]
	to := plan(1, planForward)
	w.give(0, to, to, to, to, to, to, to, to)
	a.loop.Poll(0)
	a.port[0].in = [][]packet.Desc{append(w.chain(0, 1, 0, to), w.chain(0, 2, 0, to)...)}
	a.loop.Poll(0) // it waits
	late := clock.Time(maxCongestion)
	a.loop.Poll(late - 1)
	if s := a.loop.Stats(); s.Received != 8 || a.loop.awaitsDevices() {
		t.Errorf("it did not wait: %+v", s)
	}
	a.loop.Poll(late) // 9 fit, and the packet of two does not
	if s := a.loop.Stats(); s.HandedOver != 9 || s.Dropped[packet.DropHandover] != 1 {
		t.Errorf("stats %+v", s)
	}
	w.audit()
	b.loop.Poll(late)
	b.loop.Poll(late)
	w.give(0, to, to, to, to, to, to, to, to)
	a.loop.Poll(late) // returned frames make room
	b.loop.Poll(late)
	if s := w.balance(); s.Forwarded != 17 || s.Dropped[packet.DropHandover] != 1 {
		t.Errorf("stats %+v", s)
	}
}

// awaitsDevices reports whether a device may wake the loop.
func (l *Loop) awaitsDevices() bool {
	for i := range l.devices {
		l.devices[i].info = pmd.Info{Caps: pmd.CapPoll, FD: 7}
	}
	return l.wakes(0)
}

// Loops of which one polls seldom, as those do that share a CPU, lose nothing: packets wait in the devices.
func TestLoopsWaitForOneThatIsSlow(t *testing.T) {
	w := newNet(t, 3, 256)
	w.squeeze(16)
	to := plan(1, planForward)
	for range 20 {
		w.give(0, to, to, to, to, to, to, to, to)
		w.give(2, to, to, to, to, plan(planForward), to, to, to)
	}
	for i := range 2000 {
		now := clock.Time(i) * clock.Time(maxCongestion) / 10
		w.nodes[0].loop.Poll(now)
		w.nodes[2].loop.Poll(now)
		if i%9 == 0 {
			w.nodes[1].loop.Poll(now)
		}
	}
	if s := w.balance(); s.Forwarded != 320 || s.Received != 320 {
		t.Errorf("stats %+v", s)
	}
}

func TestCongestionEndsWithRoomWithTimeAndWithThePeer(t *testing.T) {
	w := newNet(t, 3, 64)
	l := w.nodes[0].loop
	one, two := &l.peers[1], &l.peers[2]
	const late = clock.Time(maxCongestion)
	room := func(p *peer, n int) { p.credits = p.to.credits - n }
	want := func(now clock.Time, want bool, what string) {
		t.Helper()
		if got := l.congested(now); got != want {
			t.Errorf("%s: congested is %v", what, got)
		}
	}
	want(0, false, "at rest")
	room(two, 8)
	want(0, false, "room for a burst")
	room(two, 7)
	want(1, true, "room for less")
	want(late, true, "just before the end")
	want(late+1, false, "no progress for too long")
	room(one, 7)
	want(late+1, true, "another ring")
	room(one, 8)
	room(two, 6)
	want(late+2, false, "less room")
	room(two, 7)
	want(late+3, true, "progress, though not enough")
	two.to.end.Store(pipeClosing)
	want(late+4, false, "a loop that ends takes nothing")
	one.credits, two.credits = 0, 0
	w.audit()
}

func TestALoopWithoutFreeFramesReturnsThoseOfThePackets(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0], w.nodes[1]
	for b.pool.Free() > 3 {
		off, _ := b.pool.Get()
		b.held = append(b.held, off)
	}
	to := plan(1, planForward)
	a.port[0].in = [][]packet.Desc{append(w.chain(0, 2, 0, to), w.chain(0, 2, 0, to)...)}
	a.loop.Poll(0)
	b.loop.Poll(0)
	w.audit()
	a.loop.Poll(0)
	s := w.balance()
	if s.Forwarded != 1 || s.Dropped[packet.DropHandover] != 1 || b.loop.Stats().TakenOver != 2 || a.pool.Free() != 64 {
		t.Errorf("stats %+v", s)
	}
}

func TestWhatNobodyTookIsTakenBackAtTheEnd(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0], w.nodes[1]
	to := plan(1, planForward)
	w.give(0, to, to, to)
	a.loop.Poll(0)
	a.loop.drain()
	if s := a.loop.Stats(); s.HandedOver != 3 || s.TakenOver != 3 || s.Dropped[packet.DropHandover] != 3 || a.pool.Free() != 64 {
		t.Errorf("stats %+v", s)
	}
	if b.loop.Poll(0) != 0 {
		t.Error("a loop took from one that has ended")
	}
	w.balance()
}

func TestALoopThatHasEndedGetsNothing(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0], w.nodes[1]
	to := plan(1, planForward)
	w.give(0, to, to, to)
	a.loop.Poll(0)
	b.loop.drain() // it decides those
	w.give(0, to, to)
	a.loop.Poll(0)
	if s := w.balance(); s.Forwarded != 3 || s.Dropped[packet.DropHandover] != 2 || b.loop.Stats().TakenOver != 3 || s.HandedOver != 3 {
		t.Errorf("stats %+v", s)
	}
	// One that was on its way while the other ended.
	p := &a.loop.peers[1]
	p.to.data.Push(w.chain(0, 1, 0, to))
	p.credits, a.loop.count.HandedOver, a.loop.count.Received = p.credits+1, a.loop.count.HandedOver+1, a.loop.count.Received+1
	a.loop.Poll(0)
	if s := w.balance(); s.Dropped[packet.DropHandover] != 3 || a.pool.Free() != 64 {
		t.Errorf("stats %+v", s)
	}
}

func TestLoopsGoOnUntilAllHaveNothingLeft(t *testing.T) {
	w := newNet(t, 3, 512)
	for i, n := range w.nodes {
		n.port[0].rxErr, n.port[1].rxErr = io.EOF, io.EOF
		for range 10 * (i*i + 1) {
			next, last := uint32(i+1)%3, uint32(i+2)%3
			w.give(i, plan(next, last, planForward), plan(last, next, planForward), plan(next, planForward))
		}
	}
	if err := RunAll(t.Context(), w.nodes[0].loop, w.nodes[1].loop, w.nodes[2].loop); err != nil {
		t.Error(err)
	}
	if s := w.balance(); s.Forwarded != s.Received || s.Received != 3*10*(1+2+5) {
		t.Errorf("stats %+v", s)
	}
	for i, n := range w.nodes {
		if n.pool.Free() != 512 {
			t.Errorf("pool %d has %d frames", i, n.pool.Free())
		}
	}
}

func TestJoinRefusesWhatCannotWork(t *testing.T) {
	w, other := newNet(t, 2, 64), newNet(t, 1, 64)
	fresh := func(p *ring.Pool) *Loop {
		l, err := NewLoop(Config{Devices: []pmd.Driver{w.nodes[0].port[0]}, Pool: p, Engine: &through{}, Handler: Bridge{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	for name, loops := range map[string][]*Loop{
		"none": nil, "joined already": {w.nodes[0].loop, fresh(w.nodes[1].pool)},
		"one pool": {fresh(w.nodes[0].pool), fresh(w.nodes[0].pool)}, "two arenas": {fresh(w.nodes[0].pool), fresh(other.nodes[0].pool)},
	} {
		if _, err := Join(loops...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAHandoverDoesNotAllocate(t *testing.T) {
	w := newNet(t, 2, 64)
	for _, n := range w.nodes {
		n.hand.keeps = false
		n.port[0].sent = make([]packet.Desc, 0, 16)
	}
	burst := make([]packet.Desc, 8)
	in := make([][]packet.Desc, 1)
	if n := testing.AllocsPerRun(200, func() {
		for i := range burst {
			off, _ := w.nodes[0].pool.Get()
			burst[i] = packet.Desc{Off: off, Len: 60, L4: 34, Hash: plan(1, planForward)}
			binary.BigEndian.PutUint32(w.arena.View().Bytes(&burst[i]), burst[i].Hash)
		}
		in[0] = burst
		w.nodes[0].port[0].in, w.nodes[1].port[0].sent = in, w.nodes[1].port[0].sent[:0]
		w.poll(1)
	}); n != 0 {
		t.Errorf("%v allocations for a burst", n)
	}
	if s := w.balance(); s.HandedOver != s.Received || s.Forwarded != s.Received {
		t.Errorf("stats %+v", s)
	}
}

func TestALoopWithFrameCreditsSleepsShort(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0].loop, w.nodes[1].loop
	for i := range a.devices {
		a.devices[i].info = pmd.Info{Caps: pmd.CapPoll, FD: -1}
	}
	sleeps := func() time.Duration { _, limit := a.awaits(0, nil); return limit }
	a.out.tick = clock.Never
	if got := sleeps(); got != maxSleep {
		t.Errorf("at rest %v", got)
	}
	w.give(0, plan(1, planForward))
	a.Poll(0)
	if got := sleeps(); got != blindSleep {
		t.Errorf("with a frame away %v", got)
	}
	b.Poll(0)
	a.Poll(0)
	if got := sleeps(); got != maxSleep {
		t.Errorf("with the frame back %v", got)
	}
	if a.activity.idle(); sleeps() != timedSleep {
		t.Errorf("while it waits for the others' end %v", sleeps())
	}
	w.balance()
}

func TestQuiescenceIsReachedWhenNoLoopCanBeginAgain(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0].loop, w.nodes[1].loop
	reached := func(what string, want bool) {
		t.Helper()
		if got := w.mesh.quiescence.reached(a.activity); got != want {
			t.Errorf("%s: reached %v", what, got)
		}
	}
	reached("at the start", false)
	b.activity.idle()
	reached("one is idle", false)
	w.give(0, plan(1, planForward))
	a.Poll(0)
	a.activity.idle()
	reached("with a packet between them", false)
	b.Poll(0)
	reached("when it has been taken", false) // what it causes is not known before the end of the iteration
	b.activity.idle()
	reached("when nothing came of it", true)
	a.Poll(0)
	w.balance()
}

// TestALoopThatEndsTakesNoMoreOver has one loop hand over again and again while the other, which ends,
// decides what was handed to it: the end would not come.
func TestALoopThatEndsTakesNoMoreOver(t *testing.T) {
	w := newNet(t, 2, 256)
	a, b := w.nodes[0], w.nodes[1]
	w.give(0, plan(1, planForward))
	a.loop.Poll(0)
	const limit = 20
	sent := 0
	b.port[0].onTx = func(packet.Desc) {
		if sent++; sent < limit {
			w.give(0, plan(1, planForward))
			a.loop.Poll(0)
		}
	}
	b.loop.drain()
	if sent != 1 || a.loop.Stats().Dropped[packet.DropHandover] != 1 {
		t.Errorf("it took %d while it ended, %d were dropped", sent, a.loop.Stats().Dropped[packet.DropHandover])
	}
	b.port[0].onTx = nil
	a.loop.drain()
	w.balance()
}

// TestTheReceiverLeavesWhatItsSenderTakesBack has a packet in a ring whose sender has begun to take back, as
// when both look at the ring at once.
func TestTheReceiverLeavesWhatItsSenderTakesBack(t *testing.T) {
	w := newNet(t, 2, 64)
	a, b := w.nodes[0], w.nodes[1]
	a.loop.drain()
	d, to := w.chain(0, 1, 0, plan(planForward)), a.loop.peers[1].to
	to.data.Push(d)
	if b.loop.Poll(0); to.data.Len() != 1 || to.taking.Load() || b.loop.Stats().TakenOver != 0 {
		t.Errorf("the receiver took it: %+v", b.loop.Stats())
	}
	to.data.Pop(d)
	a.pool.Put(d[0].Off)
	b.loop.drain()
	w.balance()
}

// TestQuiescenceIsNotReachedWhileAPacketIsBetweenLoops has two loops, each idle but for the moment that it
// holds the packet, hand it to each other; a third must never see all at rest.
func TestQuiescenceIsNotReachedWhileAPacketIsBetweenLoops(t *testing.T) {
	w := newNet(t, 3, 64)
	for _, n := range w.nodes {
		n.loop.activity.idle()
	}
	d := w.chain(0, 1, 0, 0)
	one := [2]*pipe{w.nodes[0].loop.peers[1].to, w.nodes[1].loop.peers[0].to}
	one[0].data.Push(d)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; !stop.Load(); i ^= 1 {
			q := w.nodes[i].loop.activity
			q.busy()
			one[i^1].data.Pop(d)
			for range 200 { // long enough for a look at the rings while both are empty
				_ = stop.Load()
			}
			one[i].data.Push(d)
			q.idle()
		}
	})
	self := w.nodes[2].loop.activity
	for range 300_000 {
		if w.mesh.quiescence.reached(self) {
			t.Error("reached with a packet on its way")
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestWhoHandsAPacketOverGoesAlongWithIt(t *testing.T) {
	w := newNet(t, 2, 64)
	from := w.nodes[0].loop
	from.handOver([]packet.Desc{{Flow: 7<<targetShift | 1}, {Flow: 1}})
	got := from.peers[1].out
	if len(got) != 2 || got[0].Flow != 7<<targetShift || got[1].Flow != 0 || handedBy(&got[0]) != 7 || handedBy(&got[1]) != 0 {
		t.Errorf("handed over %+v", got)
	}
	from.peers[1].out = got[:0] // no frames belong to them
}
