package role

import (
	"testing"
	"time"
)

// rivalledFor runs for a while, in which a host of the link asks for the addresses five times in a lease.
func (w *world) rivalledFor(i int, d time.Duration, also func()) {
	for range d / (lease / 5) {
		w.gates[i].m.Rivalled(w.local(i))
		also()
		w.run(lease / 5)
	}
}

// Any host can ask for an address without one of its own. That holds a take-over off for a lease at most, and is seen.
func TestAStrangerThatProbes(t *testing.T) {
	w := settled(t)
	w.kill(0)
	w.until(1, Probing, 2*lease)
	began := w.now
	m := w.gates[1].m
	w.rivalledFor(1, 4*lease/5, func() {})
	if p := m.Picture(w.local(1)); p.State != Probing || !p.HeldOff || !p.Rivalled || p.Rivals != 4 {
		w.fail("%+v", p)
	}
	w.rivalledFor(1, lease, func() {})
	if p := m.Picture(w.local(1)); p.State != Active || p.HeldOff || p.Rivalled || p.Rivals < 5 {
		w.fail("after %v: %+v", w.now.Sub(began), p)
	}
	before := m.rivals
	m.Rivalled(w.local(1))
	if m.rivals != before {
		t.Error("an active gateway counts rivals")
	}
}

// A host that answers for an address holds a take-over off for as long as it does, whatever other hosts ask.
func TestAStrangerThatProbesBesideAnAnswer(t *testing.T) {
	w := settled(t)
	w.cut = [2]bool{true, true}
	w.until(1, Probing, 2*lease)
	w.rivalledFor(1, 5*lease, func() {})
	if p := w.gates[1].m.Picture(w.local(1)); p.State != Probing || !p.HeldOff || p.Rivalled {
		w.fail("%+v", p)
	}
	w.want(Active, Probing)
}

// The gateway with index 0 does not wait for others that probe.
func TestAStrangerThatProbesBesideTheFirst(t *testing.T) {
	w := settled(t)
	w.kill(1)
	w.kill(0)
	w.start(0)
	w.until(0, Probing, 3*lease)
	w.rivalledFor(0, 2*lease/5, func() {})
	if p := w.gates[0].m.Picture(w.local(0)); p.State != Active || p.Rivals == 0 {
		w.fail("%+v", p)
	}
}

// A copy of a message shows that its path works, and changes nothing. One of another run, to another run, or from longer ago
// shows nothing.
func TestCopiesOfMessages(t *testing.T) {
	w := settled(t)
	m := w.gates[1].m
	now := w.local(1)
	in := m.peer.Message
	if m.Receive(now, in) || !m.Repeats(now, in) {
		t.Error("the second copy")
	}
	for name, change := range map[string]func(*Message){
		"next":        func(c *Message) { c.Number++ },
		"other run":   func(c *Message) { c.From[0]++ },
		"to another":  func(c *Message) { c.To[0]++ },
		"a lease ago": func(c *Message) { c.Number, c.Sent = 1, c.Sent.Add(-lease) },
	} {
		c := in
		change(&c)
		if m.Repeats(now, c) {
			t.Errorf("%s: it is a copy", name)
		}
	}
	older := in
	older.Number, older.Sent = in.Number-1, in.Sent.Add(-lease/10)
	if m.Receive(now, older) || !m.Repeats(now, older) {
		t.Error("an older one by a slow path")
	}
	w.kill(0)
	w.run(5 * lease)
	if m.Repeats(w.local(1), in) {
		t.Error("a recorded one shows that a path works")
	}
}

// An order that the peer be active ends with the peer, so preemption is what it was.
func TestAnOrderEndsWithThePeer(t *testing.T) {
	for _, refused := range []bool{true, false} {
		w := settled(t, func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), true })
		if err := w.gates[0].m.ToStandby(w.local(0)); err != nil {
			t.Fatal(err)
		}
		w.until(1, Active, lease)
		w.until(0, Standby, lease)
		w.run(10 * lease)
		w.want(Standby, Active)
		if !w.gates[0].m.Picture(w.local(0)).Held {
			t.Error("the order is not shown")
		}
		w.kill(1)
		w.run(50 * time.Millisecond)
		if refused {
			w.gates[0].m.Refused(w.local(0))
			if w.gates[0].m.held {
				t.Error("the peer is gone, and the order is not")
			}
		}
		w.until(0, Active, 3*lease)
		if w.gates[0].m.Picture(w.local(0)).Held {
			t.Error("an active gateway is held")
		}
		w.start(1)
		w.run(3 * lease)
		w.gates[0].m.SetAble(w.local(0), false)
		w.until(1, Active, 2*lease)
		w.gates[0].m.SetAble(w.local(0), true)
		w.until(0, Active, 8*lease)
	}
}

// While the peer cannot be heard but answers, an order holds.
func TestAnOrderOutlastsACut(t *testing.T) {
	w := settled(t, func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), true })
	if err := w.gates[0].m.ToStandby(w.local(0)); err != nil {
		t.Fatal(err)
	}
	w.until(1, Active, lease)
	w.run(lease)
	w.cut = [2]bool{true, true}
	w.run(5 * lease)
	w.cut = [2]bool{}
	w.run(10 * lease)
	w.want(Standby, Active)
}

// A standby has the term of the active gateway, and two with one index see that.
func TestThePictureOfAPeer(t *testing.T) {
	w := settled(t)
	a, b := w.gates[0].m.Picture(w.local(0)), w.gates[1].m.Picture(w.local(1))
	if a.Term == 0 || b.Term != a.Term || a.SameIndex || b.SameIndex {
		t.Errorf("%+v, %+v", a, b)
	}
	w = newWorld(t, 3, func(_ int, c *Config) { c.Index = 0 })
	w.start(0, 1)
	w.run(2 * lease)
	for i, g := range w.gates {
		if p := g.m.Picture(w.local(i)); !p.SameIndex {
			t.Errorf("gateway %d: %+v", i, p)
		}
	}
}
