package script

import (
	"math"
	"strings"
)

// Value is an argument of a call.
type Value struct {
	Pos    Pos
	Any    bool    // ...
	Number int64   // also the value of a name
	Name   string  // as written, for names and sums of names such as A|B
	Text   string  // of a string
	List   []Value // of [ ]
	Fields []Field // of { }
}

// Field is a member of a structure: NAME=VALUE, or a value alone.
type Field struct {
	Name  string
	Value Value
}

// field returns the member of that name; nil where there is none.
func (v *Value) field(name string) *Value {
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			return &v.Fields[i].Value
		}
	}
	return nil
}

// maxDepth bounds structures in structures.
const maxDepth = 8

// call reads NAME(ARGS) = RESULT.
func (p *parser) call() *Call {
	c := &Call{Name: p.word()}
	p.want("(")
	for p.err == nil && !p.is(")") {
		c.Args = append(c.Args, p.value(0))
		if !p.accept(",") {
			break
		}
	}
	p.want(")")
	p.want("=")
	if p.accept("...") {
		c.Any = true
		return c
	}
	c.Result = p.sum().Number
	if c.Result >= 0 && p.is("(") && !p.tok.first { // what the flags mean, for people
		for p.err == nil && !p.accept(")") {
			if p.tok.kind == tokEnd {
				p.fail(p.tok.pos, "want %q", ")")
			}
			p.advance()
		}
	}
	if c.Result == -1 && p.tok.kind == tokWord && !p.tok.first {
		c.Errno = p.word()
		if p.accept("(") { // what the error means, for people
			for p.err == nil && !p.accept(")") {
				if p.tok.kind == tokEnd {
					p.fail(p.tok.pos, "want %q", ")")
				}
				p.advance()
			}
		}
	}
	return c
}

// value reads an argument.
func (p *parser) value(depth int) Value {
	v := Value{Pos: p.tok.pos}
	if depth > maxDepth {
		p.fail(v.Pos, "too many structures in structures")
		return v
	}
	switch {
	case p.accept("..."):
		v.Any = true
	case p.tok.kind == tokString:
		v.Text = p.tok.text
		p.advance()
	case p.accept("["):
		for p.err == nil && !p.is("]") {
			v.List = append(v.List, p.value(depth+1))
			if !p.accept(",") {
				break
			}
		}
		p.want("]")
	case p.accept("{"):
		for p.err == nil && !p.is("}") {
			v.Fields = append(v.Fields, p.member(depth+1))
			if !p.accept(",") {
				break
			}
		}
		p.want("}")
	default:
		v = p.sum()
	}
	return v
}

// member reads NAME=VALUE, or a value.
func (p *parser) member(depth int) Field {
	v := p.value(depth)
	if v.Name != "" && p.accept("(") { // msg_iov(2)=[...], msg_name(...)=...
		p.value(depth)
		p.want(")")
	}
	if v.Name != "" && p.accept("=") {
		return Field{v.Name, p.value(depth)}
	}
	return Field{Value: v}
}

// sum reads numbers and names joined by "|".
func (p *parser) sum() Value {
	v := Value{Pos: p.tok.pos}
	var names []string
	for p.err == nil {
		n, name := p.term()
		v.Number |= n
		if name != "" {
			names = append(names, name)
		}
		if !p.accept("|") {
			break
		}
	}
	v.Name = strings.Join(names, "|")
	return v
}

// term reads a number or a name.
func (p *parser) term() (int64, string) {
	switch {
	case p.accept("-"):
		return -int64(p.number(math.MaxInt64)), ""
	case p.tok.kind == tokNumber:
		return int64(p.number(math.MaxInt64)), ""
	}
	name := p.word()
	return constants[name], name
}
