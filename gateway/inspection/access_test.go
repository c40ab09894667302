package inspection

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// accessOf compiles access rules.
func accessOf(t *testing.T, rules string) *access {
	t.Helper()
	list, err := filter.Parse("r", rules)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAccess(list.Rules())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Loops share the buckets of a rate, whatever the differences of their clocks.
func TestRateIsThatOfAllLoops(t *testing.T) {
	for _, rule := range []string{"rate 1kpps burst 10", "rate 1kpps burst 10 per source"} {
		a := accessOf(t, rule)
		var loops sync.WaitGroup
		var passed [4]int
		for loop := range passed {
			loops.Go(func() {
				for i := range 10_000 { // a second
					at := clock.Time(time.Hour) + clock.Time(i)*clock.Time(100*time.Microsecond) - clock.Time(loop)*clock.Time(300*time.Microsecond)
					if a.verdict(1, tuple.Tuple{SrcHi: 7, Known: tuple.Addresses}, true, 60, at) == packet.Undecided {
						passed[loop]++
					}
				}
			})
		}
		loops.Wait()
		n := 0
		for _, p := range passed {
			n += p
		}
		if n < 10+990 || n > 10+1001 {
			t.Errorf("%s: %v pass in a second", rule, passed)
		}
	}
}

// No token is given out twice, however many loops ask at once.
func TestTokensAreGivenOutOnce(t *testing.T) {
	a := accessOf(t, "rate 1pps burst 20000 per source")
	var loops sync.WaitGroup
	var passed atomic.Int64
	for range 4 {
		loops.Go(func() {
			for range 10_000 {
				if a.verdict(1, tuple.Tuple{SrcHi: 7, Known: tuple.Addresses}, true, 60, clock.Time(time.Hour)) == packet.Undecided {
					passed.Add(1)
				}
			}
		})
	}
	loops.Wait()
	if n := passed.Load(); n != 20_000 {
		t.Errorf("%d of a burst of 20000 pass", n)
	}
}
