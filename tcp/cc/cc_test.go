package cc

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

const (
	mss = 1000
	ms  = time.Millisecond
)

func at(d time.Duration) clock.Time { return clock.Time(time.Hour).Add(d) }

// path is a link without loss that a controller sends over: each step is a round trip in which all that the
// window allows arrives, in ACKs of two segments.
type path struct {
	c     Controller
	now   time.Duration
	rtt   time.Duration
	next  uint32
	una   uint32
	total uint64
	most  uint32 // bytes sent in a round at most; 0 is no bound
}

func newPath(c Controller, rtt time.Duration) *path { return &path{c: c, rtt: rtt} }

// round delivers a window; marked is how many bytes of each ACK were marked.
func (p *path) round(marked uint32) {
	w := p.c.Window()
	if p.most > 0 {
		w = min(w, p.most)
	}
	p.next = p.una + w
	step := p.rtt / time.Duration(max(w/(2*mss), 1))
	for left := w; left > 0; {
		n := min(2*mss, left)
		left -= n
		p.now += step
		p.ack(n, min(marked, n), left)
	}
}

func (p *path) ack(n, marked, flight uint32) {
	p.una += n
	p.total += uint64(n)
	if int32(p.next-p.una) < 0 {
		p.next = p.una
	}
	p.c.OnAck(Sample{
		Now: at(p.now), Acked: n, Delivered: n, Marked: marked, Flight: flight, Una: p.una, Next: p.una + p.c.Window(),
		RTT: p.rtt, MinRTT: p.rtt, SRTT: p.rtt, Total: p.total, WindowLimited: true,
	})
}

func (p *path) event(e Event) { p.c.OnEvent(at(p.now), e, p.c.Window()) }

func wantWindow(t *testing.T, what string, c Controller, want uint32) {
	t.Helper()
	if c.Window() != want {
		t.Errorf("%s: window %d, want %d", what, c.Window(), want)
	}
}

func TestNames(t *testing.T) {
	want := []string{"bbr", "cubic", "dctcp", "reno"}
	if !slices.Equal(Names(), want) {
		t.Errorf("names are %v", Names())
	}
	for _, n := range append(Names(), "") {
		c, err := New(n, mss)
		if err != nil || c.Window() != Initial(mss) {
			t.Errorf("%q: %v, %v", n, c, err)
		}
	}
	if c, _ := New("", mss); c == nil {
		t.Error("no default")
	} else if _, ok := c.(*cubic); !ok {
		t.Errorf("the default is %T", c)
	}
	if _, err := New("vegas", mss); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
}

// RFC 6928 2.
func TestInitialWindow(t *testing.T) {
	for _, c := range [][2]uint32{{536, 5360}, {1448, 14480}, {1460, 14600}, {2000, 14600}, {8948, 17896}} {
		if Initial(c[0]) != c[1] {
			t.Errorf("initial window for %d is %d, want %d", c[0], Initial(c[0]), c[1])
		}
	}
	for _, n := range Names() {
		c, _ := New(n, 536)
		c.SetMSS(1460)
		wantWindow(t, n+" follows the segment size", c, 14600)
		c.SetMSS(30_000)
		if c.Window() < 30_000 {
			t.Errorf("%s: a window of %d holds no segment", n, c.Window())
		}
	}
}

// RFC 5681 3.1, 3.2, 4.1.
func TestReno(t *testing.T) {
	c := newReno(mss)
	p := newPath(c, 100*ms)
	p.round(0)
	wantWindow(t, "slow start", c, 20*mss)
	p.event(Lost)
	if c.Threshold() != 10*mss {
		t.Errorf("threshold %d", c.Threshold())
	}
	p.event(Recovered)
	p.round(0)
	wantWindow(t, "congestion avoidance", c, 11*mss)
	p.round(0)
	wantWindow(t, "and again", c, 12*mss)
	p.event(Undo)
	wantWindow(t, "undo", c, 20*mss)
	p.event(Timeout)
	wantWindow(t, "timeout", c, mss)
	p.event(Backoff)
	if c.Threshold() != 10*mss {
		t.Errorf("threshold %d after a second timeout", c.Threshold())
	}
	for range 4 {
		p.round(0)
	}
	if c.Window() < 10*mss || c.Window() > 16*mss {
		t.Errorf("window %d after slow start to the threshold", c.Window())
	}
	for range 20 {
		p.round(0)
	}
	before := c.Window()
	p.event(Restart)
	wantWindow(t, "restart", c, Initial(mss))
	if c.Threshold() < before/4*3-mss {
		t.Errorf("threshold %d forgets %d", c.Threshold(), before)
	}
	for range 10 {
		p.event(Timeout)
	}
	if c.Threshold() != 2*mss {
		t.Errorf("threshold %d, want two segments at least", c.Threshold())
	}
}

