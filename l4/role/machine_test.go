package role

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// Each state and each event: an event leaves a state, or leads to the one that the table of the design page has.
func TestTransitions(t *testing.T) {
	want := map[State]map[Event]State{
		Joining:  {PeerActive: Standby, PeerSilent: Probing, PeerGone: Probing, Elected: Probing, Stalled: Joining},
		Standby:  {PeerYields: Active, PeerSilent: Probing, PeerGone: Probing, Elected: Probing, Stalled: Joining},
		Probing:  {PeerActive: Standby, PeerYields: Active, Unopposed: Active, Stalled: Joining},
		Active:   {PeerActive: Standby, Ordered: Yielding, Disabled: Yielding, Claimed: Yielding, Leaving: Yielding, Stalled: Probing, CutOff: Yielding, Isolated: Probing, Outranked: Probing},
		Yielding: {PeerActive: Standby, PeerGone: Probing, Declined: Probing, Stalled: Joining},
	}
	for s := range states {
		for e := range events {
			m := New(Config{Lease: lease}, 0)
			m.state = s
			m.on(e, tick)
			to, ok := want[s][e]
			if !ok {
				to = s
			}
			if m.state != to || (m.changes == 1) != ok || ok && m.last != (Change{s, to, e, tick}) {
				t.Errorf("%v, %q: %v with %d changes, not %v", s, e, m.state, m.changes, to)
			}
			if m.state == Active != (m.AnswersUntil() > 0) {
				t.Errorf("%v answers until %v", m.state, m.AnswersUntil())
			}
		}
	}
}

func TestTheHigherPriorityIsActiveAtFirst(t *testing.T) {
	for _, c := range []struct {
		priorities [2]uint8
		active     int
	}{{[2]uint8{100, 100}, 0}, {[2]uint8{100, 101}, 1}, {[2]uint8{101, 100}, 0}} {
		w := newWorld(t, 1, func(i int, f *Config) { f.Priority = c.priorities[i] })
		w.start(0, 1)
		took := w.until(c.active, Active, lease)
		w.run(lease)
		if w.gates[1-c.active].m.state != Standby || w.both > 0 || w.gates[c.active].announced != 1 {
			w.fail("priorities %d: the other is %v", c.priorities, w.gates[1-c.active].m.state)
		}
		if took > lease/10 {
			t.Errorf("priorities %d: it takes %v", c.priorities, took)
		}
	}
}

// A gateway that comes back does not take the addresses from the other one, whatever its priority.
func TestNoPreemptionByDefault(t *testing.T) {
	w := settled(t, func(i int, c *Config) { c.Priority = uint8(200 - i) })
	w.kill(0)
	w.until(1, Active, 2*lease)
	w.start(0)
	w.run(20 * lease)
	w.want(Standby, Active)
}

// With preempt it asks for them, once it could have replaced the peer for the delay, and no two answer meanwhile.
func TestPreemptionAfterTheDelay(t *testing.T) {
	w := settled(t, func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), true })
	w.kill(0)
	w.until(1, Active, 2*lease)
	w.start(0)
	w.gates[0].m.SetSynced(w.local(0), false)
	w.run(8 * lease)
	w.want(Standby, Active)
	w.gates[0].m.SetSynced(w.local(0), true)
	if took := w.until(0, Active, 6*lease); took < 5*lease {
		t.Errorf("after %v", took)
	}
	w.run(lease)
	w.want(Active, Standby)
	if last := w.gates[1].m.last; last.Why != PeerActive || w.both > 0 {
		t.Errorf("%v", last)
	}
}

// A device that loses its link again and again moves the addresses once in each delay at most.
func TestAFlappingLink(t *testing.T) {
	for _, preempt := range []bool{false, true} {
		w := settled(t, func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), preempt })
		before := w.gates[0].m.changes
		for range 60 { // in each second
			w.gates[0].m.SetAble(w.local(0), false)
			w.run(lease / 3)
			w.gates[0].m.SetAble(w.local(0), true)
			w.run(2 * lease / 3)
		}
		w.want(Standby, Active)
		if n := w.gates[0].m.changes - before; n != 2 {
			w.fail("preempt %v: %d changes", preempt, n)
		}
	}
}

