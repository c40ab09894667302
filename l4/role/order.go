package role

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
)

// ErrPeer is wrapped by the error of an order that the peer is not ready for.
var ErrPeer = errors.New("the other gateway is not ready")

// asksFor is the number of leases for which a standby asks for the addresses on an operator's order.
const asksFor = 10

// ToStandby leaves the addresses to the peer on an operator's order. The peer keeps them until it ends, until this gateway has to
// replace it, or until ToActive.
func (m *Machine) ToStandby(now clock.Time) error {
	m.wake(now)
	if m.state == Active {
		if err := m.replaceable(now); err != nil {
			return err
		}
	}
	m.held, m.asksUntil = true, 0
	m.on(Ordered, now)
	return nil
}

// ToActive asks the peer for the addresses on an operator's order.
func (m *Machine) ToActive(now clock.Time) error {
	m.wake(now)
	switch {
	case m.state == Active:
		m.held = false
		return nil
	case m.state != Standby:
		return fmt.Errorf("this gateway is %v: wait until it is standby", m.state)
	case !m.able:
		return errors.New("a device of this gateway has no link")
	case m.cutOff(now):
		return errors.New("none of the addresses that this gateway watches answers it")
	case !m.synced:
		return errors.New("this gateway does not have all connections of the other one yet")
	}
	m.held, m.asksUntil, m.due = false, now.Add(asksFor*m.lease()), now
	return nil
}

// Leave is for the end of the process: an active gateway leaves the addresses to a peer that can take them. Farewell is what
// to send at last.
func (m *Machine) Leave(now clock.Time) (handsOver bool) {
	m.wake(now)
	if m.state == Active && m.fresh(now) && m.peer.State == Standby && m.peer.Able {
		m.on(Leaving, now)
	}
	return m.state == Yielding
}

// Farewell returns the last message, after which the peer takes this gateway for ended.
func (m *Machine) Farewell(now clock.Time) Message {
	m.number++
	out := m.message(now, m.peer.From, m.peer.Sent)
	out.Leaving = true
	return out
}

// replaceable returns why the peer cannot take the addresses, nil if it can.
func (m *Machine) replaceable(now clock.Time) error {
	p := &m.peer
	switch {
	case !m.fresh(now):
		return fmt.Errorf("%w: it is not heard", ErrPeer)
	case p.State != Standby:
		return fmt.Errorf("%w: it is %v", ErrPeer, p.State)
	case !p.Able:
		return fmt.Errorf("%w: one of its devices has no link", ErrPeer)
	case p.CutOff:
		return fmt.Errorf("%w: none of the addresses that it watches answers it", ErrPeer)
	case !p.Synced:
		return fmt.Errorf("%w: it does not have all connections yet", ErrPeer)
	}
	return nil
}

// SetSynced notes whether all connections of the peer are here.
func (m *Machine) SetSynced(now clock.Time, synced bool) {
	if m.synced != synced {
		m.synced, m.due = synced, now
	}
}

// SetAddrs notes the addresses that this gateway answers for while it is active.
func (m *Machine) SetAddrs(now clock.Time, a Addresses) {
	if m.addrs.Count != a.Count || m.addrs.Digest != a.Digest {
		m.due = now
	}
	m.addrs = a
}

// Picture is the state for status and metrics.
type Picture struct {
	State     State
	Last      Change
	Changes   uint64
	Term      uint64
	Peer      Peer
	Heard     bool          // the peer, within the last lease
	Lease     time.Duration // the longer of both
	Left      time.Duration // of the peer's lease in a standby; of its answers without another message in an active one
	HeldOff   bool          // probing goes on, because another host answers, or with Rivalled asks as well
	Rivalled  bool
	Rivals    uint64 // questions of other hosts while probing
	Split     bool
	Splits    uint64
	Held      bool // an operator wants the peer to be active
	Able      bool
	CutOff    bool // watched addresses do not answer any more
	Reaches   bool // one of them answers
	Differ    bool // the peer answers for other addresses than this gateway, by its last message
	SameIndex bool // both have the same index, which one has to change

	Priority uint8
	Preempt  bool
}

// Picture returns the state at a time.
func (m *Machine) Picture(now clock.Time) Picture {
	p := Picture{
		State: m.state, Last: m.last, Changes: m.changes, Term: m.term, Peer: m.peer, Heard: m.heard(now), Lease: m.lease(),
		HeldOff: m.state == Probing && (m.answered != clock.Never || m.givesWay(now) || now < m.contest.defers), Rivals: m.rivals, Split: m.split, Splits: m.splits, Held: m.held, Able: m.able, CutOff: m.cutOff(now), Reaches: m.reaches(now),
		Differ:   m.peer.Known && m.addrs.differ(&m.peer.Addrs),
		Priority: m.cfg.Priority, Preempt: m.cfg.Preempt,
	}
	p.Rivalled = p.HeldOff && m.answered == clock.Never
	if m.peer.Known {
		p.Term = max(m.term, m.peer.Term)
		p.SameIndex = m.peer.Index == m.cfg.Index
	}
	switch m.state {
	case Active:
		p.Left = max(0, m.AnswersUntil().Sub(now))
	case Standby:
		p.Left = max(0, m.leased.Add(m.lease()).Sub(now))
	}
	return p
}

// Ask makes the next message due at once: where the peer has ended, its host refuses it.
func (m *Machine) Ask(now clock.Time) { m.due = now }
