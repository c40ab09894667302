package semantics

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

// Field is a line of a header or trailer section (RFC 9110 5). Parsers return names in lower case.
type Field struct {
	Name, Value string
	// Never keeps the field out of compression tables, here and at every hop that forwards it
	// (RFC 7541 6.2.3, RFC 9204 4.5.4). It protects secrets from guesses by the size of messages.
	Never bool
}

// Classes of bytes.
const (
	inName       = 1 << iota // of field names in HTTP/2 and HTTP/3: tokens without upper case (RFC 9113 8.2)
	inToken                  // of tokens (RFC 9110 5.6.2)
	inValue                  // of field values (RFC 9110 5.5)
	inTarget                 // of pseudo-headers: no blanks and no control characters
	inAuthority              // of a host and port (RFC 3986 3.2.2, 3.2.3)
	inHost                   // of a host name
	inVariable               // letters in lower case and digits, which stay in the name of a variable
	inPlain                  // these and the hyphen
	inURI                    // of a request target in HTTP/1.1: visible ASCII without the fragment's mark
	notUpper                 // all but letters in upper case
	notAlternate             // all but those that recipients of a path differ about: AlternatePaths
	notSegment               // all but those that begin or end what isNormal looks at
)

var classes = newClasses()

func newClasses() (t [256]uint16) {
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
		if letter || c >= '0' && c <= '9' || c != 0 && c < 0x80 && strings.IndexByte("-._~!$&'()*+,;=%:[]", c) >= 0 {
			t[i] |= inAuthority
		}
		if t[i]&inAuthority != 0 && strings.IndexByte(":[]", c) < 0 {
			t[i] |= inHost
		}
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			t[i] |= inVariable | inPlain
		}
		if c == '-' {
			t[i] |= inPlain
		}
		if c > ' ' && c < 0x7f && c != '#' {
			t[i] |= inURI
		}
		if c < 'A' || c > 'Z' {
			t[i] |= notUpper
		}
		if c != '%' && c != '\\' && c != ';' {
			t[i] |= notAlternate
		}
		if c != '%' && c != 0 && c != '/' {
			t[i] |= notSegment
		}
	}
	return t
}

// all reports whether every byte of s is in a class.
func all(s string, class uint16) bool {
	and := class
	for i := range len(s) {
		and &= classes[s[i]]
	}
	return and != 0
}

// IsToken reports whether s is a token (RFC 9110 5.6.2): a method, a field name, a protocol.
func IsToken(s string) bool { return s != "" && all(s, inToken) }

// IsName reports whether s is a field name in lower case.
func IsName(s string) bool { return s != "" && all(s, inName) }

// IsTarget reports whether the bytes of s are those of a request target without a fragment (RFC 9112 3.2).
func IsTarget(s string) bool { return s != "" && all(s, inURI) }

// IsValue reports whether s is a field value (RFC 9110 5.5): no control character but tabs, and no blank at either end.
func IsValue(s string) bool {
	return hasValueBytes(s) && (s == "" || !isBlank(s[0]) && !isBlank(s[len(s)-1]))
}

// IsText reports whether the bytes of s are those of field values. Blanks may stand at its ends, as in a reason phrase (RFC
// 9112 4).
func IsText(s string) bool { return hasValueBytes(s) }

// hasValueBytes reports whether every byte of s is one of field values. It looks at 8 bytes at a time: none below
// 0x20 and none equal to 0x7f is the rule, and a tab the exception.
func hasValueBytes(s string) bool {
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

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// ParseLength parses the digits of a Content-Length (RFC 9110 8.6), without sign, list or blanks.
func ParseLength(s string) (n int64, ok bool) {
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

// Overhead is the size that a field counts beyond its name and value, in limits and in compression tables (RFC 7541 4.1, RFC 9113
// 6.5.2, RFC 9114 4.2.2).
const Overhead = 32

// Size returns the size of the field as limits and tables count it.
func (f *Field) Size() uint64 { return uint64(len(f.Name)) + uint64(len(f.Value)) + Overhead }

// Size returns the size of fields as the limits of HTTP/2 and HTTP/3 count it.
func Size(fields []Field) (n uint64) {
	for i := range fields {
		n += fields[i].Size()
	}
	return n
}

// JoinValues returns the value of a field that has one more line: the list of both (RFC 9110 5.3). a is "" before the first.
func JoinValues(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}
