package cc

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// pipe is a link with a queue that one bbr sends over, segment by segment. It measures delivery rates
// itself, in the plainest way.
type pipe struct {
	b         *bbr
	now       clock.Time
	rate      float64 // bytes per second
	rtt       time.Duration
	queue     float64 // bytes, of what waits; more is lost
	drop      int     // every so many-th segment is lost; 0 is none
	mark      float64 // bytes in the queue above which segments are marked; 0 is never
	limit     int     // segments that the application has in flight at most; 0 is endless
	free      clock.Time
	flying    []shot
	nextSend  clock.Time
	sent      uint32
	delivered uint64
	lost      uint64
	at, first clock.Time
	count     int
	phases    []phase
	longest   float64
}

// shot is a segment in flight.
type shot struct {
	sent, arrives      clock.Time
	priorAt, priorSent clock.Time
	prior, priorLost   uint64
	flight             uint32
	lost, ce, limited  bool
}

func newPipe(mbit float64, rtt time.Duration) *pipe {
	p := &pipe{b: newBBR(mss), now: at(0), rate: mbit * 1e6 / 8, rtt: rtt}
	p.queue = 2 * p.rate * rtt.Seconds()
	p.phases = []phase{startup}
	return p
}

func (p *pipe) flight() uint32 { return uint32(len(p.flying)) * mss }

func (p *pipe) bdp() float64 { return p.rate * p.rtt.Seconds() }

// run runs for d.
func (p *pipe) run(d time.Duration) {
	for end := p.now.Add(d); p.now < end; {
		next := end
		open := p.flight()+mss <= p.b.Window() && (p.limit == 0 || len(p.flying) < p.limit)
		if open {
			next = min(next, max(p.now, p.nextSend))
		}
		if len(p.flying) > 0 && p.flying[0].arrives <= next {
			p.now = max(p.now, p.flying[0].arrives)
			p.arrive()
			continue
		}
		p.now = next
		if open && p.now >= p.nextSend && p.now < end {
			p.send()
		}
	}
}

func (p *pipe) send() {
	if len(p.flying) == 0 {
		p.at, p.first = p.now, p.now
	}
	p.free = max(p.free, p.now)
	waits := p.free.Sub(p.now).Seconds() * p.rate
	p.longest = max(p.longest, waits)
	s := shot{sent: p.now, priorAt: p.at, priorSent: p.first, prior: p.delivered, priorLost: p.lost, limited: p.limit > 0}
	p.count++
	s.lost = waits > p.queue || p.drop > 0 && p.count%p.drop == 0
	s.ce = p.mark > 0 && waits > p.mark
	if !s.lost {
		p.free = p.free.Add(time.Duration(mss / p.rate * 1e9))
	}
	s.arrives = p.free.Add(p.rtt)
	p.flying = append(p.flying, s)
	p.flying[len(p.flying)-1].flight = p.flight()
	if rate := p.b.Pacing(); rate > 0 {
		p.nextSend = max(p.nextSend, p.now-clock.Time(ms)).Add(time.Duration(mss * uint64(time.Second) / rate))
	}
}

// arrive acknowledges the first segment, or finds it lost.
func (p *pipe) arrive() {
	s := p.flying[0]
	p.flying = p.flying[1:]
	x := Sample{Now: p.now, Flight: p.flight(), SRTT: p.rtt, WindowLimited: p.flight()+3*mss > p.b.Window()}
	if s.lost {
		p.lost += mss
		x.Lost = mss
		if len(p.flying) == 0 || p.flying[0].lost {
			return // no ACK to tell of it
		}
		s = p.flying[0]
		p.flying = p.flying[1:]
	}
	p.delivered += mss
	p.at, p.first = p.now, s.sent
	x.Delivered, x.Acked, x.Flight = mss, mss, p.flight()
	x.RTT = p.now.Sub(s.sent)
	x.Total, x.TotalLost, x.Prior, x.PriorLost = p.delivered, p.lost, s.prior, s.priorLost
	x.RateBytes = p.delivered - s.prior
	x.RateInterval = max(s.sent.Sub(s.priorSent), p.now.Sub(s.priorAt))
	x.SentFlight, x.AppLimited = s.flight, s.limited
	if s.ce {
		x.Marked = mss
	}
	p.sent += mss
	x.Una, x.Next = p.sent, p.sent+p.flight()
	p.b.OnAck(x)
	if last := p.phases[len(p.phases)-1]; p.b.state != last {
		p.phases = append(p.phases, p.b.state)
	}
}

