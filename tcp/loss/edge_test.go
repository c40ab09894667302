package loss

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// An ACK beyond what was sent, or of what was acknowledged long ago, moves nothing.
func TestACKOutOfRange(t *testing.T) {
	x := sack(t)
	x.each(0, 4)
	x.ack(100, 2)
	for _, una := range []int{7, 1, -5} {
		x.want("ack", x.ack(110, una), 0)
		if x.b.Outstanding() != 2*mss || x.last.Acked != 0 {
			t.Errorf("ACK of segment %d leaves %d outstanding", una, x.b.Outstanding())
		}
	}
}

// What waited behind a hole says nothing of the round-trip time when the hole is filled.
func TestNoRTTFromBehindAHole(t *testing.T) {
	x := newBench(t, Options{})
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 5)
	for i := range 3 {
		x.dup(100+i, 0)
	}
	x.resend(103)
	x.ack(900, 5)
	if x.b.SRTT() != 100*ms || x.last.RTT != 0 {
		t.Errorf("SRTT %v, RTT %v", x.b.SRTT(), x.last.RTT)
	}
}

// The reordering timer waits for the last segment that may be late (RFC 8985 6.2 step 5).
func TestReorderingTimerIsOfTheLast(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 3)
	x.each(10, 4)
	x.ack(115, 1, 4, 5)
	// Sent at 11 and arrived at 115: 104 ms, and a quarter of the least round trip. Segments 1, 2 and 3
	// were sent at 1, 2 and 10.
	x.due(10 + 104 + 25)
}

// The sending side of a rate sample begins when the segment before it was sent
// (draft-cheng-iccrg-delivery-rate-estimation 3.2): compressed ACKs do not look fast.
func TestRateOfCompressedACKs(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 50*ms)
	for i := range 10 {
		x.send(20*i, 1)
	}
	for i := range 4 {
		x.ack(200, i+1)
	}
	x.send(200, 1)
	x.send(210, 1)
	x.ack(300, 10)
	x.ack(301, 12)
	if d := x.last.RateInterval; d < 91*ms {
		t.Errorf("interval %v is shorter than the data took to send", d)
	}
}

// The limit by the application ends with the data that was in flight then.
func TestLimitedUntilDelivered(t *testing.T) {
	x := sack(t)
	x.each(0, 10)
	x.b.SetAppLimited()
	x.ack(50, 10-1)
	x.send(51, 2)
	x.ack(52, 10)
	x.send(60, 3)
	x.ack(110, 12)
	x.send(120, 1)
	x.ack(170, 16)
	if x.last.AppLimited {
		t.Error("limited though all of that time is over")
	}
}

// Eifel asks about data that was sent again; an old echo with other data says nothing.
func TestEifelNeedsARetransmission(t *testing.T) {
	x := stamps(t)
	x.each(0, 10)
	x.echo(100, 0, 0, 3, 7)
	x.lost(0, 1)
	x.b.Resent(at(105), seg(2), mss)
	x.want("of the first segment, sent once", x.echo(106, 1, 0, 3, 7)&Undo, 0)
	x.want("of the one sent again", x.echo(107, 7, 2)&Undo, Undo)
}

// What undoing calls no loss is not counted as one.
func TestUndoneLossIsNotCounted(t *testing.T) {
	x := stamps(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 20)
	x.echo(120, 0, 0, 10, 14)
	if x.b.TotalLost() != 10*mss {
		t.Fatalf("lost %d", x.b.TotalLost())
	}
	x.resend(120)
	x.want("late", x.echo(121, 2, 1, 10, 14), Undo|Reordered)
	if n := x.b.TotalLost(); n > 2*mss {
		t.Errorf("%d bytes lost after all", n)
	}
	x.flight(14)
}

// RFC 6582: the ACK that fills the hole stands for one segment that was not counted before.
func TestNewRenoDelivered(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 6)
	for i := range 5 {
		x.dup(100+i, 0)
	}
	x.resend(105)
	x.ack(200, 6)
	if x.b.Delivered() != 6*mss || x.last.Delivered != mss {
		t.Errorf("delivered %d, of them %d by the last ACK", x.b.Delivered(), x.last.Delivered)
	}
}

