package loss

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

const (
	ms  = time.Millisecond
	mss = 1000
	iss = 10_000
)

// bench is a board under a scripted test, with times in milliseconds and sequence numbers in segments
// from iss on.
type bench struct {
	t    *testing.T
	b    Scoreboard
	p    Pool
	last Sample
}

func newBench(t *testing.T, o Options) *bench {
	x := &bench{t: t}
	o.MSS = mss
	x.b.Init(&x.p, iss, o)
	return x
}

func sack(t *testing.T) *bench { return newBench(t, Options{SACK: true}) }

// stamps has SACK and timestamps of a millisecond.
func stamps(t *testing.T) *bench { return newBench(t, Options{SACK: true, Tick: ms}) }

func at(t int) clock.Time { return clock.Time(time.Hour) + clock.Time(time.Duration(t)*ms) }

func seg(i int) uint32 { return iss + uint32(i)*mss }

// send sends n segments at t, as one.
func (x *bench) send(t, n int) { x.b.Sent(at(t), x.b.next, uint32(n)*mss) }

// each sends n segments, a millisecond apart from t on.
func (x *bench) each(t, n int) {
	for i := range n {
		x.send(t+i, 1)
	}
}

func blocks(edges ...int) (b []wire.SACKBlock) {
	for i := 0; i < len(edges); i += 2 {
		b = append(b, wire.SACKBlock{Left: seg(edges[i]), Right: seg(edges[i+1])})
	}
	return b
}

// ack acknowledges up to segment una at t; edges are those of SACK blocks.
func (x *bench) ack(t, una int, edges ...int) Events {
	x.b.Ack(at(t), &Ack{Una: seg(una), SACK: blocks(edges...)}, &x.last)
	return x.last.Events
}

// echo is ack with a timestamp echo of segment sent at time e.
func (x *bench) echo(t, una, e int, edges ...int) Events {
	x.b.Ack(at(t), &Ack{Una: seg(una), Echo: at(e), SACK: blocks(edges...)}, &x.last)
	return x.last.Events
}

// dup is a duplicate ACK without SACK.
func (x *bench) dup(t, una int) Events {
	x.b.Ack(at(t), &Ack{Una: seg(una), Duplicate: true}, &x.last)
	return x.last.Events
}

func (x *bench) timer(t int) Events {
	x.b.OnTimer(at(t), &x.last)
	return x.last.Events
}

// lost wants the first lost range to be n segments from i; n = 0 is none.
func (x *bench) lost(i, n int) {
	x.t.Helper()
	seq, k := x.b.Lost()
	if k != uint32(n)*mss || n > 0 && seq != seg(i) {
		x.t.Errorf("Lost is %d bytes from segment %.1f, want %d segments from %d", k, float64(seq-iss)/mss, n, i)
	}
}

// resend sends the first lost range again.
func (x *bench) resend(t int) {
	x.t.Helper()
	seq, n := x.b.Lost()
	if n == 0 {
		x.t.Fatal("nothing to send again")
	}
	x.b.Resent(at(t), seq, n)
}

func (x *bench) want(what string, have, want Events) {
	x.t.Helper()
	if have != want {
		x.t.Errorf("%s: events %#x, want %#x", what, have, want)
	}
}

func (x *bench) flight(n int) {
	x.t.Helper()
	if f := x.b.Flight(); f != uint32(n)*mss {
		x.t.Errorf("flight is %d bytes, want %d segments", f, n)
	}
}

func (x *bench) due(want int) {
	x.t.Helper()
	if have := x.b.Timer(); have != at(want) {
		x.t.Errorf("timer in %v, want %d ms", time.Duration(have-at(0)), want)
	}
}

