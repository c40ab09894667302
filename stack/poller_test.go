package stack

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// TestAfterFollowsWhatIsSent: what After is given runs once, behind the packets of its iteration, and what it asks for in turn in the
// next one. The loop does not sleep before that, and calls Tick, which may have more to send.
func TestAfterFollowsWhatIsSent(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	w.loop.Poll(0)
	var order []string
	w.port[1].onTx = func(packet.Desc) { order = append(order, "sent") }
	w.loop.After(func() {
		order = append(order, "first")
		w.loop.After(func() { order = append(order, "second") })
	})
	w.port[0].in = append(w.port[0].in, w.packets(t, 1, packet.Forward, 1))
	ticks := len(w.hand.ticks)
	w.loop.Poll(0)
	if want := []string{"sent", "first"}; !slices.Equal(order, want) {
		t.Fatalf("%v, want %v", order, want)
	}
	if !w.loop.mayNotSleep() {
		t.Error("the loop may sleep before the second call")
	}
	w.loop.Poll(0)
	w.loop.Poll(0)
	if want := []string{"sent", "first", "second"}; !slices.Equal(order, want) {
		t.Fatalf("%v, want %v", order, want)
	}
	if len(w.hand.ticks) < ticks+2 {
		t.Error("no Tick followed")
	}
	if w.loop.mayNotSleep() {
		t.Error("the loop may not sleep")
	}
	w.settled(t)
}

// due is a Poller that wants to be polled at a time.
type due struct {
	at     clock.Time
	polled []clock.Time
}

func (d *due) Poll(now clock.Time) int { d.polled = append(d.polled, now); return 0 }
func (d *due) Arm() clock.Time         { return d.at }

// TestPollersBoundTheSleep: a loop sleeps until the first of its pollers wants to be polled, and as long as without them where none does.
func TestPollersBoundTheSleep(t *testing.T) {
	w := newWorld(t)
	w.hand.every = clock.Time(time.Hour)
	w.loop.Poll(0)
	without := w.loop.sleepLimit(0)
	early, late := &due{at: clock.Never}, &due{at: clock.Never}
	w.loop.AddPoller(late)
	w.loop.AddPoller(early)
	for _, test := range []struct {
		early, late clock.Time
		want        time.Duration
	}{
		{clock.Never, clock.Never, without},
		{clock.Time(time.Microsecond), clock.Never, time.Microsecond},
		{clock.Time(2 * time.Microsecond), clock.Time(time.Microsecond), time.Microsecond},
		{-1, clock.Never, 0},
	} {
		early.at, late.at = test.early, test.late
		w.loop.armAll()
		if limit := w.loop.sleepLimit(0); limit != test.want {
			t.Errorf("pollers at %v and %v: %v, want %v", test.early, test.late, limit, test.want)
		}
	}
	w.settled(t)
}
