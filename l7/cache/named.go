package cache

import (
	"time"

	"github.com/millrace/millrace/metrics"
)

// Named is a cache of a configuration, with its clock and its counters. All loops share it, also over reloads.
type Named struct {
	Name string
	*Cache
	Clock  func() time.Time
	counts []*metrics.Block // of each loop
}

// Count is a counter of a Named.
type Count int

// Values of Count. The first are results of requests, each of which has one.
const (
	CountHit         Count = iota // a fresh response was stored
	CountStale                    // a stale one was used
	CountRevalidated              // the backend has found the stored one valid
	CountCollapsed                // another request has fetched the response meanwhile
	CountMiss                     // the backend has answered
	CountBypass                   // the same, as the request is none for a cache
	Results
	CountRefresh = Results // validations in the background
	CountFull    = CountRefresh + 1
	Counts       = CountFull + 1
)

// String returns a name for labels and logs.
func (c Count) String() string {
	return [...]string{"hit", "stale", "revalidated", "collapsed", "miss", "bypass", "refresh", "full"}[c]
}

// NewNamed returns an empty cache for a number of loops.
func NewNamed(name string, o Options, loops int, clock func() time.Time) *Named {
	n := &Named{Name: name, Cache: New(o), Clock: clock}
	for range loops {
		n.counts = append(n.counts, metrics.NewBlock(int(Counts)))
	}
	return n
}

// Count adds one to a counter. It belongs to the loop.
func (n *Named) Count(loop int, c Count) { n.counts[loop].Add(int(c), 1) }

// Counts returns the counters, summed over the loops. Any goroutine may call it.
func (n *Named) Counts() (sum [Counts]uint64) {
	for _, b := range n.counts {
		b.AddTo(sum[:])
	}
	return sum
}

// Put stores a response that is whole, and returns how a flight for it ends: those that wait for one that each has to validate go their
// own way at once.
func (n *Named) Put(e *Entry, at Mark) Outcome {
	stored := n.Store(e, at)
	switch {
	case !e.Shared(n.Clock()):
		return Unshared
	case stored:
		return Landed
	}
	return Failed
}

// Fill gathers the content of a response that is to be stored.
type Fill struct {
	of       *Named
	entry    *Entry
	mark     Mark
	body     []byte
	most     int64
	reserved int64
}

// Begin begins to gather content of a length, -1 where it is not known, and of so many bytes at most. It returns nil where too much is
// gathered already.
func (n *Named) Begin(e *Entry, at Mark, length, most int64) *Fill {
	f := &Fill{of: n, entry: e, mark: at, most: most}
	if length > 0 {
		if !n.Reserve(length) {
			return nil
		}
		f.reserved, f.body = length, make([]byte, 0, length)
	}
	return f
}

// Added is the outcome of Fill.Add.
type Added uint8

// Values of Added.
const (
	Gathered Added = iota
	TooLong        // than a response that is stored
	NoMemory       // too much is gathered
)

// Add gathers content. It borrows p. Anything but Gathered takes none of it.
func (f *Fill) Add(p []byte) Added {
	n := int64(len(f.body) + len(p))
	if n > f.most {
		return TooLong
	}
	if more := n - f.reserved; more > 0 {
		if more = max(more, min(n, f.most-f.reserved)); !f.of.Reserve(more) {
			return NoMemory
		}
		f.reserved += more
	}
	f.body = append(f.body, p...)
	return Gathered
}

// Body returns the content so far. It stays as it is.
func (f *Fill) Body() []byte { return f.body }

// Commit stores the response, all of whose content has come, and returns its content.
func (f *Fill) Commit() (body []byte, o Outcome) {
	e := f.entry.Complete(f.body)
	o = f.of.Put(e, f.mark)
	f.Drop()
	return e.Body, o
}

// Drop ends the gathering.
func (f *Fill) Drop() { f.of.Reserve(-f.reserved) }
