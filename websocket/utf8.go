package websocket

import "unicode/utf8"

// utf8Checker validates UTF-8 (RFC 3629) that comes in pieces, which may end inside a character.
// It fails at the first byte that no valid text can have there (RFC 6455 8.1). The zero value is
// at the beginning of a text.
type utf8Checker struct {
	need   uint8 // continuation bytes that the character still needs
	lo, hi uint8 // the range of the next one
}

// write reports whether p continues the text validly.
func (c *utf8Checker) write(p []byte) bool {
	for c.need > 0 && len(p) > 0 {
		if !c.step(p[0]) {
			return false
		}
		p = p[1:]
	}
	whole := len(p) - unfinished(p)
	if !utf8.Valid(p[:whole]) {
		return false
	}
	for _, b := range p[whole:] {
		if !c.step(b) {
			return false
		}
	}
	return true
}

// complete reports whether the text may end here.
func (c *utf8Checker) complete() bool { return c.need == 0 }

// unfinished returns the length of the character that p ends inside of, judged by its first byte:
// 0 to 3.
func unfinished(p []byte) int {
	for n := 1; n <= 3 && n <= len(p); n++ {
		switch b := p[len(p)-n]; {
		case b < 0x80:
			return 0
		case b >= 0xC0: // a first byte: the character has more than n bytes?
			if b >= 0xF0 && n < 4 || b >= 0xE0 && n < 3 || n < 2 {
				return n
			}
			return 0
		}
	}
	return 0
}

// step takes one byte. The ranges of the second byte exclude what is longer than needed, the
// surrogates and what lies above U+10FFFF (RFC 3629 4).
func (c *utf8Checker) step(b byte) bool {
	if c.need > 0 {
		if b < c.lo || b > c.hi {
			return false
		}
		c.need--
		c.lo, c.hi = 0x80, 0xBF
		return true
	}
	c.lo, c.hi = 0x80, 0xBF
	switch {
	case b < 0x80:
		return true
	case b < 0xC2:
		return false
	case b < 0xE0:
		c.need = 1
	case b < 0xF0:
		c.need = 2
		if b == 0xE0 {
			c.lo = 0xA0
		} else if b == 0xED {
			c.hi = 0x9F
		}
	case b < 0xF5:
		c.need = 3
		if b == 0xF0 {
			c.lo = 0x90
		} else if b == 0xF4 {
			c.hi = 0x8F
		}
	default:
		return false
	}
	return true
}
