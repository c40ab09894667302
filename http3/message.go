package http3

import (
	"encoding/binary"
	"strings"
	"unsafe"

	"github.com/millrace/millrace/http3/qpack"
)

// Message is the control data of a message, after validation (RFC 9114 4.3). Its strings are those of the
// field section.
type Message struct {
	Method, Scheme, Authority, Path string // of a request; Authority is Host where there is no :authority
	Protocol                        string // of an extended CONNECT (RFC 9220 3)
	Status                          int    // of a response
	// ContentLength is -1 if the message does not say.
	ContentLength int64
	// Fields are those after the pseudo-headers.
	Fields []qpack.Field
}

// Classes of bytes.
const (
	inName   = 1 << iota // of field names in HTTP/3: tokens without upper case (RFC 9114 4.2)
	inToken              // of tokens (RFC 9110 5.6.2)
	inValue              // of field values (RFC 9110 5.5)
	inTarget             // of :path and :authority: visible ASCII, and above, which some clients send
)

var classes = newClasses()

func newClasses() (t [256]uint8) {
	for i := range t {
		c := byte(i)
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if letter || c >= '0' && c <= '9' || c > ' ' && c < 0x7f && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			t[i] |= inToken
			if c < 'A' || c > 'Z' {
				t[i] |= inName
			}
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			t[i] |= inValue
		}
		if c > ' ' && c != 0x7f {
			t[i] |= inTarget
		}
	}
	return t
}

// all reports whether every byte of s is in a class.
func all(s string, class uint8) bool {
	and := class
	for i := range len(s) {
		and &= classes[s[i]]
	}
	return and != 0
}

// validValue reports whether every byte of s is one of field values. It looks at 8 bytes at a time: none below
// 0x20 and none equal to 0x7f is the rule, and a tab the exception.
func validValue(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for b := unsafe.Slice(unsafe.StringData(s), len(s)); i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		del := x ^ 0x7f*ones
		if (x-0x20*ones)&^x&tops|(del-ones)&^del&tops != 0 && !all(s[i:i+8], inValue) {
			return false
		}
	}
	return all(s[i:], inValue)
}

// Violations. They are made once: an attacker decides how often they are needed.
var (
	errName          = malformed("a field name that is empty or has a character that is not permitted, such as upper case")
	errValue         = malformed("a field value with a character that is not permitted")
	errPseudoOrder   = malformed("a pseudo-header after a field")
	errPseudoUnknown = malformed("a pseudo-header that does not belong there")
	errPseudoTwice   = malformed("a pseudo-header that comes twice")
	errPseudoMissing = malformed("a pseudo-header is missing")
	errConnection    = malformed("a field of the connection, such as Connection or Transfer-Encoding")
	errTE            = malformed("TE with a value other than trailers")
	errLength        = malformed("Content-Length is not one number")
	errLengthDiffers = malformed("the content is not as long as Content-Length says")
	errMethod        = malformed("the method is no token")
	errStatus        = malformed("the status is not three digits, or 101")
	errPath          = malformed("the path is empty or does not begin with a slash")
	errTarget        = malformed("a character that no request target has")
	errAuthority     = malformed("the authority is empty, has user information or differs from Host")
	errConnect       = malformed("CONNECT with a scheme or path, or without an authority")
	errProtocol      = malformed("an extended CONNECT that was not permitted, or has no method CONNECT")
	errScheme        = malformed("the scheme is none")
	errNoHeaders     = malformed("the response ends before its header")
	errIncomplete    = error(&StreamError{Code: RequestIncomplete, Text: "the request ends before it is complete"})
)

// pseudo-headers, as bits of what was seen.
const (
	hasMethod = 1 << iota
	hasScheme
	hasAuthority
	hasPath
	hasProtocol
	hasStatus
)

