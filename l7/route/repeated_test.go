package route

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// fieldsOf returns fields of one name with these values; "y=b" is another field.
func fieldsOf(values ...string) (list []semantics.Field) {
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			name, value = "x", v
		}
		list = append(list, semantics.Field{Name: name, Value: value})
	}
	return list
}

// A request whose repeated field leads to different rules, by what a backend may read as its value, is ambiguous.
func TestAmbiguousFields(t *testing.T) {
	tab := table(t,
		Rule{"admin", Match{Fields: []Value{{Name: "x", Value: "admin"}}}},
		Rule{"digits", Match{Fields: []Value{{Name: "x", Value: "[0-9]+", Regexp: true}}}},
		Rule{"list", Match{Fields: []Value{{Name: "x", Value: "b, c"}}}},
		Rule{"some", Match{Fields: []Value{{Name: "x", Value: ".*json.*", Regexp: true}}}},
		Rule{"other", Match{Fields: []Value{{Name: "y", Value: "only"}, {Name: "z", Value: "1"}}}},
		Rule{"all", Match{}},
	)
	for _, c := range []struct {
		values []string
		rule   int
		is     bool
	}{
		{nil, 5, false},
		{[]string{"admin"}, 0, false},
		{[]string{"admin", "admin"}, 0, false},
		{[]string{"admin", "other"}, 0, true},
		{[]string{"other", "admin"}, 0, true},
		{[]string{"a", "admin", "b"}, 0, true},
		{[]string{"1", "2"}, 1, true}, // as one value it is no number
		{[]string{"7", "7"}, 1, false},
		{[]string{"b", "c"}, 5, true},
		{[]string{"c", "b"}, 5, false},
		{[]string{"text/html", "json"}, 3, true},
		{[]string{"ajson", "jsonb"}, 3, false},
		{[]string{"y=only", "y=not"}, 5, false}, // z is missing, whatever y is
		{[]string{"y=only", "y=not", "z=1"}, 4, true},
		{[]string{"w=1", "w=2"}, 5, false}, // no rule reads it
	} {
		r := &Request{Path: "/", Fields: fieldsOf(c.values...)}
		n := tab.Find(r)
		if n != c.rule || tab.AmbiguousRepeats(r, n) != c.is {
			t.Errorf("%q: rule %d, ambiguous %v, want %d and %v", c.values, n, !c.is, c.rule, c.is)
		}
		if tab.Find(r) != n {
			t.Errorf("%q: the request leads elsewhere afterwards", c.values)
		}
	}
}

// The same of parameters of the query. Backends that make one value of them are few, and arrays are many.
func TestAmbiguousParameters(t *testing.T) {
	tab := table(t, Rule{"admin", Match{Query: []Value{{Name: "x", Value: "admin"}}}}, Rule{"digits", Match{Query: []Value{{Name: "x", Value: "[0-9]+", Regexp: true}}}}, Rule{"all", Match{}})
	for query, want := range map[string]struct {
		rule int
		is   bool
	}{
		"": {2, false}, "x=admin": {0, false}, "x=admin&x=admin": {0, false}, "x=admin&x=a": {0, true}, "x=a&x=admin": {2, true}, "x=a&x=%61dmin": {2, true},
		"x=a&%78=admin": {2, true}, "x=a&x=admin&x=b": {2, true}, "x=1&x=2": {1, false}, "x=1&x=b": {1, true}, "x=a&x=b": {2, false}, "y=1&y=admin": {2, false},
	} {
		r := &Request{Path: "/", Query: query}
		if n := tab.Find(r); n != want.rule || tab.AmbiguousRepeats(r, n) != want.is {
			t.Errorf("%s: rule %d, ambiguous %v, want %+v", query, n, !want.is, want)
		}
	}
}
