// Package schedule generates the communication schedules of collective operations: for each rank a list of steps, and in each
// step the messages that it sends and receives, as ranges of block indices. It moves no bytes: package collective executes a
// schedule over connections, and tests execute it in memory against bounds of bytes and rounds.
//
// # Blocks
//
// The data of an operation is cut into Schedule.Blocks blocks, which every rank numbers alike. What a block is belongs to the
// operation: a part of the vector (all-reduce), the contribution of a rank (all-gather), or what one rank has for another
// (all-to-all). Blocks may differ in size and be empty; a message without blocks is sent all the same, because
// the receiver waits for it.
//
// # Order
//
// Messages from one rank to another arrive in the order in which they are sent, so they need no tag: the k-th message that a
// schedule sends to a peer is the k-th that the peer's schedule receives. Simulate verifies it.
package schedule

import (
	"fmt"
	"math/bits"
	"slices"
)

// Span is the range of blocks Lo to Hi-1.
type Span struct{ Lo, Hi int }

// Message goes from one rank to another in a step: the blocks of all spans, in their order.
type Message struct {
	Peer   int
	Spans  []Span
	Reduce bool // of a receive: combine with the blocks that are there instead of replacing them
}

// Step holds messages that are under way together. Sends take the blocks as they are before the step: a receive of the step
// does not change them. Receives are applied in the order of the list, which fixes the order of a reduction.
type Step struct {
	Send, Recv []Message
}

// Schedule is the part of one rank in an operation.
type Schedule struct {
	Blocks int
	Steps  []Step
}

// at returns the span of one block.
func at(block int) []Span { return []Span{{block, block + 1}} }

// all returns the span of n blocks from 0.
func all(n int) []Span { return []Span{{0, n}} }

// wrap returns n blocks from lo on, modulo size, in at most two spans.
func wrap(lo, n, size int) []Span {
	lo = mod(lo, size)
	if lo+n <= size {
		return []Span{{lo, lo + n}}
	}
	return []Span{{lo, size}, {0, lo + n - size}}
}

func mod(a, n int) int { return ((a % n) + n) % n }

// log2 returns the logarithm of n, rounded up.
func log2(n int) int { return bits.Len(uint(n - 1)) }

// floorPower returns the largest power of two that is at most n.
func floorPower(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// exchange is a step that sends to one peer and receives from one.
func exchange(to int, send []Span, from int, recv []Span, reduce bool) Step {
	return Step{Send: []Message{{Peer: to, Spans: send}}, Recv: []Message{{Peer: from, Spans: recv, Reduce: reduce}}}
}

// sendTo is a step that only sends, recvFrom one that only receives.
func sendTo(peer int, spans []Span) Step {
	return Step{Send: []Message{{Peer: peer, Spans: spans}}}
}

func recvFrom(peer int, spans []Span, reduce bool) Step {
	return Step{Recv: []Message{{Peer: peer, Spans: spans, Reduce: reduce}}}
}

// within translates steps of a schedule among len(members) ranks to those ranks, and its block b to block(b), as a span.
func within(steps []Step, members []int, block func(b int) Span) []Step {
	translate := func(messages []Message) []Message {
		out := make([]Message, len(messages))
		for i, m := range messages {
			out[i] = Message{Peer: members[m.Peer], Reduce: m.Reduce}
			for _, s := range m.Spans {
				for b := s.Lo; b < s.Hi; b++ {
					out[i].Spans = appendSpan(out[i].Spans, block(b))
				}
			}
		}
		return out
	}
	out := make([]Step, len(steps))
	for i, s := range steps {
		out[i] = Step{Send: translate(s.Send), Recv: translate(s.Recv)}
	}
	return out
}

// appendSpan adds a span, joined with the last one where they touch.
func appendSpan(spans []Span, s Span) []Span {
	if n := len(spans); n > 0 && spans[n-1].Hi == s.Lo {
		spans[n-1].Hi = s.Hi
		return spans
	}
	return append(spans, s)
}

// same maps each block to itself.
func same(b int) Span { return Span{b, b + 1} }

// relative renumbers the ranks of a schedule so that rank 0 becomes root: gen is the schedule of a rank for root 0.
func relative(n, rank, root int, gen func(n, rank int) Schedule) Schedule {
	s := gen(n, mod(rank-root, n))
	members := make([]int, n)
	for i := range members {
		members[i] = (i + root) % n
	}
	return Schedule{Blocks: s.Blocks, Steps: within(s.Steps, members, same)}
}

// Rounds returns the number of steps in which the rank receives something.
func (s *Schedule) Rounds() (n int) {
	for _, st := range s.Steps {
		if len(st.Recv) > 0 {
			n++
		}
	}
	return n
}

// Sent returns the bytes that the rank sends, where size returns the bytes of a block, and the number of messages.
func (s *Schedule) Sent(size func(block int) int) (bytes, messages int) {
	for _, st := range s.Steps {
		for _, m := range st.Send {
			messages++
			bytes += m.Bytes(size)
		}
	}
	return bytes, messages
}

// Bytes returns the size of a message, where size returns the bytes of a block.
func (m *Message) Bytes(size func(block int) int) (n int) {
	for _, s := range m.Spans {
		for b := s.Lo; b < s.Hi; b++ {
			n += size(b)
		}
	}
	return n
}

// Check returns an error if a schedule names a rank or a block that does not exist, or a message to itself.
func (s *Schedule) Check(n, rank int) error {
	for i, st := range s.Steps {
		for _, m := range slices.Concat(st.Send, st.Recv) {
			if m.Peer < 0 || m.Peer >= n || m.Peer == rank {
				return fmt.Errorf("step %d: peer %d of rank %d", i, m.Peer, rank)
			}
			for _, sp := range m.Spans {
				if sp.Lo < 0 || sp.Lo >= sp.Hi || sp.Hi > s.Blocks {
					return fmt.Errorf("step %d: blocks %d to %d of %d", i, sp.Lo, sp.Hi, s.Blocks)
				}
			}
		}
	}
	return nil
}
