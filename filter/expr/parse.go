package expr

// maxDepth bounds nested parentheses and negations, so that no text exhausts the stack.
const maxDepth = 500

// maxText is the longest text that is parsed, in bytes.
const maxText = 1 << 20

// parser reads an expression by recursive descent with one token of look-ahead.
//
// The grammar gives identifiers the qualifiers of the primitive before them ("tcp port 80 or 90"),
// and one parenthesis can begin an expression, a list of identifiers or a number. So operand returns
// what it has read with its kind, and each context checks whether that kind may stand there.
type parser struct {
	scan  scanner
	tok   lexeme // the look-ahead
	depth int
}

// operandKind says what an operand turned out to be.
type operandKind uint8

const (
	kindTerm   operandKind = iota // complete, and may begin an expression
	kindID                        // an identifier that has taken its qualifiers from the left
	kindList                      // identifiers in parentheses, likewise
	kindNumber                    // a number: an identifier or the start of a relation
	kindArith                     // "(1 + len)": can only begin a relation
)

// operand is an operand of "and" and "or".
type operand struct {
	kind operandKind
	n    node       // kindTerm, kindID, kindList
	q    qualifiers // what identifiers after it inherit
	at   lexeme     // its first token
	num  lexeme     // kindNumber
	a    arith      // kindNumber, kindArith
}

var noQualifiers = qualifiers{t: typeUndefined}

// parse returns the tree of an expression, nil for an empty one.
func parse(text string) (node, error) {
	if len(text) > maxText {
		return nil, errorAt(maxText, 1, "the expression is longer than %d bytes", maxText)
	}
	p := parser{scan: scanner{text: text}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.tok == tokEnd {
		return nil, nil
	}
	o, err := p.expression(noQualifiers)
	if err != nil {
		return nil, err
	}
	if p.tok.tok != tokEnd {
		return nil, unexpected(p.tok, `"and", "or" or the end`)
	}
	return o.n, nil
}

func (p *parser) advance() (err error) {
	p.tok, err = p.scan.next()
	return err
}

// take returns the look-ahead and moves on.
func (p *parser) take() (lexeme, error) {
	l := p.tok
	return l, p.advance()
}

// expect takes a token of one kind.
func (p *parser) expect(t token, want string) (lexeme, error) {
	if p.tok.tok != t {
		return p.tok, unexpected(p.tok, want)
	}
	return p.take()
}

// expression reads operands with "and" and "or" between them, which bind equally and to the left.
func (p *parser) expression(q qualifiers) (operand, error) {
	o, err := p.operand(q)
	if err != nil {
		return o, err
	}
	if o.kind != kindTerm {
		return o, wantPrimitive(o)
	}
	return p.rest(o)
}

// wantPrimitive reports an identifier or number that stands where a primitive must.
func wantPrimitive(o operand) error {
	return unexpected(o.at, `a qualifier such as "host", or a protocol`)
}

// rest reads "and" and "or" with their right sides after a term.
func (p *parser) rest(o operand) (operand, error) {
	for p.tok.tok == tokAnd || p.tok.tok == tokOr {
		op, err := p.take()
		if err != nil {
			return o, err
		}
		r, err := p.operand(o.q)
		if err != nil {
			return o, err
		}
		if r, err = p.asID(r); err != nil {
			return o, err
		}
		o.n = &junction{op.tok == tokOr, o.n, r.n}
		o.q = r.q
	}
	return o, nil
}

// asID turns a number into an identifier, and refuses what is neither term nor identifier.
func (p *parser) asID(o operand) (operand, error) {
	switch o.kind {
	case kindNumber:
		o.kind, o.n = kindID, &identified{id: o.num, q: o.q, bits: -1}
	case kindArith:
		return o, unexpected(p.tok, "a comparison such as \"=\" or \">\"")
	}
	return o, nil
}

// operand reads one term, identifier or number. Identifiers take the qualifiers q.
func (p *parser) operand(q qualifiers) (operand, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return operand{}, errorAt(p.tok.pos, len(p.tok.text), "the expression is nested deeper than %d", maxDepth)
	}
	at := p.tok
	switch at.tok {
	case tokNot:
		return p.not(q)
	case '(':
		return p.parenthesis(q)
	case tokNumber:
		l, err := p.take()
		if err != nil {
			return operand{}, err
		}
		return p.relationAfter(operand{kind: kindNumber, q: q, at: at, num: l, a: &number{l, l.value}})
	case tokLen, '-':
		a, err := p.arith(0)
		if err != nil {
			return operand{}, err
		}
		return p.comparisonAfter(operand{kind: kindArith, q: q, at: at, a: a})
	case tokIPv4, tokIPv6, tokMAC, tokARCnet, tokName:
		n, err := p.identifier(q)
		return operand{kind: kindID, n: n, q: q, at: at}, err
	}
	o, err := p.term()
	o.at = at
	return o, err
}