// The peer's host says that no process has its port: the standby need not wait for the lease.
func TestAKilledGatewayIsReplacedAtOnce(t *testing.T) {
	w := settled(t)
	w.kill(0)
	w.run(50 * time.Millisecond)
	w.gates[1].m.Refused(w.local(1))
	w.gates[1].polls = true
	if took := w.until(1, Active, lease); took > lease/15 {
		t.Errorf("it takes %v", took)
	}
}

// A machine that is gone says nothing.
func TestAGatewayThatIsGoneIsReplacedAfterItsLease(t *testing.T) {
	for _, factor := range []time.Duration{1, 3} {
		w := settled(t, func(i int, c *Config) { c.Lease = lease * (factor - clampIndex(factor, i)) })
		w.kill(0)
		took := w.until(1, Active, 4*lease)
		if took < factor*lease-factor*lease/10-2*time.Millisecond || took > factor*lease+factor*lease/4 {
			t.Errorf("lease %v: it takes %v", factor*lease, took)
		}
	}
}

// clampIndex makes the second gateway's lease the shorter one: the longer counts.
func clampIndex(factor time.Duration, i int) time.Duration {
	if i == 1 {
		return factor - 1
	}
	return 0
}

// While messages do not pass, the standby sees on the link that the active gateway answers, and waits.
func TestACutSyncLinkMovesNothing(t *testing.T) {
	for _, cut := range [][2]bool{{true, true}, {true, false}, {false, true}} {
		w := settled(t)
		w.cut = cut
		w.run(10 * lease)
		if w.gates[0].m.state != Active || w.gates[1].m.state == Active || w.both > 0 {
			w.fail("cut %v: %v and %v", cut, w.gates[0].m.state, w.gates[1].m.state)
		}
		if p := w.gates[1].m.Picture(w.local(1)); cut[1] && (p.State != Probing || !p.HeldOff || p.Heard) {
			t.Errorf("cut %v: %+v", cut, p)
		}
		w.cut = [2]bool{}
		w.run(lease)
		w.want(Active, Standby)
		w.cut = cut
		w.run(3 * lease)
		w.kill(0)
		w.until(1, Active, 3*lease)
	}
}

