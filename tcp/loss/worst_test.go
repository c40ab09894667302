package loss

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// tinyMSS is what is left of the least MSS that is believed, 48, with timestamps.
const tinyMSS = 36

// hostile is a peer that does what costs the most, with a flight of size bytes in segments of mss. do is
// called with each ACK or timer, and the name of what it tries.
type hostile struct {
	b    Scoreboard
	p    Pool
	s    Sample
	now  clock.Time
	size uint32
	do   func(name string, f func())
}

func newHostile(size int, do func(string, func())) *hostile {
	h := &hostile{now: at(0), size: uint32(size), do: do}
	h.b.Init(&h.p, 0, Options{MSS: tinyMSS, SACK: true})
	h.b.MeasuredRTT(h.now, 100*ms)
	return h
}

// fill sends until the flight has its size, in bursts as a paced sender does.
func (h *hostile) fill() {
	const burst = 1800 * tinyMSS
	for h.b.Outstanding() < h.size && !h.b.Full() {
		h.b.Sent(h.now, h.b.next, min(burst, (h.size-h.b.Outstanding()+tinyMSS-1)/tinyMSS*tinyMSS))
		h.now += clock.Time(time.Microsecond)
	}
}

func (h *hostile) ack(name string, una uint32, blocks ...wire.SACKBlock) {
	h.now += clock.Time(time.Microsecond)
	a := &Ack{Una: una, SACK: blocks}
	h.do(name, func() { h.b.Ack(h.now, a, &h.s) })
}

// segment is the block of the i-th segment of the flight.
func (h *hostile) segment(i uint32) wire.SACKBlock {
	left := h.b.una + i*tinyMSS
	return wire.SACKBlock{Left: left, Right: left + tinyMSS}
}

// comb SACKs every second segment, from both ends towards the middle, so that each search is far from the
// one before.
func (h *hostile) comb(name string) {
	n := h.b.Outstanding() / tinyMSS
	for i := uint32(1); i < n/2; i += 2 {
		h.ack(name, h.b.una, h.segment(i), h.segment(n-i))
	}
}

// resend sends the first lost segment again.
func (h *hostile) resend() {
	if seq, n := h.b.Lost(); n > 0 {
		h.b.Resent(h.now, seq, min(n, tinyMSS))
	}
}

// run has the peer try everything.
func (h *hostile) run() {
	h.now += clock.Time(100 * ms)
	h.fill()
	h.now += clock.Time(100 * ms)
	h.comb("SACK from both ends") // and all between them is lost
	h.resend()
	resent := wire.SACKBlock{Left: h.b.una, Right: h.b.una + tinyMSS}
	h.ack("undo by DSACK", h.b.una+tinyMSS, resent)
	for i := range uint32(100) { // the same again, at both ends of what is lost
		h.now += clock.Time(ms)
		h.ack("lost again", h.b.una, h.segment(2*i+1), h.segment(h.b.Outstanding()/tinyMSS-2))
		h.do("next lost", h.resend)
	}
	h.now = h.b.Timer()
	h.do("timer", func() { h.b.OnTimer(h.now, &h.s) })
	h.now += clock.Time(time.Second)
	for h.b.Timer() != clock.Never && h.s.Events&(Timeout|Backoff) == 0 {
		h.now = max(h.now, h.b.Timer())
		h.do("timer", func() { h.b.OnTimer(h.now, &h.s) })
	}
	h.resend()
	h.ack("SACK after the timeout", h.b.una, h.segment(h.b.Outstanding()/tinyMSS-1))
	h.ack("all", h.b.next)
}

// effort is what calls of one kind cost, in records looked at.
type effort struct{ calls, total, most int }

// efforts has a hostile peer do its worst, and returns the effort of each kind.
func efforts(size int) map[string]effort {
	all := map[string]effort{}
	var h *hostile
	h = newHostile(size, func(name string, f func()) {
		touched := h.p.touched
		f()
		n, e := h.p.touched-touched, all[name]
		all[name] = effort{e.calls + 1, e.total + n, max(e.most, n)}
	})
	h.run()
	return all
}

// TestWorstACK bounds how many records one ACK, or one timer, looks at, with a peer that announces the least MSS, SACKs
// every second segment and makes each recovery look spurious. What one ACK changes may be all records, but most change few.
// Builds without the tag debug count no records: there the peer only has to fail to break the scoreboard.
func TestWorstACK(t *testing.T) {
	const all, few = 60 * maxRecords, 8 * maxGroup // undo sorts them
	for _, size := range []int{64 << 10, 4 << 20, 64 << 20} {
		for name, e := range efforts(size) {
			if counting && name == "all" && e.total == 0 {
				t.Errorf("%d MB: no record is counted", size>>20)
			}
			most, mean := all, few
			switch name {
			case "undo by DSACK", "timer", "all": // all records at once
				mean = most
			case "next lost":
				most = mean
			}
			s := fmt.Sprintf("%d MB: %s: %d calls, mean %d, most %d; at most %d, %d", size>>20, name, e.calls, e.total/e.calls, e.most, mean, most)
			t.Log(s)
			if e.most > most || e.total/e.calls > mean {
				t.Error(s)
			}
		}
	}
}

