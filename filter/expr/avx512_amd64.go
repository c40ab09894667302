//go:build amd64 && !purego

package expr

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/millrace/millrace/packet"
)

// useAVX512 says that the machine has what decideAVX512 uses. Tests switch it off.
var useAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI && cpu.X86.HasBMI2

// decideAVX512 writes a verdict for each of n > 0 packets: h decides by the first bytes, which lie in size bytes at mem.
// The result is the or of all verdicts and, 16 bits higher, of all flags.
//
//go:noescape
func decideAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8) uint32

// haveVectors says that headerTable and vectorProgram are faster than the program here.
func haveVectors() bool { return useAVX512 }

// decide writes a verdict for each descriptor. whole says that all packets are decided and have one frame each.
func (h *headerTable) decide(a *packet.Arena, d []packet.Desc, verdicts []uint8) (whole bool) {
	seen := decideAVX512(h, &h.table[0], unsafe.SliceData(a.Mem), len(a.Mem), &d[0], len(d), &verdicts[0])
	return seen&(verdictUndecided|uint32(packet.FlagMore)<<16) == 0
}

// The operations on 64 packets with AVX-512, and the choice of the form.

//go:noescape
func describeAVX512(d *packet.Desc, n int, off, length *laneValues) (more uint64)

//go:noescape
func loadAVX512(mem *byte, off, length, x *laneValues, c *column, dst *laneValues) (valid uint64)

//go:noescape
func computeAVX512(x, y *laneValues, c *column, dst *laneValues)

//go:noescape
func inRangesAVX512(v *laneValues, r *rangeTest, n int) (hit uint64)

//go:noescape
func inSetAVX512(v *laneValues, set *portSet) (hit uint64)

//go:noescape
func expandAVX512(accepted, undecided uint64, n int, verdicts *uint8)

func describe(d []packet.Desc, off, length *laneValues) (more uint64) {
	if useAVX512 {
		return describeAVX512(&d[0], len(d), off, length)
	}
	return describeGo(d, off, length)
}

func loadLanes(mem []byte, off, length, x *laneValues, c *column, dst *laneValues) (valid uint64) {
	if useAVX512 {
		return loadAVX512(unsafe.SliceData(mem), off, length, x, c, dst)
	}
	return loadGo(mem, off, length, x, c, dst)
}

func computeLanes(x, y *laneValues, c *column, dst *laneValues) {
	if useAVX512 {
		computeAVX512(x, y, c, dst)
		return
	}
	computeGo(x, y, c, dst)
}

func inRanges(v *laneValues, ranges []rangeTest) (hit uint64) {
	if useAVX512 {
		return inRangesAVX512(v, unsafe.SliceData(ranges), len(ranges))
	}
	return inRangesGo(v, ranges)
}

func inSet(v *laneValues, set *portSet) (hit uint64) {
	if useAVX512 {
		return inSetAVX512(v, set)
	}
	return inSetGo(v, set)
}

func expand(accepted, undecided uint64, verdicts []uint8) {
	if useAVX512 {
		expandAVX512(accepted, undecided, len(verdicts), &verdicts[0])
		return
	}
	expandGo(accepted, undecided, verdicts)
}
