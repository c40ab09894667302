//go:build !amd64 || purego

package expr

import "github.com/millrace/millrace/packet"

// haveVectors reports that headerTable and vectorProgram are faster than the program here.
func haveVectors() bool { return false }

// decide has no form for this processor.
func (h *headerTable) decide(*packet.Arena, []packet.Desc, []uint32, []uint8) (whole bool) {
	panic("expr: no table for this processor")
}

func (t *parsedTable) find(d []packet.Desc, verdicts []uint8, list []uint32) (undecided []uint32) {
	return t.findGo(d, verdicts, list)
}

func (s *vectorState) describe(d []packet.Desc) (more uint64) {
	return describeGo(d, &s.off, &s.length)
}

func (s *vectorState) load(x *laneValues, c *column, dst *laneValues) (valid uint64) {
	return loadGo(s.mem, &s.off, &s.length, x, c, dst)
}

func computeLanes(x, y *laneValues, c *column, dst *laneValues) { computeGo(x, y, c, dst) }

func inRanges(v *laneValues, ranges []rangeTest) (hit uint64) { return inRangesGo(v, ranges) }

func inSet(v *laneValues, set *portSet) (hit uint64) { return inSetGo(v, set) }

func expand(accepted, undecided uint64, verdicts []uint8) { expandGo(accepted, undecided, verdicts) }
