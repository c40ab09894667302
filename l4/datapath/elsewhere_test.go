package datapath

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// loopOutput is the Output of one of two loops: what shall run on the other runs at once, and is counted.
type loopOutput struct {
	Output
	on    []int
	ticks int
	now   clock.Time
}

func (o *loopOutput) On(loop int, f func(clock.Time)) bool {
	o.on = append(o.on, loop)
	f(o.now)
	return true
}
func (o *loopOutput) RequestTick() { o.ticks++ }
func (o *loopOutput) AtEnd(func()) {}

// A loop whose first fragment goes to another handler says so to the loop where the datagram's fragments meet, if some may
// wait there: it has handed some over, or the other one holds some.
func TestTheLoopWhereFragmentsMeetLearnsWhereTheFirstWent(t *testing.T) {
	for name, c := range map[string]struct {
		handed, held bool
		messages     int
	}{
		"no fragment came early":      {false, false, 0},
		"one was handed over":         {true, false, 1},
		"one is held, by another way": {false, true, 1},
	} {
		b := newBench()
		var h [2]*Handler
		var out [2]*loopOutput
		for i := range h {
			h[i] = New(Options{Loops: 1, Table: 64, HalfOpen: 32, Fragments: 64, SNATPorts: PortRange{1024, 2047}, Seed: 1}, &b.snap)
			h[i].loop, h[i].loops = i, 2
			out[i] = &loopOutput{now: clock.Time(time.Hour)}
			h[i].SetOutput(out[i])
		}
		Join(h[:])
		k := fragmentKey{src: addr{1, 2}, dst: addr{3, 4}, id: 5, proto: 17}
		for h[0].meetingLoop(&k) != 1 {
			k.id++
		}
		if c.handed {
			h[0].early.add(h[0].fragments.hash(&k))
		}
		if c.held {
			h[1].held.push(-1, &fragmentHeader{key: k, at: 8, end: 8 + 8, more: true}, nil, 1, true)
			h[1].held.any.Store(1) // of some datagram
		}
		h[0].defragmenter().elsewhereOn(1, k)
		later := h[1].fragments.find(&k, ticksAt(clock.Time(time.Hour)))
		if len(out[0].on) != c.messages || (later != nil && later.declined) != (c.messages == 1) {
			t.Errorf("%s: messages to %v; then %+v", name, out[0].on, later)
		}
		if c.messages > 0 && later.until.expired(ticksAt(clock.Time(time.Hour+fragmentLife-time.Second))) {
			t.Errorf("%s: forgotten too early", name)
		}
		h[1].held.any.Store(0)
		if h[0].defragmenter().elsewhereOn(1, k); len(out[0].on) != c.messages {
			t.Errorf("%s: the next datagram with this identification is reported too", name)
		}
	}
}
