package signature

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// CounterOp is the operation of a rule on a counter of a flow.
type CounterOp uint8

// The operations. Those up to CounterAbsent are conditions; the others are done when the rule matches.
const (
	CounterLess CounterOp = iota
	CounterLessEqual
	CounterEqual
	CounterNotEqual
	CounterGreaterEqual
	CounterGreater
	CounterPresent
	CounterAbsent
	CounterSet
	CounterAdd
	CounterSubtract
)

var counterOps = map[string]CounterOp{
	"<": CounterLess, "<=": CounterLessEqual, "==": CounterEqual, "!=": CounterNotEqual, ">=": CounterGreaterEqual,
	">": CounterGreater, "isset": CounterPresent, "notset": CounterAbsent, "isnotset": CounterAbsent,
	"=": CounterSet, "+": CounterAdd, "-": CounterSubtract,
}

// Condition reports whether o asks for something.
func (o CounterOp) Condition() bool { return o <= CounterAbsent }

// Counter is one operation of flowint: on a number of 32 bits that a flow has, or has not.
type Counter struct {
	Op    CounterOp
	Name  string
	Value uint32
	Other string // the counter whose number stands for Value; 0 where the flow has none
}

// The names that Suricata takes: that of the counter, and of another in the place of a value.
var (
	counterName = regexp.MustCompile(`^[a-zA-Z][\w./]+$`)
	otherName   = regexp.MustCompile(`^[a-zA-Z]\w+$`)
)

// flowint reads NAME, OPERATION [, VALUE or NAME].
func (p *ruleParser) flowint(v string) error {
	a := arguments(v)
	if len(a) < 2 || len(a) > 3 {
		return fmt.Errorf("flowint has NAME, OPERATION and perhaps a value, not %q", v)
	}
	c := Counter{Name: a[0]}
	if !counterName.MatchString(c.Name) {
		return fmt.Errorf("flowint: %q is not a name: letters, digits, dots and slashes, two of them at least", c.Name)
	}
	var ok bool
	if c.Op, ok = counterOps[a[1]]; !ok {
		return fmt.Errorf("flowint does not know %q%s", a[1], didYouMean(a[1], slices.Sorted(maps.Keys(counterOps))))
	}
	switch {
	case c.Op == CounterPresent || c.Op == CounterAbsent: // a value means nothing there
	case len(a) < 3 || a[2] == "":
		return fmt.Errorf("flowint: %s has a value", a[1])
	case strings.TrimLeft(a[2], "0123456789") == "":
		n, err := strconv.ParseUint(a[2], 10, 32)
		if err != nil {
			return fmt.Errorf("flowint: %s is more than 32 bits", a[2])
		}
		c.Value = uint32(n)
	case otherName.MatchString(a[2]):
		c.Other = a[2]
	default:
		return fmt.Errorf("flowint: %q is neither a number nor the name of a counter", a[2])
	}
	p.rule.Counters = append(p.rule.Counters, c)
	return nil
}
