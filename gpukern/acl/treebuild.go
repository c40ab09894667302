package acl

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gpukern/tuple"
)

// Bounds of a tree. Past them a list has a decision or bit vectors.
const (
	treeDeepest = 14
	treeBytes   = 512 << 10 // and so many for each rule:
	ruleBytes   = 1 << 10
	treeWork    = 1 << 25   // rules looked at while compiling
	oneBytes    = 256 << 10 // of one tree for all rules
	oneWork     = 1 << 22
)

// The fields of rules in a tree.
const (
	treeSrc = iota
	treeDst
	treeSrcPort
	treeDstPort
	treeProto
	treeFields
)

// fieldAt says where in the key a field lies.
var fieldAt = [treeFields]struct{ word, shift, bits uint8 }{
	treeSrc: {0, 0, 32}, treeDst: {1, 0, 32}, treeSrcPort: {2, 16, 16}, treeDstPort: {2, 0, 16}, treeProto: {3, 0, 8},
}

// span is a range of a field, ends included.
type span struct{ lo, hi uint32 }

// box is a rule, or the packets that can reach a node.
type box [treeFields]span

// region bounds the packets that reach a node: they lie in a box, and some bits of their fields
// are known to be those of the rules in the node's list.
type region struct {
	box   box
	known [treeFields]uint32
}

// treeBuilder makes a tree.
type treeBuilder struct {
	t      *tree
	rules  []box
	fixed  [][treeFields]uint32 // the bits that a rule requests; 0 for ranges
	asks   []bool               // for ports
	leaves map[string]uint32
	key    []byte
	bytes  int // that may be taken still
	work   int
	fits   bool
}

func newTreeBuilder(rules []Rule, bytes, work int) *treeBuilder {
	b := &treeBuilder{
		t: &tree{blocks: make([]block, 1), places: make([][blockRules]uint16, 1)}, leaves: map[string]uint32{}, fits: true,
		rules: make([]box, len(rules)), fixed: make([][treeFields]uint32, len(rules)), asks: make([]bool, len(rules)),
		bytes: bytes, work: work,
	}
	b.t.blocks[0].fill()
	for i := range rules {
		r := &rules[i]
		if !r.for4() {
			continue
		}
		b.rules[i] = box{prefixSpan(r.Src), prefixSpan(r.Dst), portSpan(r.SrcPorts), portSpan(r.DstPorts), {0, 255}}
		if r.Proto != 0 {
			b.rules[i][treeProto] = span{uint32(r.Proto), uint32(r.Proto)}
		}
		b.asks[i] = r.SrcPorts.Set || r.DstPorts.Set
		for f, s := range b.rules[i] {
			b.fixed[i][f] = s.fixed(fieldAt[f].bits)
		}
	}
	return b
}

func prefixSpan(p netip.Prefix) span {
	if anyPrefix(p) {
		return span{0, math.MaxUint32}
	}
	hi, _ := tuple.Words(p.Addr())
	a := uint32(hi >> 32)
	return span{a, a | uint32(uint64(1)<<(32-p.Bits())-1)}
}

func portSpan(p Ports) span {
	if !p.Set {
		return span{0, 65535}
	}
	return span{uint32(p.Lo), uint32(p.Hi)}
}

// fixed returns the bits that all numbers of s have alike, where s is all numbers with these bits; 0 where it is
// another range.
func (s span) fixed(bits uint8) uint32 {
	all := uint32(uint64(1)<<bits - 1)
	free := s.hi ^ s.lo
	if free&(free+1) != 0 || s.lo&free != 0 {
		return 0
	}
	return all &^ free
}

// growTree returns the tree of those of rules that IPv4 packets can match, nil where it would pass the bounds. One
// tree for all is the fastest; where copies of rules with an open address make it large, there are up to three.
func growTree(rules []Rule) *tree {
	list := listFor4(rules)
	if t := grow(rules, [][]uint16{list}, oneBytes, oneWork); t != nil {
		return t
	}
	return grow(rules, parts(rules, list), treeBytes+ruleBytes*len(rules), treeWork)
}

// grow returns the trees of parts of the rules, nil where they take more bytes or work than given.
func grow(rules []Rule, parts [][]uint16, bytes, work int) *tree {
	b := newTreeBuilder(rules, bytes, work)
	for _, list := range parts {
		if b.root(list); !b.fits {
			return nil
		}
	}
	return b.t
}

// listFor4 returns the places of the rules that IPv4 packets can match, up to the first that takes all of them.
func listFor4(rules []Rule) (list []uint16) {
	for i := range rules {
		if !rules[i].for4() {
			continue
		}
		list = append(list, uint16(i))
		if rules[i] == (Rule{}) {
			break
		}
	}
	return list
}

// parts divides the rules by what they leave open.
func parts(rules []Rule, list []uint16) [][]uint16 {
	parts := make([][]uint16, 3) // by source, by destination, by neither
	for _, i := range list {
		k := 0
		if r := &rules[i]; r.Src.Bits() < shortPrefix { // -1 for the zero value
			k++
			if r.Dst.Bits() < shortPrefix {
				k++
			}
		}
		parts[k] = append(parts[k], i)
	}
	return slices.DeleteFunc(parts, func(p []uint16) bool { return len(p) == 0 })
}