// near reports whether a is within a part of b.
func near(a, b, part float64) bool { return math.Abs(a-b) <= part*b }

// draft-ietf-ccwg-bbr 5.3: Startup finds the bandwidth, Drain empties the queue, and ProbeBW goes round.
func TestBBRPhases(t *testing.T) {
	p := newPipe(100, 20*ms)
	p.run(800 * ms)
	if len(p.phases) < 3 || p.phases[0] != startup || p.phases[1] != drain || p.b.state != cruise {
		t.Fatalf("phases %v, want Startup, Drain and ProbeBW up to Cruise", p.phases)
	}
	if bw := p.b.bandwidth(); !near(bw, p.rate, 0.03) {
		t.Errorf("bandwidth %.0f, want %.0f", bw, p.rate)
	}
	if d := p.b.minRTT - p.rtt; d < 0 || d > 2*ms {
		t.Errorf("least round-trip time %v", p.b.minRTT)
	}
	p.longest = 0
	p.run(200 * ms)
	if p.longest > 0.2*p.bdp() && p.b.state == cruise {
		t.Errorf("%.0f bytes wait in ProbeBW, the product is %.0f", p.longest, p.bdp())
	}
	p.run(3500 * ms)
	cycle := []phase{cruise, refill, up, down, cruise}
	found := false
	for i := range p.phases {
		found = found || i+5 <= len(p.phases) && slices.Equal(p.phases[i:i+5], cycle)
	}
	if !found {
		t.Errorf("no cycle of ProbeBW in %v", p.phases)
	}
	from := p.delivered
	p.run(2 * time.Second)
	if got := float64(p.delivered-from) / 2; got < 0.9*p.rate {
		t.Errorf("delivers %.0f bytes a second of %.0f", got, p.rate)
	}
}

// 5.3.4.3: without a low sample for five seconds the flight comes down to half the product, for 200 ms.
func TestBBRProbeRTT(t *testing.T) {
	p := newPipe(50, 40*ms)
	p.run(2 * time.Second)
	p.rtt = 60 * ms // a longer way: no old sample is ever seen again
	entered := false
	for range 1200 {
		p.run(10 * ms)
		if p.b.state != probeRTT {
			continue
		}
		if !entered {
			entered = true
			p.run(150 * ms)
			if f := float64(p.flight()); f > 0.6*p.b.bw*p.b.minRTT.Seconds() {
				t.Errorf("flight %.0f in ProbeRTT", f)
			}
		}
	}
	if !entered {
		t.Fatal("no ProbeRTT")
	}
	if d := p.b.minRTT - 60*ms; d < 0 || d > 3*ms {
		t.Errorf("least round-trip time %v, want 60 ms", p.b.minRTT)
	}
	if p.b.state == probeRTT {
		t.Error("ProbeRTT does not end")
	}
}

// The model follows the path, up and down.
func TestBBRFollowsTheRate(t *testing.T) {
	p := newPipe(100, 20*ms)
	p.run(3 * time.Second)
	p.rate /= 4
	p.run(10 * time.Second)
	if bw := p.b.bw; !near(bw, p.rate, 0.1) {
		t.Errorf("bandwidth %.0f after the path got slower, want %.0f", bw, p.rate)
	}
	p.rate *= 4
	p.run(15 * time.Second)
	if bw := p.b.bw; !near(bw, p.rate, 0.1) {
		t.Errorf("bandwidth %.0f after the path got faster, want %.0f", bw, p.rate)
	}
}

// Losses below the threshold lower nothing; those of a queue that is too short do.
func TestBBRLosses(t *testing.T) {
	p := newPipe(100, 20*ms)
	p.drop = 100
	p.run(6 * time.Second)
	if !math.IsInf(p.b.shortTermBW, 1) || !near(p.b.bw, p.rate, 0.05) {
		t.Errorf("at one percent: bandwidth %.0f of %.0f, short-term bound %.0f", p.b.bw, p.rate, p.b.shortTermBW)
	}
	p = newPipe(100, 20*ms)
	p.queue = p.bdp() / 20
	p.run(3 * time.Second)
	if math.IsInf(p.b.inflightLong, 1) || p.b.inflightLong > 1.5*p.bdp() {
		t.Errorf("a short queue: at most %.0f in flight, the product is %.0f", p.b.inflightLong, p.bdp())
	}
	lost, delivered := p.lost, p.delivered
	p.run(5 * time.Second)
	if r := float64(p.lost-lost) / float64(p.delivered-delivered); r > 0.02 {
		t.Errorf("a short queue: %.1f %% are lost", 100*r)
	}
	p = newPipe(100, 20*ms)
	p.drop = 8
	p.run(3 * time.Second)
	if math.IsInf(p.b.inflightLong, 1) && math.IsInf(p.b.shortTermBW, 1) {
		t.Error("twelve percent lost bounds nothing")
	}
}

