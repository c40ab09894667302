package gpukern

import (
	"math/bits"
	"net/netip"
)

// classifier holds the rules of one family as bit vectors (Lakshman and Stiliadis, SIGCOMM 1998),
// aggregated (Baboescu and Varghese, SIGCOMM 2001): each field of a packet leads to a vector with a
// bit for every rule that this field lets match, and the first bit that all five vectors have is the
// first rule that matches.
//
// A vector begins with one bit for each 64 rules, "any of these"; behind that lie only the words
// that are not zero:
//
//	| any of rules 0-4095 | any of 4096-8191 | ... | word | word | ...
//
// Vectors that are alike are kept once. Where they would pass vectorBudget, the field is made
// coarse: its prefixes are cut, or its ports taken in groups. The bits then say "may match", and
// rules are compared before they win.
type classifier struct {
	src, dst     field
	sport, dport portField
	proto        [256]uint32

	vec    []uint64 // all vectors; fields hold positions in it
	heads  int      // words of "any of"
	rules  []Rule   // in order
	ids    []uint16 // of the rules, from 1
	coarse bool     // compare before a rule wins
}

// field leads from an address to a vector.
type field struct {
	trie trie
	all  uint32 // the vector of every address, where the trie is empty
}

func (f *field) find(hi, lo uint64) uint32 {
	if len(f.trie.root) == 0 {
		return f.all
	}
	return f.trie.find(hi, lo)
}

// portField leads from a port to a vector: by a table of 65536 and one for packets without ports,
// or, where no rule asks for ports, to one vector.
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

// first returns the number of the first rule that matches t, 0 where none does, given the vectors of
// its addresses.
func (c *classifier) first(t *tuple, src, dst uint32) uint16 {
	sp, dp := uint32(noPort), uint32(noPort)
	if t.known == knowsPorts {
		sp, dp = t.ports>>16, t.ports&0xffff
	}
	v := [5]uint32{src, dst, c.sport.find(sp), c.dport.find(dp), c.proto[t.proto]}
	vec := c.vec
	var s, d, p, q, r uint32 // words passed in each vector
	for head := range uint32(c.heads) {
		a, b, e, f, g := vec[v[0]+head], vec[v[1]+head], vec[v[2]+head], vec[v[3]+head], vec[v[4]+head]
		for any := a & b & e & f & g; any != 0; any &= any - 1 {
			below := any&-any - 1
			base := uint32(c.heads)
			hit := vec[v[0]+base+s+ones(a&below)] & vec[v[1]+base+d+ones(b&below)] &
				vec[v[2]+base+p+ones(e&below)] & vec[v[3]+base+q+ones(f&below)] & vec[v[4]+base+r+ones(g&below)]
			if hit == 0 {
				continue
			}
			word := head<<6 | uint32(bits.TrailingZeros64(any))
			if id := c.winner(t, word, hit); id != 0 {
				return id
			}
		}
		s, d, p, q, r = s+ones(a), d+ones(b), p+ones(e), q+ones(f), r+ones(g)
	}
	return 0
}

func ones(v uint64) uint32 { return uint32(bits.OnesCount64(v)) }

// winner returns the number of the first rule among the bits of a word that really matches t.
func (c *classifier) winner(t *tuple, word uint32, hit uint64) uint16 {
	for ; hit != 0; hit &= hit - 1 {
		at := word<<6 | uint32(bits.TrailingZeros64(hit))
		if !c.coarse || c.rules[at].matches(t) {
			return c.ids[at]
		}
	}
	return 0
}

// matches compares a tuple of r's family with r, field by field.
func (r *Rule) matches(t *tuple) bool {
	sp, dp := uint32(noPort), uint32(noPort)
	if t.known == knowsPorts {
		sp, dp = t.ports>>16, t.ports&0xffff
	}
	return (r.Proto == 0 || r.Proto == t.proto) &&
		covers(r.Src, t.srcHi, t.srcLo) && covers(r.Dst, t.dstHi, t.dstLo) &&
		r.SrcPorts.has(sp) && r.DstPorts.has(dp)
}

// covers reports whether p is any or contains an address of its family.
func covers(p netip.Prefix, hi, lo uint64) bool {
	if anyPrefix(p) {
		return true
	}
	phi, plo := words(p.Addr())
	n := uint(p.Bits())
	if n <= 64 {
		return (phi^hi)>>(64-n) == 0
	}
	return phi == hi && (plo^lo)>>(128-n) == 0
}

// size returns the bytes that c takes.
func (c *classifier) size() int {
	const rule = 80
	return c.src.trie.size() + c.dst.trie.size() +
		4*(len(c.sport.table)+len(c.dport.table)) + 8*len(c.vec) + (rule+2)*len(c.rules)
}
