package semantics

import (
	"net/netip"
	"slices"
	"strings"
)

// Message is the control data of a message, after validation, and its fields. The strings belong to the parser, which says
// how long they are valid.
type Message struct {
	Method, Scheme, Authority, Path string // of a request; Authority is Host where there is no :authority
	Protocol                        string // of an extended CONNECT (RFC 8441 4, RFC 9220 3)
	Status                          int    // of a response
	// ContentLength is -1 if the message does not say.
	ContentLength int64
	// Fields are those after the pseudo-headers.
	Fields []Field
	// Spellings are the names of fields as the sender wrote them, if the parser keeps them. Those of Fields are in lower case.
	Spellings []string
}

// pseudo-headers, as bits of what was seen.
const (
	hasMethod = 1 << iota
	hasScheme
	hasAuthority
	hasPath
	hasProtocol
)

// pseudoHeader returns the bit of a pseudo-header and where its value goes.
func (m *Message) pseudoHeader(name string) (bit uint8, to *string) {
	switch name {
	case ":method":
		return hasMethod, &m.Method
	case ":scheme":
		return hasScheme, &m.Scheme
	case ":authority":
		return hasAuthority, &m.Authority
	case ":path":
		return hasPath, &m.Path
	case ":protocol":
		return hasProtocol, &m.Protocol
	}
	return 0, nil
}

// ReadRequest validates the field section of a request of HTTP/2 or HTTP/3 and fills m, which keeps a part of fields.
// extended means that extended CONNECT is permitted. The error is a Violation.
func (m *Message) ReadRequest(fields []Field, extended bool) error {
	*m = Message{ContentLength: -1}
	seen, n := uint8(0), 0
	for ; n < len(fields) && isPseudo(fields[n].Name); n++ {
		bit, to := m.pseudoHeader(fields[n].Name)
		switch {
		case bit == 0:
			return PseudoUnknown
		case seen&bit != 0:
			return PseudoRepeated
		case !all(fields[n].Value, inTarget):
			return BadTarget
		}
		seen |= bit
		*to = fields[n].Value
	}
	m.Fields = fields[n:]
	host, err := m.regular()
	if err != nil {
		return err
	}
	return m.target(seen, host, extended)
}

// target validates the pseudo-headers of a request (RFC 9113 8.3.1, RFC 9114 4.3.1). host is the header, "" for none.
func (m *Message) target(seen uint8, host string, extended bool) error {
	switch {
	case seen&hasMethod == 0:
		return PseudoMissing
	case !IsToken(m.Method):
		return BadMethod
	case seen&hasProtocol != 0:
		if !extended || m.Method != "CONNECT" || !IsToken(m.Protocol) {
			return BadProtocol
		}
	case m.Method == "CONNECT":
		if seen != hasMethod|hasAuthority || m.Authority == "" || !HasPort(m.Authority) {
			return BadConnect
		}
		return nil
	}
	switch {
	case seen&(hasScheme|hasPath) != hasScheme|hasPath:
		return PseudoMissing
	case !isScheme(m.Scheme):
		return BadScheme
	case m.Scheme != "https" && m.Scheme != "http":
		return nil // RFC 9114 4.3.1 has rules for these two
	case !IsTarget(m.Path) || m.Path[0] != '/' && (m.Path != "*" || m.Method != "OPTIONS"):
		return BadPath
	case seen&hasAuthority != 0 && host != "" && !strings.EqualFold(m.Authority, host):
		return BadAuthority
	case seen&hasAuthority == 0:
		m.Authority = host
	}
	if !IsAuthority(m.Authority) {
		return BadAuthority
	}
	return nil
}

// HasPort reports whether an authority ends with a port, as the target of CONNECT does (RFC 9110 9.3.6).
func HasPort(s string) bool {
	i := strings.LastIndexByte(s, ':')
	return i > 0 && i < len(s)-1 && areDigits(s[i+1:])
}

// Host returns an authority without its port (RFC 3986 3.2).
func Host(authority string) string {
	for i := len(authority) - 1; i >= 0; i-- {
		switch c := authority[i]; {
		case c == ':':
			return authority[:i]
		case c < '0' || c > '9': // of a name, or the bracket of an IPv6 address
			return authority
		}
	}
	return authority
}

