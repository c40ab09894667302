package host

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
)

// text returns n bytes that are nothing in particular.
func text(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// exchange sends data from a to b, which echoes it, over both versions of IP.
func (w *world) exchange(data []byte, limit time.Duration) {
	w.t.Helper()
	w.listen(w.b, 7, true)
	var all []*sock
	for i := range w.a.Hosts {
		all = append(all, w.dial(w.a, i, addrA4, addrB4, 7), w.dial(w.a, i, addrA6, addrB6, 7))
	}
	for _, s := range all {
		s.send, s.shut = data, true
	}
	if !w.run(limit, func() bool {
		for _, s := range all {
			if !s.fin {
				return false
			}
		}
		return true
	}) {
		for _, s := range all {
			w.t.Errorf("%v: %d of %d bytes came back, %d wait, events %b, err %v: %+v", s.c.State(), len(s.got), len(data), len(s.send), s.evs, s.c.Err(), s.c.Info())
		}
		w.t.FailNow()
	}
	for i, s := range all {
		if !bytes.Equal(s.got, data) {
			w.t.Errorf("connection %d: %d bytes came back, not the %d that were sent", i, len(s.got), len(data))
		}
		w.must(s.h.locked(func(now clock.Time, _ *Host) error { s.c.Close(now); return nil }))
	}
}

func TestTwoHostsTalk(t *testing.T) {
	w := newWorld(t, setting{})
	w.exchange(text(1<<20, 1), 20*time.Second)
	a, b := w.settle()
	for _, s := range []*stack.Stats{&a, &b} {
		if n := unsolicited(s); s.TotalDropped() != n || n > 6 || s.Delivered+n != s.Received {
			t.Errorf("on a perfect wire:\n%+v", s)
		}
	}
}

// unsolicited returns how many packets were dropped that hosts send when they begin: announcements of addresses,
// which no host has solicited, and reports of groups, which no router reads.
func unsolicited(s *stack.Stats) uint64 {
	return s.Dropped[packet.DropNeighbor] + s.Dropped[packet.DropNotOurs]
}

func TestTwoHostsTalkOverABadLink(t *testing.T) {
	w := newWorld(t, setting{profile: "loss=1% dup=1% corrupt=1% reorder=2% delay=2ms±1ms seed=5"})
	w.exchange(text(300<<10, 2), 120*time.Second)
	a, b := w.settle()
	if a.Dropped[packet.DropL4Checksum]+b.Dropped[packet.DropL4Checksum] == 0 {
		t.Errorf("nothing was corrupt: %+v", a)
	}
}

func TestTwoHostsOfSeveralLoopsTalk(t *testing.T) {
	for _, loops := range []int{2, 3} {
		for _, cross := range []bool{false, true} {
			w := newWorld(t, setting{loops: loops, cross: cross})
			w.exchange(text(300<<10, 3), 20*time.Second)
			a, b := w.settle()
			if cross && (a.HandedOver < 50 || b.HandedOver < 50) || !cross && a.HandedOver+b.HandedOver > 20 {
				t.Errorf("%d loops, crossed %v: %d and %d handed over", loops, cross, a.HandedOver, b.HandedOver)
			}
			if lost := a.TotalDropped() + b.TotalDropped() - unsolicited(&a) - unsolicited(&b); lost != 0 {
				t.Errorf("%d loops, crossed %v: %d lost\n%+v\n%+v", loops, cross, lost, a, b)
			}
		}
	}
}
