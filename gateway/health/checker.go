package health

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Defaults of Options.
const (
	DefaultSockets  = 1024
	DefaultCommands = 32
)

// Options configure a Checker.
type Options struct {
	Dialer   Dialer // of all sockets; nil is the kernel's stack. A device needs the kernel's
	Notify   func() // called from any goroutine when Take has something; may be nil
	Sockets  int    // most sockets at once, half of them for targets that failed last time; default 1024
	Commands int    // most processes at once; default 32
}

// Watch is a backend to be watched.
type Watch struct {
	ID     uint32 // the caller's number of the backend
	Target        // the backend's own address; the check may have another port
	Check  *Check
	Down   bool // what the caller takes it for: it stays that until probes say otherwise
}

// Change is a backend that rose or fell.
type Change struct {
	ID uint32
	State
}

// State is the state of a watched backend.
type State struct {
	Healthy bool
	Since   time.Time     // of the last change; zero before the first
	Asked   time.Time     // start of the last probe; zero before the first
	Latency time.Duration // how long it took
	Cause   error         // why it failed; nil when it did not
}

// Checker runs probes. Its methods may be called from any goroutine.
type Checker struct {
	opt Options
	wg  sync.WaitGroup // of probes that run

	mu       sync.Mutex
	closed   bool
	tasks    map[taskKey]*task
	watched  map[uint32]*task
	changed  []*task // in order; with t.pending set
	differ   []Change
	limiters [limiterKinds]limiter
}

// taskKey names what is probed once: equal settings and target. The names are those of a command's
// environment, else empty.
type taskKey struct {
	check string
	Target
}

// task asks one target again and again, for all backends that it stands for.
type task struct {
	c       *Checker
	key     taskKey
	check   *Check
	probe   probe
	ctx     context.Context
	stop    context.CancelFunc
	timer   *time.Timer
	ids     []uint32
	streak  streak
	state   State
	pending bool // in Checker.changed
}

// NewChecker returns a checker that watches nothing yet.
func NewChecker(opt Options) *Checker {
	if opt.Sockets <= 0 {
		opt.Sockets = DefaultSockets
	}
	if opt.Commands <= 0 {
		opt.Commands = DefaultCommands
	}
	c := &Checker{opt: opt, tasks: map[taskKey]*task{}, watched: map[uint32]*task{}}
	for i := range c.limiters {
		limit := opt.Sockets
		if i == commands || i == suspectCommands {
			limit = opt.Commands
		}
		c.limiters[i].limit = max(1, limit/2)
	}
	return c
}

// Set replaces what is watched. Probes of what is watched already, with equal settings, go on as if
// nothing had happened; what is no longer watched is not reported any more once Set returns.
// Backends start in the state of Watch.Down, unless their target's health is known from another backend
// with the same settings: then Take has it at once.
func (c *Checker) Set(list []Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	old := c.tasks
	c.tasks, c.watched, c.differ = make(map[taskKey]*task, len(old)), make(map[uint32]*task, len(list)), nil
	settings, probes := map[*Check]string{}, map[string]probe{}
	for _, t := range old {
		t.ids = nil
	}
	for i := range list {
		w := &list[i]
		if _, ok := settings[w.Check]; !ok {
			settings[w.Check] = w.Check.settings()
		}
		c.watch(w, w.key(settings[w.Check]), old, probes)
	}
	for key, t := range old {
		if c.tasks[key] == nil {
			c.end(t)
		}
	}
}

// watch enters a backend with the task of its key: one that runs, or a new one.
func (c *Checker) watch(w *Watch, key taskKey, old map[taskKey]*task, probes map[string]probe) {
	t := c.tasks[key]
	if t == nil {
		if t = old[key]; t == nil {
			if probes[key.check] == nil {
				probes[key.check] = newProbe(w.Check, c.opt.Dialer)
			}
			t = c.start(key, w, probes[key.check])
		}
		c.tasks[key] = t
	}
	t.ids = append(t.ids, w.ID)
	c.watched[w.ID] = t
	if t.streak.healthy == w.Down {
		c.differ = append(c.differ, Change{w.ID, t.state})
	}
}

