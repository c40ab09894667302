package expr

import (
	"net/netip"
	"strings"
)

// lexeme is one token of a text.
type lexeme struct {
	tok   token
	pos   int    // offset of its first byte in the text
	text  string // as written; of a name, without the backslash
	value uint32 // of numbers and keywords
	addr  netip.Addr
	mac   [6]byte
}

// scanner cuts a text into tokens. The longest token wins, as in lex(1).
type scanner struct {
	text string
	pos  int
}

const singles = "+-*/%:[]!<>()&|^="

// next returns the token at the position and moves behind it.
func (s *scanner) next() (lexeme, error) {
	for s.pos < len(s.text) && strings.IndexByte(" \r\n\t", s.text[s.pos]) >= 0 {
		s.pos++
	}
	rest := s.text[s.pos:]
	l := lexeme{pos: s.pos}
	if rest == "" {
		return l, nil
	}
	if rest[0] == '\\' {
		if n := escapedLen(rest); n > 1 {
			l.tok, l.text = tokName, rest[1:n]
			s.pos += n
			return l, nil
		}
		l.tok, l.text = tokInvalid, rest[:1]
		s.pos++
		return l, nil
	}
	n, err := scanOne(rest, &l)
	l.text = rest[:n]
	s.pos += n
	return l, err
}

// scanOne recognizes the longest token at the start of s and returns its length. Of tokens of equal
// length, keywords come before numbers, and addresses before names.
func scanOne(s string, l *lexeme) (int, error) {
	if n := operatorLen(s, l); n > 0 {
		if v6 := ipv6Len(s); v6 > n { // "::1" begins with an operator
			return ipv6Token(s, v6, l)
		}
		return n, nil
	}
	wordN := wordLen(s)
	arcN := arcnetLen(s)
	macN := macLen(s)
	numN := numberLen(s)
	v4N := ipv4Len(s)
	v6N := ipv6Len(s)
	badN := brokenMACLen(s)
	longest := max(wordN, arcN, macN, numN, v4N, v6N, badN)
	if w, ok := keywords[s[:wordN]]; ok && wordN == longest && wordN > 0 {
		l.tok, l.value = w.tok, w.value
		return wordN, nil
	}
	switch {
	case longest == 0:
		l.tok = tokInvalid
		return 1, nil
	case arcN == longest:
		l.tok = tokARCnet
		l.value = hexValue(s[1:arcN])
		return arcN, nil
	case macN == longest:
		l.tok = tokMAC
		l.mac = parseMAC(s[:macN])
		return macN, nil
	case numN == longest:
		l.tok = tokNumber
		var err error
		l.value, err = parseNumber(s[:numN], l.pos)
		return numN, err
	case v4N == longest:
		l.tok = tokIPv4
		return v4N, nil
	case v6N == longest:
		return ipv6Token(s, v6N, l)
	case badN == longest:
		return badN, errorAt(l.pos, badN, "%q is not an Ethernet address", s[:badN])
	}
	l.tok = tokName
	return wordN, nil
}

func ipv6Token(s string, n int, l *lexeme) (int, error) {
	l.tok = tokIPv6
	a, err := netip.ParseAddr(s[:n])
	if err != nil || !a.Is6() {
		return n, errorAt(l.pos, n, "%q is not an IPv6 address", s[:n])
	}
	l.addr = a
	return n, nil
}

// escapedLen returns the length of a backslash and the name after it.
func escapedLen(s string) int {
	n := 1
	for n < len(s) && strings.IndexByte(" !()\n\t", s[n]) < 0 {
		n++
	}
	return n
}

var operators = []struct {
	text string
	tok  token
}{
	{"&&", tokAnd}, {"||", tokOr}, {">=", tokGE}, {"<=", tokLE}, {"!=", tokNE}, {"==", '='}, {"<<", tokShl}, {">>", tokShr},
}

