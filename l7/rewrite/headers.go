package rewrite

import (
	"slices"

	"github.com/millrace/millrace/semantics"
)

// Headers are the edits of a RequestHeaderModifier or ResponseHeaderModifier. First it removes, then it sets, then it adds.
type Headers struct {
	Set    []semantics.Field // in place of all lines of the name
	Add    []semantics.Field // lines behind those that are there
	Remove []string          // names

	// Dynamic reports whether values have variables: then Expand is to be called. Identifies reports whether they have the ID of the
	// request. Compile sets both.
	Dynamic, Identifies bool

	setTemplates, addTemplates []*Template // of Set and Add; nil is text
}

// Apply changes fields in place and returns the list, which is longer where lines were added. A field that is set keeps the
// place of its first line.
func (h *Headers) Apply(fields []semantics.Field) []semantics.Field {
	fields = h.removed(fields)
	for i := range h.Set {
		fields = Set(fields, h.Set[i])
	}
	return append(fields, h.Add...)
}

// removed removes the fields that are to go.
func (h *Headers) removed(fields []semantics.Field) []semantics.Field {
	if len(h.Remove) == 0 {
		return fields
	}
	return slices.DeleteFunc(fields, func(f semantics.Field) bool { return slices.Contains(h.Remove, f.Name) })
}

// Set puts f in the place of all lines of its name.
func Set(fields []semantics.Field, f semantics.Field) []semantics.Field {
	first := slices.IndexFunc(fields, func(other semantics.Field) bool { return other.Name == f.Name })
	if first < 0 {
		return append(fields, f)
	}
	fields[first] = f
	rest := slices.DeleteFunc(fields[first+1:], func(other semantics.Field) bool { return other.Name == f.Name })
	return fields[:first+1+len(rest)]
}
