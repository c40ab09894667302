package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// object is a mapping of YAML with the order of its keys.
type object struct {
	comment string
	fields  []field
}

// field is a key and its value: string, int, int64, bool, time.Duration, []string, []int, *object or []*object.
type field struct {
	key   string
	value any
}

// put appends a key, unless its value is empty.
func (o *object) put(key string, value any) *object {
	switch v := value.(type) {
	case string:
		if v == "" {
			return o
		}
	case bool:
		if !v {
			return o
		}
	case int, int64, uint16:
		if fmt.Sprint(v) == "0" {
			return o
		}
	case time.Duration:
		if v == 0 {
			return o
		}
	case []string:
		if len(v) == 0 {
			return o
		}
	case []int:
		if len(v) == 0 {
			return o
		}
	case []*object:
		if len(v) == 0 {
			return o
		}
	case *object:
		if v == nil || len(v.fields) == 0 {
			return o
		}
	}
	return o.force(key, value)
}

// force appends a key, whatever its value.
func (o *object) force(key string, value any) *object {
	o.fields = append(o.fields, field{key, value})
	return o
}

// mostColumns is the width up to which a mapping stands in one line.
const mostColumns = 96

// plainScalar is text that is a string in YAML without quotes, in flow collections too.
var plainScalar = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/+-]*$`)

// notStrings are words that YAML 1.1 or 1.2 takes for something else.
var notStrings = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|y|n|nan|inf)$`)

// scalar returns the text of a value.
func scalar(value any) string {
	switch v := value.(type) {
	case string:
		if plainScalar.MatchString(v) && !notStrings.MatchString(v) {
			return v
		}
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v) // a string has no error
		return strings.TrimSuffix(b.String(), "\n")
	case time.Duration:
		return shortDuration(v)
	}
	return fmt.Sprint(value)
}

// shortDuration returns a duration without parts that are 0: 1m0s is 1m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// flow returns a value in one line, and whether it can stand so.
func flow(value any) (string, bool) {
	list := func(n int, at func(i int) (string, bool)) (string, bool) {
		var parts []string
		for i := range n {
			s, ok := at(i)
			if !ok {
				return "", false
			}
			parts = append(parts, s)
		}
		return "[" + strings.Join(parts, ", ") + "]", true
	}
	switch v := value.(type) {
	case []string:
		return list(len(v), func(i int) (string, bool) { return scalar(v[i]), true })
	case []int:
		return list(len(v), func(i int) (string, bool) { return fmt.Sprint(v[i]), true })
	case []*object:
		return list(len(v), func(i int) (string, bool) { return flow(v[i]) })
	case *object:
		if v.comment != "" {
			return "", false
		}
		var parts []string
		for _, f := range v.fields {
			s, ok := flow(f.value)
			if !ok {
				return "", false
			}
			parts = append(parts, f.key+": "+s)
		}
		return "{" + strings.Join(parts, ", ") + "}", true
	}
	return scalar(value), true
}

// yamlWriter prints objects.
type yamlWriter struct{ strings.Builder }

// mapping prints the fields of an object, each with an indent. The first line has first in its place.
func (w *yamlWriter) mapping(o *object, first, indent string) {
	for i, f := range o.fields {
		at := indent
		if i == 0 {
			at = first
		}
		w.field(&f, at, indent)
	}
}

func (w *yamlWriter) field(f *field, at, indent string) {
	if s, ok := flow(f.value); ok && len(at)+len(f.key)+2+len(s) <= mostColumns {
		fmt.Fprintf(w, "%s%s: %s\n", at, f.key, s)
		return
	}
	switch v := f.value.(type) {
	case []*object:
		fmt.Fprintf(w, "%s%s:\n", at, f.key)
		w.sequence(v, indent+"  ")
	case *object:
		fmt.Fprintf(w, "%s%s:\n", at, f.key)
		w.mapping(v, indent+"  ", indent+"  ")
	case []string:
		fmt.Fprintf(w, "%s%s:\n", at, f.key)
		for _, s := range v {
			fmt.Fprintf(w, "%s  - %s\n", indent, scalar(s))
		}
	default:
		s, _ := flow(v)
		fmt.Fprintf(w, "%s%s: %s\n", at, f.key, s)
	}
}

// sequence prints objects, each with its comment.
func (w *yamlWriter) sequence(list []*object, indent string) {
	for _, o := range list {
		for line := range strings.Lines(o.comment) {
			fmt.Fprintf(w, "%s# %s\n", indent, strings.TrimSuffix(line, "\n"))
		}
		plain := &object{fields: o.fields}
		if s, ok := flow(plain); ok && len(indent)+2+len(s) <= mostColumns {
			fmt.Fprintf(w, "%s- %s\n", indent, s)
			continue
		}
		w.mapping(plain, indent+"- ", indent+"  ")
	}
}
