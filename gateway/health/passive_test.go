package health

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// service is a service in virtual time: its backends' counts, and what the evaluator said.
type service struct {
	t   *testing.T
	e   *Evaluator
	now clock.Time
	of  []Sample
	out map[uint32]bool
	log []string // "12s eject 0 30s", in order
}

func newService(t *testing.T, backends int, p Passive) *service {
	s := &service{t: t, e: NewEvaluator(p), now: clock.Time(time.Hour) + 1, out: map[uint32]bool{}}
	for i := range backends {
		s.of = append(s.of, Sample{ID: uint32(i), Up: true, Counts: Counts{Answered: 1000, Refused: 1000}})
	}
	s.sample()
	return s
}

func (s *service) sample() {
	s.t.Helper()
	for _, c := range s.e.Sample(s.now, s.of) {
		what := fmt.Sprintf("return %d", c.ID)
		if c.Ejected {
			what = fmt.Sprintf("eject %d %v", c.ID, c.For)
		}
		if c.Ejected != errors.Is(c.Cause, ErrEjected) || c.Ejected == s.out[c.ID] {
			s.t.Errorf("%+v, ejected before: %v", c, s.out[c.ID])
		}
		s.out[c.ID] = c.Ejected
		s.log = append(s.log, fmt.Sprintf("%v %s", s.now.Sub(clock.Time(time.Hour)+1), what))
	}
}

// pass lets seconds go by; in each, f changes the counts and a sample is taken.
func (s *service) pass(seconds int, f func()) {
	for range seconds {
		s.now = s.now.Add(time.Second)
		f()
		s.sample()
	}
}

// refuse returns what lets a backend refuse n connections each second, while it takes new ones.
func (s *service) refuse(id, n int) func() {
	return func() {
		if !s.out[uint32(id)] {
			s.of[id].Counts.Refused += uint64(n)
		}
	}
}

func (s *service) expect(want ...string) {
	s.t.Helper()
	if got := strings.Join(s.log, ", "); got != strings.Join(want, ", ") {
		s.t.Errorf("%s; want %s", got, strings.Join(want, ", "))
	}
}

func nothing() {}

func TestABackendThatRefusesAllIsEjectedAfterTheWindow(t *testing.T) {
	s := newService(t, 2, *NewPassive())
	s.pass(12, s.refuse(0, 1))
	s.expect("10s eject 0 30s")
}

func TestEveryKindOfFailureCounts(t *testing.T) {
	for i, add := range []func(c *Counts){
		func(c *Counts) { c.Refused++ }, func(c *Counts) { c.Unanswered++ }, func(c *Counts) { c.Unreachable++ },
	} {
		s := newService(t, 2, *NewPassive())
		s.pass(15, func() { add(&s.of[1].Counts) })
		if len(s.log) != 1 {
			t.Errorf("kind %d: %v", i, s.log)
		}
	}
	s := newService(t, 2, *NewPassive())
	s.now = s.now.Add(20 * time.Second)
	s.of[0].Counts.Refused, s.of[0].Counts.Unanswered, s.of[0].Counts.Unreachable = 1002, 2, 1
	want := "clients are not served: no answer, 2 refused, 2 unanswered, 1 unreachable, 5 of them within 10s"
	if got := s.e.Sample(s.now, s.of); len(got) != 1 || got[0].Cause.Error() != want {
		t.Errorf("%+v", got)
	}
}

func TestOneAnswerInTheWindowKeepsABackend(t *testing.T) {
	s := newService(t, 2, *NewPassive())
	second := 0
	s.pass(100, func() {
		s.of[0].Counts.Refused += 100
		if second++; second%9 == 0 {
			s.of[0].Counts.Answered++
		}
	})
	s.expect()
	s.pass(20, s.refuse(0, 1)) // the last answer was in second 99
	s.expect("1m49s eject 0 30s")
}

func TestFewerFailuresThanTheLimitInAWindowKeepABackend(t *testing.T) {
	s := newService(t, 2, *NewPassive())
	second := 0
	s.pass(100, func() { // 4 in every 10 seconds
		if second++; second%5 < 2 {
			s.of[0].Counts.Unanswered++
		}
	})
	s.expect()
	s.pass(1, s.refuse(0, 2)) // with those of seconds 95, 96 and 100
	s.expect("1m41s eject 0 30s")
}

