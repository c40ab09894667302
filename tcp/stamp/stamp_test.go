package stamp

import (
	"testing"

	"github.com/millrace/millrace/clock"
)

// take returns all events.
func take(q *Queue) (all []Event) {
	for e, ok := q.Next(); ok; e, ok = q.Next() {
		all = append(all, e)
	}
	return all
}

func TestWritesAreStampedWhenTheirLastByteIs(t *testing.T) {
	const start = 1<<32 - 3 // the sequence numbers wrap
	next := uint32(start)
	q := New(next)
	for _, n := range []uint32{4, 1, 5} {
		next += n
		q.Written(next, Sent|Acked)
	}
	q.Written(next+7, Acked)
	steps := []struct {
		ack  bool
		to   uint32
		want []Event
	}{
		{false, 3, nil},
		{false, 5, []Event{{Sent, 3, 1}, {Sent, 4, 1}}},
		{true, 4, []Event{{Acked, 3, 2}}},
		{false, 17, []Event{{Sent, 9, 3}}},
		{true, 16, []Event{{Acked, 4, 4}, {Acked, 9, 4}}},
		{true, 17, []Event{{Acked, 16, 5}}},
		{true, 17, nil},
	}
	for i, s := range steps {
		to, f := start+s.to, q.Transmitted
		if s.ack {
			f = q.Acknowledged
		}
		if some := f(clock.Time(i), to); some != (len(s.want) > 0) {
			t.Errorf("step %d: events: %v", i, some)
		}
		got := take(q)
		if len(got) != len(s.want) {
			t.Fatalf("step %d: %v, want %v", i, got, s.want)
		}
		for k := range got {
			if got[k] != s.want[k] {
				t.Errorf("step %d: %v, want %v", i, got, s.want)
			}
		}
	}
}

func TestQueuesAreBounded(t *testing.T) {
	q := New(0)
	for i := range uint32(3000) {
		q.Written(i+1, Sent|Acked)
		q.Transmitted(1, i+1)
		q.Arrived(clock.Time(i+1), i+1)
	}
	if len(q.writes) != maxWrites || q.Len() != maxEvents || len(q.arrivals) != maxArrivals {
		t.Errorf("%d writes, %d events, %d arrivals", len(q.writes), q.Len(), len(q.arrivals))
	}
	if at, ok := q.ReceivedAt(3000); at != 3000 || !ok {
		t.Error(at, ok)
	}
}

func TestReceivedAt(t *testing.T) {
	q := New(0)
	q.Arrived(10, 5)
	q.Arrived(10, 7)
	q.Arrived(20, 9)
	for _, c := range []struct {
		next uint32
		at   clock.Time
		ok   bool
	}{{1, 10, true}, {7, 10, true}, {8, 20, true}, {9, 20, true}, {10, 0, false}} {
		if at, ok := q.ReceivedAt(c.next); at != c.at || ok != c.ok {
			t.Errorf("byte before %d: %d, %v", c.next, at, ok)
		}
	}
}
