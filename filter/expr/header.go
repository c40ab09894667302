package expr

// headerTable decides packets by the results of all tests at once: up to maxLanes tests of the first
// headerLen bytes, each the comparison of a 32-bit lane, give an index into a table.
//
// The table was filled by walking the decision graph for every combination of results. An entry also
// holds which tests the walk made: one whose bytes are outside the packet rejects it. Tests behind the
// IPv4 header are made for headers without options; the walk of a packet that has some ends at
// undecided, and the program runs.
type headerTable struct {
	pick  [64]uint8        // VPERMB: the byte of the header for each byte of the lanes, little-endian
	keep  uint64           // bytes of the lanes that are loaded; the others are 0
	mask  [lanes]uint32    // of each lane's value
	k     [lanes]uint32    // that it is compared with
	end   [lanes]uint32    // bytes that the packet must have
	equal uint32           // lanes whose result is value == k
	above uint32           // lanes whose result is value > k
	table []uint32         // by the results: touched lanes, and the verdict << verdictShift
	code  map[laneTest]int // lanes by what they test
}

const (
	headerLen    = 64
	lanes        = 16
	maxLanes     = 14 // the table has 2^14 entries then, 64 KiB
	verdictShift = 16
)

// Verdicts of the table.
const (
	verdictReject = iota
	verdictAccept
	verdictUndecided
)

// laneTest is one comparison of a lane.
type laneTest struct {
	at    uint32
	size  uint8
	mask  uint32
	k     uint32
	above bool
}

// laneStep is a step of the graph as lanes.
type laneStep struct {
	lane     int
	inverted bool // the result is that of the lane, negated
	noOption int  // the lane that tests for an IPv4 header without options first, or -1
}

// newHeaderTable returns the table for a graph, or nil where the graph has other tests or too many.
func newHeaderTable(g *graph) *headerTable {
	h := &headerTable{code: map[laneTest]int{}}
	steps := make([]laneStep, len(g.steps))
	used := g.used()
	for i := range g.steps {
		if used[i] {
			var ok bool
			if steps[i], ok = h.step(&g.steps[i]); !ok {
				return nil
			}
		}
	}
	if g.entry < 0 || len(h.code) > maxLanes {
		return nil
	}
	h.table = make([]uint32, 1<<len(h.code))
	for bits := range h.table {
		h.table[bits] = walk(g, steps, uint32(bits))
	}
	return h
}

// step assigns the lanes of a step.
func (h *headerTable) step(s *step) (laneStep, bool) {
	none := laneStep{}
	if s.op != condTest || s.b.op != valueConst {
		return none, false
	}
	v, t := s.a, laneTest{mask: 0xffffffff, k: s.b.k}
	if v.op == valueAnd && v.y.op == valueConst {
		v, t.mask = v.x, v.y.k
	}
	if v.op != valueLoad {
		return none, false
	}
	t.at, t.size = v.k, v.size
	l := laneStep{noOption: -1}
	if v.x != nil {
		base, ok := ipv4Len4(v.x)
		if !ok || uint64(t.at)+20 > headerLen {
			return none, false
		}
		t.at += 20
		if l.noOption, ok = h.lane(laneTest{at: base, size: 1, mask: 0xf, k: 5}); !ok {
			return none, false
		}
	}
	switch s.cmp {
	case cmpGT:
		t.above = true
	case cmpGE:
		if t.k == 0 {
			return none, false
		}
		t.above, t.k = true, t.k-1
	case cmpSet:
		t.mask, t.k, l.inverted = t.mask&t.k, 0, true
	}
	var ok bool
	l.lane, ok = h.lane(t)
	return l, ok
}

// lane returns the lane of a test.
func (h *headerTable) lane(t laneTest) (int, bool) {
	if n, ok := h.code[t]; ok {
		return n, true
	}
	n := len(h.code)
	if n == lanes || uint64(t.at)+uint64(t.size) > headerLen {
		return 0, false
	}
	h.code[t] = n
	for i := range uint32(t.size) { // the last byte of the field is the lowest of the lane
		at := 4*uint32(n) + uint32(t.size) - 1 - i
		h.pick[at] = uint8(t.at + i)
		h.keep |= 1 << at
	}
	h.mask[n], h.k[n], h.end[n] = t.mask, t.k, t.at+uint32(t.size)
	if t.above {
		h.above |= 1 << n
	} else {
		h.equal |= 1 << n
	}
	return n, true
}

// walk follows the graph for one combination of results.
func walk(g *graph, steps []laneStep, bits uint32) uint32 {
	touched := uint32(0)
	i := g.entry
	for i >= 0 {
		l := &steps[i]
		if l.noOption >= 0 {
			touched |= 1 << l.noOption
			if bits>>l.noOption&1 == 0 {
				return touched | verdictUndecided<<verdictShift
			}
		}
		touched |= 1 << l.lane
		if bits>>l.lane&1 == 1 != l.inverted {
			i = g.steps[i].jt
		} else {
			i = g.steps[i].jf
		}
	}
	if i == accept {
		return touched | verdictAccept<<verdictShift
	}
	return touched
}
