package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answersOf is a look-up whose results a test sets.
type answersOf struct {
	mu     sync.Mutex
	answer Answer
	err    error
	at     []string // when it was asked, and for what
	began  int64    // seconds since 1970
}

func (a *answersOf) set(ttl time.Duration, err error, addrs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer, a.err = Answer{TTL: ttl}, err
	for _, s := range addrs {
		a.answer.Targets = append(a.answer.Targets, Target{netip.MustParseAddrPort(s), 1})
	}
}

func (a *answersOf) lookup(_ context.Context, n Name) (Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, (time.Duration(time.Now().Unix()-a.began) * time.Second).String())
	return a.answer, a.err
}

// asked returns when there were look-ups since the last call.
func (a *answersOf) asked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := strings.Join(a.at, " ")
	a.at = nil
	return s
}

// changes collects what a watcher reports.
type changes struct {
	mu   sync.Mutex
	list []string
}

func (c *changes) add(x Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, fmt.Sprintf("%s->%s %d->%d", x.Was, x.State, len(x.Old), len(x.New)))
}

func (c *changes) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := strings.Join(c.list, ", ")
	c.list = nil
	return s
}

func options() Options { return Options{MinTTL: 2 * time.Second, MaxTTL: time.Minute} }

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestNamesAreLookedUpByTheirTimeToLive follows a name through all of its states, in virtual time.
func TestNamesAreLookedUpByTheirTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c, n := &answersOf{began: time.Now().Unix()}, &changes{}, host("a.example")
		w := NewWatcher(c.add, a.lookup)
		defer w.Close()
		failure := errors.New("no")
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		a.set(0, failure)
		w.Set(options(), []Name{n})
		w.Wait(t.Context(), []Name{n})
		synctest.Wait()
		expect(t, "a name that never resolves", c.take(), "pending->unresolved 0->0")
		pass(20 * time.Second) // 1s counts as 2s, then 2, 4, 8
		expect(t, "its look-ups", a.asked(), "0s 2s 4s 8s 16s")
		expect(t, "and changes", c.take(), "")
		if s := w.Status(n); s.State != Unresolved || s.Err != failure || s.Lookups != 5 || s.Failed != 5 {
			t.Errorf("%+v", s)
		}

		a.set(10*time.Second, nil, "192.0.2.1:80", "192.0.2.2:80") // from 32s on
		pass(30 * time.Second)
		expect(t, "the look-ups of one that does", a.asked(), "32s 42s")
		expect(t, "and changes", c.take(), "unresolved->resolved 0->2")

		a.set(10*time.Second, nil, "192.0.2.2:80", "192.0.2.3:80")
		pass(5 * time.Second) // at 52s
		expect(t, "other addresses", c.take(), "resolved->resolved 2->2")

		a.set(0, failure)
		pass(20 * time.Second) // at 62s, then 64, 66, 70
		expect(t, "answers that fail", c.take(), "resolved->stale 2->2")
		expect(t, "and when they are asked for again", a.asked(), "52s 1m2s 1m4s 1m6s 1m10s")
		if got := w.Targets(n); len(got) != 2 || got[1].At.Addr().String() != "192.0.2.3" {
			t.Errorf("targets %v", got)
		}

		a.set(time.Nanosecond, nil, "192.0.2.3:80") // as 2s
		pass(10 * time.Second)                      // at 78s
		expect(t, "answers again", c.take(), "stale->resolved 2->1")
		a.set(time.Hour, nil, "192.0.2.3:80") // as a minute
		pass(2 * time.Second)
		a.asked()
		pass(2 * time.Minute)
		if got := a.asked(); len(strings.Fields(got)) != 2 {
			t.Errorf("a long time to live: asked at %s, want twice in two minutes", got)
		}
		expect(t, "and changes", c.take(), "")
	})
}

func TestWatchedNamesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := &answersOf{began: time.Now().Unix()}, &changes{}
		w := NewWatcher(c.add, a.lookup)
		defer w.Close()
		one, two := host("a.example"), host("b.example")
		a.set(10*time.Second, nil, "192.0.2.1:80")
		w.Set(options(), []Name{one, two})
		w.Wait(t.Context(), []Name{one, two})
		expect(t, "two names", c.take(), "pending->resolved 0->1, pending->resolved 0->1")
		w.Set(options(), []Name{one})
		if w.Targets(two) != nil || w.Status(two).State != Pending {
			t.Error("a name that is gone is known")
		}
		a.asked()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expect(t, "look-ups of the one that is left", a.asked(), "10s")

		other := options()
		other.MaxTTL = 5 * time.Second
		w.Set(other, []Name{one}) // is looked up at once, and keeps its targets meanwhile
		if len(w.Targets(one)) != 1 {
			t.Error("targets are lost with other options")
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		expect(t, "look-ups with other options", a.asked(), "10s 15s")
		expect(t, "and changes", c.take(), "")
	})
}

// TestWaitEnds has a look-up that does not end.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(nil, func(ctx context.Context, _ Name) (Answer, error) { <-ctx.Done(); return Answer{}, ctx.Err() })
		n := host("a.example")
		w.Set(options(), []Name{n})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.Wait(ctx, []Name{n, host("unknown.example")})
		if w.Status(n).State != Pending {
			t.Error("a look-up that has not ended is no longer pending")
		}
		w.Close()
	})
}

func TestStatesAndTheirNames(t *testing.T) {
	for s, want := range map[State][2]State{Pending: {Resolved, Unresolved}, Resolved: {Resolved, Stale}, Stale: {Resolved, Stale}, Unresolved: {Resolved, Unresolved}} {
		if next[s] != want || s.String() == "" {
			t.Errorf("%v: %v", s, next[s])
		}
	}
	for n, want := range map[Name]string{{}: "", host("a"): "a:80", {Kind: Service, Name: "b"}: "srv:b"} {
		if n.String() != want {
			t.Errorf("%q, want %q", n, want)
		}
	}
}
