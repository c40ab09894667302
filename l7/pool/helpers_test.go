package pool

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

const second = clock.Time(time.Second)

// backends returns backends a, b, c ... with the given weights, 0 being none.
func backends(weights ...int) (list []BackendOptions) {
	for i, w := range weights {
		name := string(rune('a' + i))
		if len(weights) > 26 {
			name = fmt.Sprint("b", i)
		}
		if w == 0 {
			w = NoWeight
		}
		list = append(list, BackendOptions{Name: name, Address: addr(i), Weight: w})
	}
	return list
}

// same returns n backends of weight 1.
func same(n int) []BackendOptions {
	weights := make([]int, n)
	for i := range weights {
		weights[i] = 1
	}
	return backends(weights...)
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 80)
}

func newPool(t testing.TB, o Options, list []BackendOptions) *Pool {
	t.Helper()
	p, err := New(o, list, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// names returns the names of the next n picks, which end at once.
func names(t *testing.T, p *Pool, now clock.Time, n int) (s string) {
	t.Helper()
	for range n {
		b, why := p.Pick(now, 0, nil)
		if b == nil {
			s += "!" + why.String() + " "
			continue
		}
		s += b.Name() + " "
	}
	return s[:len(s)-1]
}

// counts returns how often each backend was picked in n picks, with keys 0 to n-1.
func tally(p *Pool, now clock.Time, n int) map[string]int {
	m := map[string]int{}
	for i := range n {
		b, why := p.Pick(now, uint64(i), nil)
		if b == nil {
			m[why.String()]++
			continue
		}
		m[b.Name()]++
	}
	return m
}

// fail reports n failed requests of a backend.
func fail(b *Backend, now clock.Time, n int) {
	for range n {
		b.Start(now)
		b.Done(now, Outcome{Status: 500})
	}
}

var all = []Balance{RoundRobin, LeastRequest, Random, ConsistentHash}