// IsAuthority reports whether s is a host with or without a port, and no user information (RFC 3986 3.2, RFC 9110 4.2.4). An
// address of IPv6 stands in brackets, without a zone, which has no meaning to others (RFC 6874 4).
func IsAuthority(s string) bool {
	if all(s, inHost) { // most have no port
		return s != ""
	}
	if s == "" || !all(s, inAuthority) {
		return false
	}
	host, port, hasPort := strings.Cut(s, ":")
	if s[0] == '[' {
		end := strings.LastIndexByte(s, ']')
		if end < 0 || !isIPv6(s[1:end]) {
			return false
		}
		host, port, hasPort = "ip", s[end+1:], end < len(s)-1
		if hasPort && port[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	}
	return host != "" && all(host, inHost) && (!hasPort || areDigits(port))
}

// isIPv6 reports whether s is an address of IPv6 without a zone.
func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

// areDigits reports whether s has nothing but digits. A port may be empty (RFC 3986 3.2.3).
func areDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isScheme reports whether s is a scheme (RFC 3986 3.1).
func isScheme(s string) bool {
	if s == "https" {
		return true
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// ReadResponse validates the field section of a response of HTTP/2 or HTTP/3 (RFC 9113 8.3.2, RFC 9114 4.3.2) and fills m,
// which keeps a part of fields. The error is a Violation.
func (m *Message) ReadResponse(fields []Field) error {
	*m = Message{ContentLength: -1}
	if len(fields) == 0 || !isPseudo(fields[0].Name) {
		return PseudoMissing
	}
	if fields[0].Name != ":status" {
		return PseudoUnknown
	}
	status, ok := ParseStatus(fields[0].Value)
	if !ok || status == 101 {
		return BadStatus // RFC 9113 8.6, RFC 9114 4.5: there is no 101
	}
	m.Status = status
	if len(fields) > 1 && fields[1].Name == ":status" {
		return PseudoRepeated
	}
	if len(fields) > 1 && isPseudo(fields[1].Name) {
		return PseudoUnknown
	}
	m.Fields = fields[1:]
	_, err := m.regular()
	return err
}

// ParseStatus parses a status code: three digits, the first not 0 (RFC 9110 15).
func ParseStatus(s string) (status int, ok bool) {
	if len(s) != 3 || s[0] < '1' || s[0] > '9' || s[1] < '0' || s[1] > '9' || s[2] < '0' || s[2] > '9' {
		return 0, false
	}
	return int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0'), true
}

// regular validates the fields and returns Host. The same Content-Length again is taken out: one is meant (RFC 9110 8.6), and what
// forwards the message must not repeat it.
func (m *Message) regular() (host string, err error) {
	repeated := false
	for i := range m.Fields {
		f := &m.Fields[i]
		if err := checkField(f); err != nil {
			return "", err
		}
		switch f.Name {
		case "content-length":
			n, ok := ParseLength(f.Value)
			if !ok || m.ContentLength >= 0 && n != m.ContentLength {
				return "", BadLength
			}
			repeated = repeated || m.ContentLength >= 0
			m.ContentLength = n
		case "host":
			if host != "" && host != f.Value || f.Value == "" {
				return "", BadAuthority
			}
			host = f.Value
		}
	}
	if repeated {
		m.Fields = once(m.Fields, "content-length")
	}
	return host, nil
}

// once removes all lines of a field but the first, in place.
func once(fields []Field, name string) []Field {
	seen := false
	return slices.DeleteFunc(fields, func(f Field) bool {
		again := seen && f.Name == name
		seen = seen || f.Name == name
		return again
	})
}

// checkField validates name and value (RFC 9113 8.2, RFC 9114 4.2).
func checkField(f *Field) error {
	name, value := f.Name, f.Value
	if !IsName(name) {
		if isPseudo(name) {
			return PseudoAfterField
		}
		return BadName
	}
	if !IsValue(value) {
		return BadValue
	}
	switch len(name) { // most names have another length, and no string is compared
	case 2, 7, 10, 16, 17:
		switch name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
			return ConnectionField
		case "te":
			if !strings.EqualFold(value, "trailers") {
				return BadTE
			}
		}
	}
	return nil
}

func isPseudo(name string) bool { return name != "" && name[0] == ':' }
