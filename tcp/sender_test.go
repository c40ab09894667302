package tcp

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/wire"
)

// sending is a sender under a scripted test, with a round trip of 100 ms behind it.
type sending struct {
	sender
	una, next uint32
}

func newSending(t *testing.T, name string) *sending {
	t.Helper()
	control, err := cc.New(name, testMSS)
	if err != nil {
		t.Fatal(err)
	}
	x := new(sending)
	x.init(new(loss.Pool), 0, loss.Options{MSS: testMSS, SACK: true}, control)
	x.scoreboard.MeasuredRTT(after(0), 100*time.Millisecond)
	return x
}

// after is a time in milliseconds.
func after(ms int) clock.Time {
	return clock.Time(time.Hour) + clock.Time(ms)*clock.Time(time.Millisecond)
}

// fill sends all that there is room for at t and returns how many segments, and when to go on.
func (x *sending) fill(t int) (segments int, wait clock.Time) {
	for {
		n, wait := x.room(after(t))
		if n == 0 {
			return segments, wait
		}
		x.sent(after(t), x.next, n, false)
		x.next += n
		segments += int(n / testMSS)
	}
}

// acked acknowledges n segments at t; ece is RFC 3168's echo.
func (x *sending) acked(t, n int, ece bool, blocks ...wire.SACKBlock) loss.Events {
	x.una += uint32(n) * testMSS
	return x.ack(after(t), &loss.Ack{Una: x.una, SACK: blocks}, &ecn.Feedback{Echo: ece})
}

// The window fills, grows where it was the limit, and not where the application was.
func TestSenderWindow(t *testing.T) {
	x := newSending(t, "reno")
	if n, wait := x.fill(0); n != 10 || wait != clock.Never {
		t.Fatalf("%d segments at first, wait %v", n, wait)
	}
	if x.acked(100, 10, false); x.cc.Window() != 20*testMSS {
		t.Errorf("window %d after a round trip", x.cc.Window()/testMSS)
	}
	for i := range 10 { // two segments each round trip
		at := 200 + 100*i
		x.sent(after(at), x.next, 2*testMSS, true)
		x.next += 2 * testMSS
		x.acked(at+100, 2, false)
	}
	if x.cc.Window() != 20*testMSS {
		t.Errorf("window %d grew without need", x.cc.Window()/testMSS)
	}
}

// Pacing lets a burst out and says when to go on; a late timer is made up for by one burst at most.
func TestSenderPaces(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	x.acked(100, 10, false) // 20 segments in 100 ms, twice that: 2.5 ms a segment
	n, wait := x.fill(100)
	if n > 6 || wait <= after(100) || wait > after(110) {
		t.Fatalf("%d segments leave, the next in %v", n, wait.Sub(after(100)))
	}
	if k, _ := x.room(wait - 1); k != 0 {
		t.Error("room before its time")
	}
	if k, _ := x.room(wait); k != 2*testMSS {
		t.Errorf("room for %d, want two segments", k)
	}
	if n, _ := x.fill(130); n < 2 || n > 6 {
		t.Errorf("%d segments after a late timer", n)
	}
	x.maxPacing = 10 * testMSS
	if x.pacing() != 10*testMSS {
		t.Errorf("the application's bound of pacing is %d", x.pacing())
	}
}

// At a high rate a late timer is made up for by an eighth of a long round trip, and 2 ms at most.
func TestSenderCatchesUp(t *testing.T) {
	const rate, n = 1e8, 1 << 16
	burst := duration(n, rate)
	for _, c := range []struct{ rtt, credit time.Duration }{
		{100 * time.Millisecond, 2 * time.Millisecond},
		{8 * time.Millisecond, time.Millisecond},
		{time.Millisecond, burst},
	} {
		x := newSending(t, "reno")
		x.scoreboard.Init(new(loss.Pool), 0, loss.Options{MSS: testMSS, SACK: true})
		x.scoreboard.MeasuredRTT(after(0), c.rtt)
		x.maxPacing, x.nextSend = rate, after(0)
		x.pace(after(300), n)
		if have := x.nextSend.Sub(after(300)); have != burst-c.credit {
			t.Errorf("round trip %v: next in %v, want %v", c.rtt, have, burst-c.credit)
		}
		x.pace(after(300), n)
		if have := x.nextSend.Sub(after(300)); have != 2*burst-c.credit {
			t.Errorf("round trip %v: credit counts twice, next in %v", c.rtt, have)
		}
	}
}

