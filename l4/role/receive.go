package role

import (
	"bytes"
	"cmp"

	"github.com/millrace/millrace/clock"
)

// Receive handles an authentic message, and reports whether it counts. One of a run that has not been heard counts once it
// shows that it is not a recorded one: it echoes what was sent to that run just now. Until then it is answered only.
func (m *Machine) Receive(now clock.Time, in Message) bool {
	m.wake(now)
	if in.From == m.cfg.Incarnation { // reflected
		return false
	}
	knows := in.To == m.cfg.Incarnation
	if in.From != m.peer.From {
		if !knows || in.Echo > now || now.Sub(in.Echo) >= m.cfg.Lease {
			m.candidate = in
			return false
		}
	} else if in.Number <= m.peer.Number {
		return false
	}
	if !knows && in.From == m.peer.From {
		in.Echo = m.peer.Echo // it answers a run that it has not heard, such as a recorded one
	}
	if !m.peer.Known || in.From != m.peer.From {
		m.due = now // so that it learns at once that it is heard
	}
	m.peer = Peer{Message: in, Heard: now, Known: !in.Leaving}
	if in.Leaving {
		m.on(PeerGone, now)
		return true
	}
	m.judge(now)
	m.follow(now)
	return true
}

// Repeats reports whether an authentic message is one that has counted within a lease, or is older than that: a copy by another
// path, which shows that the path works. It changes nothing.
func (m *Machine) Repeats(now clock.Time, in Message) bool {
	return m.heard(now) && in.From == m.peer.From && in.To == m.cfg.Incarnation && in.Number <= m.peer.Number &&
		m.peer.Sent.Sub(in.Sent) < m.lease()
}

// judge finds the event that the last message of the peer is.
func (m *Machine) judge(now clock.Time) {
	p := &m.peer
	switch p.State {
	case Active:
		m.leased = now
		if m.state != Active {
			m.on(PeerActive, now)
		} else {
			m.bothActive(now)
		}
	case Probing:
		m.leased = now
		if m.state == Active {
			m.due = now // it has not heard of this
		} else if m.state != Probing || !m.first(Probing, now) {
			m.on(PeerActive, now)
		}
	case Yielding:
		m.leased = now
		if m.fresh(now) {
			m.on(PeerYields, now)
		}
	case Joining, Standby:
		m.peerPassive(now)
	}
	if p.State != Active && m.state == Active && m.split && (m.answered == clock.Never || m.contest.split == p.From) {
		m.split, m.announce = false, true // the peer has given way; hosts may have its link address
	}
}

// bothActive resolves a split brain: one of them ranks first, and both know which. The other gives way to what the peer is now,
// not to what it was before a message was delayed.
func (m *Machine) bothActive(now clock.Time) {
	if !m.split {
		m.splits++
		m.due = now
	}
	p := &m.peer
	m.split, m.answered, m.contest.split = true, clock.Never, p.From
	if m.fresh(now) && !m.first(Active, now) {
		m.on(PeerActive, now)
	}
}

// peerPassive handles a peer that does not answer for the addresses.
func (m *Machine) peerPassive(now clock.Time) {
	p := &m.peer
	if !m.fresh(now) {
		return
	}
	switch m.state {
	case Joining, Standby:
		if m.first(m.state, now) {
			m.on(Elected, now)
		}
	case Active:
		if p.Wants && m.replaceable(now) == nil {
			m.on(Claimed, now)
		} else {
			m.release(now)
		}
	}
}

// first reports whether this gateway ranks before the peer, in a state. Both find the same answer from the same messages: a
// gateway that is not cut off, then the one whose devices have links, then the one that has been a standby before one that has just started (it has the
// connections), then the higher priority, then of two active ones the one that has become so last (hosts have its link
// address), then index 0.
func (m *Machine) first(in State, now clock.Time) bool {
	p := &m.peer
	order := cmp.Or(cmp.Compare(bit(p.CutOff), bit(m.cutOff(now))), cmp.Compare(bit(m.able), bit(p.Able)))
	if in == Joining || in == Standby {
		order = cmp.Or(order, cmp.Compare(bit(m.state == Standby), bit(p.State == Standby)))
	}
	order = cmp.Or(order, cmp.Compare(m.cfg.Priority, p.Priority))
	if in == Active {
		order = cmp.Or(order, cmp.Compare(m.term, p.Term))
	}
	return cmp.Or(order, cmp.Compare(p.Index, m.cfg.Index), bytes.Compare(p.From[:], m.cfg.Incarnation[:])) > 0
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Refused handles that the peer's host has no process at the port of these messages. It is for a caller that knows by another
// sign, too, that the peer's process has ended: an older one sends no such messages.
func (m *Machine) Refused(now clock.Time) {
	m.wake(now)
	if m.peer.Known && m.peer.Heard > m.sent { // it was refused before it was heard
		return
	}
	m.peer.Known = false
	m.on(PeerGone, now)
}

// Answered handles that another host of a link answers for an address.
func (m *Machine) Answered(now clock.Time) {
	m.wake(now)
	switch {
	case m.state == Probing:
		m.answered, m.contest.rounds = now, 0
	case m.state == Active && !m.heard(now):
		if !m.split {
			m.splits++
		}
		m.split, m.answered, m.contest.split = true, now, Incarnation{}
	}
}

// Rivalled handles that another host of a link asks whether an address is in use, without an address of its own: the peer, which
// probes as well and is not heard (RFC 5227 2.1.1), or a stranger. The gateway with index 1 waits, for a bounded time.
func (m *Machine) Rivalled(now clock.Time) {
	m.wake(now)
	if m.state == Probing {
		m.rivals++
		m.rivalled, m.rivalsOn = now, min(m.rivalsOn, now)
	}
}
