package shim

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// delayedThing is something in a delayQueue.
type delayedThing struct {
	number  int
	ended   bool
	expired *[]int
}

func (d *delayedThing) over() bool { return d.ended }
func (d *delayedThing) expire()    { *d.expired = append(*d.expired, d.number); d.ended = true }

// TestDelayQueue: what is not over expires in order at its time, and the loop wakes for that and for nothing else.
func TestDelayQueue(t *testing.T) {
	const delay = time.Millisecond
	q := &delayQueue{delay: delay}
	if next := q.Arm(); next != clock.Never {
		t.Errorf("an empty queue wakes the loop at %v", next)
	}
	var expired []int
	things := make([]*delayedThing, 5)
	at := func(i int) clock.Time { return clock.Time(0).Add(time.Duration(i) * time.Microsecond) }
	for i := range things {
		things[i] = &delayedThing{number: i, expired: &expired}
		q.add(at(i), things[i])
	}
	if next := q.Arm(); next != at(0).Add(delay) {
		t.Errorf("the loop wakes at %v", next)
	}
	things[0].ended, things[2].ended = true, true
	if next := q.Arm(); next != at(1).Add(delay) {
		t.Errorf("the loop wakes at %v for what is over", next)
	}
	if n := q.Poll(at(1).Add(delay - 1)); n != 0 {
		t.Errorf("%d before their time", n)
	}
	if n := q.Poll(at(3).Add(delay)); n != 3 || !slices.Equal(expired, []int{1, 3}) || len(q.entries) != 1 {
		t.Errorf("%d, %v expired, %d are left", n, expired, len(q.entries))
	}
	things[4].ended = true
	q.add(at(9), &delayedThing{number: 9, expired: &expired})
	if len(q.entries) != 1 || q.Arm() != at(9).Add(delay) {
		t.Errorf("%d entries wait until %v", len(q.entries), q.Arm())
	}
	for range expiresPerPoll {
		q.add(at(9), &delayedThing{number: 10, expired: &expired})
	}
	if n := q.Poll(at(9).Add(delay)); n != expiresPerPoll || len(q.entries) != 1 {
		t.Errorf("%d in one iteration, %d are left", n, len(q.entries))
	}
}
