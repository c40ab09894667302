package accesslog

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Layout holds the fields of lines and their form. It is immutable.
type Layout struct {
	parts  []part
	runs   []run // of an object: its parts, put together
	object bool  // lines are objects of JSON
	weigh  bool  // with the number of requests that a line stands for
}

// part is text, a field, or in an object both: its name and its value.
type part struct {
	text string
	field
}

// JSON returns the layout of lines of JSON with some fields; none are the usual ones.
func JSON(names []string) (*Layout, error) {
	l := &Layout{object: true}
	if len(names) == 0 {
		names = Fields()[:usual]
	}
	for _, name := range names {
		f, err := named(name)
		if err != nil {
			return nil, err
		}
		l.parts = append(l.parts, part{string(append(appendJSON([]byte(","), name), ':')), f})
	}
	l.runs = runsOf(l.parts)
	return l, nil
}

// Combined is the template of the combined log format.
const Combined = `${client_address} - ${user} [${time_clf}] "${method} ${path} ${protocol}" ${status} ${bytes_out} "${referer}" "${user_agent}"`

// Text returns the layout of a template with fields as "${status}". A dollar sign in front of a brace that stands for itself is
// written "$$".
func Text(template string) (*Layout, error) {
	l, text := &Layout{}, []byte(nil)
	if template == "" || strings.ContainsFunc(template, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return nil, fmt.Errorf("a template is one line of text, without control characters")
	}
	for s := template; s != ""; {
		before, rest, found := strings.Cut(s, "$")
		text = append(text, before...)
		switch {
		case !found:
		case strings.HasPrefix(rest, "${"):
			text, rest = append(text, "${"...), rest[2:]
		case !strings.HasPrefix(rest, "{"):
			text = append(text, '$')
		default:
			name, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return nil, fmt.Errorf("${%s is not closed by a brace", name)
			}
			f, err := named(name)
			if err != nil {
				return nil, err
			}
			l.parts, text, rest = append(l.parts, part{text: string(text)}, part{field: f}), nil, after
		}
		s = rest
	}
	l.parts = append(l.parts, part{text: string(text)})
	return l, nil
}

// ReadsHello reports whether the layout has what the listener reads of a ClientHello for it. That of nil has not.
func (l *Layout) ReadsHello() bool {
	if l == nil {
		return false
	}
	for i := range l.parts {
		if l.parts[i].name == "ja4" {
			return true
		}
	}
	return false
}

// append appends the line of a record, without its end.
func (l *Layout) append(b []byte, m *memory, r *Record, weight int) []byte {
	if !l.object {
		for i := range l.parts {
			b = l.parts[i].appendText(b, &m.moments, r)
		}
		return b
	}
	start := len(b)
	m.use(l)
	for i := range l.runs {
		if q := &l.runs[i]; q.steady != nil {
			b = q.append(b, m.runs[i], r)
		} else {
			b = q.parts[0].appendMember(b, &m.moments, r)
		}
	}
	if l.weigh {
		b = append(b, `,"weight":`...)
		b = strconv.AppendInt(b, int64(weight), 10)
	}
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{' // in place of the first comma
	return append(b, '}')
}

// appendMember appends a member of an object; one without a value is left out.
func (p *part) appendMember(b []byte, m *moments, r *Record) []byte {
	if p.field.text != nil {
		if s := p.field.text(r); s != "" {
			b = appendJSON(append(b, p.text...), s)
		}
		return b
	}
	before := len(b)
	b = append(b, p.text...)
	if p.number != nil {
		after := len(b)
		if b = p.number(b, r); len(b) == after {
			return b[:before]
		}
		return b
	}
	b = append(b, '"')
	after := len(b)
	if b = p.appendExact(b, m, r); len(b) == after {
		return b[:before]
	}
	return append(b, '"')
}

func (p *part) appendExact(b []byte, m *moments, r *Record) []byte {
	if p.moment != nil {
		return p.moment(m, b)
	}
	return p.exact(b, r)
}

// appendText appends a part of a line of text; "-" stands for a field without a value.
func (p *part) appendText(b []byte, m *moments, r *Record) []byte {
	before := len(b)
	switch {
	case p.name == "":
		return append(b, p.text...)
	case p.field.text != nil:
		b = appendEscaped(b, p.field.text(r))
	case p.number != nil:
		b = p.number(b, r)
	default:
		b = p.appendExact(b, m, r)
	}
	if len(b) == before {
		return append(b, '-')
	}
	return b
}

const hex = "0123456789abcdef"

// appendEscaped appends text that clients may have chosen: it must neither end the line nor the quotes around it.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// plain are the bytes that a string of JSON has as they are.
var plain = func() (t [256]bool) {
	for c := byte(' '); c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendJSON appends a string of JSON. What clients send need not be UTF-8, and must not end the line.
func appendJSON(b []byte, s string) []byte {
	i := 0
	for i < len(s) && plain[s[i]] {
		i++
	}
	b = append(append(b, '"'), s[:i]...)
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ' || c == 0x7f:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, `\ufffd`...)
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}
