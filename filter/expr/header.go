package expr

// headerTable decides packets by the results of all tests at once: up to 16 or 32 tests, each whether a 32-bit
// lane of the first headerLen bytes lies in a range, give an index into a table.
//
// The table was filled by walking the decision graph for every combination of results. An entry also
// holds how many bytes the tests of that walk need: a packet with fewer is rejected, or undecided where lanes are joined,
// since an alternative within it may hold before one that is not. What lies behind the packet may be read: it changes only
// tests behind the first that is outside, which the walk has already passed. Tests behind the IPv4 header are made for headers without options; the walk of a
// packet that has some ends at undecided, and the program runs.
//
// A list of alternatives is one bit of the index: its lanes are side by side, with one behind them that is always 0.
// Adding ones to them carries into that one where any of the results is 1, and PEXT gathers the carries.
//
// One field may be at a variable offset, such as the payload behind TCP's options. It is loaded by itself and
// broadcast to its lanes, and a bit of the index says that it is within the packet.
type headerTable struct {
	// What the assembly reads; tests compare its offsets.
	regs     [2]laneSet
	carry    uint32 // what is added to the results
	index    uint32 // of the sums, the bits of the index
	variable variableLoad
	short    uint32 // verdictUndecided
	flags    uint32
	joined   bool // carry, index or variable are used

	table []uint16 // by the results: bytes needed, and the verdict << verdictShift
}

// laneSet is the tests of a register: whether a lane's value & mask - low <= span.
type laneSet struct {
	pick  [64]uint8     // VPERMB: the byte of the header for each byte of the lanes, little-endian
	keep  uint64        // bytes of the lanes that are loaded; the others are 0
	mask  [lanes]uint32 // of each lane's value
	low   [lanes]uint32
	span  [lanes]uint32 // 0 is the test for one value
	spans bool          // some span is not 0, or some lane is a length
	sized uint16        // lanes that hold the packet's length
}

// variableLoad is a field of four bytes at an offset that a byte of the header gives: at start + (word & mask >> right),
// where word are the two bytes at at, the first the lowest.
type variableLoad struct {
	at, mask, start uint32

	lanes uint32 // of the first register, which hold the field, in the order of the processor's bytes
	bit   uint32 // of the results, that it is within the packet; 0 where there is no such field
	reach uint32 // bytes from the packet's begin that may be read
}

// Flags of a headerTable for the assembly. The lowest 5 bits are how far the word of the variable offset is shifted.
const (
	headerVariable = 0x100 << iota
	headerWide     // the second register is used
	headerSized    // some lane of the first is the length
)

const (
	headerLen    = 64
	lanes        = 16 // of a register; the table has 2^16 entries at most, 128 KiB
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
	at       uint32
	size     uint8
	variable bool // at the variable offset
	rangeTest
}

// need is the number of bytes that the packet must have, but for a field at a variable offset.
func (t laneTest) need() uint8 {
	if t.variable {
		return 0
	}
	return uint8(t.at) + t.size
}

// headerStep is a step of the graph, or a list of steps, as a bit of the index.
type headerStep struct {
	bit      int
	inverted bool // the result is that of the lane, negated
	noOption int  // the bit that says first that the IPv4 header is without options, or none
	need     uint8
	variable bool // needs the field at the variable offset
	jt, jf   int
}

// walk follows the graph for one combination of results.
func (b *headerBuilder) walk(results uint32) uint16 {
	need := uint8(0)
	i := b.g.entry
	for i >= 0 {
		s := &b.steps[i]
		if s.noOption != none && results>>s.noOption&1 == 0 {
			return verdictUndecided << verdictShift // or the byte is behind the packet
		}
		need = max(need, s.need)
		if s.variable && results>>b.validBit&1 == 0 {
			return 0 // outside of the packet, or what says where it is is
		}
		if results>>s.bit&1 == 1 != s.inverted {
			i = s.jt
		} else {
			i = s.jf
		}
	}
	if i == accept {
		return uint16(need) | verdictAccept<<verdictShift
	}
	return 0
}
