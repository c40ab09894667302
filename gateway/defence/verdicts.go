package defence

import (
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/filter/ebpf"
)

// entry is a verdict beyond the lists. It is immutable.
type entry struct {
	ebpf.Verdict
	rule     string
	operator bool
	since    time.Time
	until    time.Time // zero: until it is removed, which only the operator asks for
}

func (e *entry) ended(now time.Time) bool { return !e.until.IsZero() && !e.until.After(now) }

// replaces reports whether a new verdict takes the place of another on the same prefix.
func (e *entry) replaces(old *entry, now time.Time) bool {
	switch drops, dropped := e.Rate == 0, old.Rate == 0; {
	case e.operator || old.ended(now):
		return true
	case old.operator:
		return false
	case drops != dropped:
		return drops
	}
	return e.until.After(old.until)
}

// verdicts is the verdicts beyond the lists. It has no mutex, because loops enter verdicts while another goroutine walks
// all of them.
type verdicts struct {
	entries sync.Map     // netip.Prefix to *entry
	number  atomic.Int64 // of entries, or more while one is entered
}

// on returns the verdict on a prefix, nil for none.
func (v *verdicts) on(source netip.Prefix) *entry {
	e, _ := v.entries.Load(source)
	old, _ := e.(*entry)
	return old
}

// enter adds an entry or replaces the one on its prefix, which it returns. There are at most most.
func (v *verdicts) enter(e *entry, now time.Time, most int64, l *limiter) (old *entry, err error) {
	for taken := false; ; {
		old = v.on(e.Prefix)
		if old != nil && !e.replaces(old, now) {
			return nil, errKept
		}
		if !taken && !l.take(now) {
			return nil, errBusy
		}
		taken = true
		if old != nil {
			if v.entries.CompareAndSwap(e.Prefix, old, e) {
				return old, nil
			}
			continue
		}
		if v.number.Add(1) > most {
			v.number.Add(-1)
			return nil, ErrFull
		}
		if _, loaded := v.entries.LoadOrStore(e.Prefix, e); !loaded {
			return nil, nil
		}
		v.number.Add(-1)
	}
}

// restore takes back what enter has done.
func (v *verdicts) restore(e, old *entry) {
	if old == nil {
		v.remove(e)
	} else {
		v.entries.CompareAndSwap(e.Prefix, e, old)
	}
}

// remove removes an entry, and reports whether it was there.
func (v *verdicts) remove(e *entry) bool {
	there := v.entries.CompareAndDelete(e.Prefix, e)
	if there {
		v.number.Add(-1)
	}
	return there
}

// all returns the entries, in no order.
func (v *verdicts) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		v.entries.Range(func(_, e any) bool { return yield(e.(*entry)) })
	}
}
