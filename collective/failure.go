package collective

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failure is the kind of an Error.
type Failure string

// The kinds.
const (
	Died     Failure = "died"     // the rank's connections have ended
	Hung     Failure = "hung"     // the rank does not answer, or has not called the operation that others are in
	Differs  Failure = "differs"  // the rank calls another operation, or with other parameters
	Violated Failure = "violated" // the rank sends what no correct one does
	Left     Failure = "left"     // the rank has called Close
	Stalled  Failure = "stalled"  // all ranks are in the operation, and messages do not arrive
)

// Error is the error of all calls after a rank has failed.
type Error struct {
	Kind   Failure
	Ranks  []int // that have failed, as Connect or Shrink numbers them
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	name := "rank"
	if len(e.Ranks) > 1 {
		name = "ranks"
	}
	return fmt.Sprintf("collective: %s %s: %s", name, numbers(e.Ranks), e.Reason)
}

// numbers lists ranks.
func numbers(ranks []int) string {
	var b strings.Builder
	for i, r := range ranks {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == 16 {
			fmt.Fprintf(&b, "and %d more", len(ranks)-i)
			break
		}
		fmt.Fprint(&b, r)
	}
	return b.String()
}

// fail ends all calls with an error. The first one counts.
func (w *world) fail(e *Error) {
	w.mu.Lock()
	first := w.failure == nil
	if first {
		w.failure = e
		close(w.failed)
	}
	w.mu.Unlock()
	if !first {
		return
	}
	for _, l := range w.links {
		if l != nil {
			l.Close(e)
		}
	}
}

// failureNow returns the error of all calls; nil is none yet.
func (w *world) failureNow() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	return nil
}

// grace bounds the wait for the coordinator's decision, of which it has half for the answers of ranks.
func (w *world) grace() time.Duration { return min(graceMost, w.cfg.Timeout) }

// suspect reports a failure to the coordinator and waits for its decision, which is the same for all ranks.
func (w *world) suspect(s suspectFrame) error {
	if w.failureNow() == nil {
		if err := w.control.write(frameSuspect, s); err != nil {
			w.fail(&Error{Kind: Died, Ranks: []int{0}, Reason: "its connection for control ended, so that the process has died"})
		}
		timer := time.NewTimer(w.grace())
		defer timer.Stop()
		select {
		case <-w.failed:
		case <-timer.C:
			w.fail(&Error{Kind: Hung, Ranks: []int{0}, Reason: "it does not answer about: " + s.Reason})
		}
	}
	return w.failureNow()
}

// listen handles the coordinator's frames until the connection ends.
func (w *world) listen() {
	defer close(w.listened)
	for {
		t, body, err := w.control.read()
		if err != nil {
			w.mu.Lock()
			leaving := w.leaving
			w.mu.Unlock()
			if !leaving {
				w.fail(&Error{Kind: Died, Ranks: []int{0}, Reason: "its connection for control ended, so that the process has died"})
			}
			return
		}
		switch t {
		case frameQuery:
			_ = w.control.write(frameStatus, w.status()) // an error ends the next read, too
		case frameAgree:
			var c compareFrame
			if json.Unmarshal(body, &c) == nil {
				w.agreed(c)
			}
		case frameAbort:
			e := &Error{}
			if err := json.Unmarshal(body, e); err != nil || len(e.Ranks) == 0 {
				e = &Error{Kind: Violated, Ranks: []int{0}, Reason: errFrame.Error()}
			}
			w.fail(e)
		}
	}
}

// watch finds operations without progress.
func (w *world) watch() {
	tick := time.NewTicker(min(max(w.cfg.Timeout/8, time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-w.failed:
			return
		case <-w.done:
			return
		case now := <-tick.C:
			if s, late := w.late(now); late {
				_ = w.suspect(s) // ends all calls
				return
			}
		}
	}
}

// late returns what to report of an operation that has had no progress for the time-out.
func (w *world) late(now time.Time) (s suspectFrame, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.active {
		p := a.progress.Load()
		if p != a.seen || a.since.IsZero() {
			a.seen, a.since = p, now
			continue
		}
		if now.Sub(a.since) >= w.cfg.Timeout {
			return suspectFrame{
				Kind: Hung, Rank: int(a.waits.Load()), Waits: true, Context: a.comm.context, Members: a.comm.members,
				Reason: fmt.Sprintf("no progress of %s for %v", a.what, w.cfg.Timeout),
			}, true
		}
	}
	return s, false
}

// status describes what this rank does.
func (w *world) status() (s statusFrame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.comms {
		cs := commStatus{Context: c.context, Started: c.started.Load()}
		for a := range w.active {
			if a.comm != c {
				continue
			}
			cs.Active, cs.What = true, a.what.String()
			if r := int(a.waits.Load()); r >= 0 && !slices.Contains(cs.Waits, r) {
				cs.Waits = append(cs.Waits, r)
			}
		}
		s.Comms = append(s.Comms, cs)
	}
	return s
}
