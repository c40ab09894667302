package pool

import (
	"testing"

	"github.com/millrace/millrace/clock"
)

// A loop learns of the longest wait at the others, and of none once nothing waits there.
func TestLongestWaitIsOfOtherLoops(t *testing.T) {
	b := newPool(t, Options{}, same(1)).Backends()[0]
	expect := func(of int, want clock.Time) {
		t.Helper()
		if got := b.LongestWait(of); got != want {
			t.Errorf("loop %d: %v, want %v", of, got, want)
		}
	}
	expect(0, clock.Never)
	b.SetWait(2, 30)
	b.SetWait(0, 40)
	expect(0, 30)
	expect(1, 30)
	expect(2, 40)
	expect(9, 30)
	b.SetWait(2, 50)
	expect(1, 40)
	b.SetWait(0, clock.Never)
	expect(2, clock.Never)
	expect(0, 50)
	b.SetWait(2, clock.Never)
	b.SetWait(2, clock.Never)
	expect(0, clock.Never)
	if n := b.waits.loops.Load(); n != 0 {
		t.Errorf("%d loops have requests that wait", n)
	}
}

// What found the queue full, and what waited for too long, is counted.
func TestWaitsThatFailAreCounted(t *testing.T) {
	p := newPool(t, Options{Limits: Limits{Pending: 1}}, same(1))
	b := p.Backends()[0]
	if !b.PendingAdded() || b.PendingAdded() || b.PendingAdded() {
		t.Error("one may wait")
	}
	b.PendingExpired()
	if s := p.Status(0).Backends[0]; s.Pending != 1 || s.Refused != 2 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}
}

// Room is what the backend and its pool have left, whichever is less.
func TestRoomIsTheLeastThatIsLeft(t *testing.T) {
	list := same(2)
	list[0].Limits.Connections = 2
	p := newPool(t, Options{Limits: Limits{Connections: 3}}, list)
	a, b := p.Backends()[0], p.Backends()[1]
	expect := func(left, right int) {
		t.Helper()
		if a.Room() != left || b.Room() != right || a.MayConnect() != (left > 0) {
			t.Errorf("%d and %d, want %d and %d", a.Room(), b.Room(), left, right)
		}
	}
	expect(2, 3)
	for a.ConnOpened() {
	}
	expect(0, 1)
	b.ConnOpened()
	expect(0, 0)
	a.ConnClosed()
	expect(1, 1)
	if free := newPool(t, Options{}, same(1)).Backends()[0]; free.Room() < 1<<20 {
		t.Error(free.Room())
	}
}