// RFC 9937 6: the fast retransmit leaves whatever the proportion, and further loss makes no ACK safe.
func TestPRREdges(t *testing.T) {
	x := sack(t)
	x.each(0, 100)
	x.ack(200, 0, 1, 4)
	if w := x.b.Reduce(10*mss, &x.last); w != x.b.Flight()+mss {
		t.Errorf("window %d at flight %d: no fast retransmit", w, x.b.Flight())
	}
	x.resend(200)
	if w := x.b.Reduce(10*mss, &Sample{}); w != x.b.Flight() {
		t.Errorf("window %d at flight %d: more than one segment for nothing", w, x.b.Flight())
	}

	x = sack(t)
	x.each(0, 20)
	x.ack(100, 0, 16, 20)
	x.b.Reduce(10*mss, &x.last)
	for range 4 {
		x.resend(100)
	}
	w := x.b.Reduce(10*mss, &Sample{Acked: mss, Delivered: mss, Lost: mss})
	if w != x.b.Flight()+mss {
		t.Errorf("window %d at flight %d after further loss", w, x.b.Flight())
	}
}

// RFC 8985 7.4.2: only a DSACK of the probe itself is its answer.
func TestDSACKOfOtherData(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.send(0, 3)
	x.want("timer", x.timer(200), Probe)
	seq, n := x.b.Probe()
	x.b.Resent(at(200), seq, n)
	x.b.Probed(x.b.next, false)
	x.ack(300, 3)
	x.send(310, 1)
	x.want("DSACK of another", x.ack(320, 3, 0, 1), 0)
	x.want("later", x.ack(410, 4), ProbeLost)
}

// A timeout within fast recovery is no case for F-RTO: data was sent twice before it.
func TestNoFRTOInRecovery(t *testing.T) {
	x := sack(t)
	x.each(0, 10)
	x.ack(100, 1)
	x.ack(104, 1, 2, 5)
	x.resend(104)
	x.timer(5000)
	x.b.Resent(at(5000), seg(1), mss)
	x.ack(5100, 5)
	if x.b.WantsNewData() {
		t.Error("new data is asked for")
	}
}

// A probe does not come after the timeout.
func TestProbeIsNotLaterThanTheTimeout(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 500*ms)
	for range 50 {
		x.b.MeasuredRTT(at(0), 500*ms)
	}
	x.send(0, 1)
	x.due(700) // 500 + 200, where the probe alone would be at 1200
	x.want("timer", x.timer(700), Probe)
}

// The fast retransmit of the first segment gives it a whole timeout.
func TestRetransmissionRestartsTheTimer(t *testing.T) {
	x := sack(t)
	x.each(0, 10)
	x.ack(100, 1)
	x.ack(350, 1, 2, 5)
	x.resend(350)
	if d := x.b.f.rtoTimer.Sub(at(350)); d != x.b.RTO() {
		t.Errorf("timer in %v, want %v", d, x.b.RTO())
	}
}

// In a steady flow the interval is a round trip, however long it goes on.
func TestRateOfASteadyFlow(t *testing.T) {
	x := sack(t)
	for i := range 500 {
		if i >= 10 {
			x.ack(10*i, i-9)
		}
		x.send(10*i, 1)
	}
	if x.last.RateInterval != 100*ms || x.last.RateBytes != 10*mss {
		t.Errorf("%d bytes in %v, want 10 segments in 100 ms", x.last.RateBytes, x.last.RateInterval)
	}
}

// RFC 6582: in a partial ACK, too, one segment is the hole's.
func TestNewRenoPartialACK(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 10)
	for i := range 5 {
		x.dup(100+i, 0)
	}
	x.resend(105)
	x.ack(200, 2)
	if x.last.Delivered != mss || x.b.Delivered() != 6*mss {
		t.Errorf("delivered %d, of them %d by the partial ACK", x.b.Delivered(), x.last.Delivered)
	}
}

// Segments of a record all begin at multiples: what follows a short one is another record.
func TestShortSegmentEndsARecord(t *testing.T) {
	x := sack(t)
	x.b.Sent(at(0), seg(0), mss+mss/2)
	x.b.Sent(at(0), seg(1)+mss/2, mss)
	if x.p.Records() != 2 {
		t.Errorf("%d records", x.p.Records())
	}
}

