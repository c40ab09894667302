package inflate

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// Coding decodes the body of a message whose Content-Encoding names codings (RFC 9110 8.4), as its bytes come.
type Coding struct {
	layers []*inflater // the one that was applied last comes first

	// Partial is set where the list has codings that are not implemented: a recipient that skips what it does not know takes the
	// text for the body, and others do not.
	Partial bool
}

// maxCodings bounds the codings of a body.
const maxCodings = 8

// NewCoding returns what decodes a body with a list of codings, up to limit bytes; nil where there is none that is implemented.
// unread reports whether there are others.
func NewCoding(list []byte, limit int) (c *Coding, unread bool) {
	if len(list) == 0 { // most messages: an inflater has tables
		return nil, false
	}
	c = &Coding{}
	for name := range bytes.SplitSeq(list, []byte{','}) {
		format, plain, ok := codingFormat(string(ascii.Lower(bytes.TrimSpace(name))))
		switch {
		case !ok:
			c.Partial = true
		case !plain:
			c.layers = append([]*inflater{{limit: limit, format: format}}, c.layers...)
		}
	}
	if n := len(c.layers); n == 0 || n > maxCodings {
		return nil, c.Partial || n > 0
	}
	return c, c.Partial
}

// codingFormat returns the format of a coding in lower case; plain is set for one that changes nothing, and ok is false for one that is not
// implemented.
func codingFormat(name string) (f inflateFormat, plain, ok bool) {
	switch name {
	case "", "identity", "none":
		return 0, true, true
	case "gzip", "x-gzip":
		return formatGzip, false, true
	case "deflate":
		return formatDeflate, false, true
	}
	return 0, false, false
}

// Reads reports whether a coding is decoded.
func Reads(name string) bool {
	_, _, ok := codingFormat(string(ascii.Lower([]byte(name))))
	return ok
}

// Write decodes bytes that follow those before.
func (c *Coding) Write(b []byte) {
	for _, z := range c.layers {
		before := len(z.out)
		z.write(b)
		b = z.out[before:]
	}
}

// Text returns what was decoded.
func (c *Coding) Text() []byte { return c.layers[len(c.layers)-1].out }

// Failed reports whether the bytes are not in the coding.
func (c *Coding) Failed() bool {
	for _, z := range c.layers {
		if z.state == inflateFailed {
			return true
		}
	}
	return false
}

// Size returns how many bytes are allocated.
func (c *Coding) Size() (n int) {
	if c == nil {
		return 0
	}
	for _, z := range c.layers {
		n += z.size()
	}
	return n
}
