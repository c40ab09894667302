package stack

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// script is a driver for tests: it receives what the test put in and keeps what is sent.
type script struct {
	pool  *ring.Pool
	in    [][]packet.Desc // bursts to come; nil is an iteration without packets
	rxErr error           // once in is used up
	txErr error
	room  int // how many descriptors Tx takes for each call
	sent  []packet.Desc
	onTx  func(packet.Desc)
	caps  pmd.Caps
	fd    int
}

func (s *script) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if len(s.in) == 0 {
		return 0, s.rxErr
	}
	n := min(len(s.in[0]), b.Room())
	for _, d := range s.in[0][:n] {
		b.Append(d)
	}
	s.in = s.in[1:]
	return n, nil
}

func (s *script) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if s.txErr != nil {
		return 0, s.txErr
	}
	n := min(s.room, b.Len())
	s.sent = append(s.sent, b.D[:n]...)
	for _, d := range b.D[:n] {
		if s.onTx != nil {
			s.onTx(d)
		}
		s.pool.Put(d.Off)
	}
	return n, nil
}

func (s *script) Info() pmd.Info { return pmd.Info{Driver: "script", Caps: s.caps, FD: s.fd} }
func (s *script) Close() error   { return nil }

// engine holds up to depth batches and gives them back late by a number of polls.
type engine struct {
	depth, late int
	held        []*packet.Batch
	polls       int
	refused     int
	newBatch    func(*packet.Arena, int) *packet.Batch
}

func (e *engine) Submit(b *packet.Batch) error {
	if len(e.held) == e.depth {
		e.refused++
		return gpukern.ErrFull
	}
	e.held = append(e.held, b)
	return nil
}

func (e *engine) Poll(done []*packet.Batch) int {
	e.polls++
	if e.polls <= e.late || len(e.held) == 0 {
		return 0
	}
	e.polls = 0
	done[0] = e.held[0]
	e.held = append(e.held[:0], e.held[1:]...)
	return 1
}

func (e *engine) Load(gpukern.Tables) error { return nil }
func (e *engine) Info() gpukern.Info {
	return gpukern.Info{Name: "test", Depth: e.depth, NewBatch: e.newBatch}
}
func (e *engine) Close() error { return nil }

// handler decides by the packet's hash: 0..99 forwards to that port, otherwise it is the verdict.
type handler struct {
	ticks []clock.Time
	every clock.Time
}

func (h *handler) Handle(now clock.Time, b *packet.Batch) {
	for i := range b.D {
		d := &b.D[i]
		d.Verdict = packet.Verdict(d.Hash)
		if d.Verdict == packet.Forward {
			d.Port = uint8(d.Flow)
		}
	}
}

func (h *handler) Tick(now clock.Time) clock.Time {
	h.ticks = append(h.ticks, now)
	return now + h.every
}

// world is a loop over two scripts.
type world struct {
	loop *Loop
	pool *ring.Pool
	port [2]*script
	eng  *engine
	hand *handler
	a    *ring.Arena
}

func newWorld(t *testing.T) *world {
	t.Helper()
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 1024, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := a.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{pool: pool, eng: &engine{depth: 1}, hand: &handler{every: 1000}, a: a}
	for i := range w.port {
		w.port[i] = &script{pool: pool, room: 1 << 20, fd: -1}
	}
	w.loop, err = NewLoop(Config{
		Devices: []pmd.Driver{w.port[0], w.port[1]}, Pool: pool, Engine: w.eng, Handler: w.hand, Burst: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.loop.Close()
		a.Close()
	})
	return w
}

// packets returns n descriptors with frames of their own, all with the verdict v for port out.
func (w *world) packets(t *testing.T, n int, v packet.Verdict, out uint32) (d []packet.Desc) {
	t.Helper()
	for range n {
		off, ok := w.pool.Get()
		if !ok {
			t.Fatal("no frame")
		}
		d = append(d, packet.Desc{Off: off, Len: 60, Hash: uint32(v), Flow: out})
	}
	return d
}

