package http3

import "errors"

// Types of capsules (RFC 9297 3.5, draft-ietf-webtrans-http3 6).
const (
	CapsuleDatagram     uint64 = 0x0
	CapsuleCloseSession uint64 = 0x2843
	CapsuleDrainSession uint64 = 0x78ae
)

// DefaultCapsule is the largest capsule that Capsules keeps by default, in bytes.
const DefaultCapsule = 64 << 10

// ErrCapsule reports a capsule above the limit.
var ErrCapsule = errors.New("http3: a capsule exceeds the limit")

// AppendCapsule appends a capsule (RFC 9297 3.2): type, length and value.
func AppendCapsule(dst []byte, kind uint64, value []byte) []byte {
	return append(appendFrameHeader(dst, kind, uint64(len(value))), value...)
}

// Capsules parses capsules from a stream of bytes, cut anywhere. The zero value is valid.
type Capsules struct {
	// Max is the largest value in bytes; 0 is DefaultCapsule. Larger ones are an error if Known reports
	// their type, and passed over otherwise.
	Max int
	// Known reports the types of interest; nil is all. Others are passed over (RFC 9297 3.2).
	Known func(kind uint64) bool

	hdr  [maxFrameHeader]byte
	held int
	kind uint64
	left uint64
	in   bool // the header is complete
	skip bool
	buf  []byte
}

// Next takes bytes, and returns a capsule once it is complete and how many of the bytes it consumed. It is
// called again with the rest until it has none. The value lies in the input or in c, until the next call.
func (c *Capsules) Next(in []byte) (kind uint64, value []byte, n int, complete bool, err error) {
	for {
		if !c.in {
			used, ok := c.header(in[n:])
			n += used
			if !ok {
				return 0, nil, n, false, nil
			}
			if err := c.begin(); err != nil {
				return 0, nil, n, false, err
			}
		}
		p := in[n:]
		p = p[:min(uint64(len(p)), c.left)]
		n += len(p)
		c.left -= uint64(len(p))
		if !c.skip && (c.left > 0 || len(c.buf) > 0) {
			c.buf = append(c.buf, p...)
			p = c.buf
		}
		if c.left > 0 {
			return 0, nil, n, false, nil
		}
		c.in = false
		if !c.skip {
			return c.kind, p, n, true, nil
		}
	}
}

// header takes type and length.
func (c *Capsules) header(in []byte) (used int, ok bool) {
	for used < len(in) {
		c.hdr[c.held] = in[used]
		c.held++
		used++
		if kind, length, n := frameHeader(c.hdr[:c.held]); n > 0 {
			c.kind, c.left, c.held, c.in = kind, length, 0, true
			return used, true
		}
	}
	return used, false
}

func (c *Capsules) begin() error {
	most := c.Max
	if most == 0 {
		most = DefaultCapsule
	}
	c.buf = c.buf[:0]
	c.skip = c.Known != nil && !c.Known(c.kind)
	if !c.skip && c.left > uint64(most) {
		if c.Known != nil {
			return ErrCapsule
		}
		c.skip = true
	}
	return nil
}

// Cut reports whether the bytes so far end within a capsule: a stream that ends so is malformed
// (RFC 9297 3.3).
func (c *Capsules) Cut() bool { return c.held > 0 || c.in }
