package interop

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/millrace/millrace/filter/signature"
)

// change is how the bytes for a test differ from those that it asks for.
type change int

const (
	exact      change = iota
	otherByte         // a byte of a content
	otherCase         // a letter of a content
	shifted           // a byte more before it
	shortened         // the last byte of the buffer is missing
	lengthened        // a byte more at its end
	otherValue        // a number is off by one
	noChange          // how many there are
)

// synth makes bytes for the tests of a rule. What it makes need not match: the programs say whether it does.
type synth struct {
	rng  *rand.Rand
	how  change
	at   int // the test that is changed, counted over all parts; -1 is none
	seen int
	vars [signature.MaxVars]uint64
}

// buffer returns bytes for one part.
func (s *synth) buffer(p *signature.Part) []byte {
	var b []byte
	prev, least, fixed := 0, 0, -1
	for i := range p.Tests {
		t := &p.Tests[i]
		how := exact
		if s.seen == s.at {
			how = s.how
		}
		s.seen++
		switch t.Kind {
		case signature.TestContent:
			if !t.Content.Not {
				b, prev = s.content(b, t.Content, prev, how)
			}
		case signature.TestPattern:
			if !t.Pattern.Not {
				b, prev = s.pattern(b, t.Pattern, prev, how)
			}
		case signature.TestByte, signature.TestJump, signature.TestExtract, signature.TestMath:
			b, prev = s.number(b, t, prev, how)
		case signature.TestIsDataAt:
			if !t.IsDataAt.Not {
				least = max(least, t.IsDataAt.At+1+prev)
			}
		case signature.TestSize:
			fixed = int(t.Size.Low)
			if t.Size.Low == 0 {
				fixed = int(min(t.Size.High, uint64(len(b))))
			}
			if how != exact {
				fixed++
			}
		}
		if how == shortened && len(b) > 0 {
			b = b[:len(b)-1]
		}
		if how == lengthened {
			b = append(b, s.filler())
		}
	}
	for len(b) < least || len(b) < fixed {
		b = append(b, s.filler())
	}
	return b
}

// filler returns a byte that few contents have.
func (s *synth) filler() byte { return "jqvz7"[s.rng.IntN(5)] }

// write puts text at a place of b, and filler before it where b ends earlier.
func (s *synth) write(b []byte, at int, text []byte) []byte {
	for len(b) < at {
		b = append(b, s.filler())
	}
	n := copy(b[at:], text)
	return append(b, text[n:]...)
}

func (s *synth) content(b []byte, c *signature.Content, prev int, how change) ([]byte, int) {
	at := max(len(b), c.Offset)
	slack := 0
	switch {
	case c.Relative:
		at = max(prev+s.value(c.Distance, c.DistanceVar), 0)
		slack = 3
		if c.HasWithin {
			slack = s.value(c.Within, c.WithinVar) - len(c.Bytes)
		}
		if c.EndsWith && !c.HasWithin {
			at = max(at, len(b))
		}
	case c.StartsWith:
		at = 0
	case c.Depth > 0 || c.OffsetVar > 0:
		at = s.value(c.Offset, c.OffsetVar)
		slack = c.Depth - len(c.Bytes)
	case c.EndsWith:
		at = len(b)
	}
	switch {
	case how == shifted:
		at += max(slack, 0) + 1
	case slack > 0 && s.rng.IntN(2) == 0 && !c.EndsWith:
		at += s.rng.IntN(min(slack, 20) + 1)
	}
	if at > 1<<14 {
		at = len(b)
	}
	text := s.letters(c, how)
	return s.write(b, at, text), at + len(text)
}

// letters returns the bytes of a content, in any case where that is allowed.
func (s *synth) letters(c *signature.Content, how change) []byte {
	text := bytes.Clone(c.Bytes)
	for i := range text {
		if c.NoCase && s.rng.IntN(4) == 0 {
			text[i] = swapCase(text[i])
		}
	}
	switch i := s.rng.IntN(len(text)); how {
	case otherByte:
		text[i] ^= 1
	case otherCase:
		text[i] = swapCase(text[i])
	}
	return text
}

func swapCase(c byte) byte {
	if c|32 >= 'a' && c|32 <= 'z' {
		c ^= 32
	}
	return c
}

func (s *synth) value(n, variable int) int {
	if variable > 0 {
		return int(min(s.vars[variable-1], 1<<12))
	}
	return n
}

