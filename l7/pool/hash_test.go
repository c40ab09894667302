package pool

import (
	"testing"

	"github.com/millrace/millrace/clock"
)

// owners returns the backend of each of n keys.
func owners(t *testing.T, p *Pool, now clock.Time, n int) (list []string) {
	t.Helper()
	for key := range n {
		b, why := p.Pick(now, uint64(key), nil)
		if b == nil {
			t.Fatal(why)
		}
		list = append(list, b.Name())
	}
	return list
}

// moved counts keys with another backend, apart from those that had gone.
func moved(before, after []string, gone string) (of, others int) {
	for i := range before {
		if before[i] == gone {
			of++
		} else if before[i] != after[i] {
			others++
		}
	}
	return of, others
}

// When a backend falls, its keys spread evenly over the others, and nothing else moves; when it rises all return.
func TestOnlyTheKeysOfAnUnhealthyBackendMove(t *testing.T) {
	const n = 100_000
	for _, backends := range []int{2, 5, 10, 100} {
		p := newPool(t, Options{Balance: ConsistentHash}, same(backends))
		b := p.Backends()[backends/2]
		before := owners(t, p, 0, n)
		b.SetHealthy(0, false, nil)
		after := owners(t, p, 0, n)
		of, others := moved(before, after, b.Name())
		if others > 0 {
			t.Errorf("%d backends: %d keys moved that need not", backends, others)
		}
		if !near(of, n, 1/float64(backends)) && backends < 100 {
			t.Errorf("%d backends: %d of %d keys were the backend's", backends, of, n)
		}
		to := map[string]int{}
		for i := range before {
			if before[i] == b.Name() {
				to[after[i]]++
			}
		}
		for name, got := range to {
			if !near(got, of, 1/float64(backends-1)) {
				t.Errorf("%d backends: %d of the %d keys went to %s", backends, got, of, name)
			}
		}
		b.SetHealthy(0, true, nil)
		b.SetState(0, Draining)
		if of, others := moved(after, owners(t, p, 0, n), ""); of+others > 0 {
			t.Errorf("%d backends: %d keys have another backend when it drains than when it is unhealthy", backends, others)
		}
		b.SetState(0, Active)
		if of, others := moved(before, owners(t, p, 0, n), ""); of+others > 0 {
			t.Errorf("%d backends: %d keys did not return", backends, others)
		}
	}
}

// When a backend leaves the configuration the table changes: beyond its keys at most 2 % move.
func TestFewKeysMoveWhenABackendLeaves(t *testing.T) {
	const n = 100_000
	for _, backends := range []int{3, 10, 50} {
		p := newPool(t, Options{Balance: ConsistentHash}, same(backends))
		before := owners(t, p, 0, n)
		gone := p.Backends()[1].Name()
		list := same(backends)
		if err := p.Update(0, Options{Balance: ConsistentHash}, append(list[:1], list[2:]...)); err != nil {
			t.Fatal(err)
		}
		of, others := moved(before, owners(t, p, 0, n), gone)
		t.Logf("%d backends: %.2f %% of the keys were those of the one that left, %.2f %% moved beside them", backends, 100*float64(of)/n, 100*float64(others)/n)
		if others > n/50 {
			t.Errorf("%d backends: %d of %d keys moved that need not", backends, others, n)
		}
	}
}

// Pools with the same backends have the same owners whatever their seed: gateways agree.
func TestGatewaysAgreeOnKeys(t *testing.T) {
	a, _ := New(Options{Balance: ConsistentHash}, same(7), 1)
	b, _ := New(Options{Balance: ConsistentHash}, same(7), 2)
	if of, others := moved(owners(t, a, 0, 1000), owners(t, b, 0, 1000), ""); of+others > 0 {
		t.Errorf("%d keys of 1000 differ", others)
	}
}

// Where draws do not find one of the few that are left, search does, for each key the same.
func TestKeysStayWithFewBackendsLeft(t *testing.T) {
	p := newPool(t, Options{Balance: ConsistentHash}, same(100))
	for _, b := range p.Backends()[3:] {
		b.SetHealthy(0, false, nil)
	}
	const n = 3000
	before := owners(t, p, 0, n)
	if of, others := moved(before, owners(t, p, 0, n), ""); of+others > 0 {
		t.Errorf("%d keys have another backend each time", others)
	}
	got := map[string]int{}
	for _, name := range before {
		got[name]++
	}
	for name, c := range got {
		if !near(c, n, 1.0/3) {
			t.Errorf("%s has %d of %d", name, c, n)
		}
	}
	p.Backends()[0].SetHealthy(0, false, nil)
	if _, others := moved(before, owners(t, p, 0, n), p.Backends()[0].Name()); others > 0 {
		t.Errorf("%d keys moved that need not", others)
	}
}

// A table takes a millisecond: states alone do not change it.
func TestTheTableStaysWhereWeightsDo(t *testing.T) {
	p := newPool(t, Options{Balance: ConsistentHash}, same(5))
	table := func() *uint16 { return &p.snap.Load().slots[0] }
	before := table()
	p.ByName("a").SetHealthy(0, false, nil)
	p.ByName("b").SetState(0, Draining)
	if err := p.Update(0, Options{Balance: ConsistentHash, SlowStart: 1}, same(5)); err != nil {
		t.Fatal(err)
	}
	if table() != before {
		t.Error("it was filled again")
	}
	if p.ByName("a").SetWeight(0, 2); table() == before {
		t.Error("a weight does not change it")
	}
	before = table()
	list := same(5)
	list[4].Name = "z"
	if err := p.Update(0, Options{Balance: ConsistentHash}, list); err != nil || table() == before {
		t.Errorf("a name does not change it: %v", err)
	}
}