// RFC 6298 2: the first measurement, and those after.
func TestEstimator(t *testing.T) {
	var e estimator
	if e.rto() != time.Second {
		t.Errorf("initial RTO is %v", e.rto())
	}
	e.sample(at(0), 400*ms)
	if e.srtt != 400*ms || e.rttvar != 200*ms || e.rto() != 1200*ms {
		t.Errorf("after 400 ms: SRTT %v, RTTVAR %v, RTO %v", e.srtt, e.rttvar, e.rto())
	}
	e.sample(at(1), 800*ms)
	if e.srtt != 450*ms || e.rttvar != 250*ms || e.rto() != 1450*ms {
		t.Errorf("after 800 ms: SRTT %v, RTTVAR %v, RTO %v", e.srtt, e.rttvar, e.rto())
	}
	for range 100 {
		e.sample(at(2), 10*ms)
	}
	if d := e.rto() - MinRTO; d < 10*ms || d > 11*ms {
		t.Errorf("RTO of a steady 10 ms is %v, want 200 ms above", e.rto())
	}
	e.backoff = 3
	if want := 8 * e.base(); e.rto() != want {
		t.Errorf("backed-off RTO is %v, want %v", e.rto(), want)
	}
	if e.backoff = 29; e.rto() != MaxRTO {
		t.Errorf("RTO is %v at most, want %v", e.rto(), MaxRTO)
	}
	if e.sample(at(3), 10*ms); e.backoff != 0 {
		t.Error("a measurement does not end the backoff")
	}
}

func TestLeastRTTExpires(t *testing.T) {
	var e estimator
	e.updateMin(at(0), 10*ms)
	e.updateMin(at(1000), 20*ms)
	if e.min != 10*ms {
		t.Errorf("least is %v", e.min)
	}
	if e.updateMin(at(31_000), 20*ms); e.min != 20*ms {
		t.Errorf("after 30 s least is %v", e.min)
	}
}

// RFC 6298 5: the timer runs while something is in flight, starts anew when new data is acknowledged,
// doubles, and the first segment is lost when it runs out.
func TestRetransmissionTimer(t *testing.T) {
	x := newBench(t, Options{})
	if x.b.Timer() != clock.Never {
		t.Error("a timer runs with nothing in flight")
	}
	x.send(0, 1)
	x.due(1000)
	x.send(500, 1)
	x.due(1000) // 5.1: only if it was not running
	x.want("timer", x.timer(999), 0)
	x.want("timer", x.timer(1000), Timeout|Marked)
	x.lost(0, 1)
	x.due(3000)
	x.resend(1000)
	x.due(3000)
	x.want("timer", x.timer(3000), Backoff|Marked)
	x.due(7000)
	x.resend(3000)
	x.want("ack", x.ack(3100, 1), 0)
	if x.b.SRTT() != 0 {
		t.Error("a segment sent twice was measured") // Karn
	}
	x.due(6100) // 5.7: 3 s after a SYN that was lost
	x.ack(3200, 2)
	if x.b.Timer() != clock.Never || x.p.Records() != 0 {
		t.Error("something is left when all is acknowledged")
	}
}

// RFC 7323 4.1: an echo measures where Karn's algorithm cannot.
func TestEchoMeasures(t *testing.T) {
	x := newBench(t, Options{Tick: ms})
	x.send(0, 1)
	x.timer(1000)
	x.resend(1000)
	x.echo(1050, 1, 1000)
	if x.b.SRTT() != 50*ms || x.b.Backoff() != 0 {
		t.Errorf("SRTT is %v, backoff %d", x.b.SRTT(), x.b.Backoff())
	}
}

// RFC 6675 5, RFC 8985 6.2: three SACKed segments stand for a loss where no reordering was seen.
func TestThreeSACKedSegments(t *testing.T) {
	x := sack(t)
	x.each(0, 10)
	x.want("first", x.ack(100, 1), 0)
	x.want("one SACKed", x.ack(102, 1, 2, 3), 0)
	x.want("two SACKed", x.ack(103, 1, 2, 4), 0)
	x.lost(0, 0)
	x.want("three SACKed", x.ack(104, 1, 2, 5), Recover|Marked)
	x.lost(1, 1)
	x.flight(5)
	x.resend(105)
	x.lost(0, 0)
	x.flight(6)
	if !x.b.InFastRecovery() {
		t.Error("not in fast recovery")
	}
	x.want("more", x.ack(109, 1, 2, 10), 0)
	x.want("all", x.ack(205, 10), Recovered)
	if x.b.InRecovery() || x.b.f != nil {
		t.Error("recovery goes on")
	}
}

