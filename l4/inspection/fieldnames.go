package inspection

import (
	"bytes"
	"slices"
	"strings"

	"github.com/millrace/millrace/filter/signature"
)

// FieldNames returns the names of fields, in lower case, that rules of a policy look for in headers as a whole: in http.header and
// http.header.raw what stands before a colon, in http.header_names a line. Other spellings of them (X_Probe for X-Probe) are other names to
// rules, and the same variable to some backends. Names in expressions are not known.
func (i *Inspector) FieldNames(policy string) (names []string) {
	for _, p := range i.set.Load().rules {
		if p.name != policy {
			continue
		}
		for _, r := range p.all {
			names = appendFieldNames(names, r)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// appendFieldNames appends those of a rule.
func appendFieldNames(names []string, r *signature.Rule) []string {
	for i := range r.Parts {
		end := byte(':')
		switch r.Parts[i].Buffer {
		case signature.HTTPHeader, signature.HTTPHeaderRaw:
		case signature.HTTPHeaderNames:
			end = '\r'
		default:
			continue
		}
		for _, t := range r.Parts[i].Tests {
			if t.Kind != signature.TestContent {
				continue
			}
			for rest := t.Content.Bytes; ; {
				at := bytes.IndexByte(rest, end)
				if at < 0 {
					break
				}
				if name := lastToken(rest[:at]); strings.Contains(name, "-") && strings.Trim(name, "-") != "" { // others have no other spelling
					names = append(names, name)
				}
				rest = rest[at+1:]
			}
		}
	}
	return names
}

// lastToken returns the letters, digits and hyphens at the end of a text, in lower case.
func lastToken(b []byte) string {
	at := len(b)
	for at > 0 && (b[at-1] == '-' || b[at-1] >= '0' && b[at-1] <= '9' || b[at-1]|0x20 >= 'a' && b[at-1]|0x20 <= 'z') {
		at--
	}
	return strings.ToLower(string(b[at:]))
}
