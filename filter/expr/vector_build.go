package expr

import (
	"math/bits"
	"slices"
)

// newVectorProgram returns the program of a graph, or nil where its first test is none for columns.
func newVectorProgram(g *graph) *vectorProgram {
	b := vectorBuilder{g: g, index: make([]int, len(g.steps)), known: map[column]int{}}
	if g.entry < 0 {
		return nil
	}
	b.entered = g.entered()
	used := g.used()
	for i := g.entry; i >= 0; i-- {
		if used[i] && !b.merged(i) {
			b.index[i] = len(b.p.nodes)
			if !b.dispatch(i) {
				b.node(i)
			}
		}
	}
	for i := range b.p.nodes {
		n := &b.p.nodes[i]
		b.sets(n)
		n.jt, n.jf = b.target(n.jt), b.target(n.jf)
		if n.table != nil {
			n.table.resolve(b.target)
		}
	}
	if len(b.p.nodes[0].any) == 0 || len(b.p.columns) > maxColumns {
		return nil
	}
	return &b.p
}

// vectorBuilder makes a vectorProgram.
type vectorBuilder struct {
	g       *graph
	p       vectorProgram
	entered []int // edges that lead to a step
	index   []int // the node of a step; inList for those that are part of another's
	known   map[column]int
}

const inList = -1

func (b *vectorBuilder) merged(i int) bool { return b.index[i] == inList }

func (b *vectorBuilder) target(i int) int {
	if i < 0 {
		return i
	}
	return b.index[i]
}

// node appends the node of step i, with the steps behind it that belong to the same list: those that
// follow where it does not hold, can be reached in no other way, and lead to the same place where they hold.
func (b *vectorBuilder) node(i int) {
	n := vectorNode{jt: b.g.steps[i].jt, jf: b.g.steps[i].jf}
	defer func() { b.p.nodes = append(b.p.nodes, n) }()
	c, r, inverted, ok := b.test(i)
	if !ok {
		return
	}
	n.inverted = inverted
	n.add(c, r)
	for next := n.jf; !inverted && next >= 0 && b.entered[next] == 1 && b.g.steps[next].jt == n.jt; next = n.jf {
		c, r, inverted, ok := b.test(next)
		if !ok || inverted {
			return
		}
		n.add(c, r)
		b.index[next] = inList
		n.jf = b.g.steps[next].jf
	}
}

func (n *vectorNode) add(column int, r rangeTest) {
	for i := range n.any {
		if n.any[i].column == column {
			n.any[i].ranges = append(n.any[i].ranges, r)
			return
		}
	}
	n.any = append(n.any, columnTest{column: column, ranges: []rangeTest{r}})
}

// sets replaces long lists of ports by sets.
func (b *vectorBuilder) sets(n *vectorNode) {
	for i := range n.any {
		t := &n.any[i]
		if c := &b.p.columns[t.column]; len(t.ranges) > manyRanges && c.op == columnLoad && c.mask <= 0xffff {
			t.ports = newPortSet(t.ranges)
		}
	}
}

// test returns step i as a test of a column.
func (b *vectorBuilder) test(i int) (column int, r rangeTest, inverted, ok bool) {
	v, r, inverted, ok := rangeOf(&b.g.steps[i])
	if !ok {
		return 0, r, false, false
	}
	column, ok = b.column(v)
	return column, r, inverted, ok
}

// column returns the column of a value.
func (b *vectorBuilder) column(v *value) (int, bool) {
	switch v.op {
	case valueLen:
		return b.intern(column{op: columnLength, x: none, y: none, exact: true}), true
	case valueLoad:
		return b.load(v)
	case valueAnd, valueShl, valueShr, valueAdd:
		return b.compute(v)
	}
	return 0, false
}

// load returns the column of a load. The four bytes that are loaded end with the field, or begin with it
// where the packet begins.
func (b *vectorBuilder) load(v *value) (int, bool) {
	size := uint32(v.size)
	if v.k > 1<<16 {
		return 0, false
	}
	c := column{op: columnLoad, x: none, y: none, at: v.k + size - 4, mask: 1<<(8*size) - 1, exact: true}
	if v.k+size < 4 {
		c.at, c.right, c.exact = v.k, 32-8*size, false
	}
	if v.x != nil {
		x, ok := b.column(v.x)
		if !ok {
			return 0, false
		}
		c.x, c.exact = x, c.exact && b.p.columns[x].exact
	}
	return b.intern(c), true
}

