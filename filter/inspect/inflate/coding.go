package inflate

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// Coding decodes the body of a message whose Content-Encoding names codings (RFC 9110 8.4), as its bytes come.
type Coding struct {
	layers []*inflater // the one that was applied last comes first
}

// maxCodings bounds the codings of a body.
const maxCodings = 8

// NewCoding returns what decodes a body with a list of codings, up to limit bytes; nil where there is none to decode, or one
// that is not implemented.
func NewCoding(list []byte, limit int) *Coding {
	c := &Coding{}
	if len(list) == 0 { // most messages: an inflater has tables
		return nil
	}
	for name := range bytes.SplitSeq(list, []byte{','}) {
		z := &inflater{limit: limit}
		switch string(ascii.Lower(bytes.TrimSpace(name))) {
		case "", "identity", "none":
			continue
		case "gzip", "x-gzip":
		case "deflate":
			z.format = formatDeflate
		default:
			return nil
		}
		c.layers = append([]*inflater{z}, c.layers...)
	}
	if len(c.layers) == 0 || len(c.layers) > maxCodings {
		return nil
	}
	return c
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