// RFC 8985 6.2: with fewer SACKed segments a quarter of the round trip passes first.
func TestReorderingTimer(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 4)
	x.ack(100, 1)
	x.want("ack", x.ack(102, 1, 2, 3), 0)
	x.due(126) // sent at 1, and 100 ms, and 25 ms
	x.want("timer", x.timer(125), 0)
	x.want("timer", x.timer(126), Recover|Marked)
	x.lost(1, 1)
}

// RFC 8985 6.2 step 3: what arrives late, and was not sent again, shows reordering; three SACKed segments
// stand for nothing then.
func TestReorderingIsRemembered(t *testing.T) {
	x := sack(t)
	x.each(0, 20)
	x.ack(100, 1)
	x.ack(102, 1, 2, 3)
	x.want("late", x.ack(103, 3), Reordered)
	if x.b.Reordering() != 2 {
		t.Errorf("reordering is %d, want 2", x.b.Reordering())
	}
	x.want("three SACKed", x.ack(107, 3, 4, 8), 0)
	x.lost(0, 0)
	const late = 2 // milliseconds that segment 1 came later than segment 2
	x.due(3 + 100 + 25 + late)
	x.want("timer", x.timer(3+100+25+late), Recover|Marked)
	x.lost(3, 1)
}

// RFC 8985 3.2 and 6.2: a retransmission that is lost again is found by time.
func TestLostRetransmission(t *testing.T) {
	x := sack(t)
	x.each(0, 12)
	x.ack(100, 1)
	x.ack(104, 1, 2, 5)
	x.resend(104)
	x.each(105, 3) // 12, 13, 14
	x.ack(112, 1, 2, 12)
	x.lost(0, 0)
	x.want("of data sent after", x.ack(206, 1, 2, 13), Marked)
	x.lost(1, 1)
}

// RFC 8985 6.2: an ACK too early for a retransmission is not taken as its own.
func TestEarlyACKOfRetransmission(t *testing.T) {
	x := sack(t)
	x.each(0, 6)
	x.ack(100, 1)
	x.ack(104, 1, 2, 5)
	x.resend(104)
	before := x.b.f.rack
	x.ack(106, 2, 2, 5) // 2 ms after, where the least round trip is 100
	if x.b.f.rack.sent != before.sent {
		t.Error("RACK believes a retransmission to have arrived that cannot have")
	}
}

// RFC 8985 6.2 step 4: each round trip with a DSACK widens the window, and sixteen recoveries narrow it.
func TestReorderingWindowAdapts(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 30)
	x.ack(100, 10)
	x.ack(101, 10, 2, 3)
	x.ack(102, 10, 3, 4) // of the same round trip
	if x.b.reorder.mult != 2 {
		t.Errorf("reo_wnd_mult is %d, want 2", x.b.reorder.mult)
	}
	x.ack(130, 30, 5, 6)
	if x.b.reorder.mult != 3 {
		t.Errorf("reo_wnd_mult is %d, want 3", x.b.reorder.mult)
	}
	for i := range reoPersist {
		if x.b.reorder.mult != 3 {
			t.Fatalf("narrowed after %d recoveries", i)
		}
		x.b.reorder.noteRecovered()
	}
	if x.b.reorder.mult != 1 {
		t.Errorf("reo_wnd_mult is %d after sixteen recoveries", x.b.reorder.mult)
	}
}

