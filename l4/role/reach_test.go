package role

import (
	"errors"
	"testing"
	"time"
)

// watching returns two settled gateways that a watched host answers.
func watching(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 1)
	w.router = true
	w.start(0, 1)
	w.run(3 * lease)
	w.want(Active, Standby)
	return w
}

// The switch port of the active gateway is lost, its carrier is not: it hands over within a lease, and does not take the addresses
// back when the port is there again.
func TestACutPort(t *testing.T) {
	w := watching(t)
	w.portCut[0] = true
	if took := w.until(1, Active, lease); took < lease/2 {
		t.Errorf("after %v: two lost questions suffice", took)
	}
	if a := w.gates[0].m; a.last.Why != CutOff && a.last.Why != PeerActive || !a.Picture(w.local(0)).CutOff || w.gates[1].m.last.Why != PeerYields {
		t.Errorf("%v, %v", a.last.Why, w.gates[1].m.last.Why)
	}
	if err := w.gates[1].m.ToStandby(w.local(1)); !errors.Is(err, ErrPeer) {
		t.Errorf("to a peer that is cut off: %v", err)
	}
	if err := w.gates[0].m.ToActive(w.local(0)); err == nil {
		t.Error("one that is cut off takes the addresses")
	}
	w.portCut[0] = false
	w.run(5 * lease)
	w.want(Standby, Active)
}

// A watched host that answers neither gateway moves nothing: it is down.
func TestAWatchedHostThatIsDown(t *testing.T) {
	w := watching(t)
	w.router = false
	w.run(5 * lease)
	w.want(Active, Standby)
	w.portCut[0] = true
	w.run(5 * lease)
	w.want(Active, Standby)
	w.router = true // the standby hears it
	w.until(1, Active, lease)
	w.until(0, Standby, lease)
}

// A peer that watches nothing, as one of an earlier version, is not handed over to.
func TestACutPortBesideAPeerThatWatchesNothing(t *testing.T) {
	w := watching(t)
	w.gates[1].m.Unwatch()
	w.router, w.portCut[0] = false, true
	w.run(5 * lease)
	w.want(Active, Standby)
}

// The messages are cut with the port: the active gateway releases the addresses before the standby takes them, so that at no time after
// the port is joined again two answer. Neither answers for longer than a lease.
func TestACutPortWithoutMessages(t *testing.T) {
	for cut := lease / 20; cut < 3*lease; cut += lease / 20 {
		w := watching(t)
		w.run(time.Duration(w.rand.Int64N(int64(lease))))
		w.portCut[0], w.cut = true, [2]bool{true, true}
		none := time.Duration(0)
		for range cut / time.Millisecond {
			w.step()
			if !w.answers(0) && !w.answers(1) {
				none += time.Millisecond
			}
		}
		w.portCut[0] = false
		w.run(3 * lease)
		if w.bothOn > 0 || none > lease/2 || w.answers(0) == w.answers(1) {
			w.fail("%v: both for %v, none for %v, %v and %v", cut, w.bothOn, none, w.gates[0].m.state, w.gates[1].m.state)
		}
	}
}

// An active gateway without any link and without a peer that is heard does not answer when the link comes back, before it has asked.
func TestNoLinkAtAll(t *testing.T) {
	w := settled(t)
	w.cut, w.portCut[0] = [2]bool{true, true}, true
	w.run(2 * lease)
	w.want(Active, Active) // each for its side
	w.gates[0].m.SetLinked(false)
	w.gates[0].m.SetAble(w.local(0), false)
	w.gates[0].polls = true
	w.until(0, Probing, lease/50)
	if w.gates[0].m.last.Why != Isolated {
		t.Error(w.gates[0].m.last.Why)
	}
	w.run(3 * lease)
	if w.gates[0].m.state == Active {
		t.Error("it is active without a link")
	}
	w.portCut[0] = false
	w.gates[0].m.SetLinked(true)
	w.gates[0].m.SetAble(w.local(0), true)
	w.run(3 * lease)
	w.want(Probing, Active)
}

// With a peer that can take them the addresses move as soon as the link is lost, without a message that comes first.
func TestALostLinkMovesTheAddressesAtOnce(t *testing.T) {
	w := settled(t)
	w.gates[0].m.SetAble(w.local(0), false)
	w.gates[0].polls = true
	if took := w.until(1, Active, lease); took > lease/50 {
		t.Errorf("after %v", took)
	}
}

// What has never answered does not count: a mistake in the file stops no gateway.
func TestAWatchedHostThatHasNeverAnswered(t *testing.T) {
	w := newWorld(t, 1)
	w.start(0)
	w.until(0, Active, 2*lease)
	w.run(5 * lease)
	if p := w.gates[0].m.Picture(w.local(0)); p.State != Active || p.CutOff || p.Reaches {
		t.Errorf("%+v", p)
	}
}

// A gateway that is cut off is not elected, and does not preempt.
func TestOneThatIsCutOffIsNotElected(t *testing.T) {
	w := watching(t)
	w.portCut[0] = true
	w.until(1, Active, lease)
	w.gates[0].m.cfg.Priority, w.gates[0].m.cfg.Preempt = 200, true
	w.run(20 * lease)
	w.want(Standby, Active)
	w.portCut[0] = false
	w.until(0, Active, 8*lease)
}
