package acl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern/lpm"
)

// vectorBudget is the number of words that the vectors of one field may take: 16 MiB, half a third-level
// cache. Lists of ten thousand rules as they are in use need a tenth of it.
const vectorBudget = 16 << 20 / 8

// denseRules is the number of rules that have vectors with all their words: up to there, reading four words of
// each costs less than finding out which matter.
const denseRules = 256

// errBudget reports that the vectors of a field pass vectorBudget.
var errBudget = errors.New("vectors pass the budget")

// bitmap is a set of rules while compiling.
type bitmap []uint64

func (b bitmap) set(i int) { b[i>>6] |= 1 << (i & 63) }

// vectors collects the vectors of a classifier, each once.
type vectors struct {
	c      *classifier
	budget int // of a field, in words
	seen   map[string]uint32
	start  int // of the field under way
	key    []byte
}

// compile makes c from those of rules that mine takes, with vectors of at most budget words a field.
func (c *classifier) compile(rules []Rule, mine func(*Rule) bool, budget int) {
	for i := range rules {
		if mine(&rules[i]) {
			c.place = append(c.place, uint16(i))
		}
	}
	slices.SortStableFunc(c.place, func(i, j uint16) int { return nearby(&rules[i], &rules[j]) })
	for _, i := range c.place {
		c.rules = append(c.rules, rules[i])
	}
	if len(c.rules) == 0 {
		return
	}
	c.words = (len(c.rules) + 63) / 64
	for len(c.place) < 64*c.words {
		c.place = append(c.place, none)
	}
	if len(c.rules) > denseRules {
		c.heads = (c.words + 63) / 64
	}
	v := &vectors{c: c, budget: budget, seen: map[string]uint32{}}
	c.vec = append(c.vec, 0) // position 0 is no vector
	c.src = v.addresses(func(r *Rule) netip.Prefix { return r.Src })
	c.dst = v.addresses(func(r *Rule) netip.Prefix { return r.Dst })
	c.sport = v.ports(func(r *Rule) Ports { return r.SrcPorts })
	c.dport = v.ports(func(r *Rule) Ports { return r.DstPorts })
	v.protos()
}

