package expr

// term reads a primitive that begins with a keyword.
func (p *parser) term() (operand, error) {
	switch p.tok.tok {
	case tokProto:
		l, err := p.take()
		if err != nil {
			return operand{}, err
		}
		return p.afterProto(l)
	case tokSrc, tokDst, tokDirection, tokType:
		return p.qualified(qualifiers{})
	case tokPrimitive:
		n, err := p.primitive(protoNone)
		return operand{kind: kindTerm, n: n, q: noQualifiers}, err
	case tokField:
		return p.field()
	}
	return operand{}, unexpected(p.tok, "an expression")
}

// afterProto continues after a protocol: alone, as qualifier, or with an index.
func (p *parser) afterProto(l lexeme) (operand, error) {
	of := proto(l.value)
	switch p.tok.tok {
	case '[':
		a, err := p.index(l)
		if err != nil {
			return operand{}, err
		}
		return p.relationAfter(operand{kind: kindArith, a: a, at: l})
	case tokSrc, tokDst, tokDirection, tokType:
		return p.qualified(qualifiers{p: of})
	case tokPrimitive:
		switch primitive(p.tok.value) {
		case primBroadcast, primMulticast, primType, primSubtype, primDir:
			n, err := p.primitive(of)
			return operand{kind: kindTerm, n: n, q: noQualifiers}, err
		}
	}
	return operand{kind: kindTerm, n: &abbreviation{l, of}, q: noQualifiers}, nil
}

// qualified reads direction, type and identifier of a primitive.
func (p *parser) qualified(q qualifiers) (operand, error) {
	directed := p.tok.tok != tokType
	if directed {
		if err := p.direction(&q); err != nil {
			return operand{}, err
		}
	}
	if p.tok.tok == tokType {
		t, err := p.take()
		if err != nil {
			return operand{}, err
		}
		q.t = addrType(t.value)
		if directed && (q.t == typeGateway || q.t == typeProto || q.t == typeProtoChain) {
			return operand{}, errorAt(t.pos, len(t.text), "%q takes no direction", t.text)
		}
	}
	o, err := p.id(q)
	o.kind, o.q = kindTerm, q
	return o, err
}

// direction reads "src", "src or dst", "ra" and the like.
func (p *parser) direction(q *qualifiers) error {
	l, err := p.take()
	if err != nil {
		return err
	}
	if l.tok == tokDirection {
		q.dir = direction(l.value)
		return nil
	}
	q.dir = dirSrc
	other := tokDst
	if l.tok == tokDst {
		q.dir, other = dirDst, tokSrc
	}
	switch p.tok.tok {
	case tokOr:
		q.dir = dirOr
	case tokAnd:
		q.dir = dirAnd
	default:
		return nil
	}
	if err := p.advance(); err != nil {
		return err
	}
	_, err = p.expect(other, `"src or dst" or "src and dst"`)
	return err
}

// primitive reads a keyword and its arguments.
func (p *parser) primitive(of proto) (node, error) {
	l, err := p.take()
	if err != nil {
		return nil, err
	}
	k := &keyword{at: l, p: primitive(l.value), of: of}
	switch k.p {
	case primLess, primGreater, primIfindex, primRuleNumber, primSubruleNumber:
		err = p.argument(k, "a number", tokNumber)
	case primIfname, primRuleset, primAction:
		err = p.argument(k, "a name", tokName)
	case primReason, primDir:
		err = p.argument(k, "a name or a number", tokName, tokNumber)
	case primByte:
		err = p.byteArguments(k)
	case primVLAN, primMPLS, primPPPoES, primGeneve, primVXLAN:
		err = p.optionalNumber(k)
	case primLLC:
		// "rnr" is a keyword of its own.
		if p.tok.tok == tokName || p.tok.tok == tokPrimitive && primitive(p.tok.value) == primRuleNumber {
			err = p.argument(k, "a name", tokName, tokPrimitive)
		}
	case primType:
		if err = p.argument(k, "a type of 802.11 frames", tokName, tokNumber); err == nil &&
			p.tok.tok == tokPrimitive && primitive(p.tok.value) == primSubtype {
			if err = p.advance(); err == nil {
				err = p.argument(k, "a subtype of 802.11 frames", tokName, tokNumber)
			}
		}
	case primSubtype:
		err = p.argument(k, "a subtype of 802.11 frames", tokName)
	}
	return k, err
}

// argument reads one argument of k, of one of the kinds of tokens.
func (p *parser) argument(k *keyword, want string, kinds ...token) error {
	for _, t := range kinds {
		if p.tok.tok == t {
			l, err := p.take()
			k.args = append(k.args, l)
			return err
		}
	}
	return unexpected(p.tok, want)
}

// byteArguments reads "byte 5 > 10".
func (p *parser) byteArguments(k *keyword) error {
	if err := p.argument(k, "an offset", tokNumber); err != nil {
		return err
	}
	if err := p.argument(k, `"=", "<", ">", "&" or "|"`, '=', '<', '>', '&', '|'); err != nil {
		return err
	}
	return p.argument(k, "a number", tokNumber)
}

// optionalNumber reads the number of "vlan 5", which may stand in parentheses.
func (p *parser) optionalNumber(k *keyword) error {
	open := 0
	for p.tok.tok == '(' {
		open++
		if err := p.advance(); err != nil {
			return err
		}
	}
	if open == 0 && p.tok.tok != tokNumber {
		return nil
	}
	if err := p.argument(k, "a number", tokNumber); err != nil {
		return err
	}
	for range open {
		if _, err := p.expect(')', `")"`); err != nil {
			return err
		}
	}
	return nil
}

// field reads a comparison of a named field with a number or with a list of them.
func (p *parser) field() (operand, error) {
	l, err := p.take()
	if err != nil {
		return operand{}, err
	}
	o := operand{kind: kindTerm, q: noQualifiers, at: l}
	c := comparison{at: l, f: field(l.value), op: '='}
	switch {
	case p.tok.tok == '(':
		o.n, err = p.fieldList(c)
		return o, err
	case isComparison(p.tok.tok):
		c.op = p.tok.tok
		if err := p.advance(); err != nil {
			return o, err
		}
	}
	v, err := p.expect(tokNumber, "a number")
	c.value, c.at = v.value, v
	o.n = &c
	return o, err
}

// fieldList reads "(1 or 2 or 3)".
func (p *parser) fieldList(c comparison) (node, error) {
	var list node
	for {
		if err := p.advance(); err != nil { // the parenthesis, or "or"
			return nil, err
		}
		v, err := p.expect(tokNumber, "a number")
		if err != nil {
			return nil, err
		}
		one := c
		one.value, one.at = v.value, v
		if list == nil {
			list = &one
		} else {
			list = &junction{true, list, &one}
		}
		if p.tok.tok != tokOr {
			break
		}
	}
	_, err := p.expect(')', `"or" or ")"`)
	return list, err
}