// settled checks the law: every packet has met its end, and every frame is in the pool.
func (w *world) settled(t *testing.T) Stats {
	t.Helper()
	s := w.loop.Stats()
	if s.InFlight() != 0 {
		t.Errorf("received %d = forwarded %d + delivered %d + dropped %d does not hold",
			s.Received, s.Forwarded, s.Delivered, s.TotalDropped())
	}
	if err := ring.Audit(w.a, w.pool); err != nil {
		t.Error(err)
	}
	return s
}

func TestEveryVerdictEndsWhereItShould(t *testing.T) {
	w := newWorld(t)
	burst := w.packets(t, 2, packet.Forward, 1)
	burst = append(burst, w.packets(t, 1, packet.Forward, 0)...)
	burst = append(burst, w.packets(t, 1, packet.DropRule, 0)...)
	burst = append(burst, w.packets(t, 1, packet.Undecided, 0)...)
	burst = append(burst, w.packets(t, 1, packet.Forward, 2)...) // no such port
	w.port[0].in = [][]packet.Desc{burst}
	if n := w.loop.Poll(0); n == 0 {
		t.Error("Poll moved nothing")
	}
	s := w.settled(t)
	if len(w.port[1].sent) != 2 || len(w.port[0].sent) != 1 {
		t.Errorf("port 1 sent %d, port 0 sent %d", len(w.port[1].sent), len(w.port[0].sent))
	}
	if s.Received != 6 || s.ReceivedBytes != 360 || s.Forwarded != 3 || s.Dropped[packet.DropRule] != 1 || s.Dropped[packet.DropUnsupported] != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestDeliveredFramesAreTheHandlers(t *testing.T) {
	w := newWorld(t)
	d := w.packets(t, 3, packet.Deliver, 0)
	w.port[1].in = [][]packet.Desc{d}
	w.loop.Poll(0)
	if s := w.loop.Stats(); s.Delivered != 3 || s.InFlight() != 0 {
		t.Errorf("stats %+v", s)
	}
	if w.pool.Free() != w.pool.Size()-3 {
		t.Errorf("%d frames are out, want 3", w.pool.Size()-w.pool.Free())
	}
}

func TestAPacketOfSeveralFramesHasOneEnd(t *testing.T) {
	w := newWorld(t)
	chain := w.packets(t, 3, packet.Forward, 1)
	chain[0].Flags, chain[1].Flags = packet.FlagMore, packet.FlagMore
	chain[1].Hash, chain[2].Hash = uint32(packet.DropRule), uint32(packet.DropRule) // only the first decides
	dropped := w.packets(t, 2, packet.DropTTL, 0)
	dropped[0].Flags = packet.FlagMore
	w.port[0].in = [][]packet.Desc{append(chain, dropped...)}
	w.loop.Poll(0)
	s := w.settled(t)
	if len(w.port[1].sent) != 3 || s.Received != 2 || s.Forwarded != 1 || s.Dropped[packet.DropTTL] != 1 || s.ReceivedBytes != 300 {
		t.Errorf("sent %d descriptors, stats %+v", len(w.port[1].sent), s)
	}
}

func TestAFullTransmitRingHoldsPacketsBackThenDrops(t *testing.T) {
	w := newWorld(t)
	w.port[1].room = 0
	for range txBacklog + 3 {
		w.port[0].in = append(w.port[0].in, w.packets(t, 8, packet.Forward, 1))
		w.loop.Poll(0)
	}
	s := w.loop.Stats()
	if s.InFlight() != txBacklog*8 || s.Dropped[packet.DropTxFull] != 24 {
		t.Errorf("%d wait, %d dropped; want %d and 24", s.InFlight(), s.Dropped[packet.DropTxFull], txBacklog*8)
	}
	w.port[1].room = 5
	for range 100 {
		w.loop.Poll(0)
	}
	if s := w.settled(t); s.Forwarded != txBacklog*8 {
		t.Errorf("forwarded %d", s.Forwarded)
	}
}

func TestAQueueThatFillsIsSentBeforeAnythingIsDropped(t *testing.T) {
	w := newWorld(t)
	w.port[1].room = 0
	for range txBacklog {
		w.port[0].in = append(w.port[0].in, w.packets(t, 8, packet.Forward, 1))
		w.loop.Poll(0)
	}
	w.port[1].room = 1 << 20
	w.port[0].in = append(w.port[0].in, w.packets(t, 8, packet.Forward, 1))
	w.loop.Poll(0)
	if s := w.settled(t); s.Forwarded != 8*(txBacklog+1) {
		t.Errorf("forwarded %d, dropped %d", s.Forwarded, s.TotalDropped())
	}
}

func TestTheEndOfTheFilesWaitsForASlowPort(t *testing.T) {
	w := newWorld(t)
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, io.EOF
	w.port[1].room = 1
	for range txBacklog {
		w.port[0].in = append(w.port[0].in, w.packets(t, 8, packet.Forward, 1))
	}
	if err := w.loop.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if s := w.settled(t); s.Forwarded != 8*txBacklog {
		t.Errorf("forwarded %d of %d", s.Forwarded, 8*txBacklog)
	}
}

// witness notes what the handler is shown.
type witness struct {
	handler
	saw []packet.Desc
}

func (h *witness) Handle(now clock.Time, b *packet.Batch) {
	h.saw = append(h.saw, b.D...)
	h.handler.Handle(now, b)
}

func TestTheHandlerSeesTheDeviceAndNoOldVerdict(t *testing.T) {
	w := newWorld(t)
	h := &witness{}
	w.loop.handler = h
	for i := range w.port {
		d := w.packets(t, 1, packet.DropRule, 0)
		d[0].Verdict, d[0].Port = packet.Deliver, 9
		w.port[i].in = [][]packet.Desc{d}
	}
	w.loop.Poll(0)
	w.loop.Poll(0)
	w.settled(t)
	for i, d := range h.saw {
		if d.Verdict != packet.Undecided || int(d.Port) != i {
			t.Errorf("packet %d: port %d, verdict %v", i, d.Port, d.Verdict)
		}
	}
	if len(h.saw) != 2 {
		t.Errorf("the handler saw %d packets", len(h.saw))
	}
}

func TestALostLinkDropsWhatWaitsForIt(t *testing.T) {
	w := newWorld(t)
	w.port[1].txErr = pmd.ErrDown
	w.port[0].in = [][]packet.Desc{w.packets(t, 8, packet.Forward, 1)}
	w.loop.Poll(0)
	if s := w.settled(t); s.Dropped[packet.DropLinkDown] != 8 {
		t.Errorf("stats %+v", s)
	}
}

func TestAPortThatIsDownIsLeftAloneForAWhile(t *testing.T) {
	w := newWorld(t)
	w.port[0].rxErr = pmd.ErrDown
	w.loop.Poll(0)
	w.port[0].in = [][]packet.Desc{w.packets(t, 1, packet.DropRule, 0)}
	w.loop.Poll(clock.Time(retryAfter) - 1)
	if n := w.loop.Stats().Received; n != 0 {
		t.Errorf("received %d before the retry", n)
	}
	w.loop.Poll(clock.Time(retryAfter))
	if n := w.settled(t).Received; n != 1 {
		t.Errorf("received %d after the link came back", n)
	}
}

func TestABusyEngineHoldsReceiveBackAndLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.eng.late = 3
	for range 20 {
		w.port[0].in = append(w.port[0].in, w.packets(t, 8, packet.Forward, 1))
		w.port[1].in = append(w.port[1].in, w.packets(t, 8, packet.Forward, 0))
	}
	for i := range 500 {
		w.loop.Poll(clock.Time(i))
	}
	if s := w.settled(t); s.Forwarded != 320 {
		t.Errorf("forwarded %d of 320", s.Forwarded)
	}
	if w.eng.refused == 0 {
		t.Error("the engine was never full: the test shows nothing")
	}
}

