package regex

import (
	"fmt"
	"strconv"
	"strings"
)

// kind is the kind of a node.
type kind uint8

const (
	nodeEmpty kind = iota
	nodeSet
	nodeSeq
	nodeAlt
	nodeRepeat
	nodeGroup // captures
	nodeAssert
	nodeRef
	nodeLook
	nodeAtomic
)

// node is a part of an expression.
type node struct {
	kind     kind
	set      *set
	kids     []*node
	min, max int // nodeRepeat; max -1 is without a bound
	how      how
	n        int // group or reference
	fold     bool
	assert   op
	behind   bool // nodeLook
	not      bool
}

// how says what a repetition prefers.
type how uint8

const (
	greedy how = iota
	lazy
	possessive
)

// maxNest bounds groups inside of one another, maxRepeat a count in braces.
const (
	maxNest   = 200
	maxRepeat = 65535
)

// parser reads an expression.
type parser struct {
	s      string
	at     int
	flags  Flags
	groups int
	names  map[string]int
	depth  int
	refs   int // the highest back-reference
	quoted int // up to where \Q...\E makes every byte a character
}

func (p *parser) wrong(format string, args ...any) error {
	return &SyntaxError{p.at, fmt.Sprintf(format, args...)}
}

func (p *parser) not(what string) error { return &UnsupportedError{p.at, what} }

func (p *parser) more() bool { return p.at < len(p.s) }

// took reads s if it comes next.
func (p *parser) took(s string) bool {
	if !strings.HasPrefix(p.s[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) parse() (*node, error) {
	n, err := p.alternatives()
	if err == nil && p.more() {
		err = p.wrong("a closing parenthesis without an opening one")
	}
	if err == nil && p.refs > p.groups {
		err = p.wrong("group %d does not exist", p.refs)
	}
	return n, err
}

// alternatives reads what stands between parentheses. Options that are set inside end there.
func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > maxNest {
		return nil, p.wrong("groups stand more than %d deep inside of one another", maxNest)
	}
	defer func(f Flags) { p.flags = f; p.depth-- }(p.flags)
	alt := &node{kind: nodeAlt}
	for {
		seq, err := p.sequence()
		if err != nil {
			return nil, err
		}
		alt.kids = append(alt.kids, seq)
		if !p.took("|") {
			break
		}
	}
	if len(alt.kids) == 1 {
		return alt.kids[0], nil
	}
	return alt, nil
}

// sequence reads up to "|", ")" or the end.
func (p *parser) sequence() (*node, error) {
	seq := &node{kind: nodeSeq}
	for p.more() && (p.at < p.quoted || p.s[p.at] != '|' && p.s[p.at] != ')') {
		if p.at >= p.quoted && p.blank() {
			continue
		}
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}
		for {
			r, err := p.repeat(n)
			if err != nil {
				return nil, err
			}
			if r == nil {
				break
			}
			n = r
		}
		seq.kids = append(seq.kids, n)
	}
	return seq, nil
}

// blank skips white space and comments of an extended expression.
func (p *parser) blank() bool {
	if p.flags&Extended == 0 {
		return false
	}
	from := p.at
	for p.more() && strings.IndexByte(" \t\n\r\f\v", p.s[p.at]) >= 0 {
		p.at++
	}
	if p.more() && p.s[p.at] == '#' {
		for p.more() && p.s[p.at] != '\n' {
			p.at++
		}
	}
	return p.at > from
}

// repeat reads a quantifier of n; nil where none follows.
func (p *parser) repeat(n *node) (*node, error) {
	if p.at < p.quoted {
		return nil, nil
	}
	p.quoteEnd()
	for p.blank() {
	}
	r := &node{kind: nodeRepeat, kids: []*node{n}, max: -1}
	switch {
	case p.took("*"):
	case p.took("+"):
		r.min = 1
	case p.took("?"):
		r.max = 1
	default:
		ok, err := p.braces(r)
		if !ok {
			return nil, err
		}
	}
	if p.flags&Ungreedy != 0 {
		r.how = lazy
	}
	if p.took("?") {
		r.how = lazy - r.how
	} else if p.took("+") {
		r.how = possessive
	}
	if n.kind == nodeAssert || n.kind == nodeLook { // matches nothing or not at all: once is enough
		r.max, r.min = 1, min(r.min, 1)
	}
	return r, nil
}

// braces reads {N}, {N,} or {N,M}; other braces are characters.
func (p *parser) braces(r *node) (bool, error) {
	if !p.more() || p.s[p.at] != '{' {
		return false, nil
	}
	body, _, ok := strings.Cut(p.s[p.at+1:], "}")
	lo, hi, isRange := strings.Cut(body, ",")
	a, err1 := strconv.ParseUint(lo, 10, 32)
	b, err2 := a, error(nil)
	if isRange && hi != "" {
		b, err2 = strconv.ParseUint(hi, 10, 32)
	}
	if !ok || err1 != nil || err2 != nil {
		return false, nil
	}
	if a > maxRepeat || b > maxRepeat || b < a {
		return false, p.wrong("{%s} is not a count", body)
	}
	p.at += len(body) + 2
	r.min, r.max = int(a), int(b)
	if isRange && hi == "" {
		r.max = -1
	}
	return true, nil
}

