package signature

import (
	"errors"
	"slices"
	"strings"
)

// ops are the operations on ranges of T that list needs.
type ops[T any] struct {
	compare  func(a, b T) int               // by their first elements
	adjacent func(a, b T) bool              // for a before b: no element lies between them
	join     func(a, b T) T                 // of adjacent ranges
	between  func(a, b *T) (gap T, ok bool) // what lies between them; nil is the edge of the whole
}

// list parses one element of a header: a word, a variable, or a list in brackets, each perhaps negated. The
// set of a list is the union of its elements without those that are negated; where all are, it is everything
// but those.
func list[T any](text string, depth int, vars map[string]string, element func(string) ([]T, error), all []T, o ops[T]) ([]T, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	lead := len(text) - len(strings.TrimLeft(text, " \t"))
	text = strings.TrimSpace(text)
	if body, ok := strings.CutPrefix(text, "!"); ok {
		r, err := list(body, depth+1, vars, element, all, o)
		return complement(r, o), shifted(err, lead+1)
	}
	if name, ok := strings.CutPrefix(text, "$"); ok {
		value, ok := vars[name]
		if !ok {
			return nil, wrongAt(lead, "variable $%s is not defined", name)
		}
		r, err := list(value, depth+1, vars, element, all, o)
		if err != nil {
			return nil, wrongAt(lead, "$%s: %w", name, err)
		}
		return r, nil
	}
	body, ok := strings.CutPrefix(text, "[")
	if !ok {
		r, err := element(text)
		return r, shifted(err, lead)
	}
	body, ok = strings.CutSuffix(body, "]")
	if !ok {
		return nil, wrongAt(lead, "a list ends with ]")
	}
	r, err := elements(body, depth, vars, element, all, o)
	return r, shifted(err, lead+1)
}

// elements parses what stands in the brackets of a list.
func elements[T any](body string, depth int, vars map[string]string, element func(string) ([]T, error), all []T, o ops[T]) ([]T, error) {
	var with, without []T
	positive := false
	for at := 0; at <= len(body); {
		end := at + comma(body[at:])
		one := body[at:end]
		if strings.TrimSpace(one) == "" {
			return nil, wrongAt(at, "an element of the list is missing")
		}
		bare, negated := strings.CutPrefix(strings.TrimSpace(one), "!")
		skip := strings.Index(one, bare)
		r, err := list(bare, depth+1, vars, element, all, o)
		if err != nil {
			return nil, shifted(err, at+skip)
		}
		if negated {
			without = append(without, r...)
		} else {
			with, positive = append(with, r...), true
		}
		at = end + 1
	}
	if !positive {
		return complement(union(without, o), o), nil
	}
	with = union(with, o)
	if len(without) == 0 {
		return with, nil
	}
	// A without B is the complement of (the complement of A, and B).
	return complement(union(append(complement(with, o), without...), o), o), nil
}

// comma returns the offset of the first comma of s outside of brackets, or its length.
func comma(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(s)
}

// union sorts ranges and joins those that touch.
func union[T any](r []T, o ops[T]) []T {
	slices.SortFunc(r, o.compare)
	var out []T
	for _, v := range r {
		if n := len(out); n > 0 && o.adjacent(out[n-1], v) {
			out[n-1] = o.join(out[n-1], v)
		} else {
			out = append(out, v)
		}
	}
	return out
}

// complement returns the gaps between ranges that are sorted and apart.
func complement[T any](r []T, o ops[T]) []T {
	var out []T
	var before *T
	for i := range r {
		if g, ok := o.between(before, &r[i]); ok {
			out = append(out, g)
		}
		before = &r[i]
	}
	if g, ok := o.between(before, nil); ok {
		out = append(out, g)
	}
	return out
}

// shifted moves the place of an error.
func shifted(err error, by int) error {
	if l := (located{}); errors.As(err, &l) {
		return located{l.at + by, l.err}
	}
	return err
}
