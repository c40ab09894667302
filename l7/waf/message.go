package waf

import (
	"strconv"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// ParseHead fills in a request with HTTP/1.1 by its header as it came, which a protocol machine has checked: the fields of the machine lack those
// that frame the message, and rules about smuggling look at them; its path lacks what an absolute form has before.
func (r *Request) ParseHead(head []byte) {
	line, text, _ := strings.Cut(string(head), "\n") // once: all are parts of it
	if method, rest, ok := strings.Cut(line, " "); ok {
		if i := strings.LastIndexByte(rest, ' '); i >= 0 {
			r.Method, r.Target, r.Protocol = method, rest[:i], strings.TrimSuffix(rest[i+1:], "\r")
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.Trim(value, " \t\r")
		if strings.EqualFold(name, "host") {
			r.Host = value
		}
		r.Fields = append(r.Fields, semantics.Field{Name: name, Value: value})
	}
}

// SetFields fills in the fields of a request with HTTP/2 or HTTP/3, whose host has a field of its own in the rules' language.
func (r *Request) SetFields(m *semantics.Message) {
	r.Method, r.Target = strings.Clone(m.Method), strings.Clone(m.Path) // they lie in the memory of a connection
	r.Fields = CloneFields(m.Fields)
	has := func(name string) bool {
		for i := range r.Fields {
			if r.Fields[i].Name == name {
				return true
			}
		}
		return false
	}
	r.Host = strings.Clone(m.Authority)
	if m.Authority != "" && !has("host") {
		r.Fields = append(r.Fields, semantics.Field{Name: "host", Value: r.Host})
	}
	if m.ContentLength >= 0 && !has("content-length") {
		r.Fields = append(r.Fields, semantics.Field{Name: "content-length", Value: strconv.FormatInt(m.ContentLength, 10)})
	}
}

// CloneFields returns a copy of fields that has one piece of memory for all text.
func CloneFields(fields []semantics.Field) []semantics.Field {
	n := 0
	for i := range fields {
		n += len(fields[i].Name) + len(fields[i].Value)
	}
	var b strings.Builder
	b.Grow(n)
	for i := range fields {
		b.WriteString(fields[i].Name)
		b.WriteString(fields[i].Value)
	}
	text, out := b.String(), make([]semantics.Field, 0, len(fields)+2)
	for i := range fields {
		k, v := len(fields[i].Name), len(fields[i].Value)
		out = append(out, semantics.Field{Name: text[:k], Value: text[k : k+v]})
		text = text[k+v:]
	}
	return out
}
