package pool

import (
	"errors"
	"testing"
	"time"
)

func TestRefusalsSayWhy(t *testing.T) {
	for _, balance := range all {
		t.Run(balance.String(), func(t *testing.T) {
			o := Options{Balance: balance}
			for _, none := range [][]BackendOptions{nil, backends(0, 0)} {
				if got := names(t, newPool(t, o, none), 0, 1); got != "!no_backend" {
					t.Errorf("of %d backends without weight: %s", len(none), got)
				}
			}
			p := newPool(t, o, same(2))
			a, b := p.ByName("a"), p.ByName("b")
			a.SetHealthy(0, false, nil)
			if got := names(t, p, 0, 4); got != "b b b b" {
				t.Errorf("with a unhealthy: %s", got)
			}
			b.SetHealthy(0, false, nil)
			if got := names(t, p, 0, 1); got != "!unhealthy" {
				t.Errorf("with both unhealthy: %s", got)
			}
			a.SetHealthy(0, true, nil)
			a.SetState(0, Draining)
			if got := names(t, p, 0, 1); got != "!unhealthy" {
				t.Errorf("with one draining and one unhealthy: %s", got)
			}
			a.SetHealthy(0, false, nil)
			a.ResetState(0)
			b.SetHealthy(0, true, nil)
			b.SetState(0, Draining)
			if got := names(t, p, 0, 1); got != "!unhealthy" {
				t.Errorf("with one unhealthy and one draining: %s", got)
			}
			a.SetHealthy(0, true, nil)
			a.SetState(0, Draining)
			b.SetState(0, Inactive)
			if got := names(t, p, 0, 1); got != "!no_backend" {
				t.Errorf("with one draining and one inactive: %s", got)
			}
			a.ResetState(0)
			if got := names(t, p, 0, 2); got != "a a" {
				t.Errorf("with a active again: %s", got)
			}
		})
	}
}

func TestLimitsOfRequests(t *testing.T) {
	for _, balance := range all {
		t.Run(balance.String(), func(t *testing.T) {
			p := newPool(t, Options{Balance: balance, Limits: Limits{Requests: 5}, PerBackend: Limits{Requests: 2}}, same(3))
			fill := func(n int) (open []*Backend) {
				for range n {
					b, why := p.Pick(0, 7, nil)
					if b == nil {
						t.Fatalf("after %d: %v", len(open), why)
					}
					b.Start(0)
					open = append(open, b)
				}
				return open
			}
			open := fill(5)
			if got := names(t, p, 0, 1); got != "!pool_full" {
				t.Errorf("with five requests: %s", got)
			}
			for _, b := range p.Backends() {
				if b.Requests() > 2 {
					t.Errorf("%s has %d", b.Name(), b.Requests())
				}
			}
			open[0].Done(0, Outcome{Status: 200})
			fill(1)
			if err := p.Update(0, Options{Balance: balance, PerBackend: Limits{Requests: 1}}, same(3)); err != nil {
				t.Fatal(err)
			}
			if got := names(t, p, 0, 1); got != "!backends_full" {
				t.Errorf("with all full: %s", got)
			}
		})
	}
}

func TestLimitsOfConnectionsAndPending(t *testing.T) {
	p := newPool(t, Options{Limits: Limits{Connections: 3, Pending: 3}, PerBackend: Limits{Connections: 2, Pending: 2}}, same(2))
	a, b := p.ByName("a"), p.ByName("b")
	for _, x := range []struct {
		name string
		add  func(*Backend) bool
		end  func(*Backend)
	}{{"connections", (*Backend).ConnOpened, (*Backend).ConnClosed}, {"pending", (*Backend).PendingAdded, (*Backend).PendingRemoved}} {
		if one, two, three := x.add(a), x.add(a), x.add(a); !one || !two || three {
			t.Errorf("%s: a does not take two", x.name)
		}
		if !x.add(b) || x.add(b) {
			t.Errorf("%s: the pool does not take three", x.name)
		}
		x.end(a)
		if !x.add(b) || x.add(a) {
			t.Errorf("%s: what ended is not free", x.name)
		}
		if a.Idle() {
			t.Errorf("%s: idle", x.name)
		}
		x.end(a)
		x.end(b)
		x.end(b)
		if !a.Idle() || !b.Idle() {
			t.Errorf("%s: not idle", x.name)
		}
	}
}

