package inspect

import "bytes"

// coding decodes the body of a message whose Content-Encoding names codings (RFC 9110 8.4), as its bytes come.
type coding struct {
	layers []*inflater // the one that was applied last comes first
}

// maxCodings bounds the codings of a body.
const maxCodings = 8

// newCoding returns what decodes a body with a list of codings, up to limit bytes; nil where there is none to decode, or one
// that is not implemented.
func newCoding(list []byte, limit int) *coding {
	c := &coding{}
	for name := range bytes.SplitSeq(list, []byte{','}) {
		z := &inflater{limit: limit}
		switch string(lowered(bytes.TrimSpace(name))) {
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

// write decodes bytes that follow those before.
func (c *coding) write(b []byte) {
	for _, z := range c.layers {
		before := len(z.out)
		z.write(b)
		b = z.out[before:]
	}
}

// text returns what was decoded.
func (c *coding) text() []byte { return c.layers[len(c.layers)-1].out }

// failed reports whether the bytes are not in the coding.
func (c *coding) failed() bool {
	for _, z := range c.layers {
		if z.state == inflateFailed {
			return true
		}
	}
	return false
}

// size returns how many bytes are allocated.
func (c *coding) size() (n int) {
	if c == nil {
		return 0
	}
	for _, z := range c.layers {
		n += z.size()
	}
	return n
}