// RFC 3168 6.1.2: one reduction for all echoes of a round trip, and CWR to tell of it.
func TestSenderECN(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	x.acked(100, 2, true)
	w := x.cc.Window()
	if w != 5*testMSS || !x.cwr {
		t.Fatalf("window %d after an echo, CWR %v", w/testMSS, x.cwr)
	}
	x.acked(101, 2, true)
	if x.acked(102, 2, true); x.cc.Window() < w {
		t.Errorf("window %d after more echoes of the same round trip", x.cc.Window()/testMSS)
	}
	x.acked(103, 4, false)
	x.fill(103)
	w = x.cc.Window()
	if x.acked(200, 1, true); x.cc.Window() >= w {
		t.Error("an echo of the next round trip reduces nothing")
	}
}

// RFC 5681 4.1: after long idle time the window is at most the initial one.
func TestSenderRestarts(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	x.acked(100, 10, false)
	for _, c := range []struct{ at, want int }{{250, 20}, {5000, 10}} {
		if x.room(after(c.at)); int(x.cc.Window()/testMSS) != c.want {
			t.Errorf("window %d at %d ms, want %d", x.cc.Window()/testMSS, c.at, c.want)
		}
	}
}

// In fast recovery PRR says how much, and the threshold holds after.
func TestSenderRecovers(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	e := x.acked(100, 1, false, wire.SACKBlock{Left: 2 * testMSS, Right: 5 * testMSS})
	if e&loss.Recover == 0 || x.window() == x.cc.Window() {
		t.Fatalf("events %#x, window %d", e, x.window())
	}
	if n, _ := x.room(after(200)); n == 0 {
		t.Fatal("no room for the fast retransmit")
	}
	seq, n := x.lost()
	if seq != testMSS || n != testMSS {
		t.Errorf("lost is %d+%d", seq, n)
	}
	x.resent(after(200), seq, n)
	x.acked(300, 9, false)
	if x.window() != 5*testMSS || x.scoreboard.InRecovery() {
		t.Errorf("window %d after recovery", x.window()/testMSS)
	}
}

// RFC 8985 7.4.2: a loss that the probe has repaired reduces once.
func TestSenderProbeRepairs(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	if e := x.onTimer(x.timer()); e != loss.Probe {
		t.Fatalf("events %#x", e)
	}
	seq, n := x.scoreboard.Probe()
	x.resent(after(200), seq, n)
	x.scoreboard.Probed(x.next, false)
	x.acked(300, 10, false)
	w := x.cc.Window()
	x.fill(300)
	x.acked(400, 1, false)
	if x.cc.Window() >= w || !x.cwr {
		t.Errorf("window %d, was %d, CWR %v", x.cc.Window(), w, x.cwr)
	}
}

// A timeout leaves one segment; F-RTO has its two new ones whatever the window.
func TestSenderTimesOut(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	x.onTimer(after(1000)) // the probe, which gets lost
	x.scoreboard.Probed(x.next, false)
	if e := x.onTimer(after(2000)); e&loss.Timeout == 0 || x.cc.Window() != testMSS {
		t.Fatalf("events %#x, window %d", e, x.cc.Window())
	}
	seq, _ := x.lost()
	x.resent(after(2000), seq, testMSS)
	x.acked(2100, 1, false)
	if !x.scoreboard.WantsNewData() {
		t.Fatal("F-RTO asks for nothing")
	}
	if n, _ := x.room(after(2100)); n == 0 || n > 2*testMSS {
		t.Errorf("room for %d", n)
	}
}