// Growth is by what has arrived, not by ACKs (RFC 3465), and only where the window was the limit.
func TestGrowthCounts(t *testing.T) {
	c := newReno(mss)
	for range 100 { // an ACK split into hundred
		c.OnAck(Sample{Delivered: 10, Acked: 10, WindowLimited: true})
	}
	wantWindow(t, "split ACKs", c, 11*mss)
	c.OnAck(Sample{Acked: 5 * mss, Delivered: 5 * mss})
	wantWindow(t, "limited by the application", c, 11*mss)
	c.OnAck(Sample{Acked: 5 * mss, Delivered: 5 * mss, WindowLimited: true, FastRecovery: true})
	wantWindow(t, "in recovery", c, 11*mss)
	c.OnEvent(0, Lost, 3*mss)
	if c.Threshold() != 2*mss {
		t.Errorf("threshold %d: what was in flight counts, not the window", c.Threshold())
	}
}

// W_cubic and the region of Reno, by the formulas of RFC 9438 4.2 and 4.3 in closed form.
func TestCubicFollowsItsFormula(t *testing.T) {
	for _, rtt := range []time.Duration{10 * ms, 100 * ms, 300 * ms} {
		c := newCubic(mss)
		c.cwnd, c.ssthresh = 1000*mss, 1000*mss
		p := newPath(c, rtt)
		p.event(Lost)
		wantWindow(t, "multiplicative decrease", c, 700*mss)
		p.event(Recovered)
		start := p.now
		k := math.Cbrt(1000 * 0.3 / 0.4)
		friendly := 700.0
		for p.now-start < 25*time.Second {
			from := float64(c.Window()) / mss
			p.round(0)
			alpha := 3 * (1 - 0.7) / (1 + 0.7)
			if friendly >= 1000 {
				alpha = 1
			}
			friendly += alpha * float64(int(from)) / from
			x := (p.now - start).Seconds() - k
			want := 0.4*x*x*x + 1000
			if friendly > want {
				want = friendly
			}
			if have := float64(c.Window()) / mss; math.Abs(have-want) > 0.02*want+1 && rtt < 300*ms || math.Abs(have-want) > 0.06*want {
				t.Fatalf("RTT %v after %v: window %.1f, want %.1f", rtt, p.now-start, have, want)
			}
		}
	}
}

// RFC 9438 4.7: a flow that loses below its last maximum gives room.
func TestCubicFastConvergence(t *testing.T) {
	c := newCubic(mss)
	c.cwnd, c.ssthresh = 100*mss, 100*mss
	p := newPath(c, 100*ms)
	p.event(Lost)
	if c.max != 100 {
		t.Errorf("W_max is %v", c.max)
	}
	p.event(Recovered)
	p.event(Lost)
	if math.Abs(c.max-70*0.85) > 0.01 {
		t.Errorf("W_max is %v, want 59.5", c.max)
	}
	wantWindow(t, "the second decrease", c, 49*mss)
}

// RFC 9438 4.8, 4.9, 5.8.
func TestCubicEvents(t *testing.T) {
	c := newCubic(mss)
	c.cwnd, c.ssthresh = 100*mss, 100*mss
	p := newPath(c, 100*ms)
	p.event(Lost)
	p.event(Recovered)
	p.round(0)
	before, k := c.Window(), c.k
	p.event(Lost)
	p.event(Undo)
	wantWindow(t, "undo", c, before)
	if c.k != k || !c.begun {
		t.Errorf("undo forgets the epoch: K %v, was %v", c.k, k)
	}
	p.event(Timeout)
	wantWindow(t, "timeout", c, mss)
	for c.slowStart() {
		p.round(0)
	}
	p.round(0)
	if c.k != 0 {
		t.Errorf("K is %v in the epoch after a timeout", c.k)
	}
	epoch := c.epoch
	p.now += 10 * time.Second
	c.OnAck(Sample{Now: at(p.now), Acked: mss, Delivered: mss})
	if d := c.epoch.Sub(epoch); d < 9*time.Second || d > 11*time.Second {
		t.Errorf("ten idle seconds move the epoch by %v", d)
	}
}

