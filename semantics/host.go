package semantics

import (
	"net/netip"
	"strings"
)

// NormalizeHost returns a host, without port, in the one form that is compared with rules: in lower case, without the dot that ends
// an absolute name (RFC 1034 3.1), and an address of IPv6 as RFC 5952 writes it. Most hosts have that form, and are returned as they
// are.
//
// ok is false for a name that recipients may take for another one. RFC 3986 3.2.2 permits percent-encoding in names, which some decode,
// and delimiters such as a comma, at which lists are split. Some drop empty labels, and read 0x7f.1 as 127.0.0.1 (WHATWG URL 4.3). Some
// decode labels of Punycode that encode nothing, so that xn--admin- is admin (RFC 5891 4.2.3.1 permits none).
func NormalizeHost(host string) (normal string, ok bool) {
	if host == "" {
		return "", true
	}
	if host[0] == '[' {
		return normalAddress(host), true
	}
	if isPlainName(host) {
		return host, true
	}
	if host[len(host)-1] == '.' {
		host = host[:len(host)-1]
	}
	if host = strings.ToLower(host); !isNormalName(host) {
		return "", false
	}
	return host, true
}

// Classes of bytes of names: two that follow one another, of which the second has twice a class of the first, need a closer look.
const (
	inPlainName = 1 << iota // of names in lower case
	beforeDot               // a dot and a hyphen
	isDot
	isZero
	isX
)

var nameClasses = newNameClasses()

func newNameClasses() (t [256]uint8) {
	for i := range t {
		if c := byte(i); c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			t[i] = inPlainName
		}
	}
	t['.'] |= beforeDot | isDot
	t['-'] |= beforeDot
	t['0'] |= isZero
	t['x'] |= isX
	return t
}

// isPlainName reports whether isNormalName holds for a reason that most names have: no label is empty, ends with a hyphen or begins with
// 0x, and the last one does not end with a digit.
func isPlainName(s string) bool {
	const pairs = isDot | isX
	and, odd, last := uint8(inPlainName), uint8(0), uint8(beforeDot)
	for i := range len(s) {
		c := nameClasses[s[i]]
		and &= c
		odd |= c & (last << 1)
		last = c
	}
	return and != 0 && odd&pairs == 0 && s[len(s)-1] > '9'
}

// isNormalName reports whether a name in lower case has one reading.
func isNormalName(s string) bool {
	label := 0 // where the last one begins
	for i := range len(s) {
		c := s[i]
		if c != '.' && nameClasses[c] != 0 {
			continue
		}
		if c != '.' || i == label || s[i-1] == '-' && isEmptyPunycode(s[label:i]) {
			return false
		}
		label = i + 1
	}
	if label == len(s) {
		return false
	}
	last := s[label:]
	if last[0] <= '9' && last[0] >= '0' && isNumber(last) {
		return isIPv4(s)
	}
	return last[len(last)-1] != '-' || !isEmptyPunycode(last)
}

// isEmptyPunycode reports whether a label that ends with a hyphen encodes nothing but itself (RFC 3492 3.1).
func isEmptyPunycode(label string) bool { return strings.HasPrefix(label, "xn--") }

// isNumber reports whether a label that begins with a digit is a number of inet_aton(3): programs take a name that ends with one for an
// address.
func isNumber(label string) bool {
	if len(label) < 2 || label[1] != 'x' {
		return areDigits(label)
	}
	for i := 2; i < len(label); i++ {
		if unhex(label[i]) > 15 {
			return false
		}
	}
	return label[0] == '0'
}

// isIPv4 reports whether s is an address of four decimal numbers without zeros before them.
func isIPv4(s string) bool {
	numbers, n, digits := 1, 0, 0
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '.' && digits > 0:
			numbers, n, digits = numbers+1, 0, 0
		case c < '0' || c > '9' || digits > 0 && n == 0:
			return false
		default:
			if n, digits = n*10+int(c-'0'), digits+1; n > 255 {
				return false
			}
		}
	}
	return numbers == 4 && digits > 0
}

// IsPort reports whether what follows the host in a valid authority is a port, or nothing. A colon alone is valid, too (RFC 3986 3.2.3).
func IsPort(s string) bool {
	if len(s) < 2 {
		return true
	}
	if len(s) > len(":65535") {
		return false
	}
	n := 0
	for i := 1; i < len(s); i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// normalAddress returns an address of IPv6 in brackets as RFC 5952 writes it. What is none stays as it is.
func normalAddress(host string) string {
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return host
	}
	var room [48]byte
	out := append(a.AppendTo(append(room[:0], '[')), ']')
	if string(out) == host {
		return host
	}
	return string(out)
}

// WithoutRootDot returns an authority without the dot that ends an absolute name. host is its Host. The port stays.
func WithoutRootDot(authority, host string) string {
	if !strings.HasSuffix(host, ".") {
		return authority
	}
	return host[:len(host)-1] + authority[len(host):]
}