// TestFullFlight: a flight with maxRecords takes no new data, SACKs whole records only, and retransmissions join. All of it
// is delivered all the same.
func TestFullFlight(t *testing.T) {
	h := newHostile(4<<20, func(_ string, f func()) { f() })
	h.fill()
	h.now += clock.Time(100 * ms)
	h.comb("")
	if !h.b.Full() || h.p.Records() > maxRecords+2 {
		t.Fatalf("%d records", h.p.Records())
	}
	for seq, n := h.b.Lost(); n > 0; seq, n = h.b.Lost() { // segment by segment, as a small window does
		h.b.Resent(h.now, seq, min(n, tinyMSS))
		h.now += clock.Time(time.Microsecond)
	}
	if n := h.p.Records(); n > 3*maxRecords/2 {
		t.Errorf("%d records after all that was lost is sent again", n)
	}
	checkLists(t, &h.b)
	h.ack("", h.b.una+h.b.Outstanding()/2/tinyMSS*tinyMSS)
	checkLists(t, &h.b)
	h.ack("", h.b.next)
	if h.p.Records() != 0 || h.b.Full() {
		t.Errorf("%d records are left", h.p.Records())
	}
}

// TestLongFlightAgainstWalk compares the searches of a long flight with walks over its records, while a peer SACKs,
// acknowledges and undoes at random.
func TestLongFlightAgainstWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 13))
	for range 20 {
		h := newHostile(256<<10, func(_ string, f func()) { f() })
		for range 300 {
			h.now += clock.Time(ms)
			h.step(r)
			if h.b.f == nil {
				continue
			}
			checkWild(t, &h.b, &h.p)
			seq := h.b.una + r.Uint32N(h.b.Outstanding())
			if i := h.b.find(seq); seqnum.Before(seq, h.b.record(i).seq) || !seqnum.Before(seq, h.b.record(i).end) {
				t.Fatalf("find(%d) is [%d, %d)", seq, h.b.record(i).seq, h.b.record(i).end)
			}
		}
		h.b.Release()
		if h.p.Records() != 0 {
			t.Fatal("records are left")
		}
	}
}

// step does one thing at random.
func (h *hostile) step(r *rand.Rand) {
	n := h.b.Outstanding() / tinyMSS
	switch k := r.IntN(12); {
	case n == 0 || k == 0:
		h.fill()
	case k < 7:
		for range 20 {
			x := h.segment(r.Uint32N(n))
			x.Right += r.Uint32N(4) * tinyMSS
			h.ack("", h.b.una, x, h.segment(r.Uint32N(n)))
		}
	case k < 9:
		for range 20 {
			h.resend()
		}
	case k == 9:
		h.ack("", h.b.una+r.Uint32N(n)/4*tinyMSS)
	case k == 10:
		h.now = max(h.now, h.b.Timer())
		h.b.OnTimer(h.now, &h.s)
	default:
		h.ack("", h.b.una+tinyMSS, wire.SACKBlock{Left: h.b.una, Right: h.b.una + n*tinyMSS})
	}
}

// BenchmarkWorstACK reports the longest call of each kind, with a flight of so many bytes; of several runs the best.
func BenchmarkWorstACK(b *testing.B) {
	for _, size := range []int{1 << 20, 4 << 20, 64 << 20} {
		b.Run(fmt.Sprint(size>>20, "MB"), func(b *testing.B) {
			best := map[string]time.Duration{}
			for range b.N {
				longest := map[string]time.Duration{}
				newHostile(size, func(name string, f func()) {
					start := time.Now()
					f()
					longest[name] = max(longest[name], time.Since(start))
				}).run()
				for name, d := range longest {
					if least, ok := best[name]; !ok || d < least {
						best[name] = d
					}
				}
			}
			for name, d := range best {
				b.ReportMetric(float64(d), strings.ReplaceAll(name, " ", "-")+"-ns")
			}
		})
	}
}

// TestGroupsStayFew: where SACK joins most records of each group, groups join too.
func TestGroupsStayFew(t *testing.T) {
	h := newHostile(256<<10, func(_ string, f func()) { f() })
	h.fill()
	h.now += clock.Time(100 * ms)
	h.comb("")
	n := h.b.Outstanding() / tinyMSS
	for i := uint32(0); i+61 < n; i += 61 {
		x := h.segment(i)
		x.Right += 59 * tinyMSS
		h.ack("", h.b.una, x)
	}
	checkLists(t, &h.b)
	if k := len(h.b.f.index.order); k > h.b.f.records/16 {
		t.Errorf("%d groups of %d records", k, h.b.f.records)
	}
}

// TestReorderingTimerOfMany: of many segments that may be late, the timer waits for the last, or a transmission longer.
func TestReorderingTimerOfMany(t *testing.T) {
	x := sack(t)
	x.b.MeasuredRTT(at(0), time.Second)
	x.b.reorder.seen = true
	x.each(0, 100)
	x.ack(1099, 0, 99, 100)
	if d := x.b.Timer(); d < at(98+1250) || d > at(99+1250) {
		t.Errorf("timer in %v", d.Sub(at(0)))
	}
}