// atom reads one element; nil for what matches nothing, like options.
func (p *parser) atom() (*node, error) {
	c := p.s[p.at]
	p.at++
	if p.at <= p.quoted {
		return p.char(c), nil
	}
	switch c {
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '.':
		s := &set{}
		if p.flags&DotAll == 0 {
			s.add('\n')
		}
		s.invert()
		return &node{kind: nodeSet, set: s}, nil
	case '^':
		if p.flags&MultiLine != 0 {
			return &node{kind: nodeAssert, assert: opLineBegin}, nil
		}
		return &node{kind: nodeAssert, assert: opBegin}, nil
	case '$':
		switch {
		case p.flags&MultiLine != 0:
			return &node{kind: nodeAssert, assert: opLineEnd}, nil
		case p.flags&DollarEnd != 0:
			return &node{kind: nodeAssert, assert: opEnd}, nil
		}
		return &node{kind: nodeAssert, assert: opEndOrNewline}, nil
	case '*', '+', '?':
		p.at--
		return nil, p.wrong("%q repeats nothing", string(c))
	case '\\':
		return p.escape()
	}
	return p.char(c), nil
}

// char returns the node of a byte.
func (p *parser) char(c byte) *node {
	s := &set{}
	s.add(c)
	if p.flags&NoCase != 0 {
		s.fold()
	}
	return &node{kind: nodeSet, set: s}
}

// group reads what follows an opening parenthesis.
func (p *parser) group() (*node, error) {
	if !p.took("?") {
		if p.took("*") {
			return nil, p.not("(*VERB)")
		}
		return p.capture("")
	}
	switch {
	case p.took(":"):
		return p.closed(&node{kind: nodeSeq})
	case p.took("="):
		return p.closed(&node{kind: nodeLook})
	case p.took("!"):
		return p.closed(&node{kind: nodeLook, not: true})
	case p.took("<="):
		return p.closed(&node{kind: nodeLook, behind: true})
	case p.took("<!"):
		return p.closed(&node{kind: nodeLook, behind: true, not: true})
	case p.took(">"):
		return p.closed(&node{kind: nodeAtomic})
	case p.took("#"):
		_, rest, ok := strings.Cut(p.s[p.at:], ")")
		if !ok {
			return nil, p.wrong("a comment has no end")
		}
		p.at = len(p.s) - len(rest)
		return nil, nil
	case p.took("P="):
		name, ok := p.upTo(')')
		return p.named(name, ok)
	case p.took("P<"), p.took("<"):
		name, ok := p.upTo('>')
		if !ok {
			return nil, p.wrong("the name of a group has no end")
		}
		return p.capture(name)
	case p.took("'"):
		name, ok := p.upTo('\'')
		if !ok {
			return nil, p.wrong("the name of a group has no end")
		}
		return p.capture(name)
	case p.took("("):
		return nil, p.not("a condition (?(...)")
	case p.took("|"):
		return nil, p.not("(?|...)")
	case p.took("R"), p.took("P>"), p.took("&"), p.took("C"), p.more() && p.s[p.at] >= '0' && p.s[p.at] <= '9':
		return nil, p.not("recursion")
	}
	return p.options()
}

// options reads i, m, s, x and -, up to ")" or ":".
func (p *parser) options() (*node, error) {
	f, off := p.flags, false
	for p.more() {
		c := p.s[p.at]
		p.at++
		switch g := FlagOf(c); {
		case c == '-':
			off = true
		case c == 'U':
			if f |= Ungreedy; off {
				f &^= Ungreedy
			}
		case strings.IndexByte("imsx", c) >= 0:
			if f |= g; off {
				f &^= g
			}
		case c == ')':
			p.flags = f
			return nil, nil
		case c == ':':
			defer func(was Flags) { p.flags = was }(p.flags)
			p.flags = f
			return p.closed(&node{kind: nodeSeq})
		default:
			p.at--
			return nil, p.not("(?" + string(c) + ")")
		}
	}
	return nil, p.wrong("a group has no end")
}

// capture reads the body of a group that captures.
func (p *parser) capture(name string) (*node, error) {
	p.groups++
	n := &node{kind: nodeGroup, n: p.groups}
	if name != "" {
		p.names[name] = p.groups
	}
	return p.closed(n)
}

// closed reads alternatives and the closing parenthesis into n.
func (p *parser) closed(n *node) (*node, error) {
	body, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.took(")") {
		return nil, p.wrong("a group has no end")
	}
	n.kids = []*node{body}
	return n, nil
}

func (p *parser) upTo(end byte) (string, bool) {
	i := strings.IndexByte(p.s[p.at:], end)
	if i <= 0 {
		return "", false
	}
	name := p.s[p.at : p.at+i]
	p.at += i + 1
	return name, true
}

// named returns a reference to a group by its name.
func (p *parser) named(name string, ok bool) (*node, error) {
	n, known := p.names[name]
	if !ok || !known {
		return nil, p.wrong("group %q does not exist", name)
	}
	return &node{kind: nodeRef, n: n, fold: p.flags&NoCase != 0}, nil
}
