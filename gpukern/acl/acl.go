// Package acl matches packets with lists of 5-tuple rules, of which the first that matches wins. A list is
// compiled once, for IPv4 into a tree (tree.go), else into decisions (decision.go) or, the slowest, bit vectors
// (classifier.go), which any list has. Engines match a chunk of packets at once, so that the reads of many
// packets are under way together. Kernels on a GPU have decisions or bit vectors.
package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"unsafe"

	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// MaxRules is the number of rules that a List has at most: Desc.Rule counts from 1 in 16 bits.
const MaxRules = 65534

// Ports is a range of ports that a rule requests. The zero value asks for nothing: it matches every
// port, and packets that have none (ICMP, fragments other than the first).
type Ports struct {
	Lo, Hi uint16
	Set    bool
}

// PortRange returns the range from lo to hi, both included; lo must not be above hi.
func PortRange(lo, hi uint16) Ports { return Ports{lo, hi, true} }

// Range returns the ends of p, and false where p matches anything.
func (p Ports) Range() (lo, hi uint16, ok bool) { return p.Lo, p.Hi, p.Set }

// has reports whether p matches port, where noPort stands for a packet without ports.
func (p Ports) has(port uint32) bool {
	return !p.Set || uint32(p.Lo) <= port && port <= uint32(p.Hi)
}

// noPort is the port number of packets that have none.
const noPort = 1 << 16

// Rule matches packets by their 5-tuple. The zero value matches every IP packet.
type Rule struct {
	Src, Dst           netip.Prefix // the zero value is any address, of IPv4 and of IPv6
	SrcPorts, DstPorts Ports        // packets without ports match only the zero value
	Proto              uint8        // IP protocol; 0 is any
}

// check returns what is wrong with r, "" where nothing is.
func (r *Rule) check() string {
	for _, p := range []netip.Prefix{r.Src, r.Dst} {
		if p == (netip.Prefix{}) {
			continue
		}
		if reason := lpm.CheckPrefix(p); reason != "" {
			return reason
		}
	}
	if !anyPrefix(r.Src) && !anyPrefix(r.Dst) && r.Src.Addr().Is4() != r.Dst.Addr().Is4() {
		return fmt.Sprintf("%v and %v are of different families: nothing can match", r.Src, r.Dst)
	}
	for _, p := range []Ports{r.SrcPorts, r.DstPorts} {
		if p.Set && p.Lo > p.Hi {
			return fmt.Sprintf("ports %d-%d: the first is above the last", p.Lo, p.Hi)
		}
	}
	return ""
}

func anyPrefix(p netip.Prefix) bool { return p == netip.Prefix{} }

// for4 and for6 report whether r can match packets of the family.
func (r *Rule) for4() bool { return inFamily(r.Src, true) && inFamily(r.Dst, true) }
func (r *Rule) for6() bool { return inFamily(r.Src, false) && inFamily(r.Dst, false) }

func inFamily(p netip.Prefix, v4 bool) bool { return anyPrefix(p) || p.Addr().Is4() == v4 }

// List is a compiled list of 5-tuple rules: the first rule that matches wins. It is immutable and may
// be shared by engines. The zero value matches nothing.
type List struct {
	v4, v6 family
	n      int
}

// of returns the rules of a family.
func (a *List) of(v4 bool) *family {
	if v4 {
		return &a.v4
	}
	return &a.v6
}

// family is the rules of IPv4 or of IPv6, in one of three forms. The first that can take a list is the fastest by
// far. Kernels have the other two, which a list with a tree makes when they are asked for.
type family struct {
	tree     *tree // of IPv4
	decision *decision
	vectors  classifier // where there is no decision; without rules it matches nothing

	rules   []Rule // with a tree: what images are made of
	kernels sync.Once
}

