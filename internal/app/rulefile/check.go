package rulefile

import (
	"cmp"
	"slices"
)

// Check is the JSON form of filter check.
type Check struct {
	Schema      int            `json:"schema"`
	Files       int            `json:"files"`
	Active      int            `json:"active"`
	Disabled    int            `json:"disabled"`
	Loaded      int            `json:"loaded"`
	Wrong       int            `json:"wrong"`
	Unsupported int            `json:"unsupported"`
	Options     map[string]int `json:"options"`
	Missing     map[string]int `json:"missing"`
	Errors      []Error        `json:"errors"`
	Rules       int            `json:"rules"`
	Groups      int            `json:"groups"`
	Lists       []List         `json:"lists"`
}

// List is a prefix list.
type List struct {
	Name     string `json:"name"`
	Prefixes int    `json:"prefixes"`
	Bytes    int    `json:"bytes"`
}

// Error is one error of a rule.
type Error struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	SID    uint32 `json:"sid"`
	Option string `json:"option"`
	Text   string `json:"text"`

	Shown error `json:"-"` // the same with the line, and the column pointed at
}

// Check counts what files have, and lists their errors.
func (f *Files) Check() *Check {
	r := &Check{Schema: 1, Files: f.paths, Options: map[string]int{}, Missing: map[string]int{}, Errors: []Error{}, Lists: []List{}}
	for _, f := range f.Access {
		r.Rules += len(f.List.Rules())
		r.Groups += f.Groups
		for _, l := range f.Lists {
			r.Lists = append(r.Lists, List{l.Name, l.Len(), l.Size()})
		}
	}
	for _, e := range f.Wrong {
		r.Errors = append(r.Errors, Error{File: e.Name, Line: e.Line, Column: e.Column, Option: e.Unsupported, Text: e.Msg, Shown: e})
		if e.Unsupported == "" {
			r.Wrong++
			continue
		}
		r.Unsupported++
		r.Missing[e.Unsupported]++
	}
	for _, f := range f.Inspection {
		r.Active += f.Read
		r.Disabled += f.Disabled
		r.Loaded += len(f.Rules)
		r.Wrong += f.Wrong
		r.Unsupported += f.Unsupported
		for _, e := range slices.Concat(f.Errors, f.Skipped) {
			r.Errors = append(r.Errors, Error{e.Name, e.Line, e.Column, e.SID, e.Option, e.Msg, e})
		}
		for k, n := range f.Options {
			r.Options[k] += n
		}
		for k, n := range f.Missing {
			r.Missing[k] += n
		}
	}
	sortByLine(r.Errors)
	return r
}

// sortByLine puts the errors of each file in the order of its lines, whichever kind of rule they are of.
func sortByLine(list []Error) {
	files := map[string]int{} // in the order of their first errors
	for _, e := range list {
		if _, ok := files[e.File]; !ok {
			files[e.File] = len(files)
		}
	}
	slices.SortStableFunc(list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
