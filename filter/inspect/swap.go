package inspect

import (
	"fmt"

	"github.com/millrace/millrace/filter/signature"
)

// Rules are swapped between two packets. Streams, the state of parsers, bits and thresholds of flows stay: bits have their
// numbers for good (Rules.names), thresholds and matches are kept by the numbers that rules have in their files. A rule
// whose text has changed is another rule for what it had begun to match.

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
	e.marks, e.hits, e.round = make([]uint32, len(r.rules)), make([]uint64, len(r.rules)), 0
}

// current returns the rule of these rules that is q as it is; nil where there is none.
func (r *Rules) current(q *rule) *rule {
	if r == nil {
		return nil
	}
	if q.gen == r.generation {
		return q
	}
	if now := r.byKey[q.key]; now != nil && now.Text == q.Text {
		return now
	}
	return nil
}

// DuplicateError says that two rules have one number.
type DuplicateError struct{ Rule, Before *signature.Rule }

// Error implements error.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s:%d: sid %d is that of %s:%d too", e.Rule.File, e.Rule.Line, e.Rule.SID, e.Before.File, e.Before.Line)
}
