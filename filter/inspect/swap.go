package inspect

import (
	"fmt"

	"github.com/millrace/millrace/filter/signature"
)

// Rules are swapped between two packets. Streams, the state of parsers, bits and thresholds of flows stay: bits keep their
// numbers (nameTable), thresholds and matches are kept by the numbers that rules have in their files. A rule whose text has
// changed is another rule for what it had begun to match.

// Swap makes other rules those of the engine, and cfg its configuration. r was compiled by CompileNext behind the rules
// that the engine has. Bounds of cfg count from now on.
func (e *Engine) Swap(r *Rules, cfg Config) {
	max := cfg.MemoryBytes
	if max <= 0 {
		max = defaultMemory
	}
	e.budget.Max = max
	e.streams.Keep, e.streams.Hold = cfg.KeepBytes, cfg.Inline && cfg.Refuse
	e.cfg = cfg
	if e.rules == r {
		return
	}
	e.rules = r
	e.swapSets(r)
	e.marks, e.hits, e.round = make([]uint32, len(r.rules)), make([]uint64, len(r.rules)), 0
	e.cands, e.eval.p, e.headers = nil, nil, map[uint64]*headerList{} // nothing leads to the rules before
}

// ruleRef names a rule in what flows remember. A flow that is quiet must not keep the rules of its time, of which there may be a
// hundred generations.
type ruleRef struct {
	key  ruleKey
	text uint64 // hash of the rule's text
	gen  uint32
	id   uint32 // in its generation
}

func (q *rule) ref() ruleRef { return ruleRef{q.key, q.text, q.gen, q.id} }

// hashOf returns a hash of a rule's text (FNV-1a, 64 bits).
func hashOf(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// current returns the rule of these rules that a reference names, as it was; nil where there is none.
func (r *Rules) current(ref ruleRef) *rule {
	if ref.gen == r.generation {
		return r.rules[ref.id]
	}
	if now := r.byKey[ref.key]; now != nil && now.text == ref.text {
		return now
	}
	return nil
}

// DuplicateError reports that two rules have one number.
type DuplicateError struct{ Rule, Before *signature.Rule }

// Error implements error.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s:%d: sid %d is that of %s:%d too", e.Rule.File, e.Rule.Line, e.Rule.SID, e.Before.File, e.Before.Line)
}