func TestTheWindowForgets(t *testing.T) {
	s := newService(t, 2, *NewPassive())
	s.pass(10, nothing)
	s.pass(1, s.refuse(0, 4))
	s.pass(10, nothing)
	s.pass(1, s.refuse(0, 4))
	s.now = s.now.Add(time.Hour) // no sample for long
	s.pass(1, s.refuse(0, 4))
	s.expect()
	s.pass(9, nothing)
	s.pass(1, s.refuse(0, 4))
	s.expect()
	s.pass(1, s.refuse(0, 1))
	if len(s.log) != 1 {
		t.Error(s.log)
	}
}

func TestRepetitionsDoubleTheTimeUpToTheCap(t *testing.T) {
	p := *NewPassive()
	p.MaxDown = 100 * time.Second
	s := newService(t, 2, p)
	s.pass(10+30+1+60+1+100+1, s.refuse(0, 5))
	s.expect("10s eject 0 30s", "40s return 0", "41s eject 0 1m0s", "1m41s return 0", "1m42s eject 0 1m40s", "3m22s return 0", "3m23s eject 0 1m40s")
}

func TestOnProbationABurstEjectsAtOnceAndAnAnswerDoesNotMakeUpForAll(t *testing.T) {
	s := newService(t, 2, *NewPassive())
	s.pass(40, s.refuse(0, 5))
	s.expect("10s eject 0 30s", "40s return 0")
	s.of[0].Counts.Answered++
	s.pass(1, nothing)
	s.pass(12, s.refuse(0, 5))
	s.expect("10s eject 0 30s", "40s return 0", "51s eject 0 1m0s")
}

func TestABackendThatStaysUpAsLongAsItWasOutStartsAnew(t *testing.T) {
	for _, c := range []struct {
		up   int
		want string
	}{{28, "1m0s"}, {29, "30s"}} {
		s := newService(t, 2, *NewPassive())
		s.pass(40, s.refuse(0, 5))
		s.pass(c.up, nothing)
		s.pass(1, s.refuse(0, 5))
		s.expect("10s eject 0 30s", "40s return 0", fmt.Sprintf("%v eject 0 %s", time.Duration(41+c.up)*time.Second, c.want))
	}
}

func TestNeverAreMoreEjectedThanAllowed(t *testing.T) {
	for _, c := range []struct{ backends, percent, want int }{
		{1, 50, 0}, {1, 100, 0}, {2, 50, 1}, {3, 50, 1}, {4, 50, 2}, {10, 33, 3}, {10, 0, 0}, {10, 9, 0}, {10, 10, 1}, {5, 100, 4},
	} {
		p := *NewPassive()
		p.MaxEjected = c.percent
		s := newService(t, c.backends, p)
		s.pass(20, func() {
			for i := range s.of {
				s.refuse(i, 5)()
			}
		})
		if len(s.log) != c.want {
			t.Errorf("%d of %d with %d %%: %v", len(s.log), c.backends, c.percent, s.log)
		}
	}
}

func TestTheLastBackendThatIsUpStays(t *testing.T) {
	s := newService(t, 4, *NewPassive())
	s.of[1].Up, s.of[2].Up, s.of[3].Up = false, false, false
	s.pass(20, s.refuse(0, 5))
	s.expect()
	s.of[3].Up = true
	s.pass(1, s.refuse(0, 5))
	s.expect("21s eject 0 30s")
}

func TestABackendThatIsDownIsNotEjected(t *testing.T) {
	s := newService(t, 3, *NewPassive())
	s.of[0].Up = false
	s.pass(20, s.refuse(0, 5))
	s.expect()
}

func TestTheEjectedReturnWhenNoOtherIsUp(t *testing.T) {
	s := newService(t, 4, *NewPassive())
	s.pass(12, func() { s.refuse(0, 5)(); s.refuse(1, 5)() })
	s.expect("10s eject 0 30s", "10s eject 1 30s")
	s.of[2].Up, s.of[3].Up, s.of[1].Up = false, false, false
	s.pass(5, nothing)
	s.expect("10s eject 0 30s", "10s eject 1 30s", "13s return 0")
}

func TestABackendThatIsGoneIsForgotten(t *testing.T) {
	s := newService(t, 3, *NewPassive())
	s.pass(12, s.refuse(0, 5))
	s.of = s.of[1:]
	s.sample()
	if len(s.e.tracks) != 2 {
		t.Errorf("%d backends are remembered", len(s.e.tracks))
	}
	s.of = append([]Sample{{ID: 0, Up: true}}, s.of...)
	s.of[1].ID, s.of[2].ID = 8, 9 // others
	s.sample()
	if len(s.e.tracks) != 3 || s.e.tracks[0].ejected {
		t.Errorf("%d backends are remembered, 0 is ejected: %v", len(s.e.tracks), s.e.tracks[0].ejected)
	}
}

