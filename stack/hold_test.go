package stack

import (
	"io"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

func TestHeldPacketsAreInFlightUntilTheyAreResumed(t *testing.T) {
	w := newWorld(t)
	held := w.packets(t, 4, packet.Hold, 0)
	held[1].Flags = packet.FlagMore // with the next one packet
	w.port[0].in = [][]packet.Desc{held}
	w.loop.Poll(0)
	if s := w.loop.Stats(); s.InFlight() != 3 || w.pool.Free() != w.pool.Size()-4 {
		t.Fatalf("%d in flight, %d frames are out", s.InFlight(), w.pool.Size()-w.pool.Free())
	}
	for i := range held {
		held[i].Verdict, held[i].Port = packet.Forward, 1
	}
	held[3].Verdict = packet.DropFragment
	w.loop.Do(func() { w.loop.Output().Resume(held) })
	w.loop.Poll(1)
	s := w.settled(t)
	if s.Received != 3 || s.Forwarded != 2 || s.Dropped[packet.DropFragment] != 1 || len(w.port[1].sent) != 3 {
		t.Errorf("%d descriptors sent, stats %+v", len(w.port[1].sent), s)
	}
}

// What is repeated comes to the handler again as it came, in the next iteration, and counts once.
func TestHeldPacketsComeAgain(t *testing.T) {
	w := newWorld(t)
	held := w.packets(t, 4, packet.Hold, 0)
	held[1].Flags = packet.FlagMore | packet.FlagHanded
	held[3].Flags = packet.FlagHanded | packet.FlagHandedAgain
	w.port[0].in = [][]packet.Desc{held}
	w.loop.Poll(0)
	again := append([]packet.Desc(nil), held...)
	for i := range again {
		again[i].Hash, again[i].Flow = uint32(packet.Forward), 1 // what the handler of the test decides
	}
	w.loop.Do(func() {
		o := w.loop.Output()
		if room := o.loopback.Room(); o.Repeat(make([]packet.Desc, room+1)) || o.loopback.Len() != 0 {
			t.Error("more are taken than there is room for")
		}
		if !o.Repeat(again) {
			t.Error("nothing is taken")
		}
		for i, want := range []packet.Flags{0, packet.FlagMore, 0, packet.FlagHanded | packet.FlagHandedAgain} {
			if d := o.loopback.D[i]; d.Flags != want || d.Verdict != packet.Undecided || d.Port != held[i].Port {
				t.Errorf("descriptor %d: %+v", i, d)
			}
		}
	})
	w.loop.Poll(1)
	if s := w.settled(t); s.Received != 3 || s.Originated != 0 || s.Forwarded != 3 || len(w.port[1].sent) != 4 {
		t.Errorf("%d descriptors sent, stats %+v", len(w.port[1].sent), s)
	}
}

func TestReleasedFramesCountAsNothing(t *testing.T) {
	w := newWorld(t)
	d := w.packets(t, 4, packet.Release, 0)
	d[0].Hash, d[0].Flow = uint32(packet.Forward), 1
	d[3].Hash = uint32(packet.DropRule)
	w.port[0].in = [][]packet.Desc{d}
	for i := range 2 {
		d[i].Flags = packet.FlagMore // three descriptors of a packet that becomes one, and another packet
	}
	w.loop.handler = &shortener{handler: w.hand}
	w.loop.Poll(0)
	s := w.settled(t)
	if s.Received != 2 || s.Forwarded != 1 || s.Dropped[packet.DropRule] != 1 || len(w.port[1].sent) != 1 {
		t.Errorf("%d descriptors sent, stats %+v", len(w.port[1].sent), s)
	}
}

// shortener leaves every packet one descriptor.
type shortener struct{ *handler }

func (h *shortener) Handle(now clock.Time, b *packet.Batch) {
	for i := range b.D {
		b.D[i].Flags &^= packet.FlagMore
	}
	h.handler.Handle(now, b)
}

// What is held when the loop ends is dropped by its handler, also where it came from another loop.
func TestTheEndOfALoopEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	held := w.packets(t, 2, packet.Hold, 0)
	w.port[0].in = [][]packet.Desc{held}
	w.port[0].rxErr, w.port[1].rxErr = io.EOF, io.EOF
	w.loop.Output().AtEnd(func() {
		for i := range held {
			held[i].Verdict = packet.DropFragment
		}
		w.loop.Output().Resume(held)
	})
	if err := w.loop.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.settled(t); s.Received != 2 || s.Dropped[packet.DropFragment] != 2 {
		t.Errorf("stats %+v", s)
	}
}
