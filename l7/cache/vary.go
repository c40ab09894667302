package cache

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// maxVary bounds the names of Vary. A response that varies by more is as good as never reused.
const maxVary = 16

// parseVary returns the names of Vary, in lower case and each once. ok is false where no other request may get the response: with *, and
// with what is no list of names.
func parseVary(fields []semantics.Field) (names []string, ok bool) {
	for i := range fields {
		if fields[i].Name != "vary" {
			continue
		}
		for name := range strings.SplitSeq(fields[i].Value, ",") {
			name = strings.ToLower(strings.Trim(name, " \t"))
			switch {
			case name == "", slices.Contains(names, name):
			case name == "*", !semantics.IsName(name), len(names) == maxVary:
				return nil, false
			default:
				names = append(names, name)
			}
		}
	}
	slices.Sort(names) // the order of names makes no other variant
	return names, true
}

// selecting returns the value of a field by which stored responses are distinguished (RFC 9111 4.1): lines are joined, and white space
// around commas is left out. Of fields whose grammar is known, what makes no difference is left out as well: case, and the order
// of members, which their weights alone decide (RFC 9110 12.5.3, 12.5.4).
func selecting(fields []semantics.Field, name string) string {
	value, lines := "", 0
	for i := range fields {
		if f := &fields[i]; f.Name == name {
			if lines++; lines == 1 {
				value = f.Value
			} else {
				value += "," + f.Value
			}
		}
	}
	sorted := name == "accept-encoding" || name == "accept-language"
	if !sorted && strings.IndexByte(value, ',') < 0 {
		return value
	}
	if sorted {
		value = strings.ToLower(value)
	}
	members := strings.Split(value, ",")
	for i, m := range members {
		members[i] = strings.Trim(m, " \t")
	}
	if sorted {
		slices.Sort(members)
	}
	return strings.Join(members, ",")
}

// varying returns the fields by which a response varies, with the values that a request has.
func varying(names []string, request []semantics.Field) []semantics.Field {
	if len(names) == 0 {
		return nil
	}
	list := make([]semantics.Field, 0, len(names))
	for _, name := range names {
		list = append(list, semantics.Field{Name: name, Value: strings.Clone(selecting(request, name))})
	}
	return list
}

// selects reports whether a request has the values of vary.
func selects(vary, request []semantics.Field) bool {
	for i := range vary {
		if selecting(request, vary[i].Name) != vary[i].Value {
			return false
		}
	}
	return true
}