// RFC 8985 7.2: two round trips after the last transmission, and 200 ms more for a single segment.
func TestProbeTimer(t *testing.T) {
	x := sack(t)
	x.send(0, 2)
	x.due(1000) // no SRTT
	x.ack(100, 1)
	x.due(100 + 300) // the RTO, 100 + max(4*50, 200), is sooner than 200 + 200
	x.send(110, 2)
	x.due(110 + 200)
	x.want("timer", x.timer(310), Probe)
	if x.b.f.rtoTimer != at(310+300) {
		t.Errorf("RTO after the probe in %v", x.b.f.rtoTimer-at(0))
	}
	seq, n := x.b.Probe()
	if seq != seg(3) || n != mss {
		t.Errorf("probe is %d bytes from %d", n, seq-iss)
	}
}

// RFC 8985 7.4.2: what becomes of probes.
func TestProbeOutcomes(t *testing.T) {
	probe := func(t *testing.T) *bench {
		x := sack(t)
		x.b.MeasuredRTT(at(0), 100*ms)
		x.send(0, 3)
		if x.want("timer", x.timer(200), Probe); x.b.f.ptoTimer != 0 {
			t.Error("a second probe is armed")
		}
		return x
	}
	again := func(x *bench) {
		seq, n := x.b.Probe()
		x.b.Resent(at(200), seq, n)
		x.b.Probed(x.b.next, false)
	}
	t.Run("new data", func(t *testing.T) {
		x := probe(t)
		x.send(200, 1)
		x.b.Probed(x.b.next, true)
		x.want("ack", x.ack(300, 4), 0)
		if x.b.probe.out {
			t.Error("the probe is still out")
		}
	})
	t.Run("both arrived", func(t *testing.T) { // case 1
		x := probe(t)
		again(x)
		x.want("original", x.ack(250, 3), 0)
		x.send(260, 1)
		x.want("probe", x.ack(300, 3, 2, 3), 0)
		x.want("later", x.ack(360, 4), 0)
	})
	t.Run("one arrived", func(t *testing.T) { // case 2
		x := probe(t)
		again(x)
		x.want("probe", x.ack(300, 3), 0)
		x.send(310, 1)
		x.want("later", x.ack(410, 4), ProbeLost)
		x.send(420, 1)
		x.want("once", x.ack(520, 5), 0)
	})
	t.Run("no DSACK", func(t *testing.T) { // case 3
		x := probe(t)
		again(x)
		x.ack(250, 3)
		x.want("duplicate", x.dup(300, 3), 0)
		x.send(310, 1)
		x.want("later", x.ack(410, 4), 0)
	})
	t.Run("not in recovery", func(t *testing.T) {
		x := sack(t)
		x.each(0, 10)
		x.ack(100, 1)
		x.ack(104, 1, 2, 5)
		if x.b.f.ptoTimer != 0 {
			t.Error("a probe is armed in recovery")
		}
	})
}

// RFC 5681 3.2, RFC 6582 3.2: without SACK.
func TestNewReno(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 10)
	x.ack(100, 1)
	x.dup(101, 1)
	x.want("second", x.dup(102, 1), 0)
	x.flight(7)
	x.want("third", x.dup(103, 1), Recover|Marked)
	x.lost(1, 1)
	x.flight(5) // nine less three that arrived and one that is lost
	x.resend(103)
	x.dup(104, 1)
	x.flight(5)
	x.want("partial", x.ack(203, 5), Marked) // step 3: the next one is lost
	x.lost(5, 1)
	x.resend(203)
	x.want("full", x.ack(303, 10), Recovered)
	if x.b.Delivered() != 10*mss {
		t.Errorf("delivered %d", x.b.Delivered())
	}
}

// RFC 6582 3.2 step 1: duplicate ACKs of data that recovery sent twice begin no other recovery.
func TestNewRenoRecover(t *testing.T) {
	x := newBench(t, Options{})
	x.each(0, 5)
	for i := range 3 {
		x.dup(100+i, 0)
	}
	x.resend(103)
	x.each(104, 4)
	x.want("full", x.ack(200, 5), Recovered)
	for i := range 4 {
		x.want("stale duplicate", x.dup(201+i, 5), 0)
	}
	x.ack(300, 6)
	x.dup(301, 6)
	x.dup(302, 6)
	x.want("new loss", x.dup(303, 6), Recover|Marked)
}