// obvious is the evaluator written down as its description says, over all samples ever taken.
type obvious struct {
	p       Passive
	at      []clock.Time
	of      [][]Sample
	ejected map[uint32]clock.Time // until
	down    map[uint32]time.Duration
	back    map[uint32]clock.Time
}

// failing looks at each sample in the window, part by part as the evaluator does.
func (o *obvious) failing(i int, now clock.Time) bool {
	part := int64(o.p.Window) / buckets
	failed := uint64(0)
	for n := len(o.at) - 1; n >= 0; n-- {
		fresh := n == 0 || o.of[n][i].Counts.Answered != o.of[n-1][i].Counts.Answered
		if fresh && now.Sub(o.at[n]) < o.p.Window {
			return false
		}
		inWindow := int64(now)/part-int64(o.at[n])/part < buckets
		back, was := o.back[o.of[n][i].ID]
		if n > 0 && inWindow && !fresh && (!was || o.at[n] > back) {
			failed += o.of[n][i].Counts.failures() - o.of[n-1][i].Counts.failures()
		}
	}
	return failed >= uint64(o.p.Failures)
}

func (o *obvious) sample(now clock.Time, list []Sample) {
	o.at, o.of = append(o.at, now), append(o.of, append([]Sample(nil), list...))
	up, free := 0, func(id uint32) { delete(o.ejected, id); o.back[id] = now }
	for _, s := range list {
		if until, out := o.ejected[s.ID]; out && now >= until {
			free(s.ID)
		}
		if _, out := o.ejected[s.ID]; s.Up && !out {
			up++
		}
	}
	if up == 0 {
		for _, s := range list {
			if _, out := o.ejected[s.ID]; out && s.Up {
				free(s.ID)
				up++
			}
		}
	}
	for i, s := range list {
		_, out := o.ejected[s.ID]
		if out || !s.Up || up < 2 || (len(o.ejected)+1)*100 > o.p.MaxEjected*len(list) || !o.failing(i, now) {
			continue
		}
		d := o.p.Down
		if o.down[s.ID] > 0 && now.Sub(o.back[s.ID]) < o.down[s.ID] {
			d = min(2*o.down[s.ID], o.p.MaxDown)
		}
		o.down[s.ID], o.ejected[s.ID] = d, now.Add(d)
		up--
	}
}

func TestTheEvaluatorDoesWhatTheObviousOneDoes(t *testing.T) {
	ejections := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := Passive{
			Failures: 1 + r.IntN(6), Window: time.Duration(1+r.IntN(10)) * time.Second,
			Down: time.Duration(1+r.IntN(20)) * time.Second, MaxDown: time.Minute, MaxEjected: r.IntN(101),
		}
		s := newService(t, 1+r.IntN(6), p)
		o := &obvious{p: p, ejected: map[uint32]clock.Time{}, down: map[uint32]time.Duration{}, back: map[uint32]clock.Time{}}
		o.sample(s.now, s.of)
		for step := range 300 {
			s.now = s.now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
			for i := range s.of {
				s.of[i].Up = s.of[i].Up != (r.IntN(20) == 0)
				if r.IntN(3) == 0 {
					s.of[i].Counts.Unreachable += uint64(r.IntN(4))
				}
				if r.IntN(12) == 0 {
					s.of[i].Counts.Answered++
				}
			}
			s.sample()
			o.sample(s.now, s.of)
			up, out := 0, 0
			for _, b := range s.of {
				_, want := o.ejected[b.ID]
				if s.out[b.ID] != want {
					t.Fatalf("seed %d, step %d, backend %d: ejected %v, want %v", seed, step, b.ID, s.out[b.ID], want)
				}
				if s.out[b.ID] {
					out++
				} else if b.Up {
					up++
				}
			}
			alive := 0
			for _, b := range s.of {
				if b.Up {
					alive++
				}
			}
			if up == 0 && alive > 0 {
				t.Fatalf("seed %d, step %d: all of %d that are up are ejected", seed, step, alive)
			}
		}
		ejections += len(s.log)
	}
	if ejections < 1000 {
		t.Errorf("only %d changes in all runs", ejections)
	}
}