// TestUnreducedEndsWithItsRecovery: the loss of a probe of the path costs no window (RFC 4821 7.5), but the next loss does.
func TestUnreducedEndsWithItsRecovery(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	if e := x.acked(100, 1, false, wire.SACKBlock{Left: 2 * testMSS, Right: 5 * testMSS}); e&loss.Recover == 0 {
		t.Fatalf("events %#x", e)
	}
	before := x.cc.Window()
	x.undoReduction(after(100))
	if !x.scoreboard.InFastRecovery() || x.cc.Window() <= before {
		t.Fatalf("window %d of %d", x.cc.Window(), before)
	}
	x.repair(t, 100)
	if x.scoreboard.InFastRecovery() || x.unreduced {
		t.Error("the next loss would cost nothing")
	}
}

func TestSenderAllocatesNothing(t *testing.T) {
	for _, name := range cc.Names() {
		x := newSending(t, name)
		at := 0
		a := loss.Ack{}
		round := func() {
			x.fill(at)
			at += 100
			x.una = x.next
			a.Una = x.una
			x.ack(after(at), &a, &ecn.Feedback{Echo: at%1000 == 0})
			x.onTimer(after(at))
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%s: %v allocations a round trip", name, n)
		}
	}
}

// repair acknowledges after each round trip what was sent in it, until nothing is lost, and returns the
// largest number of segments that left in each round trip.
func (x *sending) repair(t *testing.T, at int) (rounds []int) {
	t.Helper()
	for x.una < x.next {
		x.scoreboard.NewDataSent(false) // F-RTO finds none
		segments := 0
		for {
			seq, n := x.lost()
			room, _ := x.room(after(at))
			if n = min(n, room); n == 0 {
				break
			}
			x.resent(after(at), seq, n)
			segments += int(n / testMSS)
		}
		if rounds = append(rounds, segments); len(rounds) > 20 {
			t.Fatalf("not repaired: %v", rounds)
		}
		at += 100
		if seq, n := x.lost(); n > 0 {
			x.una = seq
		} else {
			x.una = x.next
		}
		x.ack(after(at), &loss.Ack{Una: x.una}, &ecn.Feedback{})
	}
	return rounds
}

// TestSlowStartAfterTimeout is RFC 5681 3.1 and RFC 6298 5: the loss window of one segment doubles each round trip
// until the threshold, whatever part of the window the lost flight had used. Here it is at most half: the
// application was the limit, or idle before, and one timeout may follow another.
func TestSlowStartAfterTimeout(t *testing.T) {
	for _, name := range cc.Names() {
		for _, sack := range []bool{true, false} {
			for _, segments := range []int{1, 3, 5, 8, 9, 10} {
				for _, timeouts := range []int{1, 2, 3} {
					for _, idle := range []int{0, 60_000} {
						x := newSending(t, name)
						x.setOptions(loss.Options{MSS: testMSS, SACK: sack})
						x.fill(0)
						x.acked(100, 10, false)
						at := 200 + idle
						x.room(after(at))
						for n := uint32(segments) * testMSS; n > 0; {
							room, wait := x.room(after(at))
							if room = min(room, n); room == 0 {
								at = int(wait.Sub(after(0))/time.Millisecond) + 1
								continue
							}
							x.sent(after(at), x.next, room, true)
							x.next += room
							n -= room
						}
						flight, expired := uint32(segments)*testMSS, 0
						for expired < timeouts {
							now := x.timer()
							e := x.onTimer(now)
							at = int(now.Sub(after(0)) / time.Millisecond)
							if e&loss.Probe != 0 {
								x.scoreboard.Probed(x.next, false)
								continue
							}
							if e&(loss.Timeout|loss.Backoff) == 0 {
								continue
							}
							expired++
							if x.cc.Window() != testMSS {
								t.Fatalf("%s: loss window %d", name, x.cc.Window())
							}
							if limit := max(flight*7/10, 2*testMSS); x.cc.Threshold() > limit {
								t.Errorf("%s: threshold %d, want at most %d", name, x.cc.Threshold(), limit)
							}
							if expired < timeouts {
								seq, _ := x.lost()
								x.resent(now, seq, testMSS)
							}
						}
						rounds := x.repair(t, at+1)
						most := 1
						for n := 1; n < segments; most++ {
							n += min(1<<most, max(segments/2, 2))
						}
						if len(rounds) > most {
							t.Errorf("%s, SACK %v, %d segments, %d timeouts, %d ms idle: round trips of %v segments, want at most %d", name, sack, segments, timeouts, idle, rounds, most)
						}
					}
				}
			}
		}
	}
}

