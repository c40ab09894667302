package waf

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// maxPending bounds the evaluations that wait or are under way, of all firewalls: each may have a copy of content.
const maxPending = 512

// places are those of evaluations under way: there are as many as CPUs, so that more of them would only take turns.
var (
	places  = make(chan struct{}, runtime.GOMAXPROCS(0))
	pending atomic.Int64
)

// Firewall is a set of rules in use. It is not changed: a reload makes another one.
type Firewall struct {
	Settings
	Start  func(f func()) // runs f on another goroutine; New sets it
	rules  Ruleset
	counts *Counts
	failed func(reason any, stack []byte)
}

// New returns a firewall by rules. failed is called with the panics of the engine, from any goroutine.
func New(s Settings, rules Ruleset, counts *Counts, failed func(reason any, stack []byte)) *Firewall {
	return &Firewall{Settings: s, Start: func(f func()) { go f() }, rules: rules, counts: counts, failed: failed}
}

// Close frees the rules.
func (f *Firewall) Close() error { return f.rules.Close() }

// Result is the end of an evaluation.
type Result uint8

// Values of Result.
const (
	Evaluated Result = iota // the verdict says what follows
	Overload                // too many messages wait
	Panicked                // the engine has failed
)

// Evaluation evaluates one request and its response. Its methods are called by one goroutine, the loop of the request.
type Evaluation struct {
	f       *Firewall
	tx      Transaction
	state   evaluationState
	verdict Verdict // the last one
	before  int     // matched rules that are counted

	abandoned atomic.Bool // by Close, for a goroutine that has not begun
}

// evaluationState is the state of an Evaluation. Only the loop of its request reads and writes it.
type evaluationState uint8

const (
	resting evaluationState = iota
	working                 // a goroutine has the transaction
	broken                  // the transaction is gone: the engine has failed
	closed
)

// Begin begins an evaluation.
func (f *Firewall) Begin() *Evaluation {
	f.counts.requests.Add(1)
	return &Evaluation{f: f}
}

// Usable reports whether another message can be evaluated.
func (e *Evaluation) Usable() bool { return e.state == resting }

// Verdict returns the last verdict.
func (e *Evaluation) Verdict() *Verdict { return &e.verdict }

// Do calls f with the transaction on another goroutine, and then done on the loop, by do, which reports whether the loop is there. It returns
// Overload where too many wait: done is not called then.
func (e *Evaluation) Do(f func(Transaction) Verdict, do func(func()) bool, done func(Result)) Result {
	if pending.Add(1) > maxPending {
		pending.Add(-1)
		e.f.counts.overload.Add(1)
		return Overload
	}
	e.state = working
	e.f.Start(func() {
		places <- struct{}{}
		if e.abandoned.Load() { // a burst whose requests have long been answered must not take the CPUs from later ones
			if e.tx != nil {
				e.leave(e.tx, e.before)
			}
			<-places
			pending.Add(-1)
			return
		}
		v, ok := e.run(f)
		<-places
		pending.Add(-1)
		if !do(func() { e.ended(v, ok, done) }) && ok {
			e.leave(e.tx, len(v.Matched))
		}
	})
	return Evaluated
}

// run calls f, and reports whether it has returned. The transaction that it begins is only this goroutine's until the loop has the result.
func (e *Evaluation) run(f func(Transaction) Verdict) (v Verdict, ok bool) {
	defer e.contain(&ok)
	if e.tx == nil {
		e.tx = e.f.rules.Begin()
	}
	return f(e.tx), true
}

// contain turns a panic of the engine into a result.
func (e *Evaluation) contain(ok *bool) {
	if r := recover(); r != nil {
		*ok = false
		e.f.counts.panics.Add(1)
		e.f.failed(r, debug.Stack())
	}
}

// ended notes the result of a goroutine, on the loop.
func (e *Evaluation) ended(v Verdict, ok bool, done func(Result)) {
	switch {
	case e.state == closed:
		if ok {
			e.release()
		}
		return
	case !ok:
		e.state = broken
		done(Panicked)
		return
	}
	e.state, e.verdict = resting, v
	e.f.counts.matched(v.Matched[min(e.before, len(v.Matched)):])
	e.before = len(v.Matched)
	if v.Status > 0 {
		e.f.counts.denied.Add(1)
	}
	done(Evaluated)
}

// TimedOut counts an evaluation that has taken too long. It goes on, and its result is lost.
func (e *Evaluation) TimedOut() { e.f.counts.timeouts.Add(1) }

// Excess counts a request that is refused for it has more content than rules see.
func (e *Evaluation) Excess() { e.f.counts.excess.Add(1) }

// Close ends the evaluation. A goroutine that is at work ends the transaction when it is done; one that waits for a place
// does not begin.
func (e *Evaluation) Close() {
	was := e.state
	e.abandoned.Store(true)
	e.state = closed
	if was == resting && e.tx != nil {
		e.release()
	}
}

// release ends the transaction on another goroutine: rules of the last phase, which log, run then.
func (e *Evaluation) release() {
	tx, counted := e.tx, e.before
	e.f.Start(func() {
		places <- struct{}{}
		e.leave(tx, counted)
		<-places
	})
}

func (e *Evaluation) leave(tx Transaction, counted int) {
	var ok bool
	defer e.contain(&ok)
	ids := tx.Close()
	e.f.counts.matched(ids[min(counted, len(ids)):])
}
