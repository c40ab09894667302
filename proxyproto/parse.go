package proxyproto

import "bytes"

// DefaultLimit bounds the length of a header where Parse is given no limit. The longest that HAProxy sends by itself
// has the names of a connection, and no certificate.
const DefaultLimit = 4096

// Parse reads the header that b begins with. n is its length; the connection's own bytes follow. n is 0 with a nil error
// while b ends before the header does: then Parse is called again with more. An error means that the connection must be
// closed (section 2).
//
// limit bounds the length of a header of version 2, in bytes; 0 means DefaultLimit. So a caller holds at most limit
// bytes, or 107 of version 1.
func Parse(b []byte, limit int) (h Header, n int, err error) {
	if len(b) == 0 {
		return h, 0, nil
	}
	switch b[0] {
	case signature1[0]:
		return parse1(b)
	case signature2[0]:
		if limit == 0 {
			limit = DefaultLimit
		}
		return parse2(b, limit)
	}
	return h, 0, ErrSignature
}

// begins reports whether b begins with a signature, as far as it goes.
func begins(b []byte, signature string) bool {
	n := min(len(b), len(signature))
	return string(b[:n]) == signature[:n]
}

// cutAt returns what is before the first c and what is after it. ok is false without one.
func cutAt(b []byte, c byte) (before, after []byte, ok bool) {
	i := bytes.IndexByte(b, c)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}