func TestTickRunsWhenTheHandlerAsked(t *testing.T) {
	w := newWorld(t)
	for _, now := range []clock.Time{5, 10, 1004, 1005, 1006, 2004, 2005} {
		w.loop.Poll(now)
	}
	if want := []clock.Time{5, 1005, 2005}; !slices.Equal(w.hand.ticks, want) {
		t.Errorf("ticked at %v, want %v", w.hand.ticks, want)
	}
}

func TestRunEndsWithTheFilesAndBalances(t *testing.T) {
	w := newWorld(t)
	for i := range w.port {
		w.port[i].rxErr = io.EOF
		for range 50 {
			w.port[i].in = append(w.port[i].in, w.packets(t, 8, packet.Forward, uint32(1-i)))
		}
	}
	w.port[1].room = 3
	if err := w.loop.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if s := w.settled(t); s.Received != 800 || s.Forwarded+s.Dropped[packet.DropTxFull] != 800 || s.Forwarded < 400 {
		t.Errorf("stats %+v", s)
	}
}

func TestRunReportsADeviceThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, pmd.ErrGone
	if err := w.loop.Run(t.Context()); !errors.Is(err, pmd.ErrGone) {
		t.Errorf("Run: %v", err)
	}
}

// TestReplaceGivesADeviceAnotherDriver replaces one of two drivers while a packet waits for it: the packet is dropped, the
// other device goes on, and packets come and go by the new driver.
func TestReplaceGivesADeviceAnotherDriver(t *testing.T) {
	w := newWorld(t)
	w.port[1].room = 0
	w.port[0].in = [][]packet.Desc{w.packets(t, 3, packet.Forward, 1)}
	for i := range 3 {
		w.loop.Poll(clock.Time(i))
	}
	borrowed := w.loop.Devices()
	next := &script{pool: w.pool, room: 1 << 20, fd: -1, caps: pmd.CapOffload}
	if old, err := w.loop.Replace(1, next); err != nil || old != w.port[1] {
		t.Fatalf("replaced %v: %v", old, err)
	}
	if borrowed[1] != w.port[1] || w.loop.Devices()[1] != next || !w.loop.out.offload {
		t.Errorf("devices %v, before %v, offload %v", w.loop.Devices(), borrowed, w.loop.out.offload)
	}
	w.port[0].in = [][]packet.Desc{w.packets(t, 2, packet.Forward, 1)}
	next.in = [][]packet.Desc{w.packets(t, 4, packet.Forward, 0)}
	for i := range 5 {
		w.loop.Poll(clock.Time(10 + i))
	}
	if s := w.settled(t); s.Dropped[packet.DropLinkDown] != 3 || len(next.sent) != 2 || len(w.port[0].sent) != 4 || len(w.port[1].sent) != 0 {
		t.Errorf("%d dropped, %d, %d and %d sent", s.Dropped[packet.DropLinkDown], len(next.sent), len(w.port[0].sent), len(w.port[1].sent))
	}
	if _, err := w.loop.Replace(0, &script{caps: pmd.CapPoll}); err == nil || w.loop.Devices()[0] != w.port[0] {
		t.Errorf("a driver with a file takes the place of one without: %v", err)
	}
}

