package signature

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Content is bytes to look for. Where Relative is not set, offsets count from the begin of the buffer.
//
// Positions, for a match that begins at b and ends at e in a buffer of n bytes, previous being where the test
// before it ended:
//
//	absolute   Offset <= b, and e <= Offset+Depth if Depth is set
//	relative   previous+Distance <= b, and e <= previous+Distance+Within if HasWithin
type Content struct {
	Bytes         []byte
	NoCase        bool
	Not           bool
	Relative      bool // distance or within
	Offset, Depth int  // Depth counts from Offset; 0 is none
	Distance      int
	Within        int
	HasWithin     bool
	StartsWith    bool
	EndsWith      bool
	Raw           bool // rawbytes: has no meaning for buffers of this package

	// OffsetVar and so on are 1 + the number of a variable of byte_extract, which replaces the value; 0 is none.
	OffsetVar, DepthVar, DistanceVar, WithinVar int

	Fast              bool // the rule's author chose it for the prefilter
	FastFrom, FastLen int  // the piece for the prefilter; FastLen 0 is all of it

	at        int // in the line
	hasOffset bool
	hasDepth  bool
}

// MaxContent is the longest content, in bytes.
const MaxContent = 8192

// check returns what is wrong with c once all of its modifiers are known.
func (c *Content) check() error {
	n := len(c.Bytes)
	switch {
	case c.Offset < 0 || c.Depth < 0:
		return errors.New("offset and depth count from the begin of the buffer, so they are not negative")
	case c.hasDepth && c.DepthVar == 0 && c.Depth < n:
		return fmt.Errorf("depth %d is less than the %d bytes of the content", c.Depth, n)
	case c.HasWithin && c.WithinVar == 0 && c.Within < n:
		return fmt.Errorf("within %d is less than the %d bytes of the content", c.Within, n)
	case c.Relative && (c.hasOffset || c.hasDepth):
		return errors.New("a content has offset and depth, or distance and within, not both")
	case c.StartsWith && (c.hasOffset || c.Relative || c.hasDepth):
		return errors.New("startswith stands without offset, depth, distance and within")
	case c.FastLen > 0 && c.FastFrom+c.FastLen > n:
		return fmt.Errorf("fast_pattern %d,%d reaches behind the %d bytes of the content", c.FastFrom, c.FastLen, n)
	}
	return nil
}

// parseContent reads the bytes between the quotes: text, |41 42| in hexadecimal, and \" \\ \; \:.
func parseContent(s string) ([]byte, error) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '|':
			end := strings.IndexByte(s[i+1:], '|')
			if end < 0 {
				return nil, wrongAt(i, "the closing | is missing")
			}
			var err error
			if b, err = appendHex(b, s[i+1:i+1+end]); err != nil {
				return nil, shifted(err, i+1)
			}
			i += end + 1
		case '\\':
			if i+1 == len(s) || !strings.ContainsRune(`"\;:|`, rune(s[i+1])) {
				return nil, wrongAt(i, `a backslash stands before one of " \ ; : only`)
			}
			i++
			b = append(b, s[i])
		case '"':
			return nil, wrongAt(i, `%q stands behind a backslash`, string(c))
		default:
			b = append(b, c)
		}
	}
	if len(b) == 0 {
		return nil, wrongAt(0, "the content is empty")
	}
	if len(b) > MaxContent {
		return nil, wrongAt(0, "the content has %d bytes, at most %d are taken", len(b), MaxContent)
	}
	return b, nil
}

// appendHex appends the bytes of pairs of digits, with blanks anywhere.
func appendHex(b []byte, s string) ([]byte, error) {
	half := -1
	for i := range len(s) {
		if s[i] == ' ' || s[i] == '\t' {
			continue
		}
		v, err := strconv.ParseUint(s[i:i+1], 16, 8)
		switch {
		case err != nil:
			return nil, wrongAt(i, "%q is not a hexadecimal digit", s[i])
		case half < 0:
			half = int(v)
		default:
			b, half = append(b, byte(half<<4)|byte(v)), -1
		}
	}
	if half >= 0 {
		return nil, wrongAt(len(s), "a hexadecimal digit is missing")
	}
	return b, nil
}

func contentKeywords(value addValue, bare addBare) {
	value("content", (*ruleParser).content)
	value("uricontent", func(p *ruleParser, v string) error {
		if err := p.content(v); err != nil {
			return err
		}
		return p.moveTo(HTTPURI)
	})
	value("pcre", (*ruleParser).pcre)
	modify := func(f func(p *ruleParser, c *Content)) func(p *ruleParser) error {
		return func(p *ruleParser) error {
			if p.last == nil {
				return fmt.Errorf("%s stands behind a content", p.keyword)
			}
			f(p, p.last)
			return nil
		}
	}
	bare("nocase", modify(func(_ *ruleParser, c *Content) { c.NoCase = true }))
	bare("rawbytes", modify(func(_ *ruleParser, c *Content) { c.Raw = true }))
	bare("startswith", modify(func(_ *ruleParser, c *Content) { c.StartsWith = true }))
	bare("endswith", modify(func(_ *ruleParser, c *Content) { c.EndsWith = true }))
	position := func(f func(c *Content, n, variable int)) func(p *ruleParser, v string) error {
		return func(p *ruleParser, v string) error {
			if p.last == nil {
				return fmt.Errorf("%s stands behind a content", p.keyword)
			}
			n, variable, err := p.numberOrVar(v)
			if err == nil {
				f(p.last, n, variable)
			}
			return err
		}
	}
	value("offset", position(func(c *Content, n, v int) { c.Offset, c.OffsetVar, c.hasOffset = n, v, true }))
	value("depth", position(func(c *Content, n, v int) { c.Depth, c.DepthVar, c.hasDepth = n, v, true }))
	value("distance", position(func(c *Content, n, v int) { c.Distance, c.DistanceVar, c.Relative = n, v, true }))
	value("within", position(func(c *Content, n, v int) {
		c.Within, c.WithinVar, c.HasWithin, c.Relative = n, v, true, true
	}))
	keywords["fast_pattern"] = keyword{read: (*ruleParser).fastPattern}
	value("isdataat", (*ruleParser).isDataAt)
	value("bsize", func(p *ruleParser, v string) error {
		r, err := rangeOf(v, 1<<62)
		p.add(Test{Kind: TestSize, Size: r})
		return err
	})
	value("urilen", (*ruleParser).uriLen)
	value("byte_test", (*ruleParser).byteTest)
	value("byte_jump", (*ruleParser).byteJump)
	value("byte_extract", (*ruleParser).byteExtract)
	value("byte_math", (*ruleParser).byteMath)
	keywords["base64_decode"] = keyword{read: (*ruleParser).base64Decode}
}

