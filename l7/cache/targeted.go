package cache

import (
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// ControlOf returns the directives of a response that count for this cache: those of CDN-Cache-Control, where it is valid and not empty,
// in place of Cache-Control and Expires (RFC 9213 2.2), otherwise those of Cache-Control.
func ControlOf(fields []semantics.Field) Control {
	if c, ok := parseTargeted(fields); ok {
		return c
	}
	return ParseControl(fields)
}

// parseTargeted reads CDN-Cache-Control, a dictionary of structured fields. ok is false where it is not there, empty, or malformed: it then
// counts as not there at all (RFC 9213 2.1).
func parseTargeted(fields []semantics.Field) (c Control, ok bool) {
	var text string
	found := false
	for i := range fields {
		if f := &fields[i]; f.Name == "cdn-cache-control" {
			if text = semantics.JoinValues(text, f.Value); !found {
				text, found = f.Value, true
			}
		}
	}
	if !found {
		return Control{}, false
	}
	members, ok := parseDictionary(text)
	if !ok || len(members) == 0 {
		return Control{}, false
	}
	c = noControl()
	c.Targeted = true
	for i := range members {
		c.addTargeted(&members[i])
	}
	return c, true
}

// addTargeted notes a member. One whose value has another type than its directive is ignored, if it permits something: what forbids
// counts with every value but false.
func (c *Control) addTargeted(m *member) {
	forbids := m.kind != sfBoolean || m.boolean
	switch m.key {
	case "no-store":
		c.forbid(NoStore, forbids)
	case "must-revalidate":
		c.forbid(MustRevalidate, forbids)
	case "proxy-revalidate":
		c.forbid(ProxyRevalidate, forbids)
	case "no-cache", "private":
		bit := NoCache
		if m.key == "private" {
			bit = Private
		}
		if m.kind == sfString {
			c.addListed(&directive{argument: m.text, form: quoted}, bit)
			return
		}
		c.forbid(bit, forbids)
	case "public":
		c.forbid(Public, m.kind == sfBoolean && m.boolean)
	case "must-understand":
		c.forbid(MustUnderstand, m.kind == sfBoolean && m.boolean)
	case "max-age":
		m.seconds(&c.MaxAge)
	case "s-maxage":
		m.seconds(&c.SMaxAge)
	case "stale-while-revalidate":
		m.seconds(&c.StaleWhileRevalidate)
	case "stale-if-error":
		m.seconds(&c.StaleIfError)
	}
}

// forbid sets a directive.
func (c *Control) forbid(d Directive, on bool) {
	if on {
		c.Directives |= d
	}
}

// seconds sets a time to an integer. One below 0 is 0: the response is stale.
func (m *member) seconds(to *time.Duration) {
	if m.kind == sfInteger {
		*to = time.Duration(min(max(m.integer, 0), maxSeconds)) * time.Second
	}
}

// member is a member of a dictionary (RFC 9651 3.2), without its parameters.
type member struct {
	key, text string // text of a string
	kind      sfKind
	boolean   bool
	integer   int64
}

// sfKind is the type of a value of structured fields (RFC 9651 3).
type sfKind uint8

const (
	sfBoolean sfKind = iota
	sfInteger
	sfString
	sfOther // a type that no directive has: decimal, token, date, bytes, inner list
)

// parseDictionary parses a dictionary (RFC 9651 4.2.2). Of several members with one key the last counts.
func parseDictionary(s string) (list []member, ok bool) {
	for s = strings.Trim(s, " "); s != ""; {
		var m member
		if m, s, ok = parseMember(s); !ok {
			return nil, false
		}
		at := len(list)
		for i := range list {
			if list[i].key == m.key {
				at = i
			}
		}
		list = append(list[:at:at], append([]member{m}, list[min(at+1, len(list)):]...)...)
		if s = strings.TrimLeft(s, " \t"); s == "" {
			break
		}
		if s[0] != ',' {
			return nil, false
		}
		if s = strings.TrimLeft(s[1:], " \t"); s == "" { // a comma at the end
			return nil, false
		}
	}
	return list, true
}

// parseMember parses a member with its parameters, which count for nothing.
func parseMember(s string) (m member, rest string, ok bool) {
	if m.key, s = sfKey(s); m.key == "" {
		return m, s, false
	}
	m.boolean = true
	if strings.HasPrefix(s, "=") {
		if s = s[1:]; strings.HasPrefix(s, "(") {
			m.kind = sfOther
			s, ok = skipInnerList(s[1:])
		} else {
			s, ok = m.item(s)
		}
		if !ok {
			return m, s, false
		}
	}
	s, ok = skipParameters(s)
	return m, s, ok
}

// sfKey cuts a key from s (RFC 9651 4.2.3.3): "" for none.
func sfKey(s string) (key, rest string) {
	n := 0
	for ; n < len(s); n++ {
		c := s[n]
		if first := c >= 'a' && c <= 'z' || c == '*'; !first && (n == 0 || (c < '0' || c > '9') && c != '_' && c != '-' && c != '.') {
			break
		}
	}
	return s[:n], s[n:]
}

// skipParameters skips the parameters of an item (RFC 9651 4.2.3.2).
func skipParameters(s string) (rest string, ok bool) {
	for strings.HasPrefix(s, ";") {
		var m member
		if m.key, s = sfKey(strings.TrimLeft(s[1:], " ")); m.key == "" {
			return s, false
		}
		if strings.HasPrefix(s, "=") {
			if s, ok = m.item(s[1:]); !ok {
				return s, false
			}
		}
	}
	return s, true
}

// skipInnerList skips an inner list behind its parenthesis (RFC 9651 4.2.1.2).
func skipInnerList(s string) (rest string, ok bool) {
	for {
		trimmed := strings.TrimLeft(s, " ")
		if strings.HasPrefix(trimmed, ")") {
			return trimmed[1:], true
		}
		var m member
		if s, ok = m.item(trimmed); !ok {
			return s, false
		}
		if s, ok = skipParameters(s); !ok || s == "" || s[0] != ' ' && s[0] != ')' {
			return s, false
		}
	}
}

// item parses a bare item (RFC 9651 4.2.3.1).
func (m *member) item(s string) (rest string, ok bool) {
	if s == "" {
		return s, false
	}
	switch c := s[0]; {
	case c == '?':
		if len(s) < 2 || s[1] != '0' && s[1] != '1' {
			return s, false
		}
		m.kind, m.boolean = sfBoolean, s[1] == '1'
		return s[2:], true
	case c == '"':
		m.kind = sfString
		m.text, rest, ok = sfText(s[1:])
		return rest, ok
	case c == '-' || c >= '0' && c <= '9':
		return m.number(s)
	case c == '@': // a date (RFC 9651 4.2.9)
		if rest, ok = m.number(s[1:]); !ok || m.kind != sfInteger {
			return s, false
		}
		m.kind = sfOther
		return rest, true
	case c == ':':
		m.kind = sfOther
		end := strings.IndexByte(s[1:], ':')
		if end < 0 || strings.Trim(s[1:1+end], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != "" {
			return s, false
		}
		return s[end+2:], true
	case c == '*' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
		m.kind = sfOther
		n := 1
		for n < len(s) && (semantics.IsToken(s[n:n+1]) || s[n] == ':' || s[n] == '/') {
			n++
		}
		return s[n:], true
	}
	return s, false // display strings too: no directive has one
}

// sfText parses a string behind its quote (RFC 9651 4.2.5).
func sfText(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", s, false
			}
		case c < ' ' || c > '~':
			return "", s, false
		}
		b.WriteByte(s[i])
	}
	return "", s, false
}

// number parses an integer or a decimal (RFC 9651 4.2.4).
func (m *member) number(s string) (rest string, ok bool) {
	negative := s != "" && s[0] == '-'
	if negative {
		s = s[1:]
	}
	n := 0
	for m.integer = 0; n < len(s) && s[n] >= '0' && s[n] <= '9'; n++ {
		if n == 15 {
			return s, false
		}
		m.integer = 10*m.integer + int64(s[n]-'0')
	}
	if n == 0 {
		return s, false
	}
	if m.kind = sfInteger; negative {
		m.integer = -m.integer
	}
	if n < len(s) && s[n] == '.' {
		m.kind = sfOther
		end := n + 1
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		if n > 12 || end == n+1 || end > n+4 {
			return s, false
		}
		n = end
	}
	return s[n:], true
}
