package loss

import (
	"testing"
	"time"
)

// reordered has segment 1 of twenty arrive late by so many milliseconds, on a path of 100 ms.
func reordered(t *testing.T, late int) *bench {
	x := sack(t)
	x.each(0, 20)
	x.ack(100, 1)
	x.ack(102, 1, 2, 3)
	x.ack(101+late, 3)
	return x
}

// The window holds what was measured, in addition to RFC 8985's quarter of a round trip.
func TestLatenessWidensTheReorderingWindow(t *testing.T) {
	for _, late := range []int{2, 7, 20} {
		x := reordered(t, late)
		if w, want := x.b.reoWindow(), 25*ms+time.Duration(late)*ms; w != want {
			t.Errorf("%d ms late: window is %v, want %v", late, w, want)
		}
	}
}

// What one ACK reports of several ranges says nothing about the order in which they arrived.
func TestOneACKShowsNoLateness(t *testing.T) {
	x := sack(t)
	x.each(0, 20)
	x.ack(100, 1)
	x.ack(119, 1, 8, 10, 2, 4) // ACKs before it were lost
	if x.b.reorder.late != 0 || x.b.reorder.seen {
		t.Errorf("lateness is %d us, seen %v", x.b.reorder.late, x.b.reorder.seen)
	}
}

// RFC 8985 3.3.2: the window is bounded, here by 10 ms on short paths and a round trip on long ones.
func TestReorderingWindowIsBounded(t *testing.T) {
	x := reordered(t, 2)
	x.b.reorder.noteLate(time.Hour)
	if w := x.b.reoWindow(); w != x.b.SRTT() {
		t.Errorf("window is %v, the round trip %v", w, x.b.SRTT())
	}
	x.b.rtt.srtt, x.b.rtt.min = ms, ms
	if w := x.b.reoWindow(); w != 10*ms {
		t.Errorf("window is %v on a path of 1 ms", w)
	}
}

// After sixteen recoveries the window is what the lateness among them requires.
func TestReorderingWindowNarrows(t *testing.T) {
	x := reordered(t, 20)
	period := func() {
		for range reoPersist {
			x.b.reorder.noteRecovered()
		}
	}
	period()
	if x.b.reorder.late != 20_000 {
		t.Fatalf("lateness %d us was forgotten in its own period", x.b.reorder.late)
	}
	x.b.reorder.noteLate(3 * ms)
	if x.b.reorder.late != 20_000 {
		t.Fatal("a segment that was less late narrows the window at once")
	}
	period()
	if x.b.reorder.late != 3000 {
		t.Errorf("lateness is %d us, want what the last period has shown", x.b.reorder.late)
	}
	period()
	if x.b.reorder.late != 0 {
		t.Errorf("lateness is %d us after a period without reordering", x.b.reorder.late)
	}
}

// vain has segments 1 and 2 sent again although they were only late, and their originals end recovery.
func vain(t *testing.T) *bench {
	x := sack(t)
	x.each(0, 12)
	x.ack(100, 1)
	x.want("SACK", x.ack(105, 1, 3, 12), Recover|Marked)
	x.resend(105)
	x.resend(105)
	x.send(106, 20)
	x.want("originals", x.ack(107, 12), Recovered)
	return x
}

// RFC 3708 3.3: DSACKs come a round trip after the retransmissions, and the originals may have ended
// recovery before.
func TestDSACKUndoesAfterRecovery(t *testing.T) {
	x := vain(t)
	lost := x.b.TotalLost()
	x.want("one of two", x.ack(205, 12, 1, 2), 0)
	x.want("both", x.ack(206, 12, 2, 3), Undo)
	x.want("again", x.ack(207, 12, 2, 3), 0)
	if x.b.TotalLost() != lost-2*mss {
		t.Errorf("%d bytes count as lost, before the DSACKs %d", x.b.TotalLost(), lost)
	}
}

// A DSACK of an earlier episode must not undo the present one.
func TestDSACKOfAnEarlierEpisodeUndoesNothing(t *testing.T) {
	x := vain(t)
	x.want("a hole", x.ack(206, 12, 14, 32), Recover|Marked)
	x.resend(206)
	x.want("one", x.ack(207, 12, 1, 2, 14, 32), 0)
	x.want("two", x.ack(208, 12, 2, 3, 14, 32), 0)
	if !x.b.InRecovery() {
		t.Error("recovery was undone")
	}
}

// A fast retransmission in vain is reordering, also where every late segment was sent again before it
// arrived, so that none shows it. One after a timeout is delay.
func TestDSACKShowsReordering(t *testing.T) {
	x := vain(t)
	x.b.reorder.seen = false // the originals have shown it
	x.ack(205, 12, 1, 2)
	if !x.b.reorder.seen {
		t.Error("no reordering seen")
	}
	y := sack(t)
	y.b.MeasuredRTT(at(0), 100*ms)
	y.each(0, 2)
	y.timer(201) // probe
	y.timer(2000)
	y.resend(2000)
	y.send(2001, 4)
	y.ack(2050, 2)
	y.want("DSACK", y.ack(2100, 2, 0, 1), Undo)
	if y.b.reorder.seen {
		t.Error("a spurious timeout was taken for reordering")
	}
}