func (f *family) compile(rules []Rule, v4 bool) {
	if v4 {
		f.tree = growTree(rules)
	}
	if f.tree == nil {
		f.shared(rules, v4)
		return
	}
	f.rules = slices.Clone(rules)
}

// shared makes the forms that the CPU and kernels can read.
func (f *family) shared(rules []Rule, v4 bool) {
	if f.decision = decide(rules, v4); f.decision != nil {
		return
	}
	mine := (*Rule).for6
	if v4 {
		mine = (*Rule).for4
	}
	f.vectors.compile(rules, mine, vectorBudget)
}

// match stores in best the places in the list of the first rules that match the packets of who, none where
// none does. All packets are of the family.
func (f *family) match(m *Matcher, tuples []tuple.Tuple, who []uint8, best *[tuple.ChunkSize]uint16) {
	switch c := &f.vectors; {
	case f.tree != nil:
		f.tree.match(m, tuples, who, best)
	case f.decision != nil:
		f.decision.match(m, tuples, who, best)
	case len(c.rules) > 0:
		for _, k := range who {
			c.fields(&tuples[k], &m.field[k])
		}
		for _, k := range who {
			best[k] = c.first(&tuples[k], &m.field[k]) - 1
		}
	default:
		for _, k := range who {
			best[k] = none
		}
	}
}

func (f *family) size() int {
	if f.tree != nil {
		return f.tree.size() + len(f.rules)*int(unsafe.Sizeof(Rule{}))
	}
	if f.decision != nil {
		return f.decision.size()
	}
	return f.vectors.size()
}

// RuleError reports which rule cannot be compiled, and why.
type RuleError struct {
	N      int // which, counted from 1
	Reason string
}

// Error implements error.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %d: %s", e.N, e.Reason) }

// Compile compiles rules. Rule n, counted from 1, is what Desc.Rule calls n. The error is a
// *RuleError that names the first rule in the way.
func Compile(rules []Rule) (*List, error) {
	if len(rules) > MaxRules {
		return nil, &RuleError{MaxRules + 1, fmt.Sprintf("a list has at most %d rules", MaxRules)}
	}
	for i := range rules {
		if reason := rules[i].check(); reason != "" {
			return nil, &RuleError{i + 1, reason}
		}
	}
	a := &List{n: len(rules)}
	a.v4.compile(rules, true)
	a.v6.compile(rules, false)
	return a, nil
}

// Places stores in best, by the index of their tuple, the places in the list of the first rules that match the
// packets of who: from 0, 65535 where none does. All packets are of one family. It is for engines, which have
// an m of their own.
func (a *List) Places(m *Matcher, v4 bool, tuples []tuple.Tuple, who []uint8, best *[tuple.ChunkSize]uint16) {
	a.of(v4).match(m, tuples, who, best)
}

// Match stores in rules the number of the first rule that matches each packet, 0 for none. All packets
// are IPv4, or all are IPv6. It is what engines do, for callers that have no packets.
func (a *List) Match(packets []tuple.Tuple, v4 bool, rules []uint16) {
	m := matchers.Get().(*Matcher)
	defer matchers.Put(m)
	var best [tuple.ChunkSize]uint16
	for len(packets) > 0 {
		n := min(len(packets), tuple.ChunkSize)
		a.Places(m, v4, packets[:n], everyone[:n], &best)
		for i, place := range best[:n] {
			rules[i] = place + 1
		}
		packets, rules = packets[n:], rules[n:]
	}
}

// matchers are for calls that come from anywhere; engines have their own.
var matchers = sync.Pool{New: func() any { return new(Matcher) }}

// everyone is all packets of a chunk.
var everyone = func() (all [tuple.ChunkSize]uint8) {
	for i := range all {
		all[i] = uint8(i)
	}
	return all
}()

// Len returns the number of rules.
func (a *List) Len() int { return a.n }

// Size returns the memory that the compiled list takes for the CPU, in bytes.
func (a *List) Size() int { return a.v4.size() + a.v6.size() }
