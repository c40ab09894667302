package role

import "github.com/millrace/millrace/clock"

// Saved is the state of a machine for the process that replaces this one. Both have a clock in common: its times are the new machine's.
type Saved struct {
	Incarnation Incarnation `json:"incarnation"`
	State       State       `json:"state"`
	Last        Change      `json:"last"`
	Changes     uint64      `json:"changes"`
	Term        uint64      `json:"term"`
	Number      uint64      `json:"number"`
	Sent        clock.Time  `json:"sent"`
	Polled      clock.Time  `json:"polled"`
	Leased      clock.Time  `json:"leased"`
	Reached     clock.Time  `json:"reached"`
	Peer        Peer        `json:"peer"`
	Held        bool        `json:"held"`
	Able        bool        `json:"able"`
	Linked      bool        `json:"linked"`
	Splits      uint64      `json:"splits"`
}

// numbersAhead is the number of messages that a process leaves to the one that replaces it. Messages of a process that goes on after
// that one has failed are later ones again, so that the peer takes them.
const numbersAhead = 1 << 20

// Save returns the state. From then on the machine of the new process counts, and this one must not be polled before Resume.
func (m *Machine) Save() Saved {
	s := Saved{
		Incarnation: m.cfg.Incarnation, State: m.state, Last: m.last, Changes: m.changes, Term: m.term, Number: m.number + numbersAhead,
		Sent: m.sent, Polled: m.polled, Leased: m.leased, Reached: m.reached, Peer: m.peer, Held: m.held, Able: m.able, Linked: m.linked, Splits: m.splits,
	}
	m.number += 2 * numbersAhead
	return s
}

// Restore returns a machine that goes on where another one was saved. An active one answers until that one would have done, and goes on
// with its next message; what was about to change begins anew. cfg has its own incarnation no more.
func Restore(cfg Config, s *Saved, now clock.Time) *Machine {
	cfg.Incarnation = s.Incarnation
	m := New(cfg, now)
	m.changes, m.term, m.number, m.peer, m.held, m.splits = s.Changes, s.Term, s.Number, s.Peer, s.Held, s.Splits
	m.able, m.linked, m.reached = s.Able, s.Linked, s.Reached
	if s.State != Active && s.State != Standby {
		return m
	}
	m.state, m.last, m.entered, m.sent, m.polled, m.leased = s.State, s.Last, s.Last.At, s.Sent, s.Polled, s.Leased
	return m
}
