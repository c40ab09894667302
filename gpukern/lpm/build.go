package lpm

import "math/bits"

// Rows are as wide as their routes pay for: rowBytes for each route below, firstBytes where the row is the
// first, which has no less than the caller's memory either.
const (
	rowBytes   = 4
	firstBytes = 16
	rowLimit   = 18 // 2^18 nodes are 24 bits of the address, 8 MiB
	bucketMost = 1  // the logarithm of the nodes of the largest bucket: a cache line

	FirstRow = 32 << 10 // of a table of routes, in bytes
)

// Builder makes a trie.
type Builder[V uint16 | uint32] struct {
	trie  Trie[V]
	spans []span // of the bucket under way
}

// span is a range of addresses of one value, up to the next.
type span struct {
	from uint32
	val  uint32
}

// Build makes the trie of routes in order, without a tree between: the routes of a node are a
// range of the list, and so are those of its slots. The first row may take first bytes, or more where the
// routes pay for it.
func Build[V uint16 | uint32](all []Prefix, first int) Trie[V] {
	if len(all) == 0 {
		return Trie[V]{}
	}
	var p Builder[V]
	_, wide := p.Start(all, first)
	p.trie.wide = uint8(wide)
	return p.Done()
}

// Done returns the trie. Its last bucket is read as if it had two nodes.
func (p *Builder[V]) Done() Trie[V] {
	p.trie.nodes = append(p.trie.nodes, node{})
	return p.trie
}

// Start plants routes in a first row of their own and returns where it is, and the logarithm of its nodes.
func (p *Builder[V]) Start(all []Prefix, first int) (row, wide int) {
	for wide < rowLimit && nodeSize<<(wide+1) <= max(first, firstBytes*len(all)) && wide+nodeBits < longest(all) {
		wide++
	}
	row = len(p.trie.nodes)
	p.trie.nodes = append(p.trie.nodes, make([]node, 1<<wide)...)
	p.buildRow(row, all, 0, wide, 0)
	return row, wide
}

// longest returns the length of the longest prefix.
func longest(all []Prefix) int {
	n := uint8(0)
	for i := range all {
		n = max(n, all[i].Bits)
	}
	return int(n)
}

// split enters routes that share their first depth bits in the slots of the next width, all of which have
// val from the prefixes above.
func split(all []Prefix, depth, width int, val uint32, out []part) {
	for i := range out {
		out[i] = part{val: val}
	}
	for i := range all {
		r := &all[i]
		s, short := r.at(depth, width), depth+width-int(r.Bits)
		if short >= 0 {
			for j := range out[s : s+1<<short] {
				out[int(s)+j].val = r.Val
			}
			continue
		}
		if out[s].from == out[s].to {
			out[s].from = int32(i)
		}
		out[s].to = int32(i + 1)
	}
}

// buildRow fills the row at index at with routes that share their first depth bits.
func (p *Builder[V]) buildRow(at int, all []Prefix, depth, wide int, val uint32) {
	if wide == 0 {
		p.buildNode(at, all, depth, val)
		return
	}
	parts := make([]part, 1<<wide)
	split(all, depth, wide, val, parts)
	for i, s := range parts {
		p.buildNode(at+i, all[s.from:s.to], depth+wide, s.val)
	}
}

// buildNode fills the node at index at.
func (p *Builder[V]) buildNode(at int, all []Prefix, depth int, val uint32) {
	var parts [1 << nodeBits]part
	split(all, depth, nodeBits, val, parts[:])
	n := node{child: uint32(len(p.trie.nodes))}
	var values []V
	for i, s := range parts {
		switch {
		case s.from != s.to:
			n.inner |= 1 << i
		case len(values) == 0 || values[len(values)-1] != V(s.val):
			n.runs |= 1 << i
			values = append(values, V(s.val))
		}
	}
	if n.inner == 0 && len(values) <= inNode[V]() {
		n.runs &^= 1
		for i, v := range values {
			*valueIn[V](&n, i) = v
		}
		p.trie.nodes[at] = n
		return
	}
	n.leaf = uint32(len(p.trie.leaves))
	p.trie.leaves = append(p.trie.leaves, values...)
	p.below(at, n, parts[:], all, depth+nodeBits)
}