// Both networks are cut, so both are active. When messages pass again, one gives way at once, and the other announces.
func TestSplitBrain(t *testing.T) {
	for _, c := range []struct {
		priorities [2]uint8
		stays      int // the one that has become active last, unless the priority says otherwise
	}{{[2]uint8{100, 100}, 1}, {[2]uint8{101, 100}, 0}, {[2]uint8{100, 101}, 1}} {
		w := newWorld(t, 1, func(i int, f *Config) { f.Priority = c.priorities[i] })
		w.start(0)
		w.until(0, Active, 3*lease)
		w.start(1)
		w.run(lease)
		w.want(Active, Standby)
		w.cut, w.dataCut = [2]bool{true, true}, true
		w.run(5 * lease)
		w.want(Active, Active)
		announced := w.gates[c.stays].announced
		w.cut, w.dataCut = [2]bool{}, false
		w.run(lease / 2)
		stays, gives := w.gates[c.stays].m, w.gates[1-c.stays].m
		if stays.state != Active || gives.state != Standby || w.bothOn > lease/10+10*time.Millisecond {
			w.fail("priorities %v: %v and %v, both for %v", c.priorities, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
		}
		if stays.splits != 1 || gives.splits != 1 || stays.split || gives.split || w.gates[c.stays].announced != announced+1 {
			t.Errorf("priorities %v: %d and %d split brains are counted, %d announcements", c.priorities, stays.splits, gives.splits, w.gates[c.stays].announced-announced)
		}
		w.run(5 * lease)
		if stays.changes != w.gates[c.stays].m.changes || stays.state != Active {
			t.Error("it does not last")
		}
	}
}

// The links are joined while messages do not pass: of two active gateways the one that ranks behind gives way by the claims, and the
// other announces. It takes the addresses again when that one is gone.
func TestSplitBrainOnTheLink(t *testing.T) {
	w := settled(t)
	w.cut, w.dataCut = [2]bool{true, true}, true
	w.run(5 * lease)
	w.want(Active, Active)
	w.dataCut = false
	announced := w.gates[1].announced
	w.run(3 * lease)
	if a, b := w.gates[0].m, w.gates[1].m; a.state != Probing || a.last.Why != Outranked || b.state != Active || b.changes != 3 || w.bothOn > lease+10*time.Millisecond {
		w.fail("%v and %v, both for %v", a.state, b.state, w.bothOn)
	}
	if a, b := w.gates[0].m, w.gates[1].m; a.split || b.split || a.splits+b.splits < 1 || w.gates[1].announced != announced+1 {
		t.Errorf("%+v\n%+v\n%d announcements", a, b, w.gates[1].announced-announced)
	}
	w.bothOn = 0
	w.kill(1)
	w.until(0, Active, 2*lease)
	w.cut = [2]bool{}
	w.start(1)
	w.run(2 * lease)
	w.want(Active, Standby)
}

// An active gateway does not give way to a host that answers without a claim: that may be any.
func TestAnActiveGatewayBesideAStrangerThatAnswers(t *testing.T) {
	w := settled(t)
	w.kill(1)
	w.run(3 * lease)
	for range 3 {
		w.gates[0].m.Answered(w.local(0))
		w.run(lease)
	}
	if p := w.gates[0].m.Picture(w.local(0)); p.State != Active || !p.Split || p.Splits != 1 {
		w.fail("%+v", p)
	}
	announced := w.gates[0].announced
	w.run(4 * lease)
	if p := w.gates[0].m.Picture(w.local(0)); p.Split || w.gates[0].announced != announced+1 {
		w.fail("%+v, %d announcements", p, w.gates[0].announced-announced)
	}
}

// An operator hands the addresses over and back. No two answer, and none does for two messages only.
func TestHandOver(t *testing.T) {
	w := settled(t, func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), true })
	gap := func(to int, order func() error) {
		t.Helper()
		if err := order(); err != nil {
			t.Fatal(err)
		}
		w.gates[0].polls, w.gates[1].polls = true, true
		none, began := time.Duration(0), w.now
		for !w.answers(to) {
			if w.step(); !w.answers(0) && !w.answers(1) {
				none += time.Duration(tick)
			}
			if w.now.Sub(began) > lease {
				w.fail("gateway %d does not answer", to)
			}
		}
		if none > 10*time.Millisecond || w.both > 0 {
			t.Errorf("no one answers for %v, both for %v", none, w.both)
		}
	}
	gap(1, func() error { return w.gates[0].m.ToStandby(w.local(0)) })
	w.run(20 * lease) // the order holds against preempt
	w.want(Standby, Active)
	gap(0, func() error { return w.gates[0].m.ToActive(w.local(0)) })
	w.run(lease)
	w.want(Active, Standby)
	gap(1, func() error {
		if !w.gates[0].m.Leave(w.local(0)) {
			return errors.New("it does not hand over")
		}
		return nil
	})
	w.send(0, ptr(w.gates[0].m.Farewell(w.local(0))).Append(nil, w.key))
	w.kill(0)
	w.run(lease / 10)
	if p := w.gates[1].m.Picture(w.local(1)); p.Heard || p.State != Active {
		t.Errorf("after the farewell: %+v", p)
	}
}

func ptr[T any](v T) *T { return &v }

