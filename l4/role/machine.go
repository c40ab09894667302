package role

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// Bounds of a lease.
const (
	MinLease = 200 * time.Millisecond
	MaxLease = time.Minute
)

// Parts of a lease. An active gateway that does not run answers for fenceAfter since its last message, and the standby waits
// for a whole lease since it has heard one: so a process that was suspended stops answering before the other begins, whatever
// their clocks say. Clocks may run up to a quarter apart in speed.
const (
	beatsInLease = 10 // messages
	fenceParts   = 3  // of four: the answers of an active gateway that does not run, and the silence after which the standby probes
	probePart    = 4  // a lease through this: probing after silence
	rivalLimit   = 1  // leases for which questions of other hosts hold a take-over off: a peer probes for a quarter of one
	gonePart     = 20 // a lease through this: probing where the peer is known not to run, or knows of it
)

// Config is the part of one gateway.
type Config struct {
	Index        uint8 // 0 or 1, another one than the peer's
	Priority     uint8 // the higher one is active where neither is, and after both were
	Lease        time.Duration
	Preempt      bool          // ask an active peer of lower priority for the addresses
	PreemptDelay time.Duration // after the peer could be replaced for so long without a break
	Incarnation  Incarnation   // random, not zero
}

// Peer holds the last message of the other gateway.
type Peer struct {
	Message            // the last of its run
	Heard   clock.Time // when it came
	Known   bool       // it has been heard, and has not left
}

// Change is a change of the state.
type Change struct {
	From, To State
	Why      Event
	At       clock.Time
}

// Machine is the role of a gateway. Its methods are called with times that do not decrease.
type Machine struct {
	cfg     Config
	state   State
	last    Change
	changes uint64
	term    uint64

	peer      Peer
	candidate Message    // of a run that has not shown that it is alive; From is zero without
	number    uint64     // of the last message sent
	sent      clock.Time // the last message to the peer
	replied   clock.Time // the last one to a candidate
	polled    clock.Time // the last call
	entered   clock.Time // state
	leased    clock.Time // Standby: the last message of a peer that is active, or about to be
	due       clock.Time // the next message to the peer

	addrs        Addresses
	able, synced bool
	linked       bool       // a device has a link
	reached      clock.Time // a watched address has answered; Never: none has in this run
	ready        clock.Time // Standby: since when this gateway could replace the peer; Never: it could not
	held         bool       // an operator wants the peer to be active
	asksUntil    clock.Time // an operator wants this gateway to be active
	leaving      bool

	window   time.Duration // Probing: its least length
	answered clock.Time    // another host has answered for an address; Never: none has in this state
	rivalled clock.Time    // Probing: another host probes, too; Never: none
	rivalsOn clock.Time    // Probing: the first time of that
	rivals   uint64        // such questions of others, in all
	probed   clock.Time    // the last Probe of Poll
	contest  contest
	announce bool
	split    bool // both are active, or another host answers beside this gateway
	splits   uint64
}

// New returns a machine in Joining. Its devices have links until SetAble.
func New(cfg Config, now clock.Time) *Machine {
	m := &Machine{cfg: cfg, able: true, linked: true, reached: clock.Never, polled: now, entered: now, due: now, ready: clock.Never, answered: clock.Never, rivalled: clock.Never, rivalsOn: clock.Never, contest: newContest(cfg.Incarnation)}
	m.last = Change{To: Joining, Why: Started, At: now}
	return m
}

// Configure changes priority and preemption; the rest stays.
func (m *Machine) Configure(cfg Config) {
	m.cfg.Priority, m.cfg.Preempt, m.cfg.PreemptDelay = cfg.Priority, cfg.Preempt, cfg.PreemptDelay
}

// lease is the longer one of both, so that they need not agree.
func (m *Machine) lease() time.Duration { return max(m.cfg.Lease, m.peer.Lease) }

func (m *Machine) beat() time.Duration { return m.cfg.Lease / beatsInLease }

// fence is the time that an active gateway answers after a message of its own.
func (m *Machine) fence() time.Duration { return m.cfg.Lease * fenceParts / 4 }

// State returns the state.
func (m *Machine) State() State { return m.state }

