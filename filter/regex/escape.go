package regex

import (
	"strconv"
	"strings"
)

// classes are \d, \w, \s, \h and \v; their capital letters are the other bytes.
var classes = func() map[byte]*set {
	m := map[byte]*set{}
	for c, text := range map[byte]string{
		'd': "0123456789", 's': " \t\n\v\f\r", 'h': " \t\xa0", 'v': "\n\v\f\r\x85",
		'w': "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
	} {
		s := &set{}
		for i := range len(text) {
			s.add(text[i])
		}
		other := *s
		other.invert()
		m[c], m[c-32] = s, &other
	}
	newline := &set{}
	newline.add('\n')
	newline.invert()
	m['N'] = newline
	return m
}()

// posix are the classes that stand as [:name:] in brackets.
var posix = func() map[string]*set {
	m := map[string]*set{"word": classes['w'], "digit": classes['d'], "space": classes['s']}
	for name, in := range map[string]func(c int) bool{
		"alpha":  func(c int) bool { return c|32 >= 'a' && c|32 <= 'z' },
		"alnum":  func(c int) bool { return c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9' },
		"upper":  func(c int) bool { return c >= 'A' && c <= 'Z' },
		"lower":  func(c int) bool { return c >= 'a' && c <= 'z' },
		"xdigit": func(c int) bool { return c|32 >= 'a' && c|32 <= 'f' || c >= '0' && c <= '9' },
		"blank":  func(c int) bool { return c == ' ' || c == '\t' },
		"cntrl":  func(c int) bool { return c < ' ' || c == 127 },
		"print":  func(c int) bool { return c >= ' ' && c < 127 },
		"graph":  func(c int) bool { return c > ' ' && c < 127 },
		"ascii":  func(c int) bool { return c < 128 },
		"punct":  func(c int) bool { return c > ' ' && c < 127 && !(c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9') },
	} {
		s := &set{}
		for c := range 256 {
			if in(c) {
				s.add(byte(c))
			}
		}
		m[name] = s
	}
	return m
}()

// escape reads what follows a backslash outside of brackets.
func (p *parser) escape() (*node, error) {
	if !p.more() {
		return nil, p.wrong("a backslash at the end")
	}
	c := p.s[p.at]
	if s, ok := classes[c]; ok {
		p.at++
		return &node{kind: nodeSet, set: s}, nil
	}
	asserts := map[byte]op{'b': opWordEdge, 'B': opNoWordEdge, 'A': opBegin, 'z': opEnd, 'Z': opEndOrNewline, 'G': opStart}
	if a, ok := asserts[c]; ok {
		p.at++
		return &node{kind: nodeAssert, assert: a}, nil
	}
	switch c {
	case 'R': // any end of a line: (?>\r\n|\n|\v|\f|\r|\x85)
		p.at++
		crlf := &node{kind: nodeSeq, kids: []*node{p.char('\r'), p.char('\n')}}
		return &node{kind: nodeAtomic, kids: []*node{{kind: nodeAlt, kids: []*node{crlf, {kind: nodeSet, set: classes['v']}}}}}, nil
	case 'Q':
		p.quote()
		return nil, nil
	case 'E':
		p.at++
		return nil, nil
	case 'k':
		p.at++
		for _, q := range []string{"<>", "{}", "''"} {
			if p.took(q[:1]) {
				name, ok := p.upTo(q[1])
				return p.named(name, ok)
			}
		}
		return nil, p.wrong(`\k has a name`)
	case 'g':
		return p.reference()
	case 'K', 'X', 'p', 'P', 'C':
		return nil, p.not(`\` + string(c))
	}
	if c >= '1' && c <= '9' {
		if n, ok := p.refNumber(); ok {
			return n, nil
		}
	}
	b, err := p.escapedByte()
	return p.char(b), err
}

// refNumber reads \1 to \9, or a number of a group that exists; other digits are an octal number.
func (p *parser) refNumber() (*node, bool) {
	end := p.at
	for end < len(p.s) && p.s[end] >= '0' && p.s[end] <= '9' && end-p.at < 3 {
		end++
	}
	n, _ := strconv.Atoi(p.s[p.at:end])
	if n > 9 && n > p.groups {
		return nil, false
	}
	p.at = end
	return p.ref(n), true
}

func (p *parser) ref(n int) *node {
	p.refs = max(p.refs, n)
	return &node{kind: nodeRef, n: n, fold: p.flags&NoCase != 0}
}

// reference reads \g1, \g{1} or \g{-1}.
func (p *parser) reference() (*node, error) {
	p.at++
	body := ""
	if p.took("{") {
		body, _ = p.upTo('}')
	} else if p.more() {
		body = p.s[p.at : p.at+1]
		p.at++
	}
	n, err := strconv.Atoi(body)
	if err != nil {
		return p.named(body, true)
	}
	if n < 0 {
		n += p.groups + 1
	}
	if n <= 0 {
		return nil, p.wrong(`\g{%s} is not a group`, body)
	}
	return p.ref(n), nil
}

// quote reads \Q: what follows up to \E is characters.
func (p *parser) quote() {
	p.at++
	text, _, _ := strings.Cut(p.s[p.at:], `\E`)
	p.quoted = p.at + len(text)
}

// quoteEnd skips the \E behind the last quoted character, so that a quantifier of that is seen.
func (p *parser) quoteEnd() {
	if p.quoted > 0 && p.at == p.quoted {
		p.took(`\E`)
		p.quoted = 0
	}
}

// escapedByte reads an escape that stands for one byte; p.at is behind the backslash.
func (p *parser) escapedByte() (byte, error) {
	c := p.s[p.at]
	p.at++
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'f':
		return '\f', nil
	case 'a':
		return 7, nil
	case 'e':
		return 27, nil
	case 'c':
		if !p.more() {
			return 0, p.wrong(`\c at the end`)
		}
		c = p.s[p.at]
		p.at++
		if c >= 'a' && c <= 'z' {
			c -= 32
		}
		return c ^ 64, nil
	case 'x':
		return p.hex()
	}
	if c >= '0' && c <= '7' {
		v := int(c - '0')
		for n := 1; n < 3 && p.more() && p.s[p.at] >= '0' && p.s[p.at] <= '7'; n++ {
			v = v<<3 | int(p.s[p.at]-'0')
			p.at++
		}
		return byte(v), nil
	}
	if c|32 >= 'a' && c|32 <= 'z' {
		p.at--
		return 0, p.wrong(`\%c is not known`, c)
	}
	return c, nil
}

// hex reads up to two digits, or any number of them in braces.
func (p *parser) hex() (byte, error) {
	if p.took("{") {
		body, ok := p.upTo('}')
		v, err := strconv.ParseUint(body, 16, 32)
		if !ok || err != nil {
			return 0, p.wrong(`\x{...} has hexadecimal digits`)
		}
		if v > 255 {
			return 0, p.not("a character above 255")
		}
		return byte(v), nil
	}
	end := p.at
	for end < len(p.s) && end < p.at+2 && isHex(p.s[end]) {
		end++
	}
	v, _ := strconv.ParseUint("0"+p.s[p.at:end], 16, 16)
	p.at = end
	return byte(v), nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|32 >= 'a' && c|32 <= 'f' }

// class reads what follows an opening bracket.
func (p *parser) class() (*node, error) {
	s := &set{}
	not := p.took("^")
	for first := true; ; first = false {
		if !p.more() {
			return nil, p.wrong("a class has no end")
		}
		if !first && p.took("]") {
			break
		}
		if err := p.classItem(s); err != nil {
			return nil, err
		}
	}
	if p.flags&NoCase != 0 {
		s.fold()
	}
	if not {
		s.invert()
	}
	return &node{kind: nodeSet, set: s}, nil
}

// classItem reads a byte, a range or a class in brackets into s.
func (p *parser) classItem(s *set) error {
	if strings.HasPrefix(p.s[p.at:], "[:") {
		if name, _, ok := strings.Cut(p.s[p.at+2:], ":]"); ok && len(name) < 8 && !strings.ContainsAny(name, "]\\") {
			bare, not := strings.CutPrefix(name, "^")
			c, known := posix[bare]
			if !known {
				return p.wrong("class [:%s:] is not known", name)
			}
			p.at += len(name) + 4
			o := *c
			if not {
				o.invert()
			}
			s.merge(&o)
			return nil
		}
	}
	lo, one, err := p.classByte(s)
	if err != nil || !one {
		return err
	}
	rest := p.s[p.at:]
	if len(rest) < 2 || rest[0] != '-' || rest[1] == ']' {
		s.add(lo)
		return nil
	}
	p.at++
	hi, one, err := p.classByte(s)
	switch {
	case err != nil:
		return err
	case !one: // [a-\d] is a, - and the digits
		s.add(lo)
		s.add('-')
		return nil
	case hi < lo:
		return p.wrong("the range %q-%q is the wrong way round", lo, hi)
	}
	s.addRange(int(lo), int(hi))
	return nil
}

// classByte reads a byte of a class; one is false where it was a class like \d, which is in s then.
func (p *parser) classByte(s *set) (c byte, one bool, err error) {
	c = p.s[p.at]
	p.at++
	if c != '\\' {
		return c, true, nil
	}
	if !p.more() {
		return 0, false, p.wrong("a class has no end")
	}
	if k, ok := classes[p.s[p.at]]; ok && p.s[p.at] != 'N' {
		p.at++
		s.merge(k)
		return 0, false, nil
	}
	switch p.s[p.at] {
	case 'b':
		p.at++
		return 8, true, nil
	case 'Q', 'E', 'p', 'P':
		return 0, false, p.not(`\` + p.s[p.at:p.at+1] + " in a class")
	case '8', '9':
		p.at++
		return p.s[p.at-1], true, nil
	}
	c, err = p.escapedByte()
	return c, true, err
}