// compute returns the column of a sum, or of a value masked or shifted by a constant.
func (b *vectorBuilder) compute(v *value) (int, bool) {
	x, ok := b.column(v.x)
	if !ok {
		return 0, false
	}
	c := column{op: columnCompute, x: x, y: none, mask: 1<<32 - 1, exact: b.p.columns[x].exact}
	switch {
	case v.y.op != valueConst && v.op == valueAdd:
		if c.y, ok = b.column(v.y); !ok {
			return 0, false
		}
		c.exact = c.exact && b.p.columns[c.y].exact
	case v.y.op != valueConst:
		return 0, false
	case v.op == valueAdd:
		c.at = v.y.k
	case v.op == valueAnd:
		c.mask = v.y.k
	case v.op == valueShl:
		c.left = v.y.k
	default:
		c.right = v.y.k
	}
	if c.left > 31 || c.right > 31 {
		return 0, false
	}
	return b.intern(c), true
}

func (b *vectorBuilder) intern(c column) int {
	n, ok := b.known[c]
	if !ok {
		n = len(b.p.columns)
		b.known[c] = n
		b.p.columns = append(b.p.columns, c)
	}
	return n
}

// manyRanges is from where on a portSet is faster.
const manyRanges = 8

func newPortSet(ranges []rangeTest) *portSet {
	s := new(portSet)
	for _, r := range ranges {
		if r.mask&0xffff == 0xffff && r.low <= 0xffff {
			for x := r.low; x <= 0xffff && x-r.low <= r.span; x++ {
				s[x>>5] |= 1 << (x & 31)
			}
			continue
		}
		for x := range uint32(1 << 16) {
			if r.holds(x) {
				s[x>>5] |= 1 << (x & 31)
			}
		}
	}
	return s
}

// fewestKeys is from how many values on a chain of tests becomes a table.
const fewestKeys = 6

// dispatch appends a node that finds the place to go on by a table, if step i begins a chain of tests of one value for
// single values that lead to different places.
func (b *vectorBuilder) dispatch(i int) bool {
	c, r, inverted, ok := b.test(i)
	if !ok || inverted || r.span != 0 {
		return false
	}
	keys, targets := []uint32{r.low}, []int{b.g.steps[i].jt}
	last := i
	for next := b.g.steps[i].jf; next >= 0 && b.entered[next] == 1; next = b.g.steps[next].jf {
		c2, r2, inverted, ok := b.test(next)
		if !ok || inverted || c2 != c || r2.span != 0 || r2.mask != r.mask {
			break
		}
		keys, targets = append(keys, r2.low), append(targets, b.g.steps[next].jt)
		last = next
	}
	if len(keys) < fewestKeys || !slices.ContainsFunc(targets, func(t int) bool { return t != targets[0] }) {
		return false
	}
	for next := b.g.steps[i].jf; next >= last && i != last; next = b.g.steps[next].jf {
		b.index[next] = inList
	}
	n := vectorNode{any: []columnTest{{column: c}}, jt: reject, jf: b.g.steps[last].jf, table: newDispatchTable(r.mask, keys, targets)}
	b.p.nodes = append(b.p.nodes, n)
	return true
}

// newDispatchTable returns a table of keys, of which the first of equal ones counts. Targets are steps.
func newDispatchTable(mask uint32, keys []uint32, targets []int) *dispatchTable {
	t := &dispatchTable{mask: mask, shift: uint32(32 - bits.Len(uint(4*len(keys))))}
	t.slots = make([]dispatchSlot, 1<<(32-t.shift))
	for i := range t.slots {
		t.slots[i].to = freeSlot
	}
	for i, k := range keys {
		h := t.hash(k)
		for t.slots[h].to != freeSlot && t.slots[h].key != k {
			h = (h + 1) % len(t.slots)
		}
		if t.slots[h].to == freeSlot {
			t.slots[h] = dispatchSlot{k, targets[i]}
		}
		sum := uint16(k>>16 + k)
		t.sums[sum>>5] |= 1 << (sum & 31)
	}
	return t
}

// resolve replaces steps by nodes.
func (t *dispatchTable) resolve(node func(step int) int) {
	for i := range t.slots {
		if s := &t.slots[i]; s.to != freeSlot {
			s.to = node(s.to)
		}
	}
}