// AnswersUntil returns until when the data path may answer for addresses, without another Poll; 0: not at all.
func (m *Machine) AnswersUntil() clock.Time {
	if m.state != Active {
		return 0
	}
	return m.sent.Add(m.fence())
}

// heard reports whether the peer was heard within a lease.
func (m *Machine) heard(now clock.Time) bool {
	return m.peer.Known && now.Sub(m.peer.Heard) < m.lease()
}

// fresh reports whether the peer has sent its last message after it had one that this gateway has sent within a lease: what
// it says of its state is not older than that.
func (m *Machine) fresh(now clock.Time) bool {
	return m.heard(now) && now.Sub(m.peer.Echo) < m.lease()
}

// on enters the state that follows an event.
func (m *Machine) on(e Event, now clock.Time) {
	to := transitions[m.state][e]
	if to == none {
		return
	}
	m.last = Change{m.state, to, e, now}
	m.changes++
	m.state, m.entered, m.due = to, now, now
	m.answered, m.rivalled, m.rivalsOn, m.ready, m.leased, m.split = clock.Never, clock.Never, clock.Never, clock.Never, now, false
	m.contest.reset()
	if to == Active || e == PeerGone {
		m.held = false // the peer was wanted, and is not there any more
	}
	switch to {
	case Probing:
		m.window = m.lease() / gonePart
		if e == PeerSilent || e == Stalled || e == Declined || e == Outranked {
			m.window = m.lease() / probePart
		}
	case Active:
		m.term = max(m.term, m.peer.Term) + 1
		m.announce, m.asksUntil, m.sent = true, 0, now
		m.contest.claimsLeft = probeRounds - 1
		m.dueClaim(now)
	}
}

// wake handles the time since the last call, in which the process may not have run: then the peer may have become active.
// Messages that have waited meanwhile say nothing of now, so a standby begins to wait anew.
func (m *Machine) wake(now clock.Time) {
	switch {
	case m.state == Active && now.Sub(m.sent) >= m.fence(), m.state != Active && now.Sub(m.polled) > m.cfg.Lease/2:
		m.on(Stalled, now)
	}
	m.polled = now
}

// silence is the time without an active peer after which a gateway probes. In Joining the gateway with index 1 waits longer, so
// that two that cannot hear each other do not probe at the same time.
func (m *Machine) silence() time.Duration {
	if m.state == Joining {
		return m.lease() * time.Duration(2+m.cfg.Index) / 2
	}
	return m.lease() * fenceParts / 4
}

// Output lists the actions of the caller.
type Output struct {
	Messages []Message  // to send, at once; valid until the next call
	Probe    bool       // ask the hosts of the links whether one answers for an address; and report Asked
	Claim    Claim      // to send to the links, after the questions; without one its State is Joining
	Announce bool       // the addresses, to the hosts of the links
	Next     clock.Time // of the next Poll, unless something happens before
}

// Poll lets time pass.
func (m *Machine) Poll(now clock.Time) (out Output) {
	m.wake(now)
	switch m.state {
	case Joining:
		if !m.fresh(now) && now.Sub(m.entered) >= m.silence() {
			m.on(PeerSilent, now)
		}
	case Standby:
		if now.Sub(m.leased) >= m.silence() {
			m.on(PeerSilent, now)
		}
	case Probing:
		if m.unopposed(now) {
			m.on(Unopposed, now)
		}
	case Active:
		if m.split && (m.answered == clock.Never && !m.heard(now) || m.answered != clock.Never && !m.answeredWithin(now, 3*m.lease())) {
			m.split, m.announce = false, true // the other one is gone, or answers no more; hosts may have its link address
		}
		m.release(now)
	case Yielding:
		if now.Sub(m.entered) >= m.lease() {
			m.on(Declined, now)
		}
	}
	m.follow(now)
	if now >= m.due {
		m.number++
		m.sent = now
		m.due = now.Add(m.pace())
		out.Messages = append(out.Messages, m.message(now, m.peer.From, m.peer.Sent))
	}
	if m.candidate.From != (Incarnation{}) && now.Sub(m.replied) >= m.beat()/8 {
		m.number++
		m.replied = now
		out.Messages = append(out.Messages, m.message(now, m.candidate.From, m.candidate.Sent))
		m.candidate = Message{}
	}
	out.Probe = m.probes(now)
	out.Claim = m.claims(now, out.Probe)
	out.Announce, m.announce = m.announce, false
	out.Next = m.due
	if m.candidate.From != (Incarnation{}) {
		out.Next = min(out.Next, m.replied.Add(m.beat()/8))
	}
	if m.contest.claimDue > now {
		out.Next = min(out.Next, m.contest.claimDue)
	}
	if m.state == Joining || m.state == Standby {
		if at := m.leasedOr(m.entered).Add(m.silence()); at > now {
			out.Next = min(out.Next, at)
		}
	}
	return out
}

