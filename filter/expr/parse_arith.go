package expr

// precedence returns how tightly an arithmetic operator binds, 0 for other tokens.
func precedence(t token) int {
	switch t {
	case '|':
		return 1
	case '&':
		return 2
	case tokShl, tokShr:
		return 3
	case '+', '-':
		return 4
	case '*', '/':
		return 5
	case '%', '^':
		return 6
	}
	return 0
}

// rightmost reports whether an operator takes everything to its right as its operand. The grammar
// of pcap-filter gives "%" and "^" no precedence, so its parser always reads on: "1 % 2 + 3" is
// "1 % (2 + 3)".
func rightmost(t token) bool { return t == '%' || t == '^' }

// arith reads operands and the operators that bind tighter than limit.
func (p *parser) arith(limit int) (arith, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return nil, errorAt(p.tok.pos, len(p.tok.text), "the expression is nested deeper than %d", maxDepth)
	}
	a, err := p.arithOperand()
	if err != nil {
		return nil, err
	}
	return p.operations(a, limit)
}

// operations reads operators that bind tighter than limit, with their right sides, after left.
func (p *parser) operations(left arith, limit int) (arith, error) {
	for {
		prec := precedence(p.tok.tok)
		if prec <= limit {
			return left, nil
		}
		op, err := p.take()
		if err != nil {
			return nil, err
		}
		below := prec
		if rightmost(op.tok) {
			below = 0
		}
		right, err := p.arith(below)
		if err != nil {
			return nil, err
		}
		left = &operation{op, op.tok, left, right}
	}
}

func (p *parser) arithOperand() (arith, error) {
	switch p.tok.tok {
	case tokNumber:
		l, err := p.take()
		return &number{l, l.value}, err
	case tokLen:
		_, err := p.take()
		return &length{}, err
	case '-':
		if err := p.advance(); err != nil {
			return nil, err
		}
		x, err := p.arith(precedence('*')) // only "%" and "^" come before the sign
		return &minus{x}, err
	case '(':
		if err := p.advance(); err != nil {
			return nil, err
		}
		a, err := p.arith(0)
		if err != nil {
			return nil, err
		}
		_, err = p.expect(')', `")" or an operator`)
		return a, err
	case tokProto:
		l, err := p.take()
		if err != nil {
			return nil, err
		}
		return p.index(l)
	}
	return nil, unexpected(p.tok, "a number, \"len\" or bytes of a header such as \"ip[0]\"")
}

// index reads the brackets of "ip[16:4]" after the protocol.
func (p *parser) index(of lexeme) (arith, error) {
	if _, err := p.expect('[', `"["`); err != nil {
		return nil, err
	}
	offset, err := p.arith(0)
	if err != nil {
		return nil, err
	}
	size := lexeme{value: 1}
	if p.tok.tok == ':' {
		if err := p.advance(); err != nil {
			return nil, err
		}
		if size, err = p.expect(tokNumber, "the number of bytes: 1, 2 or 4"); err != nil {
			return nil, err
		}
		if size.value != 1 && size.value != 2 && size.value != 4 {
			return nil, errorAt(size.pos, len(size.text), "cannot load %d bytes, only 1, 2 or 4", size.value)
		}
	}
	_, err = p.expect(']', `"]", ":" or an operator`)
	return &index{of, proto(of.value), offset, size.value}, err
}
