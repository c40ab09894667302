package gpukern

import (
	"fmt"
	"net/netip"
)

// MaxRules is how many rules an ACL has at most: Desc.Rule counts from 1 in 16 bits.
const MaxRules = 65534

// Ports is a range of ports that a rule asks for. The zero value asks for nothing: it matches every
// port, and packets that have none (ICMP, fragments other than the first).
type Ports struct {
	lo, hi uint16
	set    bool
}

// PortRange returns the range from lo to hi, both included; lo must not be above hi.
func PortRange(lo, hi uint16) Ports { return Ports{lo, hi, true} }

// Range returns the ends of p, and false where p matches anything.
func (p Ports) Range() (lo, hi uint16, ok bool) { return p.lo, p.hi, p.set }

// has reports whether p matches port, where noPort stands for a packet without ports.
func (p Ports) has(port uint32) bool {
	return !p.set || uint32(p.lo) <= port && port <= uint32(p.hi)
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
		if reason := checkPrefix(p); reason != "" {
			return reason
		}
	}
	if !anyPrefix(r.Src) && !anyPrefix(r.Dst) && r.Src.Addr().Is4() != r.Dst.Addr().Is4() {
		return fmt.Sprintf("%v and %v are of different families: nothing can match", r.Src, r.Dst)
	}
	for _, p := range []Ports{r.SrcPorts, r.DstPorts} {
		if p.set && p.lo > p.hi {
			return fmt.Sprintf("ports %d-%d: the first is above the last", p.lo, p.hi)
		}
	}
	return ""
}

func anyPrefix(p netip.Prefix) bool { return p == netip.Prefix{} }

// for4 and for6 report whether r can match packets of the family.
func (r *Rule) for4() bool { return inFamily(r.Src, true) && inFamily(r.Dst, true) }
func (r *Rule) for6() bool { return inFamily(r.Src, false) && inFamily(r.Dst, false) }

func inFamily(p netip.Prefix, v4 bool) bool { return anyPrefix(p) || p.Addr().Is4() == v4 }

// ACL is a compiled list of 5-tuple rules: the first rule that matches wins. It is immutable and may
// be shared by engines. The zero value matches nothing.
type ACL struct {
	v4, v6 family
	n      int
}

// family is the rules of IPv4 or of IPv6, in one of two forms. A decision is two to three times as fast;
// there are lists that it cannot take.
type family struct {
	decision *decision
	vectors  classifier // where there is no decision; without rules it matches nothing
}

func (f *family) compile(rules []Rule, v4 bool) {
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
func (f *family) match(m *matcher, tuples []tuple, who []uint8, best *[chunkSize]uint16) {
	switch c := &f.vectors; {
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
	if f.decision != nil {
		return f.decision.size()
	}
	return f.vectors.size()
}

// CompileACL compiles rules. Rule n, counted from 1, is what Desc.Rule calls n. The error is a
// *TableError that names the first rule in the way.
func CompileACL(rules []Rule) (*ACL, error) {
	if len(rules) > MaxRules {
		return nil, &TableError{"rule", MaxRules + 1, fmt.Sprintf("a list has at most %d rules", MaxRules)}
	}
	for i := range rules {
		if reason := rules[i].check(); reason != "" {
			return nil, &TableError{"rule", i + 1, reason}
		}
	}
	a := &ACL{n: len(rules)}
	a.v4.compile(rules, true)
	a.v6.compile(rules, false)
	return a, nil
}

// Len returns the number of rules.
func (a *ACL) Len() int { return a.n }

// Size returns the memory that the compiled list takes, in bytes.
func (a *ACL) Size() int { return a.v4.size() + a.v6.size() }