func (m *Machine) leasedOr(entered clock.Time) clock.Time {
	if m.state == Standby {
		return m.leased
	}
	return entered
}

// pace is the time between messages: shorter while an answer decides.
func (m *Machine) pace() time.Duration {
	switch m.state {
	case Probing:
		return min(m.beat(), m.window/4)
	case Yielding:
		return m.beat() / 4
	}
	return m.beat()
}

// Leases between the rounds of questions of an active gateway. Where the peer is heard they are for gateways that are not the peer.
const (
	checkAlone  = 1
	checkBeside = 10
)

// probes reports whether the hosts of the links are to be asked: while probing, and now and then by an active gateway.
func (m *Machine) probes(now clock.Time) bool {
	every := m.window / probeRounds
	switch {
	case m.state == Active && m.heard(now):
		every = checkBeside * m.lease()
	case m.state == Active:
		every = checkAlone * m.lease()
	case m.state != Probing || now < m.contest.defers:
		return false
	case m.contest.rounds >= probeRounds && m.contends(now) && !m.quiet():
		return false // what is missing is time to listen
	}
	if m.probed >= m.entered && now.Sub(m.probed) < every {
		return false
	}
	m.probed = now
	return true
}

// unopposed reports whether probing is over: no host has answered for a lease, as long as a gateway that has answered may go
// on without running, none that ranks first claims an address, and a peer that is heard knows of the probing and has not objected.
// From then on it takes this gateway for the active one, for a lease.
func (m *Machine) unopposed(now clock.Time) bool {
	if now.Sub(m.entered) < m.window || !m.contends(now) || !m.quiet() || m.givesWay(now) {
		return false
	}
	return !m.heard(now) || m.peer.Echo >= m.entered && (m.peer.State == Joining || m.peer.State == Standby)
}

// givesWay reports whether probing goes on because a host probes that sends no claim, such as a gateway of an earlier version. That is
// active within rivalLimit, and answers from then on. Any other host of the link can ask as well, so a question without an answer holds a take-over off no longer.
func (m *Machine) givesWay(now clock.Time) bool {
	return m.cfg.Index == 1 && m.rivalled != clock.Never && now.Sub(m.rivalled) < m.lease()/probePart && now.Sub(m.rivalsOn) < m.lease()*rivalLimit
}

// follow notes since when this gateway could replace the peer.
func (m *Machine) follow(now clock.Time) {
	if m.state != Standby || !m.able || m.cutOff(now) || !m.synced || !m.fresh(now) || m.peer.State != Active {
		m.ready = clock.Never
	} else if m.ready == clock.Never {
		m.ready = now
	}
}

// wants reports whether this gateway asks the peer for the addresses.
func (m *Machine) wants(now clock.Time) bool {
	if m.ready == clock.Never {
		return false
	}
	return now < m.asksUntil ||
		m.cfg.Preempt && !m.held && m.cfg.Priority > m.peer.Priority && now.Sub(m.ready) >= m.cfg.PreemptDelay
}

func (m *Machine) message(now clock.Time, to Incarnation, echo clock.Time) Message {
	return Message{
		State: m.state, Index: m.cfg.Index, Priority: m.cfg.Priority, Able: m.able, Synced: m.synced, Wants: m.wants(now), CutOff: m.cutOff(now), Reaches: m.reaches(now),
		Number: m.number, From: m.cfg.Incarnation, To: to, Sent: now, Echo: echo, Term: m.term, Lease: m.cfg.Lease, Addrs: m.addrs,
	}
}