// TestLostExactly: a loss is alone while nothing else is lost in its recovery, nor was sent again.
func TestLostExactly(t *testing.T) {
	b := new(Scoreboard)
	b.Init(new(Pool), 0, Options{MSS: 1000, SACK: true})
	b.MeasuredRTT(1, time.Millisecond)
	b.Sent(clock.Time(time.Second), 0, 8000)
	ack := func(ms int, blocks ...wire.SACKBlock) {
		var s Sample
		b.Ack(clock.Time(time.Second).Add(time.Duration(ms)*time.Millisecond), &Ack{SACK: blocks}, &s)
	}
	if b.LostExactly(0) {
		t.Error("without recovery")
	}
	ack(5, wire.SACKBlock{Left: 1000, Right: 5000})
	if !b.LostExactly(1000) || b.LostExactly(999) || b.LostExactly(1001) {
		t.Errorf("%d missing", b.Missing())
	}
	ack(6, wire.SACKBlock{Left: 6000, Right: 8000}, wire.SACKBlock{Left: 1000, Right: 5000})
	if b.Missing() != 2000 || b.LostExactly(1000) {
		t.Errorf("%d missing", b.Missing())
	}
	b.Resent(clock.Time(time.Second).Add(7*time.Millisecond), 0, 1000)
	if b.Missing() != 1000 || b.LostExactly(1000) {
		t.Errorf("%d missing, after one was sent again", b.Missing())
	}
}

// RFC 6582 3.2 step 3: the retransmission of a partial ACK leaves whatever PRR allows.
func TestPartialACKRetransmits(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 20)
	for i := range 3 {
		x.dup(100+i, 0)
	}
	x.b.Reduce(2*mss, &x.last)
	x.resend(103)
	x.want("partial", x.ack(200, 2), Marked)
	if w := x.b.Reduce(2*mss, &x.last); w < x.b.Flight()+mss {
		t.Errorf("window %d at flight %d: the partial ACK sends nothing", w, x.b.Flight())
	}
}

// RFC 6582 3.2 step 1: "recover" holds when all in flight at the end of a recovery is acknowledged, and something new is sent.
// Duplicate ACKs of what was sent again in vain begin no recovery.
func TestRecoverOutlivesTheFlight(t *testing.T) {
	for _, timedOut := range []bool{false, true} {
		x := newBench(t, Options{})
		x.each(0, 8)
		if timedOut {
			x.timer(1000)
		} else {
			for i := range 3 {
				x.dup(100+i, 0)
			}
		}
		x.resend(1000)
		x.ack(1100, 8)
		if x.b.f != nil {
			t.Fatal("something is in flight")
		}
		x.each(1100, 6)
		for i := range 5 {
			x.want("duplicate", x.dup(1101+i, 8), 0)
		}
		x.ack(1200, 9)
		x.dup(1201, 9)
		x.dup(1202, 9)
		x.want("new loss", x.dup(1203, 9), Recover|Marked)
	}
}

// RFC 5682 2.1 step 1: a timeout within the repair of another, of the same segment or of the next, is no case for F-RTO.
func TestFRTOIsForTheFirstTimeout(t *testing.T) {
	for _, o := range []Options{{}, {SACK: true}} {
		for _, progress := range []int{0, 1} {
			x := newBench(t, o)
			x.b.MeasuredRTT(at(0), 100*ms)
			x.each(0, 10)
			x.b.f.ptoTimer = 0
			x.timer(1000)
			x.b.Resent(at(1000), seg(0), mss)
			if progress > 0 {
				x.ack(1100, progress)
				x.b.NewDataSent(false)
			}
			x.b.f.rtoTimer = at(2000)
			if e := x.timer(2000); e&(Timeout|Backoff) == 0 {
				t.Fatalf("events %#x", e)
			}
			x.b.Resent(at(2000), seg(progress), mss)
			x.ack(2100, progress+1)
			if x.b.WantsNewData() {
				t.Errorf("%+v: F-RTO after a second timeout, %d acknowledged between", o, progress)
			}
			x.lost(progress+1, 1)
		}
	}
}

// RFC 5682 2.1 step 3a: the ACK of new data frees a segment of the window though it announces another window.
func TestFRTOWithWindowUpdate(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 10)
	x.timer(1000)
	x.b.Resent(at(1000), seg(0), mss)
	x.ack(1100, 1)
	x.send(1100, 2)
	x.b.NewDataSent(true)
	x.ack(1200, 1) // no duplicate by RFC 5681 2
	x.flight(1)
	x.lost(1, 1)
}

// "recover" follows SND.UNA, so that after half of the sequence space it does not look like data in flight.
func TestRecoverFollows(t *testing.T) {
	x := newBench(t, Options{})
	for range 5 {
		x.b.Sent(at(0), x.b.next, 1<<30)
		x.b.Ack(at(1), &Ack{Una: x.b.next}, &x.last)
		if x.b.afterRecovery() {
			t.Fatal("after a recovery that never was")
		}
	}
}
