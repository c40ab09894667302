package acl

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// window is some bits of a field.
type window struct {
	field, shift, width uint8
}

// windowMost is the widest window.
const windowMost = 12

// values returns the first value in the window of a number of a range, and how many follow, modulo the number
// of values.
func (w window) values(s span) (first, more uint32) {
	mask := uint32(1)<<w.width - 1
	more = s.hi>>w.shift - s.lo>>w.shift
	return s.lo >> w.shift & mask, min(more, mask)
}

// clip returns the part of s in t; they overlap.
func (s span) clip(t span) span { return span{max(s.lo, t.lo), min(s.hi, t.hi)} }

// samples is the number of rules of a list that choose a window.
const samples = 256

// window returns the window that divides a list best, false where none divides it.
func (b *treeBuilder) window(list []uint16, r *region) (best window, ok bool) {
	if len(list) > samples {
		some := make([]uint16, samples)
		for k := range some {
			some[k] = list[k*len(list)/samples]
		}
		best, ok = b.windowOf(some, len(list), r)
		return best, ok
	}
	return b.windowOf(list, len(list), r)
}

// windowOf tries all windows whose bits are not known and, where none helps much, those that begin with the first
// bit in which rules differ: prefixes in prefixes are distinguished eight lengths at once, although each is rare.
func (b *treeBuilder) windowOf(list []uint16, total int, r *region) (best window, ok bool) {
	var counts [1<<windowMost + 1]int32
	least, left := math.Inf(1), 0.0
	try := func(w window) {
		if known := r.known[w.field] >> w.shift; known&(1<<w.width-1) != 0 {
			return
		}
		if cost, n := b.cost(list, total, w, r, counts[:1<<w.width+1]); cost < least {
			best, least, left, ok = w, cost, n, true
		}
	}
	for f := range uint8(treeFields) {
		varying := b.varying(list, f)
		for _, width := range []uint8{1, 2, 3, 4, 5, 6, 8, 10, 12} {
			for shift := uint8(0); shift+width <= fieldAt[f].bits && 1<<width <= max(4*total, 8); shift++ {
				if varying>>shift&(1<<width-1) != 0 {
					try(window{f, shift, width})
				}
			}
		}
	}
	if left < 0.6*float64(len(list)) && ok {
		return best, ok
	}
	least = math.Inf(1)
	for f := range uint8(treeFields) {
		if varying := b.varying(list, f) &^ r.known[f]; varying != 0 {
			top := uint8(bits.Len32(varying))
			bottom := max(top, 8) - 8
			if known := r.known[f] & (1<<top - 1); known != 0 {
				bottom = max(bottom, uint8(bits.Len32(known)))
			}
			try(window{f, bottom, top - bottom})
		}
	}
	return best, ok
}

// varying returns the bits of a field in which rules differ.
func (b *treeBuilder) varying(list []uint16, f uint8) uint32 {
	var and, or uint32 = math.MaxUint32, 0
	for _, i := range list {
		s := b.rules[i][f]
		and, or = and&s.lo&s.hi, or|s.lo|s.hi
	}
	return or &^ and
}

// cost returns what a window costs: the logarithm of the rules that are left for a packet of a rule, and of the copies
// of rules. It is infinite where the window does not pay. left is those rules, of the list.
func (b *treeBuilder) cost(list []uint16, total int, w window, r *region, counts []int32) (cost, left float64) {
	clear(counts)
	n := uint32(1) << w.width
	b.work -= len(list)/16 + int(n)/16
	for _, i := range list {
		first, more := w.values(b.rules[i][w.field].clip(r.box[w.field]))
		counts[first]++
		if end := first + more + 1; end <= n {
			counts[end]--
		} else { // it goes on at the beginning
			counts[0]++
			counts[end-n]--
			counts[n]--
		}
	}
	var now int32
	var sum, squares float64
	for v, c := range counts[:n] {
		if now += c; c != 0 || v == 0 { // else the list is that of the value before
			sum += float64(now)
			squares += float64(now) * float64(now)
		}
	}
	size := float64(len(list))
	if left = squares / sum; left > 0.95*size {
		return math.Inf(1), left
	}
	whole := float64(total) / size
	words := float64(n) / (16 * float64(total))
	return math.Log2(max(left*whole, 1)) + math.Log2(sum/size) + words, left
}

// split makes a node of a window.
func (b *treeBuilder) split(list []uint16, r *region, w window, depth int) uint32 {
	n := uint32(1) << w.width
	lists := make([][]uint16, n)
	for _, i := range list {
		first, more := w.values(b.rules[i][w.field].clip(r.box[w.field]))
		b.work -= int(more)
		for k := range more + 1 {
			v := (first + k) & (n - 1)
			lists[v] = append(lists[v], i)
		}
	}
	first := (len(b.t.words) + nodeUnit - 1) &^ (nodeUnit - 1)
	b.bytes -= 4 * int(n)
	if first/nodeUnit >= nodesMost || b.bytes < 0 || b.work < 0 {
		b.fits = false
		return 0
	}
	b.t.words = slices.Grow(b.t.words, first+int(n)-len(b.t.words))[:first+int(n)]
	for _, g := range b.groups(lists) {
		child := r.within(w, g)
		e := b.node(lists[g[0]], &child, depth+1)
		for _, v := range g {
			b.t.words[first+int(v)] = e
		}
	}
	at := fieldAt[w.field]
	return uint32(w.width)<<windowWidth | uint32(first/nodeUnit)<<nodeFirst | uint32(at.word)<<windowWord | uint32(at.shift+w.shift)
}

// groups returns the values whose lists are alike.
func (b *treeBuilder) groups(lists [][]uint16) [][]uint32 {
	var out [][]uint32
	seen := map[string]int{}
	for v, list := range lists {
		b.key = b.key[:0]
		for _, i := range list {
			b.key = binary.LittleEndian.AppendUint16(b.key, i)
		}
		g, ok := seen[string(b.key)]
		if !ok {
			g = len(out)
			seen[string(b.key)] = g
			out = append(out, nil)
		}
		out[g] = append(out[g], uint32(v))
	}
	return out
}

// within returns the region of packets that have one of some values in a window. Where there are several, whose lists
// are alike, the bits in which they differ are called known, too: no rule of the list asks for them.
func (r *region) within(w window, values []uint32) region {
	c := *r
	c.known[w.field] |= (1<<w.width - 1) << w.shift
	s := &c.box[w.field]
	size := uint64(1) << (w.shift + w.width)
	if uint64(s.hi)-uint64(s.lo)+1 == size && uint64(s.lo)&(size-1) == 0 { // the window is the box's first bits
		lo, hi := slices.Min(values), slices.Max(values)
		s.lo, s.hi = s.lo+lo<<w.shift, s.lo+(hi+1)<<w.shift-1
	}
	return c
}
