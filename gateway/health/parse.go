package health

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrSyntax reports that a text of the configuration cannot be read.
var ErrSyntax = errors.New("cannot be read")

// StatusRange is a closed range of HTTP status codes.
type StatusRange struct{ First, Last int }

// String returns the range as ParseStatus reads it.
func (r StatusRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParseStatus reads codes and ranges of codes between commas, such as "200-299,304". A code has
// three digits, the first 1 to 5 (RFC 9110 15).
func ParseStatus(s string) ([]StatusRange, error) {
	var list []StatusRange
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		a, okA := statusCode(strings.TrimSpace(first))
		b, okB := statusCode(strings.TrimSpace(last))
		if !okA || !okB || a > b {
			return nil, fmt.Errorf("status %q %w: write codes from 100 to 599, such as 200 or 200-299", part, ErrSyntax)
		}
		list = append(list, StatusRange{a, b})
	}
	return list, nil
}

// statusCode reads a code of three digits.
func statusCode(s string) (code int, ok bool) {
	if len(s) != 3 || s[0] < '1' || s[0] > '5' {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		code = code*10 + int(c-'0')
	}
	return code, true
}

// statusList renders ranges as ParseStatus reads them.
func statusList(list []StatusRange) string {
	var parts []string
	for _, r := range list {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, ",")
}

// ParseHex reads bytes of two hexadecimal digits each. White space and colons may stand between
// bytes.
func ParseHex(s string) ([]byte, error) {
	var out []byte
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ':' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		b, err := hex.DecodeString(word)
		if err != nil {
			return nil, fmt.Errorf("%q %w: write two hexadecimal digits for each byte, such as 0d0a", word, ErrSyntax)
		}
		out = append(out, b...)
	}
	return out, nil
}
