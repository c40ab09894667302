package http3

import "strings"

// Priority holds the urgency of a response (RFC 9218 4).
type Priority struct {
	Urgency     uint8 // 0, the most urgent, to 7
	Incremental bool  // the response can be used in parts, so it shares with others
}

// DefaultPriority is that of requests without the header.
var DefaultPriority = Priority{Urgency: 3}

// String returns the value of the header Priority. Defaults are left out.
func (p Priority) String() string {
	var s []string
	if p.Urgency != DefaultPriority.Urgency {
		s = append(s, "u="+string('0'+min(p.Urgency, 7)))
	}
	if p.Incremental {
		s = append(s, "i")
	}
	return strings.Join(s, ", ")
}

// ParsePriority parses the header Priority, a dictionary of RFC 9651 3.2. Members with unknown names or values
// out of range are ignored (RFC 9218 4); not ok means that it is no dictionary at all, and p is the default.
func ParsePriority(s string) (p Priority, ok bool) { return DefaultPriority.Merge(s) }

// Merge returns p as changed by the header Priority of a response: a server may know better than its client how urgent
// something is, and what it leaves out stays (RFC 9218 8). The header is parsed as by ParsePriority; not ok leaves p.
func (p Priority) Merge(s string) (merged Priority, ok bool) {
	merged = p
	for rest := strings.Trim(s, " "); rest != ""; {
		var member string
		member, rest = cutMember(rest)
		name, value, hasValue := strings.Cut(member, "=")
		name, _, _ = strings.Cut(name, ";")
		value, _, _ = strings.Cut(value, ";")
		if !isKey(name) || hasValue && value == "" {
			return p, false
		}
		switch {
		case name == "u" && len(value) == 1 && value[0] >= '0' && value[0] <= '7':
			merged.Urgency = value[0] - '0'
		case name == "i" && (!hasValue || value == "?1"):
			merged.Incremental = true
		case name == "i" && value == "?0":
			merged.Incremental = false
		}
		if rest == "," {
			return p, false
		}
	}
	return merged, true
}

// cutMember cuts a dictionary at its first comma outside of a string. A trailing comma stays.
func cutMember(s string) (member, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ',' && !quoted:
			if rest = strings.TrimLeft(s[i+1:], " \t"); rest == "" {
				rest = ","
			}
			return strings.TrimRight(s[:i], " \t"), rest
		}
	}
	return s, ""
}

// isKey reports whether s is a key of RFC 9651 3.1.2.
func isKey(s string) bool {
	for i := range len(s) {
		c := s[i]
		lower := c >= 'a' && c <= 'z' || c == '*'
		if !lower && (i == 0 || (c < '0' || c > '9') && c != '_' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}
