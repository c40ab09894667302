package signature

import (
	"net/netip"
	"slices"
	"strings"
)

// Addrs is a set of IP addresses. IPv4 addresses are in it as IPv4-mapped ones. Nil has every address.
type Addrs struct {
	ranges []addrRange // sorted, apart
}

// addrRange is the addresses from first to last, both included.
type addrRange struct{ first, last netip.Addr }

var (
	firstAddr = netip.IPv6Unspecified()
	lastAddr  = netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	allAddrs  = []addrRange{{firstAddr, lastAddr}}
)

// Any reports whether s has every address.
func (s *Addrs) Any() bool { return s == nil }

// Contains reports whether a is in s.
func (s *Addrs) Contains(a netip.Addr) bool {
	if s == nil {
		return true
	}
	a = mapped(a)
	i, _ := slices.BinarySearchFunc(s.ranges, a, func(r addrRange, a netip.Addr) int { return r.last.Compare(a) })
	return i < len(s.ranges) && s.ranges[i].first.Compare(a) <= 0
}

// Ranges returns how many separate ranges s has; 0 for every address.
func (s *Addrs) Ranges() int {
	if s == nil {
		return 0
	}
	return len(s.ranges)
}

// Each calls f with the first and last address of each range, in order; IPv4 addresses are IPv4-mapped.
func (s *Addrs) Each(f func(first, last netip.Addr)) {
	if s == nil {
		f(firstAddr, lastAddr)
		return
	}
	for _, r := range s.ranges {
		f(r.first, r.last)
	}
}

func mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// addrList parses a list of addresses: the text of a header, with variables.
func (e *environment) addrList(text string) (*Addrs, error) {
	if s, ok := e.addrs[text]; ok {
		return s, nil
	}
	r, err := list(text, 0, e.addresses, addrElement, allAddrs, addrOps)
	if err != nil {
		return nil, err
	}
	var s *Addrs
	if len(r) != 1 || r[0] != allAddrs[0] {
		s = &Addrs{r}
	}
	e.addrs[text] = s
	return s, nil
}

// addrElement parses any, an address, a prefix or a range.
func addrElement(w string) ([]addrRange, error) {
	if w == "any" {
		return allAddrs, nil
	}
	if lo, hi, ok := strings.Cut(w, "-"); ok {
		first, err1 := netip.ParseAddr(strings.TrimSpace(lo))
		last, err2 := netip.ParseAddr(strings.TrimSpace(hi))
		if err1 != nil || err2 != nil || first.BitLen() != last.BitLen() || last.Less(first) {
			return nil, wrongAt(0, "%q is not a range of addresses", w)
		}
		return []addrRange{{mapped(first), mapped(last)}}, nil
	}
	p, err := netip.ParsePrefix(w)
	if err != nil {
		a, err := netip.ParseAddr(w)
		if err != nil {
			if base, mask, ok := strings.Cut(w, "/"); ok {
				return maskElement(base, mask)
			}
			return nil, wrongAt(0, "%q is not an address, a prefix or a variable", w)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	p = p.Masked()
	return []addrRange{{mapped(p.Addr()), lastOf(p)}}, nil
}

// maskElement parses 192.0.2.0/255.255.255.0.
func maskElement(base, mask string) ([]addrRange, error) {
	a, err1 := netip.ParseAddr(base)
	m, err2 := netip.ParseAddr(mask)
	if err1 == nil && err2 == nil && a.Is4() && m.Is4() {
		bits := 0
		b := m.As4()
		v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		for ; v&(1<<31) != 0; v <<= 1 {
			bits++
		}
		if v == 0 {
			return addrElement(netip.PrefixFrom(a, bits).String())
		}
	}
	return nil, wrongAt(0, "%q is not an address, a prefix or a variable", base+"/"+mask)
}

// lastOf returns the last address of p, IPv4-mapped.
func lastOf(p netip.Prefix) netip.Addr {
	b := mapped(p.Addr()).As16()
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	for i := n; i < 128; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom16(b)
}

var addrOps = ops[addrRange]{
	compare:  func(a, b addrRange) int { return a.first.Compare(b.first) },
	adjacent: func(a, b addrRange) bool { return b.first.Compare(a.last) <= 0 || a.last.Next() == b.first },
	join: func(a, b addrRange) addrRange {
		if a.last.Less(b.last) {
			a.last = b.last
		}
		return a
	},
	between: func(a, b *addrRange) (addrRange, bool) { // the gap behind a and before b
		g := addrRange{firstAddr, lastAddr}
		if a != nil {
			if a.last == lastAddr {
				return g, false
			}
			g.first = a.last.Next()
		}
		if b != nil {
			if b.first == firstAddr {
				return g, false
			}
			g.last = b.first.Prev()
		}
		return g, g.first.Compare(g.last) <= 0
	},
}
