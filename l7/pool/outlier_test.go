package pool

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// history records events.
type history []string

func (h *history) note(e Event) {
	*h = append(*h, fmt.Sprintf("%s %v %v", e.Backend.Name(), e.Change, e.For))
}

func (h *history) take() string {
	s := fmt.Sprint(*h)
	*h = nil
	return s
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

func TestFailuresInARowEject(t *testing.T) {
	var h history
	p := newPool(t, Options{Notify: h.note, Outlier: &Outlier{}}, same(4))
	a := p.ByName("a")
	end := func(now clock.Time, o Outcome) { a.Start(now); a.Done(now, o) }
	fail(a, 0, 4)
	end(0, Outcome{Status: 404}) // an answer: it serves
	fail(a, 0, 4)
	end(0, Outcome{Failure: Canceled}) // says nothing
	expect(t, "four in a row", h.take(), "[]")
	end(0, Outcome{Failure: Reset})
	expect(t, "five in a row", h.take(), "[a ejected 30s]")
	if s := p.Status(0).Backends[0]; !errors.Is(s.Cause, ErrEjected) || s.Ejected != 30*time.Second || s.Ejections != 1 {
		t.Errorf("status %+v", s)
	}
	expect(t, "others", names(t, p, 29*second, 6), "b c d b c d")
	fail(a, 29*second, 9) // began before: they do not count
	expect(t, "returned", names(t, p, 30*second, 4), "a b c d")
	fail(a, 30*second, 4)
	end(30*second, Outcome{Status: 200})
	expect(t, "at its time", h.take(), "[a returned 0s]")
	if s := p.Status(30 * second).Backends[0]; s.Cause != nil || s.Ejected != 0 || s.Since != 30*second {
		t.Errorf("status %+v", s)
	}

	fail(a, 40*second, 5) // on probation
	expect(t, "again", h.take(), "[a ejected 1m0s]")
	fail(a, 110*second, 5)
	expect(t, "and again", h.take(), "[a returned 0s a ejected 2m0s]")
	fail(a, 231*second, 5)
	fail(a, 472*second, 5)
	expect(t, "up to the most", h.take(), "[a returned 0s a ejected 4m0s a returned 0s a ejected 5m0s]")
	fail(a, (772+300)*second, 5)
	expect(t, "after the probation", h.take(), "[a returned 0s a ejected 30s]")
}

func TestGatewayErrorsAreCountedApart(t *testing.T) {
	for _, x := range []struct {
		o     Outcome
		count bool
	}{
		{Outcome{Status: 500}, false},
		{Outcome{Status: 501}, false},
		{Outcome{Status: 505}, false},
		{Outcome{Status: 499}, false},
		{Outcome{Status: 502}, true},
		{Outcome{Status: 503}, true},
		{Outcome{Status: 504}, true},
		{Outcome{Failure: Refused}, true},
		{Outcome{Failure: ConnectTimeout}, true},
		{Outcome{Failure: Handshake}, true},
		{Outcome{Failure: Reset}, true},
		{Outcome{Failure: Timeout}, true},
		{Outcome{Failure: Malformed}, true},
		{Outcome{Failure: Canceled}, false},
		{Outcome{}, false},
	} {
		var h history
		p := newPool(t, Options{Notify: h.note, Outlier: &Outlier{Errors: -1, GatewayErrors: 3}}, same(2))
		for range 3 {
			p.ByName("a").Start(0)
			p.ByName("a").Done(0, x.o)
		}
		if got := len(h) > 0; got != x.count {
			t.Errorf("%+v: %v", x.o, h)
		}
	}
}

// Not more than the share are out at once, one is out of few, and the last never.
func TestEjectionsAreLimited(t *testing.T) {
	for _, x := range []struct{ backends, percent, want int }{{1, 100, 0}, {2, 50, 1}, {2, 100, 1}, {3, 10, 1}, {10, 30, 3}, {10, 100, 9}, {4, 0, 2}, {4, -1, 0}} {
		p := newPool(t, Options{Outlier: &Outlier{MaxEjected: x.percent}}, same(x.backends))
		for range 3 {
			for _, b := range p.Backends() {
				fail(b, 0, 5)
			}
		}
		out := 0
		for _, s := range p.Status(0).Backends {
			if s.Ejected > 0 {
				out++
			}
		}
		if out != x.want {
			t.Errorf("%d backends, %d %%: %d are out, want %d", x.backends, x.percent, out, x.want)
		}
	}
}

// An ejected backend is asked when no other one can be: better than none.
func TestEjectedBackendsServeWhereNoOtherCan(t *testing.T) {
	for _, balance := range all {
		p := newPool(t, Options{Balance: balance, Outlier: &Outlier{}}, same(3))
		fail(p.ByName("a"), 0, 5)
		p.ByName("b").SetHealthy(0, false, nil)
		expect(t, balance.String(), names(t, p, 0, 2), "c c")
		p.ByName("c").SetHealthy(0, false, nil)
		expect(t, balance.String(), names(t, p, 0, 2), "a a")
		p.ByName("c").SetHealthy(0, true, nil)
		var tried Tried
		tried.Add(p.ByName("c"))
		if b, _ := p.Pick(0, 0, &tried); b.Name() != "c" {
			t.Errorf("%v: %s rather than the one that was tried", balance, b.Name())
		}
	}
}

func TestSuccessRatesAreCompared(t *testing.T) {
	var h history
	p := newPool(t, Options{Notify: h.note, Outlier: &Outlier{Errors: -1, SuccessRate: &SuccessRate{}}}, same(10))
	// round lets each backend serve n requests in ten seconds, of which failed[name] fail.
	round := func(start clock.Time, n int, failed map[string]int) {
		p.Pick(start, 0, nil) // ends the interval before
		for _, b := range p.Backends() {
			for i := range n {
				o := Outcome{Status: 200}
				if i < failed[b.Name()] {
					o = Outcome{Status: 200 + 300*(i%2), Failure: Failure(i % 2 * int(Reset))}
					if i%2 == 0 {
						o = Outcome{Status: 503}
					}
				}
				b.Start(start)
				b.Done(start, o)
			}
		}
		p.Pick(start+10*second, 0, nil)
	}
	round(0, 200, nil)
	expect(t, "all well", h.take(), "[]")
	// Rates: nine of 1, one of 0.9: mean 0.99, deviation 0.03, limit 0.933.
	round(10*second, 200, map[string]int{"c": 20})
	expect(t, "one in ten fails", h.take(), "[c ejected 30s]")
	round(60*second, 99, map[string]int{"c": 99})
	expect(t, "with few requests", h.take(), "[c returned 0s]")
	for _, o := range []Outcome{{Status: 503}, {Failure: Timeout}, {Status: 404}, {Failure: Canceled}} {
		p := newPool(t, Options{Outlier: &Outlier{Errors: -1, SuccessRate: &SuccessRate{}}}, same(10))
		p.Pick(0, 0, nil)
		for i, b := range p.Backends() {
			for range 200 {
				x := Outcome{Status: 200}
				if i == 4 {
					x = o
				}
				b.Start(0)
				b.Done(0, x)
			}
		}
		p.Pick(10*second, 0, nil)
		failed, _ := o.failed()
		if out := p.Status(10 * second).Backends[4].Ejected > 0; out != (failed && o.Failure != Canceled) {
			t.Errorf("%+v: ejected %v", o, out)
		}
	}
	// Rates: five of 1, five of 0.5: deviation 0.25, limit 0.275.
	round(80*second, 200, map[string]int{"a": 100, "b": 100, "c": 100, "d": 100, "e": 100})
	expect(t, "half of them", h.take(), "[]")
}

// A backend that returns in the middle of an interval is judged by what it does from then on.
func TestSuccessRatesBeginAnewWithAReturn(t *testing.T) {
	var h history
	p := newPool(t, Options{Notify: h.note, Outlier: &Outlier{Errors: -1, Down: 15 * time.Second, SuccessRate: &SuccessRate{}}}, same(10))
	c := p.ByName("c")
	serve := func(now clock.Time, n, failed int) {
		for _, b := range p.Backends() {
			for range n {
				b.Start(now)
				b.Done(now, Outcome{Status: 200})
			}
		}
		fail(c, now, failed)
		p.Pick(now, 0, nil)
	}
	serve(0, 0, 0)
	serve(9*second, 200, 200)
	serve(10*second, 0, 0)
	expect(t, "half of them", h.take(), "[c ejected 15s]")
	serve(20*second, 0, 0)
	serve(21*second, 0, 300)
	serve(25*second, 0, 0)
	serve(26*second, 300, 0)
	serve(30*second, 0, 0)
	expect(t, "after its return", h.take(), "[c returned 0s]")
}

func TestWithFewBackendsSuccessRatesSayNothing(t *testing.T) {
	var h history
	p := newPool(t, Options{Notify: h.note, Outlier: &Outlier{Errors: -1, SuccessRate: &SuccessRate{Factor: 0.5}}}, same(4))
	p.Pick(0, 0, nil)
	for range 200 {
		for i, b := range p.Backends() {
			b.Start(0)
			b.Done(0, Outcome{Status: 200 + 300*(i/3)})
		}
	}
	p.Pick(10*second, 0, nil)
	expect(t, "four", h.take(), "[]")
}

func TestProbesAreReported(t *testing.T) {
	var h history
	p := newPool(t, Options{Notify: h.note}, same(2))
	a, refused := p.ByName("a"), errors.New("refused")
	a.SetHealthy(second, true, nil)
	a.SetHealthy(2*second, false, refused)
	a.SetHealthy(3*second, false, errors.New("timeout"))
	if s := p.Status(3 * second).Backends[0]; s.Healthy || s.Since != 2*second || s.Cause.Error() != "timeout" {
		t.Errorf("status %+v", s)
	}
	a.SetHealthy(4*second, true, nil)
	expect(t, "events", h.take(), "[a unhealthy 0s a healthy 0s]")
}