// nearby orders rules so that those which match the same packets lie together: first by which of the
// addresses they leave open, or almost so, then by the address that they do not.
func nearby(a, b *Rule) int {
	if c := cmp.Compare(open(a), open(b)); c != 0 {
		return c
	}
	if open(a)&2 != 0 {
		return cmp.Or(a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	}
	return cmp.Or(a.Dst.Compare(b.Dst), a.Src.Compare(b.Src))
}

// open has bit 0 set where r takes almost any source address, and bit 1 for the destination.
func open(r *Rule) int {
	n := 0
	if r.Src.Bits() < 8 { // -1 for the zero value
		n |= 1
	}
	if r.Dst.Bits() < 8 {
		n |= 2
	}
	return n
}

// add stores b and returns its position.
func (v *vectors) add(b bitmap) (uint32, error) {
	heads := v.c.heads
	out := make([]uint64, heads, heads+len(b))
	for i, w := range b {
		if heads == 0 {
			out = append(out, w)
		} else if w != 0 {
			out[i>>6] |= 1 << (i & 63)
			out = append(out, w)
		}
	}
	v.key = v.key[:0]
	for _, w := range out {
		v.key = binary.LittleEndian.AppendUint64(v.key, w)
	}
	if at, ok := v.seen[string(v.key)]; ok {
		return at, nil
	}
	if len(v.c.vec)-v.start+len(out) > v.budget {
		return 0, errBudget
	}
	at := uint32(len(v.c.vec))
	v.seen[string(v.key)] = at
	v.c.vec = append(v.c.vec, out...)
	return at, nil
}

// finer runs build with finer detail first, coarser ones after, until the vectors fit. The coarsest
// detail always does.
func (v *vectors) finer(details []int, build func(detail int) error) {
	v.start = len(v.c.vec)
	for i, detail := range details {
		if err := build(detail); err == nil {
			return
		}
		if i == len(details)-1 {
			panic("gpukern: the coarsest vectors pass the budget")
		}
		v.c.coarse = true
		v.c.vec = v.c.vec[:v.start]
		clear(v.seen)
	}
}

// addresses makes the field of the prefixes that of returns.
func (v *vectors) addresses(of func(*Rule) netip.Prefix) field {
	var f field
	v.finer([]int{128, 48, 32, 24, 20, 16, 12, 8}, func(detail int) error {
		var err error
		f, err = v.prefixes(of, detail)
		return err
	})
	return f
}

// prefixes makes a field, with prefixes cut to at most longest bits.
func (v *vectors) prefixes(of func(*Rule) netip.Prefix, longest int) (field, error) {
	tree := newPrefixTree()
	var own [][]int32 // by value-1: the rules that have this very prefix
	all := make(bitmap, v.c.words)
	for i := range v.c.rules {
		p := of(&v.c.rules[i])
		if anyPrefix(p) {
			all.set(i)
			continue
		}
		p, _ = p.Addr().Prefix(min(p.Bits(), longest))
		val := tree.at(p)
		if *val == 0 {
			own = append(own, nil)
			*val = uint32(len(own))
		}
		own[*val-1] = append(own[*val-1], int32(i))
	}
	at, err := v.add(all)
	if err != nil || len(own) == 0 {
		return field{all: at}, err
	}
	if err := v.inherit(tree, 0, all, own); err != nil {
		return field{}, err
	}
	if tree.bits[0].val == 0 {
		tree.bits[0].val = at
	}
	return field{trie: lpm.Build[uint32](tree.routes(0, lpm.Prefix{}, nil), lpm.FirstRow)}, nil
}

// inherit gives each prefix below n the vector of its own rules and those above it.
func (v *vectors) inherit(tree *prefixTree, n int32, above bitmap, own [][]int32) error {
	b := &tree.bits[n]
	if b.val != 0 {
		set := slices.Clone(above)
		for _, i := range own[b.val-1] {
			set.set(int(i))
		}
		at, err := v.add(set)
		if err != nil {
			return err
		}
		b.val, above = at, set
	}
	for _, child := range b.child {
		if child == 0 {
			continue
		}
		if err := v.inherit(tree, child, above, own); err != nil {
			return err
		}
	}
	return nil
}

// ports makes the field of the port ranges that of returns.
func (v *vectors) ports(of func(*Rule) Ports) portField {
	var f portField
	v.finer([]int{1, 16, 256, 4096}, func(detail int) error {
		var err error
		f, err = v.ranges(of, detail)
		return err
	})
	return f
}

// ranges makes a field with ports in groups of the given size. Where a range begins or ends, the
// vector changes; between such places it is kept.
func (v *vectors) ranges(of func(*Rule) Ports, group int) (portField, error) {
	begin, end := map[int][]int{}, map[int][]int{} // rules by port
	set := make(bitmap, v.c.words)
	for i := range v.c.rules {
		p := of(&v.c.rules[i])
		if !p.Set {
			set.set(i)
			continue
		}
		lo, hi := int(p.Lo)/group*group, (int(p.Hi)/group+1)*group
		begin[lo] = append(begin[lo], i)
		end[hi] = append(end[hi], i)
	}
	none, err := v.add(set)
	if err != nil || len(begin) == 0 {
		return portField{all: none}, err
	}
	f := portField{table: make([]uint32, noPort), all: none}
	at := none
	for port := range f.table {
		if begin[port] != nil || end[port] != nil {
			for _, i := range end[port] {
				set[i>>6] &^= 1 << (i & 63)
			}
			for _, i := range begin[port] {
				set.set(i)
			}
			if at, err = v.add(set); err != nil {
				return portField{}, err
			}
		}
		f.table[port] = at
	}
	return f, nil
}

// protos fills the table of protocols. Its 256 vectors of at most 1040 words fit any budget.
func (v *vectors) protos() {
	v.start = len(v.c.vec)
	for proto := range v.c.proto {
		set := make(bitmap, v.c.words)
		for i := range v.c.rules {
			if p := v.c.rules[i].Proto; p == 0 || int(p) == proto {
				set.set(i)
			}
		}
		v.c.proto[proto], _ = v.add(set)
	}
}