// start returns a new task. Its first probe comes at a random time within the interval, so that
// those of many spread.
func (c *Checker) start(key taskKey, w *Watch, p probe) *task {
	t := &task{c: c, key: key, check: w.Check, probe: p, streak: streak{healthy: !w.Down}}
	t.state.Healthy = !w.Down
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.timer = time.AfterFunc(rand.N(w.Check.Interval), t.fire)
	return t
}

// end stops a task: a probe that runs is cancelled, and its result is ignored.
func (c *Checker) end(t *task) {
	t.stop()
	t.timer.Stop()
	t.ids = nil
}

// key returns what a backend shares its probes by.
func (w *Watch) key(settings string) taskKey {
	k := taskKey{settings, Target{At: w.Check.Target(w.At), Path: w.Path}}
	if w.Check.Type == TypeCommand {
		k.Backend, k.Service = w.Backend, w.Service
	}
	return k
}

// settings returns a text that is equal for equal checks.
func (c *Check) settings() string { return fmt.Sprintf("%#v", *c) }

// fire runs in the goroutine of the timer. It asks, if there is a place, and then lets those ask
// that waited for it.
func (t *task) fire() {
	c := t.c
	c.mu.Lock()
	if t.ctx.Err() != nil {
		c.mu.Unlock()
		return
	}
	n := limiterOf(t.check.Type, t.state.Cause != nil)
	if !c.limiters[n].enter(t) {
		c.mu.Unlock()
		return
	}
	c.wg.Add(1)
	c.mu.Unlock()
	defer c.wg.Done()
	for t != nil {
		t.ask()
		c.mu.Lock()
		t = c.limiters[n].leave()
		c.mu.Unlock()
	}
}

// ask asks once, notes what came of it and sets the timer for the next time.
func (t *task) ask() {
	ctx, cancel := context.WithTimeout(t.ctx, t.check.Timeout)
	start := time.Now()
	err := cause(ctx, t.probe(ctx, t.key.Target), t.check.Timeout)
	took := time.Since(start)
	cancel()
	if t.c.note(t, start, took, err) && t.c.opt.Notify != nil {
		t.c.opt.Notify()
	}
}

// note enters the result of a probe and reports whether Take has something new by it.
func (c *Checker) note(t *task, start time.Time, took time.Duration, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.timer.Reset(jitter(t.check.Interval) - took)
	t.state.Asked, t.state.Latency, t.state.Cause = start, took, err
	if !t.streak.add(err == nil, t.check) {
		return false
	}
	t.state.Healthy, t.state.Since = err == nil, start.Add(took)
	if !t.pending {
		t.pending = true
		c.changed = append(c.changed, t)
	}
	return true
}

// jitter returns d, up to a tenth more or less.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}

// Take returns, once, the present state of backends that changed. A backend that fell and rose
// since the last call is in it as well.
func (c *Checker) Take() []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.differ
	for _, t := range c.changed {
		t.pending = false
		for _, id := range t.ids {
			list = append(list, Change{id, t.state})
		}
	}
	c.changed, c.differ = nil, nil
	return list
}

// State returns what is known of a backend; false when it is not watched.
func (c *Checker) State(id uint32) (State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.watched[id]
	if t == nil {
		return State{}, false
	}
	return t.state, true
}

// Targets returns the number of distinct probes: target and settings.
func (c *Checker) Targets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tasks)
}

// Close breaks off all probes and returns when the last has ended. It must not be called with a
// lock held that Notify takes.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	for _, t := range c.tasks {
		c.end(t)
	}
	c.tasks, c.watched, c.changed, c.differ = nil, nil, nil, nil
	c.mu.Unlock()
	c.wg.Wait()
}
