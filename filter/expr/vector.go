package expr

import (
	"math/bits"

	"github.com/millrace/millrace/packet"
)

// vectorProgram decides 64 packets at once, a bit of a word each. It has no bound on the tests, and lists
// of ports or addresses cost little: a column holds one field of all packets, and is compared with
// all values of the list.
//
// Nodes are in the order in which they are reached. A node takes the packets that reach it, as bits, and
// passes those for which it holds on to one node and the others to the other. Columns are loaded when a
// node first asks for them. A packet for which a load is outside of its bytes is rejected, or undecided where
// the order of the tests of a list matters. One that reaches a test of another kind is undecided.
type vectorProgram struct {
	columns []column
	nodes   []vectorNode
}

// rowLen is the number of bytes of packets that are copied: frames lie so that few of them fit into the first-level cache at
// once, and every column would fetch them again.
const rowLen = 64

// width is the number of packets that are decided at once.
const width = 64

// maxColumns bounds the memory of a Matcher.
const maxColumns = 64

// laneValues is a number for each packet.
type laneValues [width]uint32

// column says how laneValues come about: as four bytes of the packets at + x, shifted right and masked, or as
// (x & mask >> right << left) + y + at.
type column struct {
	op    columnOp
	x, y  int // columns, or none
	at    uint32
	mask  uint32
	right uint32
	left  uint32

	exact bool // what cannot be computed is outside of the packet, which rejects it
}

type columnOp uint8

const (
	columnLength columnOp = iota
	columnLoad
	columnCompute
)

const none = -1

// vectorNode is a test whether any of some columns is in any of their ranges. Without columns it is one that only
// the program can make.
type vectorNode struct {
	any      []columnTest
	inverted bool
	jt, jf   int // nodes behind this one, accept or reject

	table *dispatchTable // in place of tests of the only column, and of jt
}

// dispatchTable holds the place to go on for values of a column. Packets of other values are distinguished 64 at once.
type dispatchTable struct {
	mask  uint32
	sums  portSet // of the keys: the sums of their halves
	slots []dispatchSlot
	shift uint32
}

type dispatchSlot struct {
	key uint32
	to  int // freeSlot where there is none
}

const freeSlot = -3

// hash is Fibonacci hashing, for which the number is.
func (t *dispatchTable) hash(key uint32) int { return int(key * 0x9e3779b1 >> t.shift) }

// find returns where to go on for a masked value, or other.
func (t *dispatchTable) find(key uint32, other int) int {
	for h := t.hash(key); ; h = (h + 1) % len(t.slots) {
		switch s := &t.slots[h]; {
		case s.to == freeSlot:
			return other
		case s.key == key:
			return s.to
		}
	}
}

type columnTest struct {
	column int
	ranges []rangeTest
	ports  *portSet // in place of ranges, where there are many and the field has 16 bits
}

// portSet is a set of numbers of 16 bits.
type portSet [1 << 16 / 32]uint32

// lists reports whether some test is against a long list, for which this form is faster on any processor.
func (p *vectorProgram) lists() bool {
	for i := range p.nodes {
		if p.nodes[i].table != nil {
			return true
		}
		for _, t := range p.nodes[i].any {
			if len(t.ranges) > manyRanges {
				return true
			}
		}
	}
	return false
}

// vectorState holds the working state of a vectorProgram: 64 packets, and their columns.
type vectorState struct {
	p       *vectorProgram
	mem     []byte
	rows    [width][rowLen]byte // the first bytes of the packets, side by side; with AVX-512
	off     laneValues          // of the packets in mem
	length  laneValues          // 0 where there is no packet
	columns []laneValues
	valid   []uint64 // of columns: packets whose bytes were there
	have    uint64   // columns that are computed
	reach   []uint64 // of nodes: packets that reach them; all 0 between calls
	pending []uint64 // nodes that are reached, as bits; likewise
	sums    laneValues
}

func newVectorState(p *vectorProgram) *vectorState {
	return &vectorState{
		p: p, columns: make([]laneValues, len(p.columns)), valid: make([]uint64, len(p.columns)), reach: make([]uint64, len(p.nodes)),
		pending: make([]uint64, (len(p.nodes)+63)/64),
	}
}