// TestALoopWhoseDevicesAreReplaceableOutlivesThem loses all devices, and gets one back.
func TestALoopWhoseDevicesAreReplaceableOutlivesThem(t *testing.T) {
	w := newWorld(t)
	w.loop.cfg.Replaceable = true
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, pmd.ErrGone
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.loop.Run(ctx) }()
	next := &script{pool: w.pool, room: 1 << 20, fd: -1, in: [][]packet.Desc{w.packets(t, 4, packet.DropRule, 0)}}
	time.Sleep(5 * time.Millisecond) // for a loop that would end
	w.loop.Do(func() { _, _ = w.loop.Replace(1, next) })
	for w.loop.Stats().Dropped[packet.DropRule] < 4 {
		select {
		case err := <-done:
			t.Fatalf("the loop has ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.settled(t)
}

// TestRunDoesNotSleepWhenAllPortsHaveEnded: nothing would wake it, and a short file would take 100 ms.
func TestRunDoesNotSleepWhenAllPortsHaveEnded(t *testing.T) {
	w := newWorld(t)
	w.loop.cfg.Spin = time.Nanosecond // the first iteration in vain is already too many
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, io.EOF
	if err := w.loop.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if s := w.settled(t); s.Sleeps != 0 {
		t.Errorf("%d sleeps", s.Sleeps)
	}
}

func TestAnErrorThatNoContractKnowsIsFinal(t *testing.T) {
	w := newWorld(t)
	strange := errors.New("the file is damaged")
	w.port[0].rxErr, w.port[1].rxErr = strange, io.EOF
	if err := w.loop.Run(t.Context()); !errors.Is(err, strange) {
		t.Errorf("Run: %v", err)
	}
}

func TestCancelEndsASleepingLoopAndSettlesIt(t *testing.T) {
	w := newWorld(t)
	w.port[1].room = 0
	w.port[0].in = [][]packet.Desc{w.packets(t, 8, packet.Forward, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.loop.Run(ctx) }()
	for w.loop.Stats().Sleeps == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := w.settled(t); s.Dropped[packet.DropTxFull] != 8 {
		t.Errorf("stats %+v", s)
	}
}

func TestDoRunsOnASleepingLoop(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Never >> 1
	w.port[0].caps, w.port[1].caps = pmd.CapPoll, pmd.CapPoll // fd -1: poll(2) ignores it
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.loop.Run(ctx) }()
	for w.loop.Stats().Iterations == 0 {
		runtime.Gosched()
	}
	var ran atomic.Int32
	for range 20 {
		done := make(chan bool)
		if !w.loop.Do(func() { ran.Add(1); close(done) }) {
			t.Fatal("the command queue is full")
		}
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Fatal("the message was not run")
		}
	}
	cancel()
	if err := <-ended; err != nil || ran.Load() != 20 {
		t.Errorf("Run: %v, %d functions ran", err, ran.Load())
	}
}

func TestAFullCommandQueueSaysSo(t *testing.T) {
	w := newWorld(t)
	n := 0
	for w.loop.Do(func() { n-- }) {
		n++
	}
	w.loop.Poll(0)
	if n != 0 || !w.loop.Do(func() {}) {
		t.Errorf("%d functions were not run", n)
	}
}

func TestNewLoopWantsAllParts(t *testing.T) {
	w := newWorld(t)
	whole := w.loop.cfg
	for name, breakIt := range map[string]func(*Config){
		"ports": func(c *Config) { c.Devices = nil }, "pool": func(c *Config) { c.Pool = nil },
		"engine":    func(c *Config) { c.Engine = nil },
		"256 ports": func(c *Config) { c.Devices = make([]pmd.Driver, 256) },
	} {
		cfg := whole
		breakIt(&cfg)
		if _, err := NewLoop(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRunAllStopsTheOthersWhenOneFails(t *testing.T) {
	good, bad := newWorld(t), newWorld(t)
	bad.port[0].rxErr, bad.port[1].rxErr = pmd.ErrGone, pmd.ErrGone
	if err := RunAll(t.Context(), good.loop, bad.loop); !errors.Is(err, pmd.ErrGone) {
		t.Errorf("RunAll: %v", err)
	}
}

func TestRunBindsItsThread(t *testing.T) {
	w := newWorld(t)
	w.loop.cfg.Affinity = []int{100_000}
	if err := w.loop.Run(t.Context()); err == nil {
		t.Error("bound to a CPU that does not exist")
	}
}

// placed notes the CPUs that the loop's thread may run on.
type placed struct {
	handler
	cpus unix.CPUSet
	err  error
}

func (h *placed) Tick(clock.Time) clock.Time {
	h.err = unix.SchedGetaffinity(0, &h.cpus)
	return clock.Never
}

func TestARunnerStaysOnTheCPUsOfItsAffinity(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if !may.IsSet(cpu) {
			continue
		}
		for name, runner := range map[string]func(*Loop, context.Context) error{"Run": (*Loop).Run, "Serve": (*Loop).Serve} {
			w, h := newWorld(t), &placed{}
			w.loop.handler, w.loop.cfg.Affinity = h, []int{cpu}
			w.port[0].rxErr, w.port[1].rxErr = io.EOF, io.EOF
			var after unix.CPUSet
			ended := make(chan error)
			go func() {
				runtime.LockOSThread() // to look at the same thread
				err := runner(w.loop, t.Context())
				ended <- errors.Join(err, unix.SchedGetaffinity(0, &after))
			}()
			if err := errors.Join(<-ended, h.err); err != nil || h.cpus.Count() != 1 || !h.cpus.IsSet(cpu) {
				t.Errorf("%s, CPU %d: %v, on %d CPUs", name, cpu, err, h.cpus.Count())
			}
			if after != may {
				t.Errorf("%s, CPU %d: the thread stays on %d CPUs", name, cpu, after.Count())
			}
		}
	}
}

func TestALoopNeedsAHandlerBeforeItRuns(t *testing.T) {
	w := newWorld(t)
	w.loop.handler = nil
	if err := w.loop.Run(t.Context()); !errors.Is(err, errNoHandler) {
		t.Errorf("Run: %v", err)
	}
	if err := w.loop.Serve(t.Context()); !errors.Is(err, errNoHandler) {
		t.Errorf("Serve: %v", err)
	}
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s does not panic", what)
			}
		}()
		f()
	}
	panics("Poll without a handler", func() { w.loop.Poll(0) })
	panics("SetHandler without one", func() { w.loop.SetHandler(nil) })
	w.loop.SetHandler(w.hand)
	w.loop.Poll(0)
	panics("SetHandler of a loop that runs", func() { w.loop.SetHandler(w.hand) })
	w.settled(t)
}