func (p *parser) not(q qualifiers) (operand, error) {
	at, err := p.take()
	if err != nil {
		return operand{}, err
	}
	o, err := p.operand(q)
	if err != nil {
		return o, err
	}
	if o, err = p.asID(o); err != nil {
		return o, err
	}
	if o.kind == kindList {
		o.kind = kindID
	}
	o.n, o.at = &negation{o.n}, at
	return o, nil
}

// parenthesis reads "(": an expression, a list of identifiers, or a number.
func (p *parser) parenthesis(q qualifiers) (operand, error) {
	at, err := p.take()
	if err != nil {
		return operand{}, err
	}
	o, err := p.operand(q)
	if err != nil {
		return o, err
	}
	switch {
	case o.kind == kindTerm:
		o, err = p.rest(o)
		o.q = q // what is inside parentheses lends no qualifiers to what follows them
	case o.kind == kindID, o.kind == kindNumber && (p.tok.tok == tokAnd || p.tok.tok == tokOr):
		o, err = p.list(o)
	case o.kind == kindList:
		return o, wantPrimitive(o)
	}
	if err != nil {
		return o, err
	}
	if _, err := p.expect(')', closing(o.kind)); err != nil {
		return o, err
	}
	o.at = at
	if o.kind == kindNumber || o.kind == kindArith {
		return p.relationAfter(o)
	}
	return o, nil
}

func closing(k operandKind) string {
	if k == kindNumber || k == kindArith {
		return `")" or an operator`
	}
	return `"and", "or" or ")"`
}

// list reads the identifiers of "port (80 or 443)", of which o is the first.
func (p *parser) list(o operand) (operand, error) {
	o, err := p.asID(o)
	for err == nil && (p.tok.tok == tokAnd || p.tok.tok == tokOr) {
		var op lexeme
		if op, err = p.take(); err != nil {
			break
		}
		var r operand
		if r, err = p.id(o.q); err == nil {
			o.n = &junction{op.tok == tokOr, o.n, r.n}
		}
	}
	o.kind = kindList
	return o, err
}

// id reads an operand that must be an identifier or a list of them.
func (p *parser) id(q qualifiers) (operand, error) {
	o, err := p.operand(q)
	if err == nil {
		o, err = p.asID(o)
	}
	if err == nil && o.kind == kindTerm {
		err = unexpected(o.at, "an address, a port, a name or another identifier")
	}
	return o, err
}

// identifier reads an address or a name, with the mask or length of a network.
func (p *parser) identifier(q qualifiers) (node, error) {
	l, err := p.take()
	if err != nil {
		return nil, err
	}
	n := &identified{id: l, q: q, bits: -1}
	if (l.tok == tokIPv4 || l.tok == tokIPv6) && p.tok.tok == '/' {
		if err := p.advance(); err != nil {
			return nil, err
		}
		bits, err := p.expect(tokNumber, "the length of the prefix")
		n.bits = int64(bits.value)
		return n, err
	}
	if l.tok == tokIPv4 && p.tok.tok == tokMask {
		if err := p.advance(); err != nil {
			return nil, err
		}
		n.mask, err = p.expect(tokIPv4, "an IPv4 mask")
		return n, err
	}
	return n, nil
}

// relationAfter continues a number: as the left side of an operation or a relation if one follows.
func (p *parser) relationAfter(o operand) (operand, error) {
	a, err := p.operations(o.a, 0)
	if err != nil {
		return o, err
	}
	if a != o.a {
		o.kind, o.a = kindArith, a
	}
	return p.comparisonAfter(o)
}

// comparisonAfter reads a comparison and its right side, if one follows.
func (p *parser) comparisonAfter(o operand) (operand, error) {
	if !isComparison(p.tok.tok) {
		return o, nil
	}
	op, err := p.take()
	if err != nil {
		return o, err
	}
	right, err := p.arith(0)
	return operand{
		kind: kindTerm, q: noQualifiers, at: o.at,
		n: &relation{op, op.tok, o.a, right},
	}, err
}

func isComparison(t token) bool {
	switch t {
	case '>', tokGE, '=', tokLE, '<', tokNE:
		return true
	}
	return false
}
