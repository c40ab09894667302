package schedule

import (
	"errors"
	"fmt"
)

// ErrDeadlock is the error of schedules of which a rank waits for a message that is not sent.
var ErrDeadlock = errors.New("schedule: a rank waits for a message that is not sent")

// Visitor sees what Simulate does, in an order that is possible.
type Visitor interface {
	// Send is called for the messages that a rank sends, before the receives of the same step.
	Send(rank int, m *Message)
	// Recv is called for each message that a rank receives, with the message as it was sent.
	Recv(rank int, m, sent *Message)
	// End is called after the last receive of a step.
	End(rank int)
}

// Simulate executes the schedules of all ranks in memory. It returns an error if a rank waits forever, if messages stay
// unreceived, or if two ranks differ in what a message holds.
func Simulate(ranks []Schedule, v Visitor) error {
	n := len(ranks)
	s := simulation{ranks: ranks, queues: make([][]*Message, n*n), at: make([]position, n), v: v}
	for moved := true; moved; {
		moved = false
		for r := range ranks {
			ok, err := s.advance(r)
			if err != nil {
				return err
			}
			moved = moved || ok
		}
	}
	for r := range ranks {
		if p := s.at[r]; p.step < len(ranks[r].Steps) {
			return fmt.Errorf("%w: rank %d in step %d, for rank %d", ErrDeadlock, r, p.step, ranks[r].Steps[p.step].Recv[p.recv].Peer)
		}
	}
	for i, q := range s.queues {
		if len(q) > 0 {
			return fmt.Errorf("schedule: %d messages from rank %d to %d are not received", len(q), i/n, i%n)
		}
	}
	return nil
}

// position is where a rank is: in a step, with its sends done or not, before a receive.
type position struct {
	step, recv int
	sent       bool
}

type simulation struct {
	ranks  []Schedule
	queues [][]*Message // from a to b at a*n+b
	at     []position
	v      Visitor
}

// advance executes what is possible of a rank. ok is that there was something.
func (s *simulation) advance(r int) (ok bool, err error) {
	n := len(s.ranks)
	for p := &s.at[r]; p.step < len(s.ranks[r].Steps); {
		st := &s.ranks[r].Steps[p.step]
		if !p.sent {
			for i := range st.Send {
				m := &st.Send[i]
				s.v.Send(r, m)
				s.queues[r*n+m.Peer] = append(s.queues[r*n+m.Peer], m)
			}
			p.sent, ok = true, true
		}
		for ; p.recv < len(st.Recv); p.recv++ {
			m := &st.Recv[p.recv]
			q := &s.queues[m.Peer*n+r]
			if len(*q) == 0 {
				return ok, nil
			}
			sent := (*q)[0]
			*q = (*q)[1:]
			if err := sameBlocks(sent, m); err != nil {
				return ok, fmt.Errorf("from rank %d to %d, step %d: %w", m.Peer, r, p.step, err)
			}
			s.v.Recv(r, m, sent)
			ok = true
		}
		s.v.End(r)
		*p = position{step: p.step + 1}
	}
	return ok, nil
}

// sameBlocks compares the number of blocks of a message as it is sent and as it is received. Their numbers may differ: an
// all-to-all has the sender's for the receiver and the receiver's from the sender.
func sameBlocks(sent, received *Message) error {
	one := func(int) int { return 1 }
	if a, b := sent.Bytes(one), received.Bytes(one); a != b {
		return fmt.Errorf("schedule: a message of %d blocks is received as %d", a, b)
	}
	return nil
}

// Model holds the costs of links and cores, in seconds. The zero value costs nothing.
type Model struct {
	Alpha float64 // of a message on its way
	Beta  float64 // of a byte through a link
	Gamma float64 // of a byte that is reduced

	// AlphaFar and BetaFar are those of links for which Far is true. A nil Far is never true.
	Far               func(a, b int) bool
	AlphaFar, BetaFar float64

	// Work is the CPU time of both ends together for a message, and WorkByte for a byte, where ranks share a host with Cores.
	// A schedule takes at least the work of all ranks divided by the cores. 0 cores are no such bound.
	Work, WorkByte float64
	Cores          int
}

// Time returns how long the schedules of all ranks take by a model, where size returns the bytes of a block.
func Time(ranks []Schedule, m *Model, size func(block int) int) (float64, error) {
	n := len(ranks)
	t := &timer{Model: m, size: size, n: n, now: make([]float64, n), sent: make([]float64, n), arrivals: make([][]float64, n*n)}
	if err := Simulate(ranks, t); err != nil {
		return 0, err
	}
	var last float64
	for _, now := range t.now {
		last = max(last, now)
	}
	if m.Cores > 0 {
		last = max(last, t.work/float64(min(m.Cores, n)))
	}
	return last, nil
}

// timer is the visitor that counts time.
type timer struct {
	*Model
	size     func(block int) int
	n        int
	now      []float64 // of a rank
	sent     []float64 // when its sends leave it
	arrivals [][]float64
	work     float64
}

// Send implements Visitor. The messages of a rank leave it one after the other.
func (t *timer) Send(rank int, m *Message) {
	bytes := float64(m.Bytes(t.size))
	alpha, beta := t.Alpha, t.Beta
	if t.Far != nil && t.Far(rank, m.Peer) {
		alpha, beta = t.AlphaFar, t.BetaFar
	}
	t.sent[rank] = max(t.now[rank], t.sent[rank]) + beta*bytes
	i := rank*t.n + m.Peer
	t.arrivals[i] = append(t.arrivals[i], t.sent[rank]+alpha)
	t.work += t.Work + t.WorkByte*bytes
}

// Recv implements Visitor.
func (t *timer) Recv(rank int, m, _ *Message) {
	i := m.Peer*t.n + rank
	t.now[rank] = max(t.now[rank], t.arrivals[i][0])
	t.arrivals[i] = t.arrivals[i][1:]
	if m.Reduce {
		cost := t.Gamma * float64(m.Bytes(t.size))
		t.now[rank] += cost
		t.work += cost
	}
}

// End implements Visitor: a step ends when its sends have left.
func (t *timer) End(rank int) { t.now[rank] = max(t.now[rank], t.sent[rank]) }