// What Linux's BBRv3 does with marks: Startup ends, and the bounds come down.
func TestBBRMarks(t *testing.T) {
	queues := func(mark float64) (startup, steady float64) {
		p := newPipe(100, 20*ms)
		p.queue, p.mark = 1e9, mark
		p.run(2 * time.Second)
		startup, p.longest = p.longest, 0
		p.run(6 * time.Second)
		if mark > 0 && p.b.ecn.alpha == 0 {
			t.Error("marks are not seen")
		}
		return startup, p.longest
	}
	a, b := queues(0)
	c, d := queues(5 * mss)
	if c > a || d > 0.8*b {
		t.Errorf("queues of %.0f in Startup and %.0f after, with marks %.0f and %.0f", a, b, c, d)
	}
}

// 5.3.1: an application that sends little is no full pipe.
func TestBBRApplicationLimited(t *testing.T) {
	p := newPipe(100, 20*ms)
	p.limit = 3
	p.run(2 * time.Second)
	if p.b.state == drain || p.b.fullPipe.reached {
		t.Errorf("Startup ended in %v by what the application did", p.b.state)
	}
	p.limit = 0
	p.run(time.Second)
	if !p.b.fullPipe.reached || !near(p.b.bandwidth(), p.rate, 0.05) {
		t.Errorf("bandwidth %.0f of %.0f", p.b.bandwidth(), p.rate)
	}
}

// 5.6.4.4 and 5.4.2: a timeout takes the window, and its end gives it back; after idle time the pace is that
// of the bandwidth.
func TestBBREvents(t *testing.T) {
	p := newPipe(100, 20*ms)
	p.run(time.Second)
	w := p.b.Window()
	p.b.OnEvent(p.now, Timeout, w)
	wantWindow(t, "timeout", p.b, mss)
	p.b.OnEvent(p.now, Backoff, mss)
	p.b.OnEvent(p.now, Recovered, mss)
	wantWindow(t, "recovered", p.b, w)
	p.b.OnEvent(p.now, Lost, w)
	wantWindow(t, "a loss", p.b, w)
	p.b.pacingGain = bbrUpGain
	p.b.OnEvent(p.now, Restart, 0)
	if !near(float64(p.b.Pacing()), p.b.bw*bbrMargin, 0.001) {
		t.Errorf("pace %d after idle time, bandwidth %.0f", p.b.Pacing(), p.b.bw)
	}
	if p.b.Threshold() != 0 {
		t.Error("PRR would override the model")
	}
}

// Losses of one percent that come together, as they do at random, are not too many; two standard deviations
// above two percent are.
func TestBBRLossTooHigh(t *testing.T) {
	b := newBBR(mss)
	for _, c := range []struct {
		lost, sent float64
		want       bool
	}{{3, 100, false}, {4, 100, false}, {5, 100, true}, {24, 800, false}, {25, 800, true}, {1, 10, false}, {0, 1000, false}} {
		if b.lossTooHigh(c.lost*mss, c.sent*mss) != c.want {
			t.Errorf("%v of %v lost: too much is %v", c.lost, c.sent, !c.want)
		}
	}
}

// 5.6.2: until the pipe is full the pace does not fall; the best sample of a round is what counts.
func TestBBRNoisySamples(t *testing.T) {
	b := newBBR(mss)
	total := uint64(0)
	ack := func(prior uint64, rate uint64) {
		total += mss
		b.OnAck(Sample{
			Now: at(time.Duration(total/mss) * ms), Delivered: mss, Total: total, Prior: prior, RateBytes: rate,
			RateInterval: time.Second, RTT: 10 * ms, SRTT: 10 * ms, Flight: 20 * mss, SentFlight: 20 * mss,
		})
	}
	ack(0, 1e4)
	if want := bbrStartupGain * 10 * mss / 0.01; float64(b.Pacing()) < want-1 {
		t.Errorf("the pace fell to %d by the first sample, want %.0f", b.Pacing(), want)
	}
	ack(0, 10e6)
	pace := b.Pacing()
	ack(0, 1e6)
	if b.Pacing() < pace {
		t.Errorf("the pace fell from %d to %d in Startup", pace, b.Pacing())
	}
	if b.latestBW != 10e6 {
		t.Errorf("the best sample of the round is %.0f", b.latestBW)
	}
}

