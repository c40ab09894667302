package expr

import (
	"fmt"
	"strings"
)

// Tree returns the match tree as text, one test a line, indented by depth.
func (f *Filter) Tree() string {
	var b strings.Builder
	printCond(&b, f.tree, "")
	return b.String()
}

// printCond writes c; chains of one operator become one list.
func printCond(b *strings.Builder, c *cond, indent string) {
	switch c.op {
	case condAnd, condOr:
		name := "all"
		if c.op == condOr {
			name = "any"
		}
		fmt.Fprintf(b, "%s%s\n", indent, name)
		printList(b, c, c.op, indent+"  ")
	case condNot:
		if c.l.op == condTest {
			fmt.Fprintf(b, "%snot %v\n", indent, c.l)
			return
		}
		fmt.Fprintf(b, "%snot\n", indent)
		printCond(b, c.l, indent+"  ")
	default:
		fmt.Fprintf(b, "%s%v\n", indent, c)
	}
}

func printList(b *strings.Builder, c *cond, op condOp, indent string) {
	if c.op != op {
		printCond(b, c, indent)
		return
	}
	printList(b, c.l, op, indent)
	printList(b, c.r, op, indent)
}

// String returns c on one line.
func (c *cond) String() string {
	switch c.op {
	case condFalse:
		return "false"
	case condTrue:
		return "true"
	case condAnd:
		return fmt.Sprintf("(%v && %v)", c.l, c.r)
	case condOr:
		return fmt.Sprintf("(%v || %v)", c.l, c.r)
	case condNot:
		return fmt.Sprintf("!%v", c.l)
	case condSet:
		return fmt.Sprintf("m%d := %v", c.slot, c.a)
	case condChain:
		family := "ip"
		if c.walk.v6 {
			family = "ip6"
		}
		return fmt.Sprintf("%s header chain at %d has protocol %d", family, c.walk.base, c.walk.proto)
	}
	return fmt.Sprintf("%v %s %v", c.a, [...]string{"==", ">", ">=", "has"}[c.cmp], c.b)
}

// String returns v in the notation of C, with pkt[offset:size] for loads.
func (v *value) String() string {
	switch v.op {
	case valueConst:
		if v.k > 9 {
			return fmt.Sprintf("%#x", v.k)
		}
		return fmt.Sprint(v.k)
	case valueLen:
		return "len"
	case valueLoad:
		if v.x != nil {
			return fmt.Sprintf("pkt[%v + %d:%d]", v.x, v.k, v.size)
		}
		return fmt.Sprintf("pkt[%d:%d]", v.k, v.size)
	case valueAux:
		return fmt.Sprintf("aux[%d:%d]", int32(v.k-auxBase), v.size)
	case valueSlot:
		return fmt.Sprintf("m%d", v.slot)
	case valueIf:
		return fmt.Sprintf("(%v ? %v : %v)", v.c, v.x, v.y)
	case valueNeg:
		return fmt.Sprintf("-%v", v.x)
	}
	return fmt.Sprintf("(%v %s %v)", v.x, operatorText[v.op], v.y)
}

var operatorText = map[valueOp]string{
	valueAdd: "+", valueSub: "-", valueMul: "*", valueDiv: "/", valueMod: "%", valueAnd: "&", valueOr: "|",
	valueXor: "^", valueShl: "<<", valueShr: ">>",
}