// RFC 3522 3.2, RFC 4015 3: the echo tells that the first transmission had arrived.
func TestEifel(t *testing.T) {
	x := stamps(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 3)
	x.timer(210) // probe
	x.want("timer", x.timer(510), Timeout|Marked)
	x.resend(510)
	x.want("ack", x.echo(520, 1, 0), Undo)
	x.lost(0, 0)
	x.flight(2)
	if x.b.Backoff() != 0 || x.b.InRecovery() {
		t.Error("the timeout is not undone")
	}

	x = stamps(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.each(0, 3)
	x.timer(210)
	x.timer(510)
	x.resend(510)
	x.want("ack of the retransmission", x.echo(610, 3, 510), Recovered)

	x = stamps(t) // all at once
	x.b.MeasuredRTT(at(0), 100*ms)
	x.send(0, 1)
	x.timer(300)
	x.timer(600)
	x.resend(600)
	x.want("ack", x.echo(610, 1, 0), Undo)
}

// Within a tick the echo tells nothing.
func TestEifelWithinATick(t *testing.T) {
	x := newBench(t, Options{SACK: true, Tick: 10 * ms})
	x.each(0, 6)
	x.ack(1, 0, 1, 4)
	x.resend(5)
	x.want("ack", x.echo(8, 6, 0), Recovered)
}

// RFC 3708 3.3: DSACK has named all retransmissions of a recovery.
func TestDSACKUndoes(t *testing.T) {
	x := sack(t)
	x.each(0, 12)
	x.ack(100, 1)
	x.want("SACK", x.ack(105, 1, 3, 6), Recover|Marked)
	x.resend(105)
	x.resend(105)
	x.lost(0, 0)
	x.want("late", x.ack(106, 6), 0)
	x.want("DSACK", x.ack(205, 6, 1, 2), 0)
	x.want("the other", x.ack(206, 6, 2, 3), Undo)
	if x.b.InRecovery() {
		t.Error("recovery goes on")
	}
}

// RFC 5682 3.1: a timeout was spurious if data that was sent once arrives after new data was sent.
func TestFRTO(t *testing.T) {
	start := func(t *testing.T) *bench {
		x := sack(t)
		x.b.MeasuredRTT(at(0), 100*ms)
		x.each(0, 6)
		x.timer(205) // probe
		x.b.Probed(x.b.next, false)
		x.want("timer", x.timer(505), Timeout|Marked)
		return x
	}
	t.Run("spurious", func(t *testing.T) {
		x := start(t)
		for _, n := x.b.Lost(); n > 0; _, n = x.b.Lost() {
			x.b.Resent(at(505), seg(0), mss)
			break
		}
		x.want("first", x.ack(520, 1), 0)
		if !x.b.WantsNewData() {
			t.Fatal("no new data is asked for")
		}
		x.lost(0, 0)
		x.send(520, 2)
		x.b.NewDataSent(true)
		x.want("second", x.ack(521, 2), Undo)
	})
	t.Run("real", func(t *testing.T) {
		x := start(t)
		x.b.Resent(at(505), seg(0), mss)
		x.ack(605, 1)
		x.send(605, 2)
		x.b.NewDataSent(true)
		x.want("new data alone", x.ack(705, 1, 6, 8), 0)
		x.lost(1, 1)
		if !x.b.InRecovery() {
			t.Error("the timeout is undone")
		}
	})
	t.Run("no new data", func(t *testing.T) {
		x := start(t)
		x.b.Resent(at(505), seg(0), mss)
		x.ack(605, 1)
		x.b.NewDataSent(false)
		x.lost(1, 1)
	})
	t.Run("all at once", func(t *testing.T) {
		x := start(t)
		x.b.Resent(at(505), seg(0), mss)
		x.want("ack", x.ack(605, 6), Recovered) // step 2a: it cannot be told
	})
}

// RFC 2018 8: after a timeout, SACKs of a peer that has dropped the data count no more.
func TestReneging(t *testing.T) {
	x := sack(t)
	x.each(0, 6)
	x.ack(100, 1)
	x.ack(104, 1, 2, 6)
	x.resend(104)
	x.ack(204, 2, 3, 6) // 2 was SACKed, and is not acknowledged now
	e := x.timer(10_000)
	if e&Reneged == 0 || e&Timeout == 0 {
		t.Fatalf("events %#x", e)
	}
	x.lost(2, 4)
	x.flight(0)
}

// Blocks that make no sense change nothing.
func TestBadBlocks(t *testing.T) {
	for _, edges := range [][]int{{3, 3}, {5, 4}, {8, 20}, {-3, -1}, {12, 14}} {
		x := sack(t)
		x.each(0, 10)
		x.ack(100, 2)
		x.want("ack", x.ack(101, 2, append([]int{4, 5}, edges...)...), 0)
		x.flight(7)
		checkLists(t, &x.b)
	}
}

// Less than a segment is not SACKed: a peer cannot cut records into crumbs.
func TestTinySACKBlocks(t *testing.T) {
	x := sack(t)
	x.send(0, 40)
	for i := uint32(0); i < 40*mss-10; i += 7 {
		a := Ack{Una: iss, SACK: []wire.SACKBlock{{Left: iss + i + 3, Right: iss + i + 5}}}
		x.b.Ack(at(10), &a, &x.last)
	}
	if x.p.Records() != 1 || x.b.Delivered() != 0 {
		t.Errorf("%d records, %d delivered", x.p.Records(), x.b.Delivered())
	}
	for i := range 20 {
		x.ack(10, 0, 2*i+1, 2*i+2)
	}
	if n := x.p.Records(); n > 40 {
		t.Errorf("%d records of 40 segments", n)
	}
	x.b.Release()
	if x.p.Records() != 0 {
		t.Error("records are left")
	}
}

// draft-cheng-iccrg-delivery-rate-estimation 3: the rate between sending and delivery.
func TestDeliveryRate(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), 100*ms)
	x.send(0, 10)
	x.ack(100, 10)
	if !x.last.AppLimited {
		t.Error("what begins after idle time is not limited by the application")
	}
	x.send(1000, 10)
	x.send(1010, 10)
	x.ack(1100, 20)
	x.send(1100, 10)
	x.send(1105, 10)
	x.ack(1110, 30)
	x.ack(1200, 40)
	if x.last.RateBytes != 20*mss || x.last.RateInterval != 100*ms || x.last.AppLimited {
		t.Errorf("rate %d bytes in %v, limited %v; want 20 segments in 100 ms", x.last.RateBytes, x.last.RateInterval, x.last.AppLimited)
	}
	x.b.SetAppLimited()
	x.send(1210, 1)
	x.ack(1211, 50) // 106 ms after it was sent
	x.ack(1310, 51)
	if !x.last.AppLimited {
		t.Error("the limit by the application is forgotten")
	}
	x.send(1400, 1)
	x.b.Resent(at(1450), seg(51), mss)
	if x.ack(1451, 52); x.last.RateInterval != 0 {
		t.Error("an interval below the least round-trip time is a sample")
	}
}