// 5.3.4.3: the window that ProbeRTT has taken comes back.
func TestBBRProbeRTTGivesBack(t *testing.T) {
	p := newPipe(50, 40*ms)
	p.run(2 * time.Second)
	p.rtt = 60 * ms
	var before uint32
	for range 2000 {
		was, w := p.b.state, p.b.Window()
		p.run(5 * ms)
		if p.b.state == probeRTT && was != probeRTT {
			before = w
		}
		if was == probeRTT && p.b.state != probeRTT {
			if p.b.Window() < before*9/10 {
				t.Errorf("window %d after ProbeRTT, %d before", p.b.Window(), before)
			}
			return
		}
	}
	t.Error("no ProbeRTT came and went")
}

// A path that loses segments whatever the rate is used like one that does not, within bounds.
func TestBBRBaselineOfLosses(t *testing.T) {
	for _, drop := range []int{50, 33, 20} { // 2, 3 and 5 %
		p := newPipe(100, 20*time.Millisecond)
		p.drop = drop
		p.run(10 * time.Second)
		if used := float64(p.delivered) / (10 * p.rate); used < 0.85 {
			t.Errorf("one of %d is lost: %.0f %% of the rate is used", drop, 100*used)
		}
	}
	p := newPipe(100, 20*time.Millisecond)
	p.drop = 5
	p.run(10 * time.Second)
	if r := p.b.baseline.ratio(mss); r > bbrMaxBaseline {
		t.Errorf("baseline is %.3f", r)
	}
}

// The baseline is of rounds in which the flow fills nothing: with a queue, while it probes, or in a Startup
// that has ended to grow, losses may be its own.
func TestBBRBaselineLeavesOwnLossesOut(t *testing.T) {
	round := func(state phase, rtt time.Duration, count int) float64 {
		b := newBBR(mss)
		b.state, b.minRTT, b.fullPipe.count = state, 8*time.Millisecond, count
		b.loss = lossRound{minRTT: rtt, lost: 10 * mss, arrived: 990 * mss}
		b.noteBaseline()
		return b.baseline.ratio(mss)
	}
	for _, c := range []struct {
		state phase
		rtt   time.Duration
		count int
		want  float64
	}{
		{cruise, 9 * time.Millisecond, 0, 0.01},
		{cruise, 9*time.Millisecond + 1, 0, 0},
		{cruise, 0, 0, 0},
		{startup, 8 * time.Millisecond, 0, 0.01},
		{startup, 8 * time.Millisecond, 1, 0},
		{up, 8 * time.Millisecond, 0, 0},
		{refill, 8 * time.Millisecond, 0, 0},
		{down, 8 * time.Millisecond, 0, 0},
	} {
		if r := round(c.state, c.rtt, c.count); r != c.want {
			t.Errorf("state %d, %v, count %d: baseline %.3f, want %.3f", c.state, c.rtt, c.count, r, c.want)
		}
	}
}

// Few segments say nothing about a rate, and of four windows the least counts: what other flows lose comes
// and goes.
func TestBaselineIsTheLeastOfItsWindows(t *testing.T) {
	var a baseline
	a.note(10, baselineLeast-1, 1)
	if r := a.ratio(1); r != 0 {
		t.Errorf("%d segments give a rate of %.2f", baselineLeast-1, r)
	}
	a.note(0, 1, 1)
	if r := a.ratio(1); r != bbrMaxBaseline {
		t.Errorf("ten of %d lost: %.2f", baselineLeast, r)
	}
	a.note(0, baselineWindow-baselineLeast, 1)
	for i, c := range []struct{ lost, want float64 }{{0.03, 10. / baselineWindow}, {0.02, 10. / baselineWindow}, {0.04, 10. / baselineWindow}, {0.04, 0.02}, {0.04, 0.02}, {0.04, 0.04}} {
		a.note(c.lost*baselineWindow, baselineWindow, 1)
		a.note(baselineLeast, baselineLeast, 1) // of a window that is not full
		if r := a.ratio(1); r != c.want {
			t.Errorf("window %d: rate %.4f, want %.4f", i, r, c.want)
		}
		a.lost, a.sent = 0, 0
	}
}
