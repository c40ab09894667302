package inspect

import (
	"slices"

	"github.com/millrace/millrace/filter/signature"
)

// A rule of a stream is evaluated again while parts of it are missing, on all bytes that are kept. An attacker who sends the
// first contents of many rules, and then single bytes, would have each byte cost the evaluation of all those rules. So the bytes of a
// direction pay for its work. Where they do not suffice, rules wait: they are evaluated with later segments, those that
// have waited first, and at the end of the flow. With Config.Inline what waits may have left, which is a bound that was
// met (Result.Bound): the flow passes no more with Config.Refuse.
//
// The unit is that of maxWork. Captures take 4 for a byte, with rules for every keyword.
const (
	workPerByte    = 64
	workPerSegment = 40 * workPerByte // its headers are bytes, too
	workAtFirst    = 256 << 10
	workSaved      = 4 << 20 // at most, for later
)

// pay adds what n bytes pay for.
func (s *side) pay(n int) {
	s.spent = max(s.spent-workPerSegment-n*workPerByte, workAtFirst-workSaved)
}

// afford reports whether a direction has work left.
func (s *side) afford() bool { return s.spent < workAtFirst }

// rotated returns the candidates in the order of the rules, beginning with the one that has waited.
func (e *Engine) rotated(s *side) []candidate {
	list := e.ordered()
	if s.resume == 0 {
		return list
	}
	at, _ := slices.BinarySearchFunc(list, s.resume-1, func(c candidate, id uint32) int { return int(c.q.id) - int(id) })
	return slices.Concat(list[at:], list[:at])
}

// postponed notes that rules wait.
func (e *Engine) postponed(f *flow) {
	e.stats.Postponed++
	if e.cfg.Inline {
		e.giveUp(f)
	}
}

// waited evaluates the rules of a stream that wait when its flow ends.
func (e *Engine) waited(f *flow) {
	for i := range f.sides {
		s := &f.sides[i]
		if s.resume == 0 {
			continue
		}
		w, from := s.stream.Window()
		s.spent, s.resume = -len(s.pending)*maxWork, 0
		e.stream(packetOf(f, signature.DirectionOf(i)), s, w, from, 0)
	}
}
