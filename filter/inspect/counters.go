package inspect

import "github.com/millrace/millrace/filter/signature"

// counter is a signature.Counter with numbers for its names.
type counter struct {
	*signature.Counter
	name, other int
}

// newCounter numbers the names of a counter.
func newCounter(c *signature.Counter, names *nameNumbering) counter {
	n := counter{Counter: c, name: names.number("flowint " + c.Name)} // bits and counters of one name are apart: a blank is in none
	if c.Other != "" {
		n.other = names.number("flowint " + c.Other)
	}
	return n
}

// operand returns what a counter is compared with, or changed by. Another counter that the flow has not is 0.
func (c *counter) operand(f *flow) uint32 {
	if c.Other != "" {
		return f.counters[c.other]
	}
	return c.Value
}

// countersHold reports whether the conditions of a rule on counters hold. A counter that a flow has not is not equal, and not
// unequal, to anything: rules set it first, and compare it only where it says something. A packet of no flow has none.
func countersHold(q *rule, p *packet) bool {
	for i := range q.counters {
		c := &q.counters[i]
		if !c.Op.Condition() {
			continue
		}
		if p.flow == nil {
			return false
		}
		n, set := p.flow.counters[c.name]
		if c.Op == signature.CounterAbsent {
			if set {
				return false
			}
			continue
		}
		if !set || !compared(c.Op, n, c.operand(p.flow)) {
			return false
		}
	}
	return true
}

// compared reports whether n and m, which are set, are as an operation wants them.
func compared(op signature.CounterOp, n, m uint32) bool {
	switch op {
	case signature.CounterLess:
		return n < m
	case signature.CounterLessEqual:
		return n <= m
	case signature.CounterEqual:
		return n == m
	case signature.CounterNotEqual:
		return n != m
	case signature.CounterGreaterEqual:
		return n >= m
	case signature.CounterGreater:
		return n > m
	}
	return true // CounterPresent
}

// count does what a rule that has matched does with counters. An addition makes a counter that the flow has not; a subtraction does
// not, since its result would be near 2^32.
func count(q *rule, p *packet) {
	f := p.flow
	if f == nil {
		return
	}
	for i := range q.counters {
		c := &q.counters[i]
		if c.Op.Condition() {
			continue
		}
		n, set := f.counters[c.name]
		switch c.Op {
		case signature.CounterSet:
			n = c.operand(f)
		case signature.CounterAdd:
			n += c.operand(f)
		case signature.CounterSubtract:
			if !set {
				continue
			}
			n -= c.operand(f)
		}
		if f.counters == nil {
			f.counters = map[int]uint32{}
		}
		f.counters[c.name] = n
	}
}
