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
