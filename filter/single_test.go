package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// Find and Within say of each packet what Apply says of it in a batch.
func TestSinglePacketsAreDecidedAsBatches(t *testing.T) {
	l := must(t, `list bad 192.0.2.0/28 192.0.2.64/26
list far 198.18.0.0/30
deny udp from list bad to list far port 1-40
mark 7 from list bad to list far
rate 3pps burst 2 per source udp from 192.0.2.128/25
rate 30kbps burst 500 udp to 198.18.0.4/30
redirect eth9 to any port 80
deny to any port 60-90`)
	f, one := NewFilter(0, l), NewFilter(0, l)
	r := rand.New(rand.NewPCG(1, 2))
	type decision struct {
		rule    int
		limited bool
	}
	seen := map[decision]int{}
	for i := range 4000 {
		from, to, port := fmt.Sprintf("192.0.2.%d", r.IntN(256)), fmt.Sprintf("198.18.0.%d", r.IntN(8)), uint16(r.IntN(100))
		b := batchOf(udp(from, to, 9, port))
		b.Base = int64(time.Hour) + int64(i)*int64(time.Millisecond)
		b.D[0].Stamp = uint32(b.Base)
		through(t, f, b)
		got := decision{rule: l.Find(tupleOf(b, 0), true)}
		if got.rule != 0 && l.Rules()[got.rule-1].Rate.PerSecond != 0 {
			got.limited = !one.Within(got.rule, tupleOf(b, 0), true, int(b.D[0].Len), clock.Time(b.Base))
		}
		want := decision{int(b.D[0].Rule), b.D[0].Verdict == packet.DropRateLimit}
		if got != want {
			t.Fatalf("packet %d from %s to %s port %d: %+v, want %+v", i, from, to, port, got, want)
		}
		seen[got]++
	}
	if len(seen) < 8 {
		t.Errorf("only %v was decided", seen)
	}
	if n := testing.AllocsPerRun(100, func() { l.Find(tuple.Tuple{}, true) }); n != 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

func TestNextKeepsBucketsOfLinesThatStay(t *testing.T) {
	pass := func(f *Filter, n int) (passed int) {
		for range n {
			if f.Within(len(f.List.Rules()), tuple.Tuple{SrcHi: 7}, true, 60, clock.Time(time.Hour)) {
				passed++
			}
		}
		return passed
	}
	for _, per := range []string{"", " per source"} {
		f := NewFilter(0, must(t, "deny tcp\nrate 1pps burst 5"+per))
		if n := pass(f, 3); n != 3 {
			t.Fatalf("%d pass", n)
		}
		next := f.Next(must(t, "rate 1pps burst 5"+per))
		if n := pass(next, 9); n != 2 {
			t.Errorf("%q: %d pass the next list, want the 2 that were left", per, n)
		}
		if n := pass(f, 9); n != 2 {
			t.Errorf("%q: %d pass the list before, whose buckets are its own", per, n)
		}
		if n := pass(next.Next(must(t, "rate 1pps burst 4"+per)), 9); n != 4 {
			t.Errorf("%q: %d pass another rate", per, n)
		}
	}
}
