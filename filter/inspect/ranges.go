package inspect

import (
	"math/bits"
	"net/netip"
	"slices"
)

// ranges finds the rules of scopeIP by an address of theirs: lists of thousands of addresses are common.
type ranges struct {
	src, dst steps
	any      []*rule // both ends are any
}

// steps are the rules of each range between two bounds: those of rules[i] hold from from[i] up to the next bound. An address is found
// by one binary search, however many ranges overlap.
type steps struct {
	from  []netip.Addr
	rules [][]*rule
}

// lookup finds rules that have no content to search for by what their header says, so that few are evaluated on a
// packet: by an address, by a port of the destination, or else by the protocol.
type lookup struct {
	ips   *ranges
	ports map[uint16][]*rule
	rest  [5][]*rule // by the number of the protocol's bit
}

// fewPorts is the number of ports of a rule that are indexed. A rule with more would fill the table, and exclude few packets by it.
const fewPorts = 64

// newLookup indexes each rule once, by the narrowest of what its header says. One for both directions is in the list of its
// protocol: by either end it would be found for half of its packets alone.
func newLookup(list []*rule) *lookup {
	l := &lookup{ports: map[uint16][]*rule{}}
	var byAddress []*rule
	for _, q := range list {
		switch {
		case !q.Both && !(q.Src.Any() && q.Dst.Any()):
			byAddress = append(byAddress, q)
		case !q.Both && q.DstPorts.Count() <= fewPorts:
			q.DstPorts.Each(func(p uint16) { l.ports[p] = append(l.ports[p], q) })
		default:
			for i := range l.rest {
				if q.Protocol.IP>>i&1 != 0 {
					l.rest[i] = append(l.rest[i], q)
				}
			}
		}
	}
	l.ips = newRanges(byAddress)
	return l
}

// each calls f with the rules that may be about p.
func (l *lookup) each(p *packet, f func(list []*rule)) {
	f(l.ips.src.at(p.src))
	f(l.ips.dst.at(p.dst))
	f(l.ports[p.dstPort])
	f(l.rest[bits.TrailingZeros8(uint8(p.bit))])
}

// newRanges indexes each rule by one end, that of more ranges where both are given: a rule on a list of thousands of addresses would
// else be evaluated on all packets of the other end.
func newRanges(list []*rule) *ranges {
	r := &ranges{}
	var src, dst []*rule
	for _, q := range list {
		switch {
		case q.Both || q.Src.Any() && q.Dst.Any():
			r.any = append(r.any, q)
		case !q.Src.Any() && (q.Dst.Any() || q.Src.Ranges() >= q.Dst.Ranges()):
			src = append(src, q)
		default:
			dst = append(dst, q)
		}
	}
	r.src = newSteps(src, func(q *rule, f func(a, b netip.Addr)) { q.Src.Each(f) })
	r.dst = newSteps(dst, func(q *rule, f func(a, b netip.Addr)) { q.Dst.Each(f) })
	return r
}

// newSteps sweeps over the bounds of all ranges in order, with the rules that are open between two of them. The
// highest address has no next one: a range up to it does not end.
func newSteps(list []*rule, each func(q *rule, f func(first, last netip.Addr))) (s steps) {
	type edge struct {
		at  netip.Addr
		q   *rule
		end bool
	}
	var edges []edge
	for _, q := range list {
		each(q, func(first, last netip.Addr) {
			edges = append(edges, edge{first, q, false})
			if next := last.Next(); next.IsValid() {
				edges = append(edges, edge{next, q, true})
			}
		})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	var open []*rule
	for i, e := range edges {
		if e.end {
			open = slices.Delete(slices.Clone(open), slices.Index(open, e.q), slices.Index(open, e.q)+1)
		} else {
			open = append(slices.Clone(open), e.q)
		}
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		s.from = append(s.from, e.at)
		s.rules = append(s.rules, open)
	}
	return s
}

// at returns the rules whose ranges have a.
func (s *steps) at(a netip.Addr) []*rule {
	i, exact := slices.BinarySearchFunc(s.from, a, netip.Addr.Compare)
	if !exact {
		i--
	}
	if i < 0 {
		return nil
	}
	return s.rules[i]
}