// pseudoBit returns the bit of a pseudo-header and where its value goes.
func (m *Message) pseudoBit(name string) (bit uint8, to *string) {
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

// request validates the field section of a request. extended says that extended CONNECT is permitted.
func (m *Message) request(fields []qpack.Field, extended bool) error {
	*m = Message{ContentLength: -1}
	seen, n := uint8(0), 0
	for ; n < len(fields) && strings.HasPrefix(fields[n].Name, ":"); n++ {
		bit, to := m.pseudoBit(fields[n].Name)
		switch {
		case bit == 0:
			return errPseudoUnknown
		case seen&bit != 0:
			return errPseudoTwice
		case !all(fields[n].Value, inTarget):
			return errTarget
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

// target validates the pseudo-headers of a request (RFC 9114 4.3.1, 4.4). host is the header, "" for none.
func (m *Message) target(seen uint8, host string, extended bool) error {
	switch {
	case seen&hasMethod == 0:
		return errPseudoMissing
	case m.Method == "" || !all(m.Method, inToken):
		return errMethod
	case seen&hasProtocol != 0:
		if !extended || m.Method != "CONNECT" || m.Protocol == "" || !all(m.Protocol, inToken) {
			return errProtocol
		}
	case m.Method == "CONNECT":
		if seen != hasMethod|hasAuthority || m.Authority == "" || !hasPort(m.Authority) {
			return errConnect
		}
		return nil
	}
	switch {
	case seen&(hasScheme|hasPath) != hasScheme|hasPath:
		return errPseudoMissing
	case !isScheme(m.Scheme):
		return errScheme
	case m.Scheme != "https" && m.Scheme != "http":
		return nil // RFC 9114 4.3.1 has rules for these two
	case m.Path == "" || m.Path[0] != '/' && (m.Path != "*" || m.Method != "OPTIONS"):
		return errPath
	case seen&hasAuthority != 0 && host != "" && !strings.EqualFold(m.Authority, host):
		return errAuthority
	case seen&hasAuthority == 0:
		m.Authority = host
	}
	if m.Authority == "" || strings.IndexByte(m.Authority, '@') >= 0 {
		return errAuthority
	}
	return nil
}

// hasPort reports whether an authority ends with a port, as the target of CONNECT does (RFC 9110 9.3.6).
func hasPort(s string) bool {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || i == len(s)-1 {
		return false
	}
	for _, c := range []byte(s[i+1:]) {
		if c < '0' || c > '9' {
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

// response validates the field section of a response (RFC 9114 4.3.2).
func (m *Message) response(fields []qpack.Field) error {
	*m = Message{ContentLength: -1}
	if len(fields) == 0 || fields[0].Name[:min(1, len(fields[0].Name))] != ":" {
		return errPseudoMissing
	}
	if fields[0].Name != ":status" {
		return errPseudoUnknown
	}
	s := fields[0].Value
	if len(s) != 3 || s[0] < '1' || s[0] > '9' || s[1] < '0' || s[1] > '9' || s[2] < '0' || s[2] > '9' || s == "101" {
		return errStatus // RFC 9114 4.5: there is no 101 in HTTP/3
	}
	m.Status = int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
	if len(fields) > 1 && fields[1].Name == ":status" {
		return errPseudoTwice
	}
	if len(fields) > 1 && strings.HasPrefix(fields[1].Name, ":") {
		return errPseudoUnknown
	}
	m.Fields = fields[1:]
	_, err := m.regular()
	return err
}

// trailers validates the field section of trailers, which have no pseudo-headers (RFC 9114 4.3).
func trailers(fields []qpack.Field) error {
	for i := range fields {
		if strings.HasPrefix(fields[i].Name, ":") {
			return errPseudoUnknown
		}
		if err := checkField(&fields[i]); err != nil {
			return err
		}
	}
	return nil
}

// regular validates the fields and returns Host.
func (m *Message) regular() (host string, err error) {
	for i := range m.Fields {
		f := &m.Fields[i]
		if err := checkField(f); err != nil {
			return "", err
		}
		switch f.Name {
		case "content-length":
			n, valid := number(f.Value)
			if !valid || m.ContentLength >= 0 && m.ContentLength != n {
				return "", errLength
			}
			m.ContentLength = n
		case "host":
			if host != "" && host != f.Value || f.Value == "" {
				return "", errAuthority
			}
			host = f.Value
		}
	}
	return host, nil
}

// checkField validates name and value (RFC 9114 4.2).
func checkField(f *qpack.Field) error {
	name, value := f.Name, f.Value
	if name == "" || !all(name, inName) {
		if strings.HasPrefix(name, ":") {
			return errPseudoOrder
		}
		return errName
	}
	if !validValue(value) || value != "" && (blank(value[0]) || blank(value[len(value)-1])) {
		return errValue
	}
	switch len(name) { // most names have another length, and no string is compared
	case 2, 7, 10, 16, 17:
		switch name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
			return errConnection
		case "te":
			if !strings.EqualFold(value, "trailers") {
				return errTE
			}
		}
	}
	return nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// number parses digits.
func number(s string) (n int64, valid bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}
