package trace

import "encoding/hex"

// Field is the name of the field that carries a Context.
const Field = "traceparent"

// Context names a span of a trace (W3C Trace Context 3.2). The zero value names none.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

const sampledFlag = 1

// Sampled reports whether the span's owner may have recorded it.
func (c *Context) Sampled() bool { return c.Flags&sampledFlag != 0 }

// length is that of a field of version 00, and the least of later ones.
const length = 55

// Parse reads the value of the field. Later versions have the parts of version 00 first (3.2.4).
func Parse(s string) (c Context, ok bool) {
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' || !lowerHex(s[:2]) || !lowerHex(s[3:35]) || !lowerHex(s[36:52]) || !lowerHex(s[53:55]) {
		return Context{}, false
	}
	version := s[:2]
	if version == "ff" || len(s) > length && (version == "00" || s[length] != '-') {
		return Context{}, false
	}
	var flags [1]byte
	decode(c.Trace[:], s[3:35])
	decode(c.Span[:], s[36:52])
	decode(flags[:], s[53:55])
	c.Flags = flags[0]
	if c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	return c, true
}

// Append appends the value of the field, of version 00.
func (c *Context) Append(b []byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, c.Span[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{c.Flags})
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// decode reads hexadecimal digits that lowerHex has checked.
func decode(to []byte, s string) {
	digit := func(c byte) byte {
		if c <= '9' {
			return c - '0'
		}
		return c - 'a' + 10
	}
	for i := range to {
		to[i] = digit(s[2*i])<<4 | digit(s[2*i+1])
	}
}
