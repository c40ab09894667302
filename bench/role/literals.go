package role

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/app/kernbench"
)

// openLiterals searches the texts of a file for the patterns of another without end, a text a step. All
// are searched once, and the matches counted, before the run.
func openLiterals(o roleOptions) (roleWork, error) {
	if len(o.args) != 2 {
		return roleWork{}, fmt.Errorf("which patterns, which texts?")
	}
	patterns, texts, want, err := kernbench.ReadLiterals(o.args[0], o.args[1])
	if err != nil {
		return roleWork{}, err
	}
	start := time.Now()
	s, err := literal.Compile(patterns)
	if err != nil {
		return roleWork{}, err
	}
	took := time.Since(start)
	if n := CountMatches(s, texts); n != want {
		return roleWork{}, fmt.Errorf("%d matches, want %d", n, want)
	}
	r := literalRun{set: s, texts: texts}
	return roleWork{
		version: fmt.Sprintf("compiled in %.2f s, %.1f MB", took.Seconds(), float64(s.Size())/1e6),
		step:    r.step,
		counts:  func() (map[string]uint64, error) { return map[string]uint64{"bytes": r.bytes.Load()}, nil },
	}, nil
}

type literalRun struct {
	set   *literal.Set
	texts [][]byte
	at    int
	found []literal.Occurrence
	bytes atomic.Uint64
}

// step searches the next text.
func (r *literalRun) step() error {
	t := r.texts[r.at]
	if r.at++; r.at == len(r.texts) {
		r.at = 0
	}
	r.found = r.set.Scan(nil, t, 0, r.found[:0])
	r.bytes.Add(uint64(len(t)))
	return nil
}

// CountMatches returns how many matches there are in all texts.
func CountMatches(s *literal.Set, texts [][]byte) (n uint64) {
	var found []literal.Occurrence
	for _, t := range texts {
		found = s.Scan(nil, t, 0, found[:0])
		n += uint64(len(found))
	}
	return n
}