// root adds a tree of some rules.
func (b *treeBuilder) root(list []uint16) {
	var all region
	for f := range all.box {
		all.box[f].hi = uint32(uint64(1)<<fieldAt[f].bits - 1)
	}
	var bare []uint16
	for _, i := range list {
		if !b.asks[i] {
			bare = append(bare, i)
		}
	}
	root := [2]uint32{}
	root[1] = b.node(bare, &all, 0)
	root[0] = root[1]
	if len(bare) != len(list) {
		root[0] = b.node(list, &all, 0)
	}
	b.t.roots = append(b.t.roots, root)
}

// node returns the word that leads to a list of rules, for the packets of a region.
func (b *treeBuilder) node(list []uint16, r *region, depth int) uint32 {
	if b.work -= len(list); b.work < 0 {
		b.fits = false
	}
	if !b.fits {
		return 0
	}
	list = b.prune(list, r)
	if len(list) <= blockRules {
		return b.leaf(list)
	}
	w, ok := b.window(list, r)
	if !ok || depth == treeDeepest {
		return b.leaf(list)
	}
	return b.split(list, r, w, depth)
}

// shadowMost is the number of rules that a list may have to be compared with each other.
const shadowMost = 700

// prune returns a list without what no packet of a region reaches: the rules behind the first that matches all of
// them, and those of which an earlier rule takes every packet.
func (b *treeBuilder) prune(list []uint16, r *region) []uint16 {
	for n, i := range list {
		if b.covers(i, r) {
			list = list[:n+1]
			break
		}
	}
	if len(list) > shadowMost {
		return list
	}
	kept := make([]uint16, 0, len(list))
next:
	for _, i := range list {
		b.work -= len(kept) / 4
		for _, k := range kept {
			if b.shadows(k, i, r) {
				continue next
			}
		}
		kept = append(kept, i)
	}
	return kept
}

// covers reports whether a rule matches all packets of a region. Rules that ask for ports are in no list for packets
// without.
func (b *treeBuilder) covers(i uint16, r *region) bool {
	for f, s := range b.rules[i] {
		inBox := s.lo <= r.box[f].lo && r.box[f].hi <= s.hi
		if fixed := b.fixed[i][f]; !inBox && (fixed == 0 || fixed&^r.known[f] != 0) {
			return false
		}
	}
	return true
}

// shadows reports whether rule i matches all packets of a region that rule k does; both match some.
func (b *treeBuilder) shadows(i, k uint16, r *region) bool {
	for f, s := range b.rules[i] {
		t := b.rules[k][f]
		part := t.clip(r.box[f])
		if s.lo <= part.lo && part.hi <= s.hi {
			continue
		}
		fixed := b.fixed[i][f]
		unknown := fixed &^ r.known[f]
		if fixed == 0 || unknown&^b.fixed[k][f] != 0 || (s.lo^t.lo)&unknown != 0 {
			return false
		}
	}
	return true
}

// leaf returns the word of the blocks of a list, which it keeps once.
func (b *treeBuilder) leaf(list []uint16) uint32 {
	if len(list) == 0 {
		return 0
	}
	b.key = b.key[:0]
	for _, i := range list {
		b.key = binary.LittleEndian.AppendUint16(b.key, i)
	}
	if e, ok := b.leaves[string(b.key)]; ok {
		return e
	}
	first := len(b.t.blocks)
	more := (len(list) - 1) / blockRules
	b.bytes -= (more + 1) * (128 + 8)
	if more > moreMost || first+more >= blocksMost || b.bytes < 0 {
		b.fits = false
		return 0
	}
	e := uint32(first) | uint32(more)<<leafMore
	b.leaves[string(b.key)] = e
	for len(list) > 0 {
		n := min(len(list), blockRules)
		var rules block
		var places [blockRules]uint16
		rules.fill()
		for k, i := range list[:n] {
			rules.set(k, &b.rules[i])
			places[k] = ^i
		}
		b.t.blocks = append(b.t.blocks, rules)
		b.t.places = append(b.t.places, places)
		list = list[n:]
	}
	return e
}

// fill makes a block that matches nothing: the protocol would be above 255.
func (b *block) fill() {
	for i := range b.lo {
		b.lo[i][6] = 1 << 15
	}
}

// set makes rule k of a block.
func (b *block) set(k int, r *box) {
	lo, span := &b.lo[k], &b.span[k]
	for f := range 2 {
		s := r[f]
		lo[2*f], span[2*f] = uint16(s.lo), uint16(s.hi-s.lo)
		lo[2*f+1], span[2*f+1] = uint16(s.lo>>16), uint16(s.hi>>16-s.lo>>16)
	}
	for at, f := range [...]int{treeDstPort, treeSrcPort, treeProto} {
		lo[4+at], span[4+at] = uint16(r[f].lo), uint16(r[f].hi-r[f].lo)
	}
}