// TestDuplicateACKsDoNotOpenTheWindow is RFC 5681 3.2, RFC 3042 and RFC 6675 5: before loss is declared, each duplicate ACK
// lets one new segment leave, and the window stays. When the hole fills without a loss, what fills it counts.
func TestDuplicateACKsDoNotOpenTheWindow(t *testing.T) {
	for _, name := range []string{"reno", "cubic", "dctcp"} {
		for _, avoid := range []bool{false, true} {
			x := newSending(t, name)
			if avoid {
				x.cc.OnEvent(after(0), cc.Congestion, 20*testMSS) // the threshold is the window now
			}
			n, _ := x.fill(0)
			w := x.cc.Window()
			for i := 1; i <= 2; i++ {
				x.acked(100, 0, false, wire.SACKBlock{Left: testMSS, Right: uint32(i+1) * testMSS})
				if x.cc.Window() != w || x.scoreboard.InRecovery() {
					t.Fatalf("%s: window %d after %d duplicate ACKs, was %d", name, x.cc.Window(), i, w)
				}
				x.nextSend = 0
				if k, _ := x.fill(100); k != 1 {
					t.Errorf("%s: %d segments of limited transmit", name, k)
				}
			}
			x.acked(101, n, false)
			if want := w + uint32(n-2)*testMSS; !avoid && x.cc.Window() != want {
				t.Errorf("%s: window %d after the hole has filled, want %d", name, x.cc.Window(), want)
			}
		}
	}
}

// TestACKAfterTimeoutCountsOnce: the ACK that fills the hole covers what had arrived before the timeout. It is no sign
// that the path takes so much now (RFC 3465 2.3).
func TestACKAfterTimeoutCountsOnce(t *testing.T) {
	for _, sack := range []bool{true, false} {
		x := newSending(t, "reno")
		x.setOptions(loss.Options{MSS: testMSS, SACK: sack})
		x.fill(0)
		if sack {
			x.acked(100, 0, false, wire.SACKBlock{Left: testMSS, Right: 3 * testMSS})
		}
		x.scoreboard.Probed(x.next, false)
		for x.onTimer(x.timer())&loss.Timeout == 0 {
		}
		seq, _ := x.lost()
		x.resent(after(2000), seq, testMSS)
		x.acked(2100, 3, false)
		if w := x.cc.Window(); w > 2*testMSS {
			t.Errorf("SACK %v: window %d after one retransmission", sack, w)
		}
	}
}

// TestReorderedDataCounts: on a path that reorders much, nearly all is SACKed before it is acknowledged, and the window
// grows by it then.
func TestReorderedDataCounts(t *testing.T) {
	x := newSending(t, "reno")
	x.fill(0)
	x.acked(100, 0, false, wire.SACKBlock{Left: 9 * testMSS, Right: 10 * testMSS})
	x.acked(101, 1, false) // it was overtaken by eight
	x.acked(101, 7, false)
	w := x.cc.Window()
	x.acked(102, 2, false)
	if x.cc.Window() != w+2*testMSS {
		t.Errorf("window %d, want two segments more than %d", x.cc.Window(), w)
	}
}

// TestSlowStartDoublesWhatWasUsed is RFC 7661 1: a window that was used in part grows to twice of that at most.
func TestSlowStartDoublesWhatWasUsed(t *testing.T) {
	for segments, want := range map[int]uint32{4: 10, 5: 10, 6: 12, 7: 14, 9: 18, 10: 20} {
		x := newSending(t, "reno")
		x.sent(after(0), x.next, uint32(segments)*testMSS, true)
		x.next += uint32(segments) * testMSS
		for range segments {
			x.acked(100, 1, false)
		}
		if w := x.cc.Window() / testMSS; w != want {
			t.Errorf("%d segments of 10 in flight: window %d, want %d", segments, w, want)
		}
	}
}
