package signature

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Number describes how byte_test, byte_jump, byte_extract and byte_math read a number from a buffer, and what they do
// with it.
type Number struct {
	Bytes     int // how many; 0 with Text: as many as are digits
	Offset    int // from the begin, or from where the test before ended
	OffsetVar int // 1 + a variable, which replaces Offset
	Relative  bool
	Little    bool
	Text      bool // digits in Base, not binary
	Base      int
	Mask      uint64 // 0 is none; the result is shifted right to the lowest bit of the mask

	Op       Op // byte_test, byte_math
	Not      bool
	Value    uint64
	ValueVar int // 1 + a variable

	Multiplier uint64 // byte_jump, byte_extract; 0 is 1
	Align      int    // up to a multiple of this many bytes; 0 is none
	FromStart  bool   // byte_jump: from the begin of the buffer
	FromEnd    bool   // from its end
	Post       int    // post_offset
	PostVar    int    // 1 + a variable
	Var        int    // what byte_extract and byte_math assign
}

// Op is an operator of byte_test or byte_math.
type Op uint8

// The operators.
const (
	Less Op = iota
	Greater
	Equal
	LessEqual
	GreaterEqual
	And // some bit is in both
	Or  // byte_test's "^": they differ
	Add
	Subtract
	Multiply
	Divide
	ShiftLeft
	ShiftRight
)

var testOps = map[string]Op{"<": Less, ">": Greater, "=": Equal, "==": Equal, "<=": LessEqual, ">=": GreaterEqual, "&": And, "^": Or}

var mathOps = map[string]Op{"+": Add, "-": Subtract, "*": Multiply, "/": Divide, "<<": ShiftLeft, ">>": ShiftRight}

// IsDataAt asks whether the buffer goes on for so many bytes.
type IsDataAt struct {
	At       int
	Var      int // 1 + a variable
	Relative bool
	Not      bool
}

// Base64 decodes bytes of the buffer into Base64Data.
type Base64 struct {
	Bytes, Offset int // Bytes 0: up to the end
	Relative      bool
}

// arguments cuts a value at its commas.
func arguments(v string) []string {
	a := strings.Split(v, ",")
	for i := range a {
		a[i] = strings.TrimSpace(a[i])
	}
	return a
}

// count reads how many bytes a number has: in binary 1 to 8, in digits up to 23.
func (n *Number) count(s string) error {
	v, err := number(s)
	if err != nil {
		return err
	}
	if v > 23 {
		return fmt.Errorf("a number has at most 23 bytes, not %d", v)
	}
	n.Bytes = int(v)
	return nil
}

// modifiers reads what follows the arguments that have a fixed place.
func (p *ruleParser) modifiers(n *Number, words []string) (err error) {
	hasBase := false
	for _, w := range words {
		name, value, _ := strings.Cut(w, " ")
		value = strings.TrimSpace(value)
		switch name {
		case "relative":
			n.Relative = true
		case "little":
			n.Little = true
		case "big":
		case "endian":
			n.Little = value == "little"
		case "string":
			n.Text = true
			if value != "" && !n.base(value) {
				return fmt.Errorf("string %s: say dec, hex or oct", value)
			}
			hasBase = hasBase || value != ""
		case "dec", "hex", "oct":
			hasBase = n.base(name)
		case "align":
			n.Align = 4
			if value != "" {
				a, err := number(value)
				if err != nil || a != 2 && a != 4 {
					return fmt.Errorf("align %s: say 2 or 4", value)
				}
				n.Align = int(a)
			}
		case "from_beginning":
			n.FromStart = true
		case "from_end":
			n.FromEnd = true
		case "multiplier":
			if n.Multiplier, err = number(value); err != nil {
				return err
			}
		case "post_offset":
			if n.Post, n.PostVar, err = p.numberOrVar(value); err != nil {
				return err
			}
		case "bitmask":
			if n.Mask, err = number(value); err != nil {
				return err
			}
		case "dce":
			return unsupported{p.keyword + " dce"}
		default:
			return fmt.Errorf("%s does not know %q", p.keyword, w)
		}
	}
	if n.Text && !hasBase {
		n.Base = 10
	}
	if !n.Text && (n.Bytes > 8 || n.Bytes == 0) {
		return fmt.Errorf("a binary number has 1 to 8 bytes, not %d", n.Bytes)
	}
	return nil
}

func (n *Number) base(name string) bool {
	bases := map[string]int{"dec": 10, "hex": 16, "oct": 8}
	n.Base = bases[name]
	return n.Base != 0
}

// byteTest reads N, [!]OPERATOR, VALUE, OFFSET [, MODIFIER]...
func (p *ruleParser) byteTest(v string) error {
	a := arguments(v)
	if len(a) < 4 {
		return errors.New("byte_test has BYTES, OPERATOR, VALUE, OFFSET")
	}
	n := &Number{}
	if err := n.count(a[0]); err != nil {
		return err
	}
	op, not := strings.CutPrefix(a[1], "!")
	n.Not = not
	var ok bool
	if n.Op, ok = testOps[strings.TrimSpace(op)]; !ok {
		if op != "" || !not {
			return fmt.Errorf("byte_test does not know the operator %q", a[1])
		}
		n.Op = Equal // "!" alone is not equal
	}
	var err error
	if n.Value, err = number(a[2]); err != nil {
		i := slices.Index(p.vars, a[2])
		if i < 0 {
			return err
		}
		n.ValueVar = i + 1
	}
	if n.Offset, n.OffsetVar, err = p.numberOrVar(a[3]); err != nil {
		return err
	}
	if err := p.modifiers(n, a[4:]); err != nil {
		return err
	}
	p.addBehind(Test{Kind: TestByte, Number: n})
	return nil
}