// pattern puts a text that an expression matches where the test before ended, or at the end.
func (s *synth) pattern(b []byte, p *signature.Pattern, prev int, how change) ([]byte, int) {
	end := strings.LastIndexByte(p.Source, '/')
	begin := strings.IndexByte(p.Source, '/')
	if begin < 0 || end <= begin {
		return b, prev
	}
	flags := syntax.Perl
	if strings.Contains(p.Source[end:], "i") {
		flags |= syntax.FoldCase
	}
	expr, err := syntax.Parse(strings.ReplaceAll(p.Source[begin+1:end], `\/`, "/"), flags)
	if err != nil {
		return b, prev
	}
	text := s.matching(nil, expr, 0)
	if how == otherByte && len(text) > 0 {
		text[s.rng.IntN(len(text))] ^= 1
	}
	at := len(b)
	switch {
	case p.Relative:
		at = prev
	case strings.HasPrefix(p.Source[begin+1:], "^"):
		at = 0
	}
	if how == shifted {
		at++
	}
	return s.write(b, at, text), at + len(text)
}

// matching appends a text that an expression matches.
func (s *synth) matching(b []byte, r *syntax.Regexp, depth int) []byte {
	times := func(low, high int) {
		if high < 0 || high > low+3 {
			high = low + 3
		}
		for n := low + s.rng.IntN(high-low+1); n > 0 && len(b) < 4000; n-- {
			b = s.matching(b, r.Sub[0], depth+1)
		}
	}
	switch r.Op {
	case syntax.OpLiteral:
		for _, c := range r.Rune {
			b = append(b, byte(c))
		}
	case syntax.OpCharClass:
		if len(r.Rune) > 1 {
			i := s.rng.IntN(len(r.Rune)/2) * 2
			low, high := r.Rune[i], min(r.Rune[i+1], 255)
			if low <= 'n' && high >= 'n' {
				low, high = 'n', 'n'
			}
			b = append(b, byte(low+s.rng.Int32N(max(high-low, 0)+1)))
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b = append(b, s.filler())
	case syntax.OpCapture:
		return s.matching(b, r.Sub[0], depth+1)
	case syntax.OpStar:
		times(0, -1)
	case syntax.OpPlus:
		times(1, -1)
	case syntax.OpQuest:
		times(0, 1)
	case syntax.OpRepeat:
		times(r.Min, r.Max)
	case syntax.OpConcat:
		for _, sub := range r.Sub {
			b = s.matching(b, sub, depth+1)
		}
	case syntax.OpAlternate:
		return s.matching(b, r.Sub[s.rng.IntN(len(r.Sub))], depth+1)
	}
	return b
}

// number writes a value for byte_test, byte_jump, byte_extract and byte_math.
func (s *synth) number(b []byte, t *signature.Test, prev int, how change) ([]byte, int) {
	n := t.Number
	at := s.value(n.Offset, n.OffsetVar)
	if n.Relative {
		at += prev
	}
	if at < 0 || at > 1<<14 || n.Bytes == 0 {
		return b, prev
	}
	v := uint64(1 + s.rng.IntN(3))
	if t.Kind == signature.TestByte {
		v = s.holds(n)
	}
	if how == otherValue {
		v ^= 1
	}
	text := binary.BigEndian.AppendUint64(nil, v)[max(8-n.Bytes, 0):]
	switch {
	case n.Text:
		text = []byte(strconv.FormatUint(v, max(n.Base, 8)))
		text = append(bytes.Repeat([]byte("0"), max(n.Bytes-len(text), 0)), text...)
	case n.Little:
		for i := range len(text) / 2 {
			text[i], text[len(text)-1-i] = text[len(text)-1-i], text[i]
		}
	}
	if at < len(b) && t.Kind != signature.TestByte { // a number that a content has: it stays
		text = text[:0]
		v = uint64(b[min(at+n.Bytes-1, len(b)-1)])
	}
	b = s.write(b, at, text)
	switch t.Kind {
	case signature.TestJump:
		prev = min(at+n.Bytes+int(v)+n.Post, 1<<14)
	case signature.TestExtract, signature.TestMath:
		s.vars[n.Var] = v
		prev = at + n.Bytes
	}
	return b, max(prev, 0)
}

// holds returns a value that byte_test accepts.
func (s *synth) holds(n *signature.Number) uint64 {
	w := n.Value
	if n.ValueVar > 0 {
		w = s.vars[n.ValueVar-1]
	}
	v := w
	switch n.Op {
	case signature.Less:
		v = max(w, 1) - 1
	case signature.Greater:
		v = w + 1
	}
	if n.Not {
		v++
	}
	return v
}