// below makes the rows or buckets below n and stores n at index at.
func (p *Builder[V]) below(at int, n node, parts []part, all []Prefix, depth int) {
	children := bits.OnesCount64(n.inner)
	k := p.bucketSize(parts, all, depth)
	wide := k
	n.wide = uint32(k | bucketBit)
	if k < 0 {
		wide = rowWidth(parts, all, depth)
		n.wide = uint32(wide)
	}
	p.trie.nodes[at] = n
	p.trie.nodes = append(p.trie.nodes, make([]node, children<<wide)...)
	child := int(n.child)
	for _, s := range parts {
		if s.from == s.to {
			continue
		}
		if k >= 0 {
			p.fill(child, k, all[s.from:s.to], depth, s.val)
		} else {
			p.buildRow(child, all[s.from:s.to], depth, wide, s.val)
		}
		child += 1 << wide
	}
}

// bucketSize returns the logarithm of the nodes of the smallest bucket that holds what is below each
// part, -1 where none does.
func (p *Builder[V]) bucketSize(parts []part, all []Prefix, depth int) int {
	k := 0
	for _, s := range parts {
		if s.from == s.to {
			continue
		}
		for k <= bucketMost && !p.ranges(all[s.from:s.to], depth, s.val, inBucket[V](k)) {
			k++
		}
		if k > bucketMost {
			return -1
		}
	}
	return k
}

// fill makes the bucket of 2^k nodes at index at. Keys that are left over are the last address, with the
// last value.
func (p *Builder[V]) fill(at, k int, all []Prefix, depth int, val uint32) {
	p.ranges(all, depth, val, inBucket[V](k))
	keys, values := bucketOf[V](&p.trie.nodes[at], k)
	for i := range values {
		s := p.spans[min(i, len(p.spans)-1)]
		values[i] = V(s.val)
		if i > 0 {
			keys[i-1] = s.from
		}
		if i >= len(p.spans) {
			keys[i-1] = 1<<bucketBits - 1
		}
	}
}

// ranges stores in p.spans where among the next 32 bits the value of routes that share their first depth
// bits changes. It reports false where there are more than most, or routes that are longer.
func (p *Builder[V]) ranges(all []Prefix, depth int, val uint32, most int) bool {
	p.spans = append(p.spans[:0], span{0, val})
	if len(all) > most { // each begins somewhere, unless it hides another
		return false
	}
	type open struct {
		end uint64
		val uint32
	}
	var stack [16]open // most is less
	stack[0] = open{1 << bucketBits, val}
	top := 0
	for i := range all {
		r := &all[i]
		if int(r.Bits) > depth+bucketBits {
			return false
		}
		from := r.at(depth, bucketBits)
		for ; stack[top].end <= from; top-- {
			p.change(stack[top].end, stack[top-1].val)
		}
		p.change(from, r.Val)
		top++
		stack[top] = open{from + 1<<(depth+bucketBits-int(r.Bits)), r.Val}
	}
	for ; top > 0; top-- {
		p.change(stack[top].end, stack[top-1].val)
	}
	return len(p.spans) <= most
}

// change takes note that addresses from one on have a value.
func (p *Builder[V]) change(from uint64, val uint32) {
	if from == 1<<bucketBits {
		return
	}
	last := &p.spans[len(p.spans)-1]
	if uint64(last.from) != from {
		if last.val != val {
			p.spans = append(p.spans, span{uint32(from), val})
		}
		return
	}
	last.val = val
	if n := len(p.spans); n > 1 && p.spans[n-2].val == val {
		p.spans = p.spans[:n-1]
	}
}

// rowWidth returns how wide the rows below a node are, all alike.
func rowWidth(parts []part, all []Prefix, depth int) int {
	rows, below, deepest := 0, 0, 0
	for _, s := range parts {
		if s.from != s.to {
			rows++
			below += int(s.to - s.from)
			deepest = max(deepest, longest(all[s.from:s.to]))
		}
	}
	wide := 0
	for wide < rowLimit && rows*nodeSize<<(wide+1) <= rowBytes*below && depth+wide+nodeBits < deepest {
		wide++
	}
	return wide
}