// RFC 9406 4.2, with its own figures.
func TestHyStartPlusPlus(t *testing.T) {
	var h hystart
	una, next := uint32(0), uint32(0)
	round := func(rtt time.Duration, n int) (grown uint32) {
		una = next
		next += 100 * mss
		for i := range n {
			grown += h.allow(&Sample{Una: una + uint32(i)*mss, Next: next, RTT: rtt}, mss)
		}
		return grown
	}
	round(100*ms, 20)
	if g := round(111*ms, 20); g != 20*mss {
		t.Errorf("grew %d after a rise by an eighth less than 16 ms", g)
	}
	if h.baseline != 0 {
		t.Fatal("conservative slow start too early")
	}
	if g := round(124*ms, 7); g != 7*mss || h.baseline != 0 {
		t.Error("seven samples decide")
	}
	if round(124*ms, 20); h.baseline != 0 {
		t.Error("compared with the round before the last")
	}
	if g := round(140*ms, 20); h.baseline == 0 || g >= 20*mss {
		t.Errorf("no conservative slow start after a rise by 16 ms, grew %d", g)
	}
	if g := round(140*ms, 20); g != 20*mss/4 {
		t.Errorf("grew %d in conservative slow start", g)
	}
	if round(130*ms, 20); h.baseline != 0 {
		t.Error("slow start does not go on when the round-trip time falls")
	}
	round(130*ms, 20)
	round(150*ms, 20)
	for i := range cssRounds {
		if h.done() {
			t.Fatalf("over after %d rounds", i)
		}
		round(150*ms, 20)
	}
	if !h.done() {
		t.Error("not over after five rounds")
	}
}

// RFC 8257 3.3: the estimate follows the marks, and sets the reduction.
func TestDCTCP(t *testing.T) {
	c := newDCTCP(mss)
	c.cwnd, c.ssthresh = 100*mss, 50*mss
	p := newPath(c, ms)
	p.event(Congestion)
	wantWindow(t, "the first marks", c, 50*mss) // alpha is 1
	for range 200 {
		p.round(0)
	}
	if c.alpha > 0.001 {
		t.Errorf("alpha is %v without marks", c.alpha)
	}
	for range 200 {
		p.round(500) // a quarter of two segments
	}
	if math.Abs(c.alpha-0.25) > 0.01 {
		t.Errorf("alpha is %v with a quarter marked", c.alpha)
	}
	w := c.Window()
	p.event(Congestion)
	if have, want := float64(c.Window()), float64(w)*(1-c.alpha/2); math.Abs(have-want) > 1 {
		t.Errorf("window %v, want %v", have, want)
	}
	w = c.Window()
	p.event(Lost)
	wantWindow(t, "a loss", c, w/2)
}

