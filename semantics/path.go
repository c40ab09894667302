package semantics

import (
	"bytes"
	"errors"
	"strings"
	"unsafe"
)

// Errors of NormalizePath.
var (
	ErrPercent = errors.New("semantics: a percent sign without two hexadecimal digits")
	ErrNUL     = errors.New("semantics: a NUL in a path")
	ErrAbove   = errors.New("semantics: a path that goes above its root")
)

// SplitTarget splits the path of a request into path and query, which begins with the question mark, or is empty.
func SplitTarget(target string) (path, query string) {
	if i := strings.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i:]
	}
	return target, ""
}

// NormalizePath appends a path, which begins with a slash, in the one form that is compared with rules (RFC 3986 6.2.2):
//
//   - percent-encoded letters, digits and "-._~" are decoded; the digits of other encodings are upper case
//   - "." and ".." are resolved, encoded ones too
//   - slashes in a row become one
//
// An encoded slash stays what it is: it does not separate segments (RFC 3986 2.2). A path that goes above its root is refused,
// since what was meant is not below it. A path that is in its form already is returned as it is; another is the end of buf, and
// valid as long as that.
func NormalizePath(dst []byte, path string) (out string, buf []byte, err error) {
	if isNormal(path) {
		return path, dst, nil
	}
	start := len(dst)
	for i := 0; i < len(path); {
		c, n, err := unescape(path[i:])
		if err != nil {
			return "", dst[:start], err
		}
		switch {
		case n == 1 && c == '/':
			if dst, err = endSegment(dst, start); err != nil {
				return "", dst[:start], err
			}
			if len(dst) == start || dst[len(dst)-1] != '/' {
				dst = append(dst, '/')
			}
		case n == 3 && !isUnreserved(c):
			dst = append(dst, '%', upperHex(path[i+1]), upperHex(path[i+2]))
		default:
			dst = append(dst, c)
		}
		i += n
	}
	if dst, err = endSegment(dst, start); err != nil {
		return "", dst[:start], err
	}
	p := dst[start:]
	return unsafe.String(unsafe.SliceData(p), len(p)), dst, nil
}

// AppendReference appends a normalised path as a reference to a resource of the same host (RFC 3986 4.2). It has no second slash at its
// begin, which would introduce a host. Browsers take a backslash there for a slash, so that one is encoded.
func AppendReference(dst []byte, path string) []byte {
	if rest, ok := strings.CutPrefix(path, `/\`); ok {
		return append(append(dst, "/%5C"...), rest...)
	}
	return append(dst, path...)
}

// isNormal reports whether a path is in its form for sure: most are, and cost one pass.
func isNormal(path string) bool {
	for i := range len(path) {
		if classes[path[i]]&notSegment != 0 {
			continue
		}
		if path[i] != '/' {
			return false
		}
		if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.') {
			return false
		}
	}
	return true
}

// endSegment resolves the segment at the end of a path that is "." or "..": what is left ends with a slash (RFC 3986 5.2.4).
func endSegment(dst []byte, start int) ([]byte, error) {
	at := start + bytes.LastIndexByte(dst[start:], '/') + 1
	switch string(dst[at:]) {
	case ".":
		return dst[:at], nil
	case "..":
		if at-start < 2 {
			return dst, ErrAbove
		}
		return dst[:start+bytes.LastIndexByte(dst[start:at-1], '/')+1], nil
	}
	return dst, nil
}

// unescape returns the first byte of s, decoded, and how long it is.
func unescape(s string) (c byte, n int, err error) {
	switch {
	case s[0] == 0:
		return 0, 0, ErrNUL
	case s[0] != '%':
		return s[0], 1, nil
	case len(s) < 3 || unhex(s[1]) > 15 || unhex(s[2]) > 15:
		return 0, 0, ErrPercent
	}
	if c = unhex(s[1])<<4 | unhex(s[2]); c == 0 {
		return 0, 0, ErrNUL
	}
	return c, 3, nil
}

// isUnreserved reports whether a byte means the same encoded and not (RFC 3986 2.3).
func isUnreserved(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// unhex returns the value of a hexadecimal digit, more than 15 for anything else.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	}
	return 0xff
}

func upperHex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 'A'
	}
	return c
}

// HasDotSegments reports whether a segment of a path is "." or "..", encoded or not (RFC 3986 3.3).
func HasDotSegments(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if isDots(segment) {
			return true
		}
	}
	return false
}

// isDots reports whether a segment is one or two dots, encoded or not.
func isDots(segment string) bool {
	dots := 0
	for ; segment != ""; dots++ {
		c, n, err := unescape(segment)
		if err != nil || c != '.' {
			return false
		}
		segment = segment[n:]
	}
	return dots == 1 || dots == 2
}