func TestStatsAddUp(t *testing.T) {
	var sum Stats
	for range 3 {
		one := Stats{Received: 1, ReceivedBytes: 2, Forwarded: 3, Delivered: 4, Iterations: 5, Busy: 6, Sleeps: 7}
		for i := range one.Dropped {
			one.Dropped[i] = uint64(i)
		}
		sum.Add(one)
	}
	if sum.Received != 3 || sum.Sleeps != 21 || sum.Dropped[packet.DropTTL] != 3*uint64(packet.DropTTL) {
		t.Errorf("sum %+v", sum)
	}
}

func TestAnIterationDoesNotAllocate(t *testing.T) {
	w := newWorld(t)
	burst := w.packets(t, 8, packet.Forward, 1)
	for _, d := range burst {
		w.pool.Put(d.Off)
	}
	in := make([][]packet.Desc, 1)
	w.port[1].sent = make([]packet.Desc, 0, 16)
	if n := testing.AllocsPerRun(200, func() {
		for i := range burst {
			burst[i].Off, _ = w.pool.Get()
		}
		in[0] = burst
		w.port[0].in, w.port[1].sent = in, w.port[1].sent[:0]
		w.loop.Poll(0)
	}); n != 0 {
		t.Errorf("%v allocations in an iteration", n)
	}
	w.settled(t)
}