// An order that the peer is not ready for fails, and changes nothing.
func TestOrdersThatFail(t *testing.T) {
	w := settled(t)
	fails := func(i int, order func(clock.Time) error, want string) {
		t.Helper()
		if err := order(w.local(i)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		w.want(Active, Standby)
	}
	a, b := w.gates[0].m, w.gates[1].m
	b.SetSynced(w.local(1), false)
	w.run(lease)
	fails(0, a.ToStandby, "all connections")
	fails(1, b.ToActive, "all connections")
	b.SetSynced(w.local(1), true)
	b.SetAble(w.local(1), false)
	w.run(lease)
	fails(0, a.ToStandby, "no link")
	fails(1, b.ToActive, "no link")
	b.SetAble(w.local(1), true)
	w.kill(1)
	w.run(2 * lease)
	fails(0, a.ToStandby, "not heard")
	if err := a.ToStandby(w.local(0)); !errors.Is(err, ErrPeer) {
		t.Error(err)
	}
	if a.Leave(w.local(0)) || a.state != Active {
		t.Error("it leaves the addresses to no one")
	}
}

// An active process that is suspended does not answer when it goes on: its data path knows until when it may.
func TestASuspendedGateway(t *testing.T) {
	w := settled(t)
	w.gates[0].frozen = true
	w.until(1, Active, 3*lease)
	w.gates[0].frozen = false
	if w.answers(0) {
		t.Error("it answers at once")
	}
	w.run(lease)
	w.want(Standby, Active)
	// Alone, it goes on by itself.
	w.kill(1)
	w.until(0, Active, 3*lease)
	w.gates[0].frozen = true
	w.run(5 * lease)
	w.gates[0].frozen = false
	if took := w.until(0, Active, lease); took > lease/2 && w.gates[0].m.last.Why != Unopposed {
		t.Errorf("%v", took)
	}
}

// A process that starts again before its peer has noticed leaves the addresses to the peer, which has the connections.
func TestARestartWithinTheLease(t *testing.T) {
	w := settled(t, func(i int, c *Config) { c.Priority = uint8(200 - i) })
	w.kill(0)
	w.run(20 * time.Millisecond)
	w.start(0)
	if took := w.until(1, Active, lease); took > lease/4 {
		t.Errorf("%v", took)
	}
	w.run(lease)
	w.want(Standby, Active)
}

// An active gateway whose device loses its link hands over to one whose devices have theirs; where both have none, or there is no
// peer, it stays.
func TestADeviceWithoutALink(t *testing.T) {
	w := settled(t)
	w.gates[0].m.SetAble(w.local(0), false)
	w.gates[0].polls = true
	if took := w.until(1, Active, lease); took > lease/5 {
		t.Errorf("%v", took)
	}
	w.gates[1].m.SetAble(w.local(1), false)
	w.run(5 * lease)
	w.want(Standby, Active)
	w.kill(1)
	w.until(0, Active, 3*lease) // better than none
}

// Recorded messages change nothing, neither those of the present run nor of an earlier one.
func TestRecordedMessages(t *testing.T) {
	w := settled(t)
	earlier := slices.Clone(w.recorded)
	w.kill(0)
	w.until(1, Active, 2*lease)
	w.start(0)
	w.run(2 * lease)
	w.want(Standby, Active)
	earlier = append(earlier, w.recorded...)
	states, sent := [2]uint64{w.gates[0].m.changes, w.gates[1].m.changes}, w.gates[0].m.number
	for _, b := range earlier {
		for to := range w.gates {
			w.wire = append(w.wire, packet{w.now, to, b})
		}
		w.step()
	}
	w.run(lease)
	if got := [2]uint64{w.gates[0].m.changes, w.gates[1].m.changes}; got != states {
		w.fail("recorded messages have changed states: %d, then %d", states, got)
	}
	if n := w.gates[0].m.number - sent; n > uint64(len(earlier)/10+40) {
		t.Errorf("%d messages in reply to %d", n, len(earlier))
	}
	// A standby without its peer is not kept waiting by them.
	w.kill(1)
	for end := w.now.Add(3 * lease); w.now < end; {
		for _, b := range earlier[len(earlier)-20:] {
			w.wire = append(w.wire, packet{w.now, 0, b})
		}
		w.step()
	}
	if w.gates[0].m.state != Active {
		t.Error("recorded messages keep a standby from taking over")
	}
}

// A higher priority wins only what it should: equal priorities and equal indices are decided, too.
func TestEqualGateways(t *testing.T) {
	w := newWorld(t, 3, func(_ int, c *Config) { c.Index = 0 })
	w.start(0, 1)
	w.run(5 * lease)
	if s := []State{w.gates[0].m.state, w.gates[1].m.state}; !slices.Contains(s, Active) || !slices.Contains(s, Standby) || w.both > 0 {
		w.fail("%v", s)
	}
}

// An active gateway answers for three quarters of a lease after a message, and the standby waits for a whole one after it has
// heard that: their clocks may run a fifth apart.
func TestTheFenceEndsBeforeTheLease(t *testing.T) {
	w := settled(t)
	m := w.gates[0].m
	if d := m.AnswersUntil().Sub(m.sent); d != 3*lease/4 {
		t.Errorf("it answers for %v", d)
	}
	heard := w.gates[1].m.peer.Heard
	w.kill(0)
	w.wire = nil
	w.until(1, Active, 3*lease)
	if d := w.local(1).Sub(heard); d < lease {
		t.Errorf("the standby waits for %v", d)
	}
}

// Clocks that run up to 5 % too fast or too slow, and are hours apart, neither make two answer nor move the addresses: while messages
// are lost and late, after the process of the active gateway was suspended, and after its machine has died.
func TestClocksOfDifferentRates(t *testing.T) {
	const slow, exact, fast = 950 * time.Millisecond, time.Second, 1050 * time.Millisecond
	for seed, pace := range [][2]time.Duration{{slow, fast}, {fast, slow}, {exact, fast}, {slow, exact}, {fast, fast}} {
		for _, preempt := range []bool{false, true} {
			w := newWorld(t, uint64(seed+1), func(i int, c *Config) { c.Priority, c.Preempt = uint8(200-i), preempt })
			w.pace = pace
			w.start(0, 1)
			w.until(0, Active, lease)
			w.loss, w.twice, w.delay = 0.05, 0.05, 20*time.Millisecond
			w.run(60 * lease)
			w.want(Active, Standby)
			if changes := [2]uint64{w.gates[0].m.changes, w.gates[1].m.changes}; w.both > 0 || changes != [2]uint64{2, 1} {
				w.fail("%v: both for %v, %d changes", pace, w.both, changes)
			}
			w.loss, w.twice = 0, 0
			active := 0
			for n := range 12 { // suspended for longer each time, from less than the fence to more than a take-over takes
				for i, g := range w.gates {
					if g.m.state == Active {
						active = i
					}
				}
				g := w.gates[active]
				g.frozen = true
				w.run(lease/2 + time.Duration(n)*lease/16)
				g.frozen = false
				if w.answers(0) && w.answers(1) {
					w.fail("%v: both answer as gateway %d goes on", pace, active)
				}
				w.run(12 * lease)
			}
			if w.both > 0 {
				w.fail("%v: both for %v", pace, w.both)
			}
			for i, g := range w.gates {
				if g.m.state == Active {
					active = i
				}
			}
			w.kill(active)
			if took := w.until(1-active, Active, 3*lease); took > 5*lease/4 {
				t.Errorf("%v: it takes %v", pace, took)
			}
		}
	}
}

// A refusal that is older than a message of the peer says nothing.
func TestALateRefusal(t *testing.T) {
	w := settled(t)
	m := w.gates[1].m
	for m.peer.Heard <= m.sent {
		w.step()
	}
	m.Refused(w.local(1))
	w.gates[1].polls = true
	w.run(lease)
	if m.state != Standby || m.changes != 1 {
		w.fail("%v after %d changes", m.state, m.changes)
	}
}

// A peer that is heard has to know that this gateway is about to be active.
func TestThePeerHasToKnow(t *testing.T) {
	w := newWorld(t, 1)
	w.start(0, 1)
	for w.gates[0].m.state != Probing {
		w.step()
	}
	w.cut[1], w.wire = true, nil
	w.run(lease / 2)
	if s := w.gates[0].m.state; s != Probing {
		w.fail("gateway 0 is %v", s)
	}
	w.cut[1] = false
	w.until(0, Active, lease)
	w.run(lease)
	w.want(Active, Standby)
}

// Each gateway learns whether the other one's file has the same addresses, at once, and keeps the sample of one that it no
// longer hears.
func TestTheAddressesOfThePeer(t *testing.T) {
	w := settled(t)
	differs := func(want bool) {
		t.Helper()
		for i, g := range w.gates {
			g.polls = true
			if i == 1 {
				w.run(20 * time.Millisecond)
			}
		}
		for i, g := range w.gates {
			if p := g.m.Picture(w.local(i)); p.Differ != want {
				w.fail("gateway %d: differ %v, peer %+v", i, p.Differ, p.Peer.Addrs)
			}
		}
	}
	sample := []netip.Addr{netip.MustParseAddr("198.18.1.1")}
	w.gates[0].m.SetAddrs(w.local(0), Addresses{Count: 2, Digest: 5, Sample: sample})
	differs(false) // the other one's are not known
	w.gates[1].m.SetAddrs(w.local(1), Addresses{Count: 2, Digest: 6})
	differs(true)
	w.gates[1].m.SetAddrs(w.local(1), Addresses{Count: 2, Digest: 5})
	differs(false)
	w.gates[1].m.SetAddrs(w.local(1), Addresses{Count: 3, Digest: 5})
	differs(true)
	w.kill(0)
	w.run(5 * lease)
	if p := w.gates[1].m.Picture(w.local(1)); !slices.Equal(p.Peer.Addrs.Sample, sample) {
		t.Errorf("%+v", p)
	}
}
