package cache

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/semantics"
)

// Named is a cache of a configuration, with its clock, its counters, and a Disk as its second level if it has one. All loops share it, also
// over reloads. Its methods hide those of the Cache, which is its first level.
type Named struct {
	Name string
	*Cache
	Clock  func() time.Time
	counts []*metrics.Block // of each loop
	disk   atomic.Pointer[Disk]
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

// UseDisk sets the second level, nil for none. The caller closes the one before.
func (n *Named) UseDisk(d *Disk) { n.disk.Store(d) }

// Disk returns the second level, nil for none.
func (n *Named) Disk() *Disk { return n.disk.Load() }

// Marks are the states of a URL at both levels.
type Marks struct {
	memory, disk Mark
	of           *Disk
}

// Mark returns the states of a URL.
func (n *Named) Mark(url string) Marks {
	m := Marks{memory: n.Cache.Mark(url), of: n.disk.Load()}
	if m.of != nil {
		m.disk = m.of.index.Mark(url)
	}
	return m
}

// second returns the second level, if it is the one that a mark is of.
func (n *Named) second(at *Marks) *Disk {
	if d := n.disk.Load(); d == at.of {
		return d
	}
	return nil
}

// Lookup returns the entry for a request, from memory where it is there.
func (n *Named) Lookup(k Key, fields []semantics.Field) (*Entry, Miss) {
	e, miss := n.Cache.Lookup(k, fields)
	if d := n.disk.Load(); e == nil && d != nil {
		var second Miss
		e, second = d.lookup(k, fields)
		if miss = max(miss, second); e != nil {
			miss = Found
		}
	}
	return e, miss
}

// Promote returns the entry of the first level for one of the second, whose content has been read.
func (n *Named) Promote(e *Entry, body []byte, at Marks) *Entry {
	own := e.copy()
	own.Body = body
	n.Store(own, at.memory)
	return own
}

// Put stores a response that is whole, and returns how a flight for it ends: those that wait for one that each has to validate go their
// own way at once.
func (n *Named) Put(e *Entry, at Marks) Outcome {
	stored := n.Store(e, at.memory)
	if d := n.second(&at); stored && d != nil {
		d.put(e, at.disk)
	}
	return n.outcome(e, stored)
}

// Freshened stores a response that a backend has found valid, in the place of the old one.
func (n *Named) Freshened(old, fresh *Entry, at Marks) Outcome {
	stored := fresh.disk != nil || n.Store(fresh, at.memory)
	if d := n.second(&at); stored && d != nil {
		d.freshen(old, fresh, at.disk)
	}
	return n.outcome(fresh, stored)
}

// outcome returns how a flight ends.
func (n *Named) outcome(e *Entry, stored bool) Outcome {
	switch {
	case !e.Shared(n.Clock()):
		return Unshared
	case stored:
		return Landed
	}
	return Failed
}

// Remove removes an entry from both levels, if it is still there.
func (n *Named) Remove(e *Entry) {
	d := n.disk.Load()
	if e.disk == nil {
		n.Cache.Remove(e)
	}
	if d != nil {
		d.removeSame(e)
	}
}

// Invalidate removes all that is stored of a URL, and keeps what is under way from being stored (RFC 9111 4.4). It returns the number
// of responses.
func (n *Named) Invalidate(url string) int {
	d, count := n.disk.Load(), 0
	if d != nil {
		count = n.onlyOnDisk(d, url)
		d.index.Invalidate(url)
	}
	return count + n.Cache.Invalidate(url)
}

// onlyOnDisk returns how many responses of a URL are in files and not in memory.
func (n *Named) onlyOnDisk(d *Disk, url string) (count int) {
	if g := d.index.find(d.index.hash(url), url); g != nil {
		for _, e := range *g.entries.Load() {
			if n.same(e) == nil {
				count++
			}
		}
	}
	return count
}

// Purge removes all responses whose URL begins with a prefix, "" for all, and keeps what is under way from being stored. It returns their
// number once their files are removed: so it may wait for the disk.
func (n *Named) Purge(prefix string) (count int) {
	if d := n.disk.Load(); d != nil {
		d.index.Each(func(e *Entry) bool {
			if strings.HasPrefix(e.URL, prefix) && n.same(e) == nil {
				count++
			}
			return true
		})
		d.index.Purge(prefix)
		defer d.Sync()
	}
	return count + n.Cache.Purge(prefix)
}

// Sync waits until the files of what was removed are.
func (n *Named) Sync() {
	if d := n.disk.Load(); d != nil {
		d.Sync()
	}
}

// Each calls yield with the responses, those in memory first, until it returns false.
func (n *Named) Each(yield func(*Entry) bool) {
	going := true
	n.Cache.Each(func(e *Entry) bool {
		going = yield(e)
		return going
	})
	if d := n.disk.Load(); d != nil && going {
		d.index.Each(func(e *Entry) bool { return n.same(e) != nil || yield(e) })
	}
}

// Fill gathers the content of a response that is to be stored.
type Fill struct {
	of       *Named
	entry    *Entry
	mark     Marks
	body     []byte
	most     int64
	reserved int64
}

// Begin begins to gather content of a length, -1 where it is not known, and of so many bytes at most. It returns nil where too much is
// gathered already.
func (n *Named) Begin(e *Entry, at Marks, length, most int64) *Fill {
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

// Spill goes on with a response that is too long for memory at the second level, and returns nil where it cannot.
func (f *Fill) Spill() *DiskFill {
	to := f.of.Spill(f.entry, f.mark)
	if to == nil {
		return nil
	}
	for part := range slices.Chunk(f.body, sumBlock) {
		if !to.Add(part) {
			return nil
		}
	}
	return to
}

// Spill begins to write a response to the second level alone. It returns nil where it cannot.
func (n *Named) Spill(e *Entry, at Marks) *DiskFill {
	d := n.second(&at)
	if d == nil {
		return nil
	}
	return d.begin(e, at.disk)
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
