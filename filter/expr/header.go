package expr

// headerTable decides packets by the results of all tests at once: up to 16 tests of the first
// headerLen bytes, each whether a 32-bit lane lies in a range, give an index into a table.
//
// The table was filled by walking the decision graph for every combination of results. An entry also
// holds how many bytes the tests of that walk need: a packet with fewer is rejected. What lies behind
// the packet may be read: it changes only tests behind the first that is outside, which the walk has
// already passed. Tests behind the IPv4 header are made for headers without options; the walk of a
// packet that has some ends at undecided, and the program runs.
type headerTable struct {
	pick  [64]uint8        // VPERMB: the byte of the header for each byte of the lanes, little-endian
	keep  uint64           // bytes of the lanes that are loaded; the others are 0
	mask  [lanes]uint32    // of each lane's value
	low   [lanes]uint32    // the result is value-low <= span
	span  [lanes]uint32    // 0 is the test for one value
	spans bool             // some span is not 0, or some lane is a length
	sized uint16           // lanes that hold the packet's length
	need  [lanes]uint8     // bytes that the packet must have
	table []uint16         // by the results: bytes needed, and the verdict << verdictShift
	code  map[laneTest]int // lanes by what they test
}

const (
	headerLen    = 64
	lanes        = 16 // the table has 2^16 entries then, 128 KiB
	verdictShift = 8
)

// Verdicts of the table.
const (
	verdictReject = iota
	verdictAccept
	verdictUndecided
)

// laneTest is whether a field, masked, lies in a range. Size 0 is the length of the packet.
type laneTest struct {
	at   uint32
	size uint8
	rangeTest
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
	if g.entry < 0 || len(h.code) > lanes {
		return nil
	}
	for n := len(h.code); n < lanes; n++ {
		h.low[n] = 1 // which no lane that is not loaded equals
	}
	h.table = make([]uint16, 1<<len(h.code))
	for bits := range h.table {
		h.table[bits] = h.walk(g, steps, uint32(bits))
	}
	return h
}

// step assigns the lanes of a step.
func (h *headerTable) step(s *step) (laneStep, bool) {
	none := laneStep{}
	v, r, inverted, ok := rangeOf(s)
	l, t := laneStep{inverted: inverted, noOption: -1}, laneTest{rangeTest: r}
	switch {
	case !ok:
		return none, false
	case v.op == valueLen:
	case v.op == valueLoad:
		t.at, t.size = v.k, v.size
	default:
		return none, false
	}
	if v.op == valueLoad && v.x != nil {
		base, ok := ipv4Len4(v.x)
		if !ok || uint64(t.at)+20 > headerLen {
			return none, false
		}
		t.at += 20
		if l.noOption, ok = h.lane(laneTest{base, 1, rangeTest{mask: 0xf, low: 5}}); !ok {
			return none, false
		}
	}
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
	h.mask[n], h.low[n], h.span[n], h.need[n] = t.mask, t.low, t.span, uint8(t.at)+t.size
	h.spans = h.spans || t.span != 0 || t.size == 0
	if t.size == 0 {
		h.sized |= 1 << n
	}
	return n, true
}

// walk follows the graph for one combination of results.
func (h *headerTable) walk(g *graph, steps []laneStep, bits uint32) uint16 {
	need := uint8(0)
	i := g.entry
	for i >= 0 {
		l := &steps[i]
		if l.noOption >= 0 {
			need = max(need, h.need[l.noOption])
			if bits>>l.noOption&1 == 0 {
				return uint16(need) | verdictUndecided<<verdictShift
			}
		}
		need = max(need, h.need[l.lane])
		if bits>>l.lane&1 == 1 != l.inverted {
			i = g.steps[i].jt
		} else {
			i = g.steps[i].jf
		}
	}
	if i == accept {
		return uint16(need) | verdictAccept<<verdictShift
	}
	return 0
}
