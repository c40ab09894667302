package role

import (
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/clock"
)

// probeRounds is the number of rounds of questions that must have left unopposed before a gateway answers (PROBE_NUM of RFC 5227 1.1).
const probeRounds = 3

// contest holds the state of a gateway with the hosts of its links, while it is about to answer or does.
//
// Two gateways that hear no message of each other must not both answer. Let a link deliver a frame within a third of a window. Of two
// that probe at the same time, the one of lower rank hears a claim of the other after each of its rounds: the other sends one for
// each claim that it outranks. So the lower one waits, until the other answers or is gone. One that begins to probe later
// than that finds the first one answering.
type contest struct {
	rounds     int         // Probing: rounds of questions that have left since the last opposition
	asked      clock.Time  // when the last of them left
	listened   clock.Time  // all frames that had come by then have been handled
	defers     clock.Time  // Probing: until then another gateway that ranks first may take the addresses; 0: none
	claimed    clock.Time  // the last claim
	claimDue   clock.Time  // the next one; Never: none is due
	claimsLeft int         // Active: further claims after the take-over
	yields     bool        // one claim is due for another gateway to learn that this one has given way
	split      Incarnation // the other of a split brain, if it is known
	random     uint64
}

func newContest(in Incarnation) contest {
	return contest{claimDue: clock.Never, random: binary.BigEndian.Uint64(in[:8])}
}

// reset begins a state.
func (c *contest) reset() {
	c.rounds, c.defers, c.claimDue, c.claimsLeft, c.yields = 0, 0, clock.Never, 0, false
}

// jitter returns a part of d at random (SplitMix64): two gateways that wait for each other do not end at the same time.
func (c *contest) jitter(d time.Duration) time.Duration {
	c.random += 0x9e3779b97f4a7c15
	x := c.random
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x ^ x>>31) % uint64(d+1))
}

// own returns the claim of this gateway.
func (m *Machine) own(now clock.Time) Claim {
	c := Claim{
		State: m.state, Index: m.cfg.Index, Priority: m.cfg.Priority, Able: m.able, CutOff: m.cutOff(now), Yields: m.contest.yields, From: m.cfg.Incarnation, Term: m.term,
	}
	if m.state == Probing {
		c.Window = min(m.window, maxWindow)
	}
	return c
}

// contends reports whether nothing on the links keeps this gateway from answering, so that others of lower rank have to wait for it.
func (m *Machine) contends(now clock.Time) bool {
	return m.state == Probing && !m.isolated(now) && !m.answeredWithin(now, m.lease()) && now >= m.contest.defers
}

func (m *Machine) answeredWithin(now clock.Time, d time.Duration) bool {
	return m.answered != clock.Never && now.Sub(m.answered) < d
}

// claimPause bounds the claims that answer those of others.
func (m *Machine) claimPause() time.Duration { return m.lease() / gonePart / (2 * probeRounds) }

// dueClaim makes a claim due, as soon as the bound allows.
func (m *Machine) dueClaim(now clock.Time) {
	m.contest.claimDue = min(m.contest.claimDue, max(now, m.contest.claimed.Add(m.claimPause())))
}

// claims returns the claim that is to be sent now: one that is due, or that goes with questions. Without one its State is Joining.
func (m *Machine) claims(now clock.Time, asks bool) Claim {
	c, own := &m.contest, m.own(now)
	if now < c.claimDue && !asks || m.state != Active && !own.Yields && !m.contends(now) {
		return Claim{}
	}
	c.claimed, c.claimDue, c.yields = now, clock.Never, false
	if m.state == Active && c.claimsLeft > 0 {
		c.claimsLeft--
		c.claimDue = now.Add(m.lease() / gonePart)
	}
	return own
}

// Asked handles that a round of questions, which Output.Probe has asked for, has left.
func (m *Machine) Asked(now clock.Time) {
	m.wake(now)
	if m.contends(now) {
		m.contest.rounds++
		m.contest.asked = now
	}
}

// Listens reports whether frames of the links decide what this gateway does: it is about to answer, or answers without a peer.
func (m *Machine) Listens(now clock.Time) bool {
	return m.state == Probing || m.state == Active && !m.heard(now)
}

// Listened handles that all frames of the links that had come at a time have been handled.
func (m *Machine) Listened(at clock.Time) { m.contest.listened = max(m.contest.listened, at) }

// quiet reports whether the hosts of the links have had the time to oppose: enough rounds have left, and what came within a third of
// the window after the last has been handled.
func (m *Machine) quiet() bool {
	c := &m.contest
	return c.rounds >= probeRounds && c.listened.Sub(c.asked) >= m.window/probeRounds
}

// Contested handles a claim of another gateway, for an address that this one answers for as well. About a peer that is heard messages
// decide, but while it answers this gateway does not.
func (m *Machine) Contested(now clock.Time, in *Claim) {
	m.wake(now)
	own := m.own(now)
	switch {
	case in.From == m.cfg.Incarnation:
	case m.state == Probing && in.State == Active:
		m.answered, m.contest.rounds = now, 0
	case in.From == m.peer.From && m.fresh(now):
	case m.state == Probing && in.outranks(&own):
		wait := max(in.Window, m.window)
		m.contest.defers, m.contest.rounds = now.Add(wait+m.contest.jitter(wait/2)), 0
	case m.state == Active && in.State == Active:
		m.bothClaim(now, in, &own)
	case m.state == Active || m.state == Probing:
		if m.split && (in.Yields || in.From == m.contest.split) {
			m.split, m.announce = false, true // it has given way; hosts may have its link address
		}
		m.dueClaim(now)
	}
}

// bothClaim resolves that two gateways answer on a link: the one of lower rank gives way at once, the other claims again so that it
// learns of it.
func (m *Machine) bothClaim(now clock.Time, in, own *Claim) {
	if !m.split {
		m.splits++
	}
	m.split, m.answered, m.contest.split = true, now, in.From
	if !in.outranks(own) {
		m.dueClaim(now)
		return
	}
	m.on(Outranked, now)
	m.answered, m.contest.yields = now, true
	m.dueClaim(now)
}
