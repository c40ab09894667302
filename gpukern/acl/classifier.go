package acl

import (
	"math/bits"
	"net/netip"

	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// classifier holds the rules of one family as bit vectors (Lakshman and Stiliadis, SIGCOMM 1998),
// aggregated (Baboescu and Varghese, SIGCOMM 2001): each field of a packet leads to a vector with a
// bit for every rule that this field lets match, and the bits that all five vectors have are the
// rules that match. The bits are not in the order of the list but in that of the addresses, so that
// those of one packet lie together: of ten thousand rules 4 words are looked at instead of 154. The
// lowest number among them wins.
//
// A vector begins with one bit for each 64 rules, "any of these"; behind that lie only the words
// that are not zero:
//
//	| any of rules 0-4095 | any of 4096-8191 | ... | word | word | ...
//
// Vectors of no more than denseRules have all their words and no such bits. Vectors that are alike are
// kept once. Where they would pass vectorBudget, the field is made coarse: its prefixes are cut, or its
// ports taken in groups. The bits then say "may match", and rules are compared before they win.
type classifier struct {
	src, dst     field
	sport, dport portField
	proto        [256]uint32

	vec    []uint64 // all vectors; fields hold positions in it
	heads  int      // words of "any of"; 0 where vectors are dense
	words  int      // of a vector with all its words
	rules  []Rule   // in the order of the bits
	place  []uint16 // of the rules in the list, from 0; filled up with none to whole words
	coarse bool     // compare before a rule wins
}

// field leads from an address to a vector.
type field struct {
	trie lpm.Trie[uint32]
	all  uint32 // the vector of every address, where the trie is empty
}

func (f *field) find(hi, lo uint64) uint32 {
	if f.trie.Empty() {
		return f.all
	}
	return f.trie.Find(hi, lo)
}

// portField leads from a port to a vector: by a table of 65536 and one for packets without ports,
// or, where no rule requests ports, to one vector.
type portField struct {
	table []uint32
	all   uint32
}

func (f *portField) find(port uint32) uint32 {
	if port < uint32(len(f.table)) {
		return f.table[port]
	}
	return f.all
}

// fields stores in v where the vectors of t lie.
func (c *classifier) fields(t *tuple.Tuple, v *[5]uint32) {
	sp, dp := t.Ports>>16, t.Ports&0xffff
	if t.Known != tuple.Ports {
		sp, dp = noPort, noPort
	}
	v[0] = c.src.find(t.SrcHi, t.SrcLo)
	v[1] = c.dst.find(t.DstHi, t.DstLo)
	v[2], v[3], v[4] = c.sport.find(sp), c.dport.find(dp), c.proto[t.Proto]
}

// first returns the number of the first rule that matches t, 0 where none does; v is what fields
// stored.
func (c *classifier) first(t *tuple.Tuple, v *[5]uint32) uint16 {
	if c.heads == 0 {
		return c.dense(t, v)
	}
	return c.sparse(t, v)
}

// dense combines vectors of few rules, which have all their words.
func (c *classifier) dense(t *tuple.Tuple, v *[5]uint32) uint16 {
	best := uint16(none)
	p0, p1, p2, p3, p4 := c.vec[v[0]:], c.vec[v[1]:], c.vec[v[2]:], c.vec[v[3]:], c.vec[v[4]:]
	for i := range c.words {
		best = c.better(best, t, uint32(i)<<6, p0[i]&p1[i]&p2[i]&p3[i]&p4[i])
	}
	return best + 1
}

// sparse combines vectors of many rules.
func (c *classifier) sparse(t *tuple.Tuple, v *[5]uint32) uint16 {
	best := uint16(none)
	p0, p1, p2, p3, p4 := c.vec[v[0]:], c.vec[v[1]:], c.vec[v[2]:], c.vec[v[3]:], c.vec[v[4]:]
	heads := uint32(c.heads)
	a0, a1, a2, a3, a4 := heads, heads, heads, heads, heads // words passed in each vector
	for head := range heads {
		h0, h1, h2, h3, h4 := p0[head], p1[head], p2[head], p3[head], p4[head]
		for any := h0 & h1 & h2 & h3 & h4; any != 0; any &= any - 1 {
			below := any&-any - 1
			hit := p0[a0+ones(h0&below)] & p1[a1+ones(h1&below)] & p2[a2+ones(h2&below)] &
				p3[a3+ones(h3&below)] & p4[a4+ones(h4&below)]
			word := head<<6 | uint32(bits.TrailingZeros64(any))
			best = c.better(best, t, word<<6, hit)
		}
		if head+1 < heads {
			a0, a1, a2, a3, a4 = a0+ones(h0), a1+ones(h1), a2+ones(h2), a3+ones(h3), a4+ones(h4)
		}
	}
	return best + 1
}

// none is beyond every place in a list, and one less than 0 as numbers of rules go.
const none = 0xffff

func ones(v uint64) uint32 { return uint32(bits.OnesCount64(v)) }

// better returns the lowest of best and the places in the list of those rules in hit, the bits from
// base on, that really match t. Often there is none and seldom more than one, so that none and one
// take the same instructions.
func (c *classifier) better(best uint16, t *tuple.Tuple, base uint32, hit uint64) uint16 {
	if c.coarse {
		return c.compared(best, t, base, hit)
	}
	place := c.place[base|uint32(bits.TrailingZeros64(hit)&63)]
	if hit == 0 {
		place = none
	}
	best = min(best, place)
	for hit &= hit - 1; hit != 0; hit &= hit - 1 {
		best = min(best, c.place[base|uint32(bits.TrailingZeros64(hit))])
	}
	return best
}

// compared is better for vectors that say "may match".
func (c *classifier) compared(best uint16, t *tuple.Tuple, base uint32, hit uint64) uint16 {
	for ; hit != 0; hit &= hit - 1 {
		at := base | uint32(bits.TrailingZeros64(hit))
		if place := c.place[at]; place < best && c.rules[at].matches(t) {
			best = place
		}
	}
	return best
}

// matches compares a tuple of r's family with r, field by field.
func (r *Rule) matches(t *tuple.Tuple) bool {
	sp, dp := uint32(noPort), uint32(noPort)
	if t.Known == tuple.Ports {
		sp, dp = t.Ports>>16, t.Ports&0xffff
	}
	return (r.Proto == 0 || r.Proto == t.Proto) &&
		covers(r.Src, t.SrcHi, t.SrcLo) && covers(r.Dst, t.DstHi, t.DstLo) &&
		r.SrcPorts.has(sp) && r.DstPorts.has(dp)
}

// covers reports whether p is any or contains an address of its family.
func covers(p netip.Prefix, hi, lo uint64) bool {
	if anyPrefix(p) {
		return true
	}
	phi, plo := tuple.Words(p.Addr())
	n := uint(p.Bits())
	if n <= 64 {
		return (phi^hi)>>(64-n) == 0
	}
	return phi == hi && (plo^lo)>>(128-n) == 0
}

// size returns the bytes that c takes.
func (c *classifier) size() int {
	const rule = 80
	return c.src.trie.Size() + c.dst.trie.Size() +
		4*(len(c.sport.table)+len(c.dport.table)) + 8*len(c.vec) + (rule+2)*len(c.rules)
}