func TestTriedBackendsComeLast(t *testing.T) {
	for _, balance := range all {
		t.Run(balance.String(), func(t *testing.T) {
			p := newPool(t, Options{Balance: balance}, same(3))
			for key := range uint64(100) {
				var tried Tried
				for range 3 {
					b, _ := p.Pick(0, key, &tried)
					if tried.Has(b) {
						t.Fatalf("%s twice", b.Name())
					}
					tried.Add(b)
				}
				if b, why := p.Pick(0, key, &tried); b == nil {
					t.Fatalf("nothing after all: %v", why)
				}
			}
		})
	}
}

func TestTheOldestTriedBackendIsForgotten(t *testing.T) {
	p := newPool(t, Options{}, same(9))
	var tried Tried
	for _, b := range p.Backends() {
		tried.Add(b)
	}
	for i, b := range p.Backends() {
		if tried.Has(b) != (i > 0) {
			t.Errorf("backend %d: %v", i, tried.Has(b))
		}
	}
	if tried.Len() != 9 {
		t.Errorf("tried %d", tried.Len())
	}
}

func TestAnUpdateKeepsWhatStays(t *testing.T) {
	p := newPool(t, Options{}, same(3))
	a, b, c := p.ByName("a"), p.ByName("b"), p.ByName("c")
	b.Start(0)
	b.SetHealthy(0, false, errors.New("refused"))
	a.SetWeight(0, 5)
	c.SetState(0, Draining)
	list := same(4)[:3]
	list[2].Address = addr(9) // c moves
	if err := p.Update(second, Options{}, list); err != nil {
		t.Fatal(err)
	}
	if p.ByName("a") != a || p.ByName("b") != b || p.ByName("c") == c {
		t.Error("not those that stayed are the same")
	}
	if b.Requests() != 1 || b.Healthy() || !c.Gone() || a.Gone() {
		t.Error("the state of what stayed is lost")
	}
	s := p.Status(second)
	if x := s.Backends[0]; x.Weight != 5 || !x.Operator {
		t.Errorf("the operator's weight is %d", x.Weight)
	}
	if x := s.Backends[2]; x.State != Active {
		t.Errorf("the new c is %v", x.State)
	}
	list[0].Weight = 2 // the configuration changes what the operator has set
	if err := p.Update(second, Options{}, list); err != nil {
		t.Fatal(err)
	}
	if x := p.Status(second).Backends[0]; x.Weight != 2 || x.Operator {
		t.Errorf("the weight is %d, not that of the configuration", x.Weight)
	}
	b.SetState(second, Inactive)
	list[1].State = Draining
	if err := p.Update(second, Options{}, list); err != nil {
		t.Fatal(err)
	}
	if x := p.Status(second).Backends[1]; x.State != Draining || x.Operator {
		t.Errorf("the state is %v, not that of the configuration", x.State)
	}
	b.Done(second, Outcome{Status: 200})
	c.SetState(second, Active) // gone: nothing happens
	if got := names(t, p, second, 6); got != "a c a a c a" && got != "a a c a a c" {
		t.Errorf("picked %s", got)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, x := range []struct {
		o    Options
		list []BackendOptions
		want error
	}{
		{Options{Balance: 9}, nil, ErrOptions},
		{Options{PanicThreshold: 101}, nil, ErrOptions},
		{Options{HashSize: 1}, nil, ErrOptions},
		{Options{HashSize: 65536}, nil, ErrOptions},
		{Options{HashSize: -7}, nil, ErrOptions},
		{Options{HashSize: 16_777_259}, nil, ErrOptions}, // a prime
		{Options{}, backends(1, 1_000_001), ErrOptions},
		{Options{}, append(same(1), same(1)...), ErrBackends},
		{Options{}, make([]BackendOptions, 65536), ErrBackends},
	} {
		if _, err := New(x.o, x.list, 1); !errors.Is(err, x.want) {
			t.Errorf("%+v: %v, want %v", x.o, err, x.want)
		}
	}
	p := newPool(t, Options{}, same(2))
	if err := p.Update(0, Options{Balance: 9}, nil); err == nil || len(p.Backends()) != 2 {
		t.Errorf("after %v: %d backends", err, len(p.Backends()))
	}
}

func TestWhenTooFewAreLeftHealthIsIgnored(t *testing.T) {
	for _, balance := range all {
		p := newPool(t, Options{Balance: balance, PanicThreshold: 50}, same(4))
		p.ByName("a").SetHealthy(0, false, nil)
		p.ByName("b").SetHealthy(0, false, nil)
		if got := tally(p, 0, 400); len(got) != 2 {
			t.Errorf("%v, half healthy: %v", balance, got)
		}
		p.ByName("c").SetHealthy(0, false, nil)
		if got := tally(p, 0, 400); len(got) != 4 || !p.Status(0).Panic {
			t.Errorf("%v, a quarter healthy: %v", balance, got)
		}
		p.ByName("d").SetState(0, Draining) // what an operator wants is not ignored
		if got := tally(p, 0, 400); len(got) != 3 || got["d"] > 0 {
			t.Errorf("%v, none healthy: %v", balance, got)
		}
		p.ByName("a").SetHealthy(0, true, nil)
		p.ByName("b").SetHealthy(0, true, nil)
		if got := tally(p, 0, 400); len(got) != 2 {
			t.Errorf("%v, healthy again: %v", balance, got)
		}
	}
}

// With ejections too few are left, and those that probes found unhealthy are asked as well.
func TestEjectionsCountForThePanic(t *testing.T) {
	for _, balance := range all {
		p := newPool(t, Options{Balance: balance, PanicThreshold: 50, Outlier: &Outlier{MaxEjected: 100}}, same(4))
		p.ByName("a").SetHealthy(0, false, nil)
		fail(p.ByName("b"), 0, 5)
		if got := tally(p, 0, 400); len(got) != 2 {
			t.Errorf("%v, half are left: %v", balance, got)
		}
		fail(p.ByName("c"), 0, 5)
		if got := tally(p, 0, 400); len(got) != 4 {
			t.Errorf("%v, a quarter is left: %v", balance, got)
		}
		if got := tally(p, 30*second, 400); len(got) != 3 || got["a"] > 0 {
			t.Errorf("%v, the ejections are over: %v", balance, got)
		}
	}
}

// What an update changes holds for the next pick.
func TestAnUpdateCountsAnew(t *testing.T) {
	o := Options{PanicThreshold: 50}
	p := newPool(t, o, same(2))
	p.ByName("a").SetHealthy(0, false, nil)
	if got := tally(p, 0, 100); len(got) != 1 {
		t.Errorf("half are healthy: %v", got)
	}
	o.PanicThreshold = 51
	if err := p.Update(0, o, same(2)); err != nil {
		t.Fatal(err)
	}
	if got := tally(p, 0, 100); len(got) != 2 {
		t.Errorf("too few are healthy: %v", got)
	}
	if err := p.Update(0, o, same(4)); err != nil {
		t.Fatal(err)
	}
	if got := tally(p, 0, 100); len(got) != 3 {
		t.Errorf("three of four are healthy: %v", got)
	}
}

func TestLatencyIsSmoothed(t *testing.T) {
	p := newPool(t, Options{}, same(1))
	b := p.ByName("a")
	for _, l := range []time.Duration{80 * time.Millisecond, 160 * time.Millisecond, 0} {
		b.Start(0)
		b.Done(0, Outcome{Status: 200, Latency: l})
	}
	if got := p.Status(0).Backends[0].Latency; got != 90*time.Millisecond {
		t.Errorf("%v", got)
	}
}
