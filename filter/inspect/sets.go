package inspect

import (
	"strings"

	"github.com/millrace/millrace/filter/signature"
)

// valueSet is the values of a dataset that came from files: immutable, shared by engines.
type valueSet map[string]struct{}

// addedSet holds the changes that rules made to a set while they ran. Each engine has its own.
type addedSet struct {
	values map[string]bool // false: removed
	bytes  int
}

// setEntry is about the size of a value in a map, without its bytes.
const setEntry = 64

// sets finds the values of datasets.
type sets struct {
	loaded map[string]valueSet
	added  map[string]*addedSet
	full   uint64 // values that were not added, for memory
	charge func(n int) bool
}

// loadSets joins the values of the rules' files, by the names of the sets.
func (r *Rules) loadSets(q *rule) {
	for i := range q.parts {
		for _, t := range q.parts[i].Tests {
			if t.Kind != signature.TestSet {
				continue
			}
			r.setNames[t.Set.Name] = true
			if r.sets[t.Set.Name] == nil && t.Set.Values != nil {
				r.sets[t.Set.Name] = valueSet{}
			}
			for _, v := range t.Set.Values {
				r.sets[t.Set.Name][v] = struct{}{}
			}
		}
	}
}

// has reports whether a value is in a set.
func (s *sets) has(name string, value []byte) bool {
	if a := s.added[name]; a != nil {
		if in, known := a.values[string(value)]; known {
			return in
		}
	}
	_, in := s.loaded[name][string(value)]
	return in
}

// test reports whether a test of a set holds, and adds or removes the value where it is about that.
func (s *sets) test(t *signature.SetTest, value []byte) bool {
	if t.Type == signature.SetMD5 && len(value) != 16 || t.Type == signature.SetSHA256 && len(value) != 32 {
		return false
	}
	in := s.has(t.Name, value)
	switch t.Op {
	case signature.InSet:
		return in
	case signature.NotInSet:
		return !in
	case signature.AddToSet:
		return !in && s.put(t, value, true)
	}
	return in && s.put(t, value, false)
}

// put records that a value was added or removed. It reports false where memory does not suffice.
func (s *sets) put(t *signature.SetTest, value []byte, in bool) bool {
	a := s.added[t.Name]
	if a == nil {
		a = &addedSet{values: map[string]bool{}}
		s.added[strings.Clone(t.Name)] = a // t.Name is a part of the text of all rules
	}
	if _, known := a.values[string(value)]; !known {
		most := t.MemCap
		if most == 0 {
			most = signature.DefaultSetMemory
		}
		n := len(value) + setEntry
		if a.bytes+n > most || !s.charge(n) {
			s.full++
			return false
		}
		a.bytes += n
	}
	a.values[string(value)] = in
	return true
}

// chargeSet counts n bytes of a set against the budget. It reports false where they do not fit.
func (e *Engine) chargeSet(n int) bool {
	if e.budget.Used()+n > e.budget.Max {
		e.bound()
		return false
	}
	e.budget.Charge(n)
	return true
}

// swapSets keeps what was added to sets that the rules still have.
func (e *Engine) swapSets(r *Rules) {
	for name, a := range e.eval.sets.added {
		if !r.setNames[name] {
			e.budget.Charge(-a.bytes)
			delete(e.eval.sets.added, name)
		}
	}
	e.eval.sets.loaded = r.sets
}
