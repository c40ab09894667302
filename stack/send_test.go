package stack

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

func TestAnOriginatedPacketLeavesInTheSameIteration(t *testing.T) {
	w := newWorld(t)
	frame := []byte("a gratuitous announcement, made here")
	var got []byte
	w.port[1].onTx = func(d packet.Desc) { got = bytes.Clone(w.a.View().Bytes(&d)) }
	w.loop.Do(func() {
		if err := w.loop.out.Send(1, frame); err != nil {
			t.Error(err)
		}
		clear(frame[:5]) // the bytes were copied
	})
	w.loop.Poll(7)
	s := w.settled(t)
	if want := "a gratuitous announcement, made here"; string(got) != want || len(w.port[0].sent) != 0 {
		t.Errorf("sent %q", got)
	}
	if s.Originated != 1 || s.Received != 0 || s.Forwarded != 1 || w.port[1].sent[0].Stamp != 7 {
		t.Errorf("%+v of %+v", s, w.port[1].sent)
	}
}

func TestSendRefusesWhatCannotLeave(t *testing.T) {
	w := newWorld(t)
	size := w.a.FrameSize()
	if err := w.loop.out.Send(2, nil); !errors.Is(err, ErrDevice) {
		t.Errorf("to port 2 of 2: %v", err)
	}
	if err := w.loop.out.Send(0, make([]byte, size+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("longer than a frame: %v", err)
	}
	if err := w.loop.out.Send(0, make([]byte, size)); err != nil {
		t.Errorf("as long as a frame: %v", err)
	}
	w.loop.Poll(0)
	all := w.packets(t, w.pool.Free(), packet.DropRule, 0)
	if err := w.loop.out.Send(0, nil); !errors.Is(err, ErrNoFrame) {
		t.Errorf("without a free frame: %v", err)
	}
	for _, d := range all {
		w.pool.Put(d.Off)
	}
	if s := w.settled(t); s.Originated != 1 || s.Forwarded != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestAnOriginatedPacketForAFullQueueIsDroppedAndCounted(t *testing.T) {
	w := newWorld(t)
	w.port[0].room = 0
	for range 8*txBacklog + 3 {
		if err := w.loop.out.Send(0, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	w.port[0].room = 1 << 20
	w.loop.Poll(0)
	if s := w.settled(t); s.Originated != 8*txBacklog+3 || s.Dropped[packet.DropTxFull] != 3 {
		t.Errorf("stats %+v", s)
	}
}

// ticker sends a packet at every Tick and then wants to be left alone.
type ticker struct {
	handler
	loop *Loop
}

func (h *ticker) Tick(now clock.Time) clock.Time {
	h.ticks = append(h.ticks, now)
	_ = h.loop.out.Send(0, []byte{1}) // its absence is seen
	return clock.Never
}

func TestAHandlerThatWantsNoTickIsAskedAgainWhenSomethingHappens(t *testing.T) {
	w := newWorld(t)
	h := &ticker{loop: w.loop}
	w.loop.handler = h
	step := func(what string, now clock.Time, want int) {
		t.Helper()
		w.loop.Poll(now)
		if len(h.ticks) != want || h.ticks[want-1] > now || len(w.port[0].sent) != want {
			t.Errorf("%s: ticked at %v, %d sent", what, h.ticks, len(w.port[0].sent))
		}
	}
	step("the first iteration", 5, 1)
	step("nothing", 1_000_000, 1)
	w.port[0].in = [][]packet.Desc{w.packets(t, 1, packet.DropRule, 0)}
	step("a packet", 1_000_001, 2)
	step("nothing more", 2_000_000, 2)
	w.loop.Do(func() {})
	step("a function", 2_000_001, 3)
	w.loop.commands.ring.Push(func() {}) // as Do does, just before the loop sleeps
	newThread(w.loop).sleep(2_000_002)
	step("a function instead of sleep", 2_000_003, 4)
	w.settled(t)
}

// failing is an engine that fails from a batch on.
type failing struct {
	engine
	takes int
}

func (e *failing) Submit(b *packet.Batch) error {
	if e.takes == 0 {
		return gpukern.ErrClosed
	}
	err := e.engine.Submit(b)
	if err == nil {
		e.takes--
	}
	return err
}

func TestAnEngineThatFailsEndsInDrops(t *testing.T) {
	w := newWorld(t)
	e := &failing{engine: engine{depth: 1, late: 2}, takes: 2}
	w.loop.cfg.Engine = e
	for range 5 {
		w.port[0].in = append(w.port[0].in, w.packets(t, 3, packet.Forward, 1))
	}
	w.loop.Poll(0)
	w.loop.Poll(0) // one batch inside, one waits: the end finds a full engine that then fails
	w.loop.drain()
	for range 20 {
		w.loop.Poll(0)
	}
	if s := w.settled(t); s.Forwarded != 6 || s.Dropped[packet.DropEngine] != 9 || e.refused == 0 {
		t.Errorf("stats %+v, refused %d times", s, e.refused)
	}
}

func TestAFullEngineFavoursNoPort(t *testing.T) {
	w := newWorld(t)
	for i := range w.port {
		for range 30 {
			w.port[i].in = append(w.port[i].in, w.packets(t, 8, packet.DropRule, 0))
		}
	}
	for range 30 {
		w.loop.Poll(0)
	}
	if a, b := len(w.port[0].in), len(w.port[1].in); w.eng.refused == 0 || a-b < -2 || a-b > 2 {
		t.Errorf("%d and %d bursts are left", a, b)
	}
	for range 40 {
		w.loop.Poll(0)
	}
	w.settled(t)
}

// TestALastPacketGrowsUntilItLeaves extends a packet in the queue, which is no longer possible behind another one, and once it
// has left.
func TestALastPacketGrowsUntilItLeaves(t *testing.T) {
	w := newWorld(t)
	o := w.loop.Output()
	originate := func() uint64 {
		f := o.Reserve(1, 2)
		o.Originate(1, []packet.Desc{{Off: f[0], Len: 60, Flags: packet.FlagMore}, {Off: f[1], Len: 60}})
		return o.Mark(1)
	}
	before, mark := originate(), originate()
	if o.Last(1, before) != nil {
		t.Error("a packet with another behind it is the last")
	}
	first := o.Last(1, mark)
	if first == nil || first != &o.queues[1].out.D[2] {
		t.Fatal("the last packet is not found")
	}
	o.Extend(1, []packet.Desc{{Off: o.Reserve(1, 1)[0], Len: 60}})
	if n := packet.Chain(o.queues[1].out.D[2:]); n != 3 || o.Last(1, mark) != first {
		t.Errorf("%d descriptors", n)
	}
	w.loop.Poll(1)
	if o.Last(1, mark) != nil {
		t.Error("a packet that has left can grow")
	}
	if s := w.settled(t); s.Originated != 2 || s.Forwarded != 2 {
		t.Errorf("%+v", s)
	}
}