func operatorLen(s string, l *lexeme) int {
	for _, o := range operators {
		if strings.HasPrefix(s, o.text) {
			l.tok = o.tok
			return 2
		}
	}
	if strings.IndexByte(singles, s[0]) < 0 {
		return 0
	}
	l.tok = token(s[0])
	if s[0] == '!' {
		l.tok = tokNot
	}
	return 1
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isAlnum(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// run returns how many bytes at the start of s satisfy ok, at most limit.
func run(s string, ok func(byte) bool, limit int) int {
	n := 0
	for n < len(s) && n < limit && ok(s[n]) {
		n++
	}
	return n
}

// wordLen returns the length of a name: it starts with a letter or digit, and hyphens and
// underscores do not end it.
func wordLen(s string) int {
	if s == "" || !isAlnum(s[0]) {
		return 0
	}
	n := run(s, func(c byte) bool { return isAlnum(c) || c == '-' || c == '_' || c == '.' }, len(s))
	for s[n-1] == '-' || s[n-1] == '_' {
		n--
	}
	return n
}

func numberLen(s string) int {
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		if n := run(s[2:], isHex, len(s)); n > 0 {
			return 2 + n
		}
	}
	return run(s, isDigit, len(s))
}

func arcnetLen(s string) int {
	if s[0] != '$' {
		return 0
	}
	if n := run(s[1:], isHex, 2); n > 0 {
		return 1 + n
	}
	return 0
}

// ipv4Len returns the length of two to four numbers with dots between them.
func ipv4Len(s string) int {
	n := numberLen(s)
	parts := 1
	for n > 0 && parts < 4 && n < len(s) && s[n] == '.' {
		m := numberLen(s[n+1:])
		if m == 0 {
			break
		}
		n += 1 + m
		parts++
	}
	if parts < 2 {
		return 0
	}
	return n
}

// macLen returns the length of a MAC-48 address: six bytes with colons, hyphens or dots between
// them, three groups of four digits with dots, or twelve digits.
func macLen(s string) int {
	best := 0
	for _, sep := range []byte{':', '-', '.'} {
		best = max(best, groupsLen(s, sep, 6, 1, 2))
	}
	best = max(best, groupsLen(s, '.', 3, 4, 4))
	if n := run(s, isHex, 12); n == 12 {
		best = max(best, 12)
	}
	return best
}

// groupsLen returns the length of count groups of low to high hexadecimal digits with sep between
// them, or 0.
func groupsLen(s string, sep byte, count, low, high int) int {
	n := 0
	for i := range count {
		if i > 0 {
			if n >= len(s) || s[n] != sep {
				return 0
			}
			n++
		}
		m := run(s[n:], isHex, high)
		if m < low {
			return 0
		}
		n += m
	}
	return n
}

// brokenMACLen returns the length of two or more groups of one or two digits, each with colons
// after it: the start of an Ethernet address that is none.
func brokenMACLen(s string) int {
	n, groups := 0, 0
	for {
		m := run(s[n:], isHex, 2)
		if m == 0 {
			break
		}
		c := run(s[n+m:], func(c byte) bool { return c == ':' }, len(s))
		if c == 0 {
			break
		}
		n += m + c
		groups++
	}
	if groups < 2 {
		return 0
	}
	return n
}

// ipv6Len returns the length of the longest IPv6 address at the start of s.
func ipv6Len(s string) int {
	limit := run(s, func(c byte) bool { return isHex(c) || c == ':' || c == '.' || c == 'x' || c == 'X' }, len(s))
	if !strings.Contains(s[:limit], ":") {
		return 0
	}
	// The longest form, with an IPv4 address whose numbers have any number of digits, has no bound;
	// 100 bytes cover every address that the next step accepts.
	for n := min(limit, 100); n >= 2; n-- {
		if looksLikeIPv6(s[:n]) {
			return n
		}
	}
	return 0
}

// looksLikeIPv6 reports whether s has the form of an IPv6 address: eight groups, or fewer around one
// "::"; the last two may be written as an IPv4 address (RFC 4291 2.2).
func looksLikeIPv6(s string) bool {
	left, right, compressed := strings.Cut(s, "::")
	if !compressed {
		n, ok := countGroups(s, true)
		return ok && n == 8
	}
	a, ok := countGroups(left, false)
	if !ok {
		return false
	}
	b, ok := countGroups(right, true)
	return ok && a+b <= 7
}

// countGroups counts the 16-bit groups of s; an IPv4 address at the end counts as two.
func countGroups(s string, dotted bool) (int, bool) {
	if s == "" {
		return 0, true
	}
	groups := strings.Split(s, ":")
	count := len(groups)
	for i, g := range groups {
		if dotted && i == len(groups)-1 && strings.Contains(g, ".") {
			if ipv4Len(g) != len(g) || strings.Count(g, ".") != 3 {
				return 0, false
			}
			count++
			continue
		}
		if len(g) < 1 || len(g) > 4 || run(g, isHex, 4) != len(g) {
			return 0, false
		}
	}
	return count, true
}

func hexValue(s string) uint32 {
	v := uint32(0)
	for i := range len(s) {
		c := s[i] | 0x20
		if isDigit(s[i]) {
			v = v<<4 | uint32(s[i]-'0')
		} else {
			v = v<<4 | uint32(c-'a'+10)
		}
	}
	return v
}

func parseMAC(s string) (mac [6]byte) {
	if len(s) == 12 && run(s, isHex, 12) == 12 {
		for i := range mac {
			mac[i] = byte(hexValue(s[2*i : 2*i+2]))
		}
		return mac
	}
	groups := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '-' || r == '.' })
	if len(groups) == 3 {
		return parseMAC(strings.Join(groups, ""))
	}
	for i := range mac {
		mac[i] = byte(hexValue(groups[i]))
	}
	return mac
}

// parseNumber reads a decimal, octal (leading 0) or hexadecimal (leading 0x) number of 32 bits.
func parseNumber(s string, pos int) (uint32, error) {
	digits, base, name := s, uint64(10), "decimal"
	if len(s) > 1 && s[0] == '0' {
		digits, base, name = s[1:], 8, "octal"
		if s[1]|0x20 == 'x' {
			digits, base, name = s[2:], 16, "hexadecimal"
		}
	}
	v := uint64(0)
	for i := range len(digits) {
		d := uint64(hexValue(digits[i : i+1]))
		if d >= base {
			return 0, errorAt(pos, len(s), "%q is not an %s number", s, name)
		}
		v = v*base + d
		if v > 0xffffffff {
			return 0, errorAt(pos, len(s), "the %s number %s does not fit in 32 bits", name, s)
		}
	}
	return uint32(v), nil
}