// RFC 9937 6: a flight of 20 segments comes down to 10 within a round trip, one for two that arrive, and to
// no less where more is lost.
func TestPRR(t *testing.T) {
	x := sack(t)
	x.each(0, 20)
	x.ack(100, 0, 1, 4)
	s := x.last
	w := x.b.Reduce(10*mss, &s)
	if s.Events&Recover == 0 || w != x.b.Flight()+3*mss/2 { // 3 * 10/20
		t.Errorf("window %d at flight %d", w, x.b.Flight())
	}
	x.resend(100)
	sent := 1
	for i := 5; i <= 20; i++ {
		x.ack(100+i, 0, 1, i)
		w = x.b.Reduce(10*mss, &x.last)
		for x.b.Flight()+mss <= w {
			x.send(100+i, 1)
			sent++
		}
	}
	x.flight(10)
	if sent != 10 {
		t.Errorf("%d segments left for 19 that arrived, want 10", sent)
	}

	x = sack(t) // most is lost: PRR-CRB sends what arrives, and no burst
	x.each(0, 20)
	x.ack(100, 0, 16, 20)
	x.flight(0)
	if w = x.b.Reduce(10*mss, &x.last); w != 4*mss {
		t.Errorf("window %d after 4 arrived, want 4 segments", w)
	}
	for range 4 {
		x.resend(100)
	}
	x.ack(200, 4, 16, 20)
	if w = x.b.Reduce(10*mss, &x.last); w != 5*mss {
		t.Errorf("window %d, want 5 segments: 4 arrived, and progress is safe", w)
	}
}