func TestLargePacketsLeaveOnlyByDriversThatSegmentThem(t *testing.T) {
	w := newWorld(t)
	w.port[0].caps = pmd.CapOffload
	var err error
	if w.loop, err = NewLoop(Config{Devices: []pmd.Driver{w.port[0], w.port[1]}, Pool: w.pool, Engine: w.eng, Handler: w.hand}); err != nil {
		t.Fatal(err)
	}
	defer w.loop.Close()
	var burst []packet.Desc
	for _, out := range []uint32{0, 1} {
		d := w.packets(t, 5, packet.Forward, out) // one alone, a large one of three, one alone
		d[1].Flags = packet.FlagOffload | packet.FlagMore
		d[2].Flags = packet.FlagMore
		burst = append(burst, d...)
	}
	w.port[0].in = [][]packet.Desc{burst}
	w.loop.Poll(0)
	s := w.settled(t)
	if len(w.port[0].sent) != 5 || len(w.port[1].sent) != 2 || s.Dropped[packet.DropTooBig] != 1 || s.Forwarded != 5 {
		t.Errorf("sent %d by the one that cuts, %d by the other; %+v", len(w.port[0].sent), len(w.port[1].sent), s)
	}
}

// TestBatchesAreTheEngines has an engine that makes batches: the loop receives into no others.
func TestBatchesAreTheEngines(t *testing.T) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	var made []*packet.Batch
	eng := &engine{depth: 3, newBatch: func(view *packet.Arena, n int) *packet.Batch {
		if view != a.View() || n != 7 {
			t.Errorf("a batch of %d packets in %p was asked for", n, view)
		}
		made = append(made, packet.NewBatch(view, n))
		return made[len(made)-1]
	}}
	pool, err := a.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	loop, err := NewLoop(Config{Devices: []pmd.Driver{&script{}}, Pool: pool, Engine: eng, Handler: &handler{}, Burst: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Close() })
	if len(made) != 4 || !slices.Equal(loop.free, made) {
		t.Errorf("the loop has %d batches, the engine made %d", len(loop.free), len(made))
	}
}