func TestPacing(t *testing.T) {
	for _, n := range []string{"reno", "cubic", "dctcp"} {
		c, _ := New(n, mss)
		if c.Pacing() != 0 {
			t.Errorf("%s: paced without a round-trip time", n)
		}
		c.OnAck(Sample{SRTT: 100 * ms})
		if c.Pacing() != 2*uint64(c.Window())*10 {
			t.Errorf("%s: %d in slow start, window %d", n, c.Pacing(), c.Window())
		}
		c.OnEvent(0, Lost, c.Window())
		if c.Pacing() != uint64(c.Window())*12 {
			t.Errorf("%s: %d after a loss, window %d", n, c.Pacing(), c.Window())
		}
		c.OnAck(Sample{SRTT: ms / 2})
		if c.Pacing() != 0 {
			t.Errorf("%s: paced at half a millisecond", n)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, n := range Names() {
		c, _ := New(n, mss)
		p := newPath(c, 10*ms)
		p.most = 200 * mss
		p.event(Lost)
		p.event(Recovered)
		i := 0
		if a := testing.AllocsPerRun(200, func() {
			p.round(0)
			if i++; i%10 == 0 {
				p.event(Lost)
				p.event(Recovered)
			}
		}); a != 0 {
			t.Errorf("%s: %v allocations", n, a)
		}
	}
}

// Whatever comes, a window holds a segment and at most what can be in flight.
func TestWindowsStayInBounds(t *testing.T) {
	for _, n := range Names() {
		c, _ := New(n, mss)
		x := uint32(1)
		total := uint64(0)
		for i := range 20_000 {
			x = x*1664525 + 1013904223
			if x>>28 == 0 {
				c.OnEvent(at(time.Duration(i)*ms), Event(x>>8%8), x>>4%(1<<20))
			} else {
				d := x >> 8 % 100_000
				total += uint64(d)
				c.OnAck(Sample{
					Now: at(time.Duration(i) * ms), Acked: d, Delivered: d, Lost: x % 7000 * (x >> 20 & 1), Flight: x % (1 << 22),
					Una: uint32(total), Next: uint32(total) + c.Window(), RTT: time.Duration(x%1e7 + 1), SRTT: 5 * ms, MinRTT: ms,
					Total: total, TotalLost: total / 50, Prior: total - min(total, uint64(x%(1<<22))), RateBytes: uint64(d),
					RateInterval: time.Duration(x%1e7 + 1), SentFlight: x % (1 << 22), Marked: x % 1000, WindowLimited: x&4 == 0,
				})
			}
			if w := c.Window(); w < mss || w > maxWindow {
				t.Fatalf("%s: window %d after %d steps", n, w, i)
			}
			if c.Pacing() > 1<<50 {
				t.Fatalf("%s: pacing %d", n, c.Pacing())
			}
		}
	}
}

// Slow start is paced at twice the window until half of the threshold; near it the queue need not be filled.
func TestPacingNearTheThreshold(t *testing.T) {
	c := newReno(mss)
	c.OnAck(Sample{SRTT: 100 * ms})
	c.cwnd, c.ssthresh = 60*mss, 100*mss
	if c.Pacing() != 60*mss*12 {
		t.Errorf("%d a second for a window of %d behind half of the threshold", c.Pacing(), c.cwnd)
	}
}

// What has arrived beyond a window counts for the next (RFC 3465 2.1).
func TestCreditIsKept(t *testing.T) {
	c := newReno(mss)
	c.ssthresh = 10 * mss
	c.OnAck(Sample{Acked: 15 * mss, Delivered: 15 * mss, WindowLimited: true})
	c.OnAck(Sample{Acked: 6 * mss, Delivered: 6 * mss, WindowLimited: true})
	wantWindow(t, "after two windows and more", c, 12*mss)
}

// RFC 9438 4.2: the target is at most half more than the window.
func TestCubicTarget(t *testing.T) {
	c := newCubic(mss)
	c.cwnd, c.ssthresh = 10*mss, 10*mss
	p := newPath(c, 100*ms)
	p.ack(mss, 0, 0)
	p.now += 60 * time.Second // the curve is far above now
	before := c.Window()
	p.ack(10*mss, 0, 0)
	if have, most := float64(c.Window()), 1.5*float64(before); have < 0.99*most || have > 1.01*most {
		t.Errorf("window %.0f after a window of ACKs, want %.0f", have, most)
	}
}

// RFC 5681 3.1: a lost SYN makes the initial window one segment; slow start goes on without a threshold.
func TestLostSYN(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp"} {
		c, err := New(name, mss)
		if err != nil {
			t.Fatal(err)
		}
		c.OnEvent(at(1000), Timeout, 1)
		if c.Window() != mss || c.Threshold() != infiniteThreshold {
			t.Errorf("%s: window %d, threshold %d", name, c.Window(), c.Threshold())
		}
		c.OnEvent(at(1001), Undo, 1)
		if c.Window() != Initial(mss) {
			t.Errorf("%s: window %d after the SYN was found to have arrived", name, c.Window())
		}
		c.OnEvent(at(2000), Timeout, 10*mss)
		if c.Threshold() != 5*mss && c.Threshold() != 7*mss {
			t.Errorf("%s: threshold %d after lost data", name, c.Threshold())
		}
	}
}
