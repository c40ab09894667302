package expr

// node is a part of a parsed expression that is true or false of a packet.
type node interface{ isNode() }

type (
	// junction is "left and right" or "left or right".
	junction struct {
		or          bool
		left, right node
	}
	// negation is "not x".
	negation struct{ x node }
	// identified is an identifier with its qualifiers: "src host 10.0.0.1".
	identified struct {
		id lexeme // tokNumber, tokIPv4, tokIPv6, tokMAC, tokARCnet or tokName
		q  qualifiers
		// Of an IPv4 or IPv6 network: the number of bits, or -1, and the mask of "net N mask M".
		bits int64
		mask lexeme
	}
	// abbreviation is a protocol by itself: "tcp".
	abbreviation struct {
		at lexeme
		p  proto
	}
	// relation compares two numbers: "tcp[13] & 2 != 0".
	relation struct {
		at          lexeme
		op          token // '>', tokGE, '=', tokLE, '<' or tokNE
		left, right arith
	}
	// keyword is a primitive with its arguments: "vlan 5", "llc u", "type data subtype qos".
	keyword struct {
		at   lexeme
		p    primitive
		of   proto // of broadcast and multicast
		args []lexeme
	}
	// comparison tests one named field: "vpi > 3".
	comparison struct {
		at    lexeme
		f     field
		op    token
		value uint32
	}
)

func (*junction) isNode()     {}
func (*negation) isNode()     {}
func (*identified) isNode()   {}
func (*abbreviation) isNode() {}
func (*relation) isNode()     {}
func (*keyword) isNode()      {}
func (*comparison) isNode()   {}

// qualifiers are the words before an identifier.
type qualifiers struct {
	p   proto
	dir direction
	t   addrType
}

// arith is a number that is computed of a packet.
type arith interface{ isArith() }

type (
	number struct {
		at    lexeme
		value uint32
	}
	length struct{} // "len"
	// index is bytes of a header: "ip[16:4]".
	index struct {
		at     lexeme
		p      proto
		offset arith
		size   uint32
	}
	operation struct {
		at          lexeme
		op          token // + - * / % & | ^ << >>
		left, right arith
	}
	minus struct{ x arith }
)

func (*number) isArith()    {}
func (*length) isArith()    {}
func (*index) isArith()     {}
func (*operation) isArith() {}
func (*minus) isArith()     {}