// byteJump reads N, OFFSET [, MODIFIER]...
func (p *ruleParser) byteJump(v string) error {
	a := arguments(v)
	if len(a) < 2 {
		return errors.New("byte_jump has BYTES, OFFSET")
	}
	n := &Number{}
	err := n.count(a[0])
	if err != nil {
		return err
	}
	if n.Offset, n.OffsetVar, err = p.numberOrVar(a[1]); err != nil {
		return err
	}
	// "byte_jump:0, 0, from_end, post_offset -N" reads no number and only moves.
	if n.Bytes == 0 && !n.Text {
		n.Bytes = 1
		if err = p.modifiers(n, a[2:]); err == nil {
			n.Bytes = 0
		}
	} else {
		err = p.modifiers(n, a[2:])
	}
	if err != nil {
		return err
	}
	p.addBehind(Test{Kind: TestJump, Number: n})
	return nil
}

// byteExtract reads N, OFFSET, NAME [, MODIFIER]...
func (p *ruleParser) byteExtract(v string) error {
	a := arguments(v)
	if len(a) < 3 {
		return errors.New("byte_extract has BYTES, OFFSET, NAME")
	}
	n := &Number{}
	err := n.count(a[0])
	if err != nil {
		return err
	}
	if n.Offset, n.OffsetVar, err = p.numberOrVar(a[1]); err != nil {
		return err
	}
	if n.Var, err = p.newVar(a[2]); err != nil {
		return err
	}
	if err := p.modifiers(n, a[3:]); err != nil {
		return err
	}
	p.addBehind(Test{Kind: TestExtract, Number: n})
	return nil
}

// byteMath reads bytes N, offset N, oper OP, rvalue N, result NAME [, MODIFIER]...
func (p *ruleParser) byteMath(v string) error {
	n := &Number{}
	var rest []string
	has := map[string]bool{}
	for _, w := range arguments(v) {
		name, value, _ := strings.Cut(w, " ")
		value = strings.TrimSpace(value)
		var err error
		switch name {
		case "bytes":
			err = n.count(value)
		case "offset":
			n.Offset, n.OffsetVar, err = p.numberOrVar(value)
		case "oper":
			var ok bool
			if n.Op, ok = mathOps[value]; !ok {
				err = fmt.Errorf("byte_math does not know the operator %q", value)
			}
		case "rvalue":
			if n.Value, err = number(value); err != nil {
				if i := slices.Index(p.vars, value); i >= 0 {
					n.ValueVar, err = i+1, nil
				}
			}
		case "result":
			n.Var, err = p.newVar(value)
		default:
			rest = append(rest, w)
			continue
		}
		if err != nil {
			return err
		}
		has[name] = true
	}
	for _, k := range []string{"bytes", "offset", "oper", "rvalue", "result"} {
		if !has[k] {
			return fmt.Errorf("byte_math has bytes, offset, oper, rvalue and result; %s is missing", k)
		}
	}
	if err := p.modifiers(n, rest); err != nil {
		return err
	}
	p.addBehind(Test{Kind: TestMath, Number: n})
	return nil
}

// isDataAt reads [!]N [, relative] [, rawbytes]. Behind a content !1,relative is endswith.
func (p *ruleParser) isDataAt(v string) error {
	a := arguments(v)
	body, not := strings.CutPrefix(a[0], "!")
	t := &IsDataAt{Not: not}
	var err error
	if t.At, t.Var, err = p.numberOrVar(body); err != nil {
		return err
	}
	for _, w := range a[1:] {
		switch w {
		case "relative":
			t.Relative = true
		case "rawbytes":
		default:
			return fmt.Errorf("isdataat does not know %q", w)
		}
	}
	if t.Relative && t.Not && t.At == 1 && t.Var == 0 && p.last != nil { // Suricata reads it so, also behind a content that is negated
		p.last.EndsWith = true
		return nil
	}
	p.addBehind(Test{Kind: TestIsDataAt, IsDataAt: t})
	return nil
}

// uriLen reads a range and perhaps ",raw" or ",norm"; it is a size of the URI's buffer.
func (p *ruleParser) uriLen(v string) error {
	size, form, has := strings.Cut(v, ",")
	b := HTTPURI
	switch form = strings.TrimSpace(form); {
	case form == "raw":
		b = HTTPURIRaw
	case has && form != "norm":
		return fmt.Errorf("urilen does not know %q", form)
	}
	r, err := rangeOf(size, 1<<62)
	if err != nil {
		return err
	}
	i := p.part(b, nil)
	p.rule.Parts[i].Tests = append(p.rule.Parts[i].Tests, Test{Kind: TestSize, Size: r})
	return nil
}

// base64Decode reads [bytes N] [, offset N] [, relative].
func (p *ruleParser) base64Decode(v string) error {
	t := &Base64{}
	for _, w := range arguments(v) {
		name, value, _ := strings.Cut(w, " ")
		n, err := number(value)
		switch {
		case w == "":
		case w == "relative":
			t.Relative = true
		case name == "bytes" && err == nil && n < 1<<16:
			t.Bytes = int(n)
		case name == "offset" && err == nil && n < 1<<16:
			t.Offset = int(n)
		default:
			return fmt.Errorf("base64_decode does not know %q", w)
		}
	}
	p.addBehind(Test{Kind: TestBase64, Base64: t})
	return nil
}