// part returns the index of the part for the buffer of now.
func (p *ruleParser) part(b Buffer, ts []Transform) int {
	for i := range p.rule.Parts {
		if q := &p.rule.Parts[i]; q.Buffer == b && slices.Equal(q.Transforms, ts) {
			return i
		}
	}
	p.rule.Parts = append(p.rule.Parts, Part{Buffer: b, Transforms: slices.Clone(ts)})
	return len(p.rule.Parts) - 1
}

// add appends a test to the buffer of now.
func (p *ruleParser) add(t Test) {
	i := p.part(p.buffer, p.transforms)
	q := &p.rule.Parts[i]
	q.Tests = append(q.Tests, t)
	p.lastPart = i
}

// addBehind appends a test that begins where the one before it ended: with the modifiers of Suricata 4 and before, to the buffer
// that the content before was moved into.
func (p *ruleParser) addBehind(t Test) {
	if p.buffer != Payload || p.lastPart < 0 || !t.Relative() && t.Kind != TestBase64 {
		p.add(t)
		return
	}
	q := &p.rule.Parts[p.lastPart]
	q.Tests = append(q.Tests, t)
}

func (p *ruleParser) content(v string) error {
	text, not, at, err := unquoted(v)
	if err != nil {
		return err
	}
	c := &Content{Not: not, at: p.at}
	if c.Bytes, err = parseContent(text); err != nil {
		return shifted(err, at)
	}
	p.add(Test{Kind: TestContent, Content: c})
	p.last = c
	p.contentPart, p.contentTest = p.lastPart, len(p.rule.Parts[p.lastPart].Tests)-1
	return nil
}

// moveTo moves the last content into another buffer: the modifiers of Suricata 4 and before.
func (p *ruleParser) moveTo(b Buffer) error {
	if p.last == nil {
		return fmt.Errorf("%s stands behind a content", p.keyword)
	}
	q := &p.rule.Parts[p.contentPart]
	t := q.Tests[p.contentTest]
	q.Tests = slices.Delete(q.Tests, p.contentTest, p.contentTest+1)
	if len(q.Tests) == 0 {
		p.rule.Parts = slices.Delete(p.rule.Parts, p.contentPart, p.contentPart+1)
	}
	was := p.buffer
	p.buffer = b
	p.add(t)
	p.buffer = was
	p.contentPart, p.contentTest = p.lastPart, len(p.rule.Parts[p.lastPart].Tests)-1
	return nil
}

func (p *ruleParser) fastPattern(v string) error {
	c := p.last
	switch {
	case c == nil:
		return errors.New("fast_pattern stands behind a content")
	case p.fast:
		return errors.New("a rule has one fast_pattern")
	}
	c.Fast, p.fast = true, true
	if v == "" || v == "only" {
		return nil
	}
	from, n, ok := strings.Cut(v, ",")
	a, err1 := number(from)
	b, err2 := number(n)
	if !ok || err1 != nil || err2 != nil || b == 0 || a > MaxContent || b > MaxContent {
		return fmt.Errorf("fast_pattern:%s; is not only or OFFSET,LENGTH", v)
	}
	c.FastFrom, c.FastLen = int(a), int(b)
	return nil
}

// maxPosition bounds offsets and distances, as in Suricata.
const maxPosition = 1 << 20

// numberOrVar reads a number, or the name of a variable that the rule has extracted: 1 + its number.
func (p *ruleParser) numberOrVar(s string) (n, variable int, err error) {
	s = strings.TrimSpace(s)
	if n, err = signed(s); err == nil {
		if n > maxPosition || n < -maxPosition {
			return 0, 0, fmt.Errorf("%d is more than %d bytes away", n, maxPosition)
		}
		return n, 0, nil
	}
	if i := slices.Index(p.vars, s); i >= 0 {
		return 0, i + 1, nil
	}
	return 0, 0, fmt.Errorf("%q is neither a number nor a variable of byte_extract or byte_math", s)
}

// MaxVars is the number of variables that one rule may extract.
const MaxVars = 16

func (p *ruleParser) newVar(name string) (int, error) {
	if i := slices.Index(p.vars, name); i >= 0 {
		return i, nil
	}
	if len(p.vars) == MaxVars {
		return 0, fmt.Errorf("a rule has at most %d variables", MaxVars)
	}
	p.vars = append(p.vars, name)
	return len(p.vars) - 1, nil
}