// Whatever runs on, memory does not grow.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	var p Pool
	var b Scoreboard
	b.Init(&p, 0, Options{MSS: mss, SACK: true})
	var s Sample
	now := at(0)
	a := Ack{SACK: make([]wire.SACKBlock, 1)}
	round := func() {
		start := b.next
		for range 8 {
			b.Sent(now, b.next, 10*mss)
			now += clock.Time(ms)
		}
		a.Una, a.SACK = start+5*mss, a.SACK[:1]
		a.SACK[0] = wire.SACKBlock{Left: start + 7*mss, Right: start + 30*mss}
		now += clock.Time(10 * ms)
		b.Ack(now, &a, &s)
		for seq, n := b.Lost(); n > 0; seq, n = b.Lost() {
			b.Resent(now, seq, n)
		}
		b.OnTimer(now, &s)
		a.Una, a.SACK = b.next, a.SACK[:0]
		now += clock.Time(10 * ms)
		b.Ack(now, &a, &s)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if b.f != nil || p.Records() != 0 {
		t.Error("memory is held with nothing in flight")
	}
}

// What was sent at one time is one record, and an ACK in the middle of it splits nothing.
func TestSuperSegments(t *testing.T) {
	x := sack(t)
	x.send(0, 40)
	x.send(0, 4)
	if x.p.Records() != 1 {
		t.Errorf("%d records", x.p.Records())
	}
	x.ack(50, 7)
	if x.p.Records() != 1 || x.last.Delivered != 7*mss {
		t.Errorf("%d records, %d delivered", x.p.Records(), x.last.Delivered)
	}
	x.flight(37)
	x.want("SACK", x.ack(51, 7, 8, 11), Recover|Marked)
	x.lost(7, 1)
	x.flight(33)
}

// A path that takes smaller segments: all leaves again, and no loss is counted.
func TestRetransmitAll(t *testing.T) {
	x := sack(t)
	x.each(0, 5)
	x.b.RetransmitAll()
	x.lost(0, 1)
	x.flight(0)
	if x.b.TotalLost() != 0 || x.b.InRecovery() {
		t.Error("a smaller path counts as loss")
	}
	for range 5 {
		x.resend(10)
	}
	x.want("ack", x.ack(100, 5), 0)
}

func TestPoolFreesMemory(t *testing.T) {
	var p Pool
	var b Scoreboard
	b.Init(&p, 0, Options{MSS: mss, SACK: true})
	for i := range uint32(2 * maxSpare) {
		b.Sent(at(int(i)), i*mss, mss)
	}
	if p.Records() != 2*maxSpare {
		t.Errorf("%d records", p.Records())
	}
	b.Release()
	if p.records != nil {
		t.Errorf("%d unused records are kept", len(p.records))
	}
}
