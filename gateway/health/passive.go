package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
)

// Causes of what an Evaluator decides.
var (
	ErrEjected = errors.New("clients are not served") // of every ejection
	ErrAlone   = errors.New("no other backend is up") // of a return before its time
)

// Passive defines when clients' own connections show that a backend does not serve. NewPassive returns
// it the defaults, Validate returns what is wrong with it.
type Passive struct {
	Failures   int           // key "failures": in the window, that eject a backend, default 5
	Window     time.Duration // key "window": default 10s; one answer in it and the backend stays
	Down       time.Duration // key "down": how long the first ejection lasts, default 30s; it doubles with each repetition
	MaxDown    time.Duration // key "max_down": but not beyond this, default 5m
	MaxEjected int           // key "max_ejected": most percent of a service's backends out at once, default 50
}

// NewPassive returns the defaults.
func NewPassive() *Passive {
	return &Passive{Failures: 5, Window: 10 * time.Second, Down: 30 * time.Second, MaxDown: 5 * time.Minute, MaxEjected: 50}
}

// Validate returns what is wrong.
func (p *Passive) Validate() []Problem {
	var list problems
	list.count("failures", p.Failures, 1, 1_000_000)
	list.span("window", p.Window, time.Second, time.Hour)
	list.span("down", p.Down, time.Second, 24*time.Hour)
	list.span("max_down", p.MaxDown, time.Second, 24*time.Hour)
	list.require(p.Down <= p.MaxDown, "max_down", "", "max_down %v is shorter than down %v", p.MaxDown, p.Down)
	list.count("max_ejected", p.MaxEjected, 0, 100)
	return list
}

// Counts are the outcomes of a backend's connections, since the start.
type Counts struct {
	Answered    uint64 // the backend answered: a SYN by SYN-ACK, a first datagram by one
	Refused     uint64 // a SYN by RST
	Unanswered  uint64 // a SYN was forgotten without an answer
	Unreachable uint64 // an ICMP error said so of a packet to it
}

// failures returns the sum of what is not an answer.
func (c *Counts) failures() uint64 { return c.Refused + c.Unanswered + c.Unreachable }

// Sample is a backend at one moment.
type Sample struct {
	ID     uint32
	Up     bool // it would take new connections, if this Evaluator did not eject it
	Counts Counts
}

// Ejection is a backend that was ejected, or returned.
type Ejection struct {
	ID      uint32
	Ejected bool
	For     time.Duration // how long, if nothing changes
	Cause   error         // an ErrEjected with the counts; nil when it returns in time, else ErrAlone
}

// buckets is the number of parts that the window has: failures leave it part by part.
const buckets = 10

// Evaluator decides on the backends of one service. It is not safe for concurrent use.
type Evaluator struct {
	set    Passive
	tracks map[uint32]*track
	round  uint64 // number of the sample round, to forget those that are gone
}

// track records the results of a backend.
type track struct {
	last     Counts
	base     Counts          // at the last answer, or return
	answered clock.Time      // when an answer was last seen; the first sample counts as one
	failed   [buckets]uint64 // failures by part of the window, as a ring
	bucket   int64           // number of the part that failures are entered in, since time 0
	ejected  bool
	until    clock.Time // end of the ejection
	backoff  Backoff
	round    uint64
}

// NewEvaluator returns an evaluator that knows no backend.
func NewEvaluator(p Passive) *Evaluator {
	return &Evaluator{set: p, tracks: map[uint32]*track{}}
}

// Sample takes the present state of all backends of the service and returns those that are ejected
// or returned now. Backends that are missing are forgotten. Samples come in order of time, several
// in a window.
//
// A backend is ejected when the failures in the window reach the limit and no answer was seen in
// it, as long as the share of ejected backends stays within MaxEjected and another backend is up.
// It returns when its time is over, on probation: should the same happen within as long a time as
// it was out, it goes for twice as long. It returns at once when no other backend is up any more.
func (e *Evaluator) Sample(now clock.Time, list []Sample) []Ejection {
	e.round++
	up, out := 0, 0
	var changes []Ejection
	for i := range list {
		t := e.track(now, &list[i])
		if t.ejected && now >= t.until {
			t.free(now)
			changes = append(changes, Ejection{ID: list[i].ID})
		}
		if t.ejected {
			out++
		} else if list[i].Up {
			up++
		}
	}
	if up == 0 {
		changes = append(changes, e.freeAll(now, list)...)
		out = 0
	}
	allowed := len(list) * e.set.MaxEjected / 100
	for i := range list {
		t := e.tracks[list[i].ID]
		if t.ejected || !list[i].Up || out >= allowed || up < 2 || !e.failing(now, t) {
			continue
		}
		changes = append(changes, e.eject(now, list[i].ID, t))
		out, up = out+1, up-1
	}
	e.forget(len(list))
	return changes
}

// track enters a sample.
func (e *Evaluator) track(now clock.Time, s *Sample) *track {
	part := int64(now) / int64(e.part())
	t := e.tracks[s.ID]
	if t == nil {
		t = &track{last: s.Counts, base: s.Counts, answered: now, bucket: part}
		e.tracks[s.ID] = t
	}
	for t.bucket = max(t.bucket, part-buckets); t.bucket < part; {
		t.bucket++
		t.failed[t.bucket%buckets] = 0
	}
	t.failed[part%buckets] += s.Counts.failures() - t.last.failures()
	if s.Counts.Answered != t.last.Answered {
		t.answered, t.base = now, s.Counts // when it has left the window, failures of before have too
	}
	t.last, t.round = s.Counts, e.round
	return t
}

func (e *Evaluator) part() time.Duration { return e.set.Window / buckets }

// failing reports whether the window holds failures enough and no answer.
func (e *Evaluator) failing(now clock.Time, t *track) bool {
	return now.Sub(t.answered) >= e.set.Window && t.failures() >= uint64(e.set.Failures)
}

func (t *track) failures() (n uint64) {
	for _, f := range t.failed {
		n += f
	}
	return n
}

// eject takes a backend out.
func (e *Evaluator) eject(now clock.Time, id uint32, t *track) Ejection {
	down := t.backoff.Next(now, e.set.Down, e.set.MaxDown)
	t.ejected, t.until = true, now.Add(down)
	l, b := &t.last, &t.base
	return Ejection{ID: id, Ejected: true, For: down, Cause: fmt.Errorf(
		"%w: no answer, %d refused, %d unanswered, %d unreachable, %d of them within %v", ErrEjected,
		l.Refused-b.Refused, l.Unanswered-b.Unanswered, l.Unreachable-b.Unreachable, t.failures(), e.set.Window)}
}

// free lets a backend return. Its failures of before are over.
func (t *track) free(now clock.Time) {
	t.backoff.Returned(now)
	t.ejected, t.base, t.failed = false, t.last, [buckets]uint64{}
}

// freeAll lets all return that are up otherwise: the others have gone down meanwhile.
func (e *Evaluator) freeAll(now clock.Time, list []Sample) (changes []Ejection) {
	for i := range list {
		if t := e.tracks[list[i].ID]; t.ejected && list[i].Up {
			t.free(now)
			changes = append(changes, Ejection{ID: list[i].ID, Cause: ErrAlone})
		}
	}
	return changes
}

// Forget forgets a backend, whose number another one may get before the next Sample.
func (e *Evaluator) Forget(id uint32) { delete(e.tracks, id) }

// forget drops backends that were not in the last samples, n of them.
func (e *Evaluator) forget(n int) {
	if len(e.tracks) == n {
		return
	}
	for id, t := range e.tracks {
		if t.round != e.round {
			delete(e.tracks, id)
		}
	}
}