// decideBatch writes a verdict for each descriptor. whole says that all packets are decided and have one frame
// each.
func (s *vectorState) decideBatch(b *packet.Batch, verdicts []uint8) (whole bool) {
	s.mem, whole = b.Arena.Mem, true
	for i := 0; i < len(b.D); i += width {
		d := b.D[i:min(i+width, len(b.D))]
		more := s.describe(d)
		accepted, undecided := s.decide(lowest(len(d)))
		expand(accepted, undecided, verdicts[i:i+len(d)])
		whole = whole && more|undecided == 0
	}
	s.mem = nil
	return whole
}

// decide returns which of the packets in all are accepted, and which are undecided. Nodes lead to later ones only.
func (s *vectorState) decide(all uint64) (accepted, undecided uint64) {
	s.have = 0
	s.pass(0, all)
	for w := range s.pending {
		for s.pending[w] != 0 {
			i := w*64 + bits.TrailingZeros64(s.pending[w])
			s.pending[w] &= s.pending[w] - 1
			a, u := s.visit(&s.p.nodes[i], s.reach[i])
			s.reach[i] = 0
			accepted |= a
			undecided |= u
		}
	}
	return accepted, undecided
}

// visit takes the packets that reach a node on.
func (s *vectorState) visit(n *vectorNode, r uint64) (accepted, undecided uint64) {
	hit, valid := s.holds(n, r)
	if len(n.any) != 1 || !s.p.columns[n.any[0].column].exact {
		undecided = r &^ valid
	}
	r &= valid
	if n.table != nil {
		return s.dispatch(n, r, hit), undecided
	}
	if n.inverted {
		hit = ^hit
	}
	return s.pass(n.jt, r&hit) | s.pass(n.jf, r&^hit), undecided
}

// dispatch takes packets on by the node's table; those in maybe can have one of its values.
func (s *vectorState) dispatch(n *vectorNode, r, maybe uint64) (accepted uint64) {
	accepted = s.pass(n.jf, r&^maybe)
	v := &s.columns[n.any[0].column]
	for left := r & maybe; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		accepted |= s.pass(n.table.find(v[i&(width-1)]&n.table.mask, n.jf), left&-left)
	}
	return accepted
}

// maybe returns which values can be keys of a table.
func (s *vectorState) maybe(v *laneValues, t *dispatchTable) (hit uint64) {
	computeLanes(v, &zeroLanes, &column{mask: t.mask}, &s.sums)
	computeLanes(&s.sums, &s.sums, &column{mask: 1<<32 - 1, right: 16}, &s.sums)
	computeLanes(&s.sums, &zeroLanes, &column{mask: 0xffff}, &s.sums)
	return inSet(&s.sums, &t.sums)
}

// pass lets packets reach a node, and returns those that are accepted.
func (s *vectorState) pass(to int, packets uint64) uint64 {
	if to >= 0 {
		if packets != 0 {
			s.reach[to] |= packets
			s.pending[to>>6] |= 1 << (to & 63)
		}
		return 0
	}
	if to == accept {
		return packets
	}
	return 0
}

// holds returns for which packets a test holds, and for which it can be made.
func (s *vectorState) holds(n *vectorNode, packets uint64) (hit, valid uint64) {
	if len(n.any) == 0 {
		return 0, 0
	}
	valid = packets
	for i := range n.any {
		t := &n.any[i]
		valid &= s.column(t.column)
		switch {
		case n.table != nil:
			hit = s.maybe(&s.columns[t.column], n.table)
		case t.ports != nil:
			hit |= inSet(&s.columns[t.column], t.ports)
		default:
			hit |= inRanges(&s.columns[t.column], t.ranges)
		}
	}
	return hit, valid
}

// column computes column i unless that is done, and returns for which packets it could.
func (s *vectorState) column(i int) (valid uint64) {
	if s.have>>i&1 == 1 {
		return s.valid[i]
	}
	c := &s.p.columns[i]
	x, valid := s.operand(c.x)
	y, validY := s.operand(c.y)
	dst := &s.columns[i]
	switch c.op {
	case columnLength:
		*dst = s.length
	case columnLoad:
		valid &= s.load(x, c, dst)
	default:
		computeLanes(x, y, c, dst)
		valid &= validY
	}
	s.have |= 1 << i
	s.valid[i] = valid
	return valid
}

// zeroLanes stand for the operand that a column lacks.
var zeroLanes laneValues

func (s *vectorState) operand(i int) (*laneValues, uint64) {
	if i == none {
		return &zeroLanes, ^uint64(0)
	}
	valid := s.column(i)
	return &s.columns[i], valid
}

// lowest returns a word with the n lowest bits set.
func lowest(n int) uint64 { return ^uint64(0) >> (bits.UintSize - n) }
