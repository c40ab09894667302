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
	v4, v6 classifier
	n      int
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
	a.v4.compile(rules, (*Rule).for4, vectorBudget)
	a.v6.compile(rules, (*Rule).for6, vectorBudget)
	return a, nil
}

// Len returns the number of rules.
func (a *ACL) Len() int { return a.n }

// Size returns the memory that the compiled list takes, in bytes.
func (a *ACL) Size() int { return a.v4.size() + a.v6.size() }
