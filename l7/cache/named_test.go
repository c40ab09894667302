package cache

import (
	"testing"
	"time"
)

func TestFill(t *testing.T) {
	named := func() *Named { return NewNamed("n", Options{Memory: 1 << 20}, 1, func() time.Time { return start }) }
	entry := func() *Entry {
		x := exchange(200, "date: "+after(0)+"\ncache-control: max-age=100")
		e, _ := x.entry()
		return e
	}
	for name, c := range map[string]struct {
		length, most int64
		parts        []int
		last         Added
	}{
		"of a length":        {10, 10, []int{4, 6}, Gathered},
		"longer than it":     {3, 10, []int{4, 6}, Gathered},
		"of no known length": {-1, 10, []int{4, 6}, Gathered},
		"too long":           {-1, 10, []int{4, 7}, TooLong},
		"too much":           {-1, 8 << 20, []int{1 << 10, 4 << 20}, NoMemory},
	} {
		n := named()
		f := n.Begin(entry(), n.Mark("http://a.example/"), c.length, c.most)
		size := 0
		for i, part := range c.parts {
			got := f.Add(make([]byte, part))
			if want := c.last; i < len(c.parts)-1 && got != Gathered || i == len(c.parts)-1 && got != want {
				t.Errorf("%s: part %d: %v", name, i, got)
			}
			if got == Gathered {
				size += part
			}
		}
		if len(f.Body()) != size {
			t.Errorf("%s: %d bytes, want %d", name, len(f.Body()), size)
		}
		if c.last != Gathered {
			f.Drop()
		} else if body, o := f.Commit(); o != Landed || len(body) != size || !n.has("http://a.example/") {
			t.Errorf("%s: %v, %d bytes", name, o, len(body))
		}
		if left := n.filling.Load(); left != 0 {
			t.Errorf("%s: %d bytes stay reserved", name, left)
		}
	}
	n := named()
	if n.Begin(entry(), Marks{}, 4<<20, 8<<20) != nil {
		t.Error("a response that is longer than the cache is gathered")
	}
}

// Those that wait for a response that each of them has to validate do not wait for the next.
func TestPutEndsFlights(t *testing.T) {
	n := NewNamed("n", Options{Memory: 1 << 20}, 1, func() time.Time { return start.Add(time.Hour) })
	if o := n.Put(entryOf("http://a.example/", "r", 1), n.Mark("http://a.example/")); o != Unshared {
		t.Errorf("a stale response: %v", o)
	}
	n.Clock = func() time.Time { return start }
	if o := n.Put(entryOf("http://a.example/", "r", 2<<20), n.Mark("http://a.example/")); o != Failed {
		t.Errorf("one that is too large: %v", o)
	}
}

func TestCountsAreSumsOfAllLoops(t *testing.T) {
	n := NewNamed("n", Options{Memory: 1 << 20}, 2, nil)
	n.Count(0, CountHit)
	n.Count(1, CountHit)
	n.Count(1, CountFull)
	if got := n.Counts(); got != [Counts]uint64{CountHit: 2, CountFull: 1} {
		t.Errorf("%v", got)
	}
}
