package role

import (
	"encoding/json"
	"testing"
	"time"
)

// replace has a new process go on with a gateway after a time without one.
func (w *world) replace(i int, gap time.Duration) {
	w.t.Helper()
	text, err := json.Marshal(w.gates[i].m.Save())
	if err != nil {
		w.t.Fatal(err)
	}
	g := w.gates[i]
	g.frozen = true // its socket keeps what comes
	w.run(gap)
	g.frozen, g.polls = false, true
	var s Saved
	if err := json.Unmarshal(text, &s); err != nil {
		w.t.Fatal(err)
	}
	g.m = Restore(g.cfg, &s, w.local(i))
	g.m.SetSynced(w.local(i), true)
	if w.answers(0) && w.answers(1) { // before it has read what waits in its socket
		w.fail("both answer after %v without a process", gap)
	}
}

// A process replaces another one at either gateway: the roles stay, and the peer notices nothing.
func TestAnUpgradeMovesNothing(t *testing.T) {
	for gateway := range 2 {
		w := settled(t)
		before := [2]uint64{w.gates[0].m.changes, w.gates[1].m.changes}
		for range 5 {
			w.replace(gateway, lease/4)
			w.run(lease)
		}
		w.want(Active, Standby)
		for i, g := range w.gates {
			if g.m.changes != before[i] || g.m.splits != 0 {
				t.Errorf("gateway %d of an upgrade of %d: %d changes, %v", i, gateway, g.m.changes-before[i], g.m.last)
			}
		}
		w.kill(0)
		w.until(1, Active, 2*lease)
	}
}

// A new process that comes after its peer may have taken over asks first. Never do two answer.
func TestAnUpgradeThatTakesTooLong(t *testing.T) {
	for gap := lease / 4; gap < 3*lease; gap += lease / 16 {
		w := settled(t)
		w.replace(0, gap)
		w.run(5 * lease)
		if w.bothOn > 0 || w.answers(0) == w.answers(1) {
			w.fail("%v: %v and %v, both for %v", gap, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
		}
	}
}

// The new process fails after some messages: the one of before goes on, and its peer takes its messages.
func TestAnUpgradeThatFails(t *testing.T) {
	for _, gap := range []time.Duration{lease / 4, lease / 2, 2 * lease} {
		w := settled(t)
		before := w.gates[0].m
		w.replace(0, lease/10)
		w.run(gap)
		w.gates[0].m = before
		w.run(4 * lease)
		if w.bothOn > 0 || w.answers(0) == w.answers(1) {
			w.fail("%v: %v and %v, both for %v", gap, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
		}
		if p := w.gates[1].m.Picture(w.local(1)); !p.Heard || p.Peer.State != w.gates[0].m.state {
			t.Errorf("%v: the peer has %+v, heard %v", gap, p.Peer.State, p.Heard)
		}
	}
}
