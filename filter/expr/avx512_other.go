//go:build !amd64 || purego

package expr

import "github.com/millrace/millrace/packet"

// haveVectors says that headerTable and vectorProgram are faster than the program here.
func haveVectors() bool { return false }

// decide has no form for this processor.
func (h *headerTable) decide(*packet.Arena, []packet.Desc, []uint8) (whole bool) {
	panic("expr: no table for this processor")
}

func describe(d []packet.Desc, off, length *laneValues) (more uint64) {
	return describeGo(d, off, length)
}

func loadLanes(mem []byte, off, length, x *laneValues, c *column, dst *laneValues) (valid uint64) {
	return loadGo(mem, off, length, x, c, dst)
}

func computeLanes(x, y *laneValues, c *column, dst *laneValues) { computeGo(x, y, c, dst) }

func inRanges(v *laneValues, ranges []rangeTest) (hit uint64) { return inRangesGo(v, ranges) }

func inSet(v *laneValues, set *portSet) (hit uint64) { return inSetGo(v, set) }

func expand(accepted, undecided uint64, verdicts []uint8) { expandGo(accepted, undecided, verdicts) }
