package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/wire"
)

// lossPattern says which segments of a flight are lost.
type lossPattern struct {
	name string
	lost func(k int) bool
}

var lossPatterns = []lossPattern{
	{"all", func(k int) bool { return k < 60 }},
	{"the first", func(k int) bool { return k == 0 }},
	{"the first half", func(k int) bool { return k < 30 }},
	{"the second half", func(k int) bool { return k >= 30 && k < 60 }},
	{"every other", func(k int) bool { return k < 60 && k%2 == 0 }},
}

// TestLongFlightAfterTimeouts has segments of a long flight lost, and all retransmissions until so many timeouts have
// passed. Then slow start repairs the rest (RFC 5681 3.1): no other timeout follows, and little is sent again that has arrived,
// with SACK and without (RFC 6582 3.2, RFC 5682 2.1).
func TestLongFlightAfterTimeouts(t *testing.T) {
	for _, name := range cc.Names() {
		for _, o := range []Options{{}, {NoSACK: true}, {NoSACK: true, NoTimestamps: true}} {
			o.Congestion = name
			if name != "reno" && (o.NoTimestamps || !o.NoSACK) {
				continue // what they have in common
			}
			for _, p := range lossPatterns {
				for timeouts := range uint64(3) {
					what := fmt.Sprintf("%s, NoSACK %v, NoTimestamps %v, %s lost, %d timeouts", name, o.NoSACK, o.NoTimestamps, p.name, timeouts)
					repairAfterTimeouts(t, what, &o, p.lost, timeouts+1)
				}
			}
		}
	}
}

func repairAfterTimeouts(t *testing.T, what string, o *Options, lose func(int) bool, timeouts uint64) {
	n := newNet(t)
	n.delay = 25 * time.Millisecond
	a, b, _, _ := n.open(t, o, nil)
	n.pour(t, a, b, 250_000, time.Minute)
	first, high, lost := a.nxt, a.nxt, uint64(0)
	before := n.a.m.Stats()
	passed := func() uint64 { return n.a.m.Stats().Timeouts - before.Timeouts }
	n.a.lose = func(_ int, s wire.TCP) bool {
		size := uint32(len(s.Payload()))
		if size == 0 {
			return false
		}
		drop := passed() < timeouts
		if int32(s.Seq()-high) >= 0 { // new
			high = s.Seq() + size
			drop = lose(int(s.Seq()-first) / a.mss())
		}
		if drop {
			lost++
		}
		return drop
	}
	start := n.now
	n.pour(t, a, b, 300_000, time.Minute)
	took, resent := n.now.Sub(start), n.a.m.Stats().Retransmits-before.Retransmits
	const flight = 110 // segments at the first timeout, all of which may be sent once more
	// The timeouts themselves, ten round trips of slow start, and twelve more for the rest.
	most := 300*time.Millisecond<<timeouts + 22*2*n.delay
	if k := passed(); k != timeouts || resent > lost+flight || took > most {
		t.Errorf("%s: %d lost, %d sent again, %d timeouts, %v; want at most %d, %d and %v", what, lost, resent, k, took, lost+flight, timeouts, most)
	}
}

// TestFullFlightTakesNoNewData: a flight with as many records as it may have waits for ACKs, and goes on after them.
func TestFullFlightTakesNoNewData(t *testing.T) {
	n := newNet(t)
	a, b, _, _ := n.open(t, &Options{NoDelay: true}, nil)
	a.sender.cc.OnAck(cc.Sample{Acked: 1 << 20, Delivered: 1 << 20, WindowLimited: true}) // as after a long slow start
	n.a.lose = func(int, wire.TCP) bool { return true }
	for i := 0; !a.sender.scoreboard.Full() && i < 20_000; i++ {
		a.Write(n.now, []byte{1}) // each at another time: a record each
		n.now++
		n.a.m.Poll(n.now)
	}
	if !a.sender.scoreboard.Full() {
		t.Fatalf("%s", brief(a))
	}
	sent := a.nxt
	a.Write(n.now, make([]byte, 100))
	n.now++
	n.a.m.Poll(n.now)
	if a.nxt != sent {
		t.Errorf("%d bytes more were sent", a.nxt-sent)
	}
	n.a.lose = nil
	for range 600 {
		n.run(100 * time.Millisecond)
		b.Discard(n.now, b.Readable())
	}
	if left := a.Unacked(); left > 0 {
		t.Errorf("%d bytes are not acknowledged; %s", left, brief(a))
	}
}
