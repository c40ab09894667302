package resolve

import (
	"context"
	"slices"
	"sync"
	"time"
)

// State summarizes the look-ups of a name.
type State uint8

// Values of State.
const (
	Pending    State = iota // no look-up has ended yet
	Resolved                // the last look-up has found targets
	Stale                   // the last look-up has failed: the targets are those of before
	Unresolved              // no look-up has ever found a target
)

// String returns the name of the state.
func (s State) String() string { return [...]string{"pending", "resolved", "stale", "unresolved"}[s] }

// event is the end of a look-up.
type event uint8

const (
	answered event = iota
	failed
)

// next holds the state that follows each event.
var next = [...][2]State{
	Pending:    {answered: Resolved, failed: Unresolved},
	Resolved:   {answered: Resolved, failed: Stale},
	Stale:      {answered: Resolved, failed: Stale},
	Unresolved: {answered: Resolved, failed: Unresolved},
}

// Status describes a name at one moment.
type Status struct {
	Name    Name
	State   State
	Targets []Target
	Since   time.Time // of the last change of state or targets
	Next    time.Time // of the next look-up
	Err     error     // of the last look-up
	Lookups uint64
	Failed  uint64 // of them
}

// Change is a change of a name.
type Change struct {
	Name  Name
	State State
	Was   State
	Old   []Target
	New   []Target
	Err   error
}

// Bounds of the time between look-ups of a name that fails: it doubles with each.
const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Watcher looks names up again and again. Its methods may be called from any goroutine.
type Watcher struct {
	lookup func(context.Context, Name) (Answer, error)
	notify func(Change)
	ctx    context.Context
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	opt   Options
	names map[Name]*watched
}

// watched is a name that is looked up by a goroutine of its own.
type watched struct {
	status  Status
	retry   time.Duration // to the look-up after one that fails
	first   chan struct{} // is closed when the first look-up has ended
	stop    context.CancelFunc
	settled bool // first is closed
}

// NewWatcher returns a watcher of no names. notify is called with each change, from a goroutine of the name. lookup is that of a
// Client, or nil for one with the options of Set.
func NewWatcher(notify func(Change), lookup func(context.Context, Name) (Answer, error)) *Watcher {
	w := &Watcher{lookup: lookup, notify: notify, names: map[Name]*watched{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Set has the names watched, and no others. With other options all are looked up again; until then their targets stay.
func (w *Watcher) Set(o Options, names []Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	same := w.opt.equal(&o)
	w.opt = o
	wanted := map[Name]bool{}
	for _, n := range names {
		wanted[n] = true
		old := w.names[n]
		if old != nil && same {
			continue
		}
		x := &watched{first: make(chan struct{}), status: Status{Name: n, Since: time.Now()}}
		if old != nil {
			old.stop()
			x.status = old.status
		}
		w.names[n] = x
		var ctx context.Context
		ctx, x.stop = context.WithCancel(w.ctx)
		w.all.Go(func() { w.follow(ctx, x, o) })
	}
	for n, x := range w.names {
		if !wanted[n] {
			x.stop()
			delete(w.names, n)
		}
	}
}

// equal reports whether options are the same.
func (o *Options) equal(p *Options) bool {
	return slices.Equal(o.Servers, p.Servers) && o.Timeout == p.Timeout && o.Attempts == p.Attempts && o.Family == p.Family &&
		o.MinTTL == p.MinTTL && o.MaxTTL == p.MaxTTL && o.ResolvConf == p.ResolvConf && o.Hosts == p.Hosts
}

// Wait waits until each name was looked up once, or until the context ends.
func (w *Watcher) Wait(ctx context.Context, names []Name) {
	for _, n := range names {
		w.mu.Lock()
		x := w.names[n]
		w.mu.Unlock()
		if x == nil {
			continue
		}
		select {
		case <-x.first:
		case <-ctx.Done():
			return
		}
	}
}

// Targets returns the targets of a name, nil if there are none yet.
func (w *Watcher) Targets(n Name) []Target {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.names[n]; x != nil {
		return x.status.Targets
	}
	return nil
}

// Status returns what is known of a name.
func (w *Watcher) Status(n Name) Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.names[n]; x != nil {
		return x.status
	}
	return Status{Name: n}
}

// Close ends all look-ups.
func (w *Watcher) Close() {
	w.stop()
	w.all.Wait()
}

// follow looks a name up until ctx ends.
func (w *Watcher) follow(ctx context.Context, x *watched, o Options) {
	lookup := w.lookup
	if lookup == nil {
		lookup = NewClient(o).Lookup
	}
	for {
		a, err := lookup(ctx, x.status.Name)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		change, changed, wait := x.enter(&o, a, err)
		w.mu.Unlock()
		if changed && w.notify != nil {
			w.notify(change)
		}
		if !x.settled { // after notify: whoever waits finds the change in effect
			x.settled = true
			close(x.first)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// enter notes the end of a look-up, and returns what has changed and when the next one is due. The caller holds the lock.
func (x *watched) enter(o *Options, a Answer, err error) (c Change, changed bool, wait time.Duration) {
	s, ev := &x.status, answered
	s.Lookups++
	if err != nil {
		ev = failed
		s.Failed++
		x.retry = min(max(2*x.retry, retryFirst), retryMost)
		wait = max(min(x.retry, o.MaxTTL), o.MinTTL)
	} else {
		x.retry = 0
		wait = min(max(a.TTL, o.MinTTL), o.MaxTTL)
	}
	c = Change{Name: s.Name, Was: s.State, Old: s.Targets, Err: err}
	s.State, s.Err = next[s.State][ev], err
	if ev == answered && !slices.Equal(s.Targets, a.Targets) {
		s.Targets = a.Targets
	}
	c.State, c.New = s.State, s.Targets
	now := time.Now()
	if changed = c.Was != c.State || !slices.Equal(c.Old, c.New); changed {
		s.Since = now
	}
	s.Next = now.Add(wait)
	return c, changed, wait
}
