//go:build amd64 && !purego

package expr

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/millrace/millrace/packet"
)

// useAVX512 reports that the machine has what decideAVX512 uses. Tests switch it off.
var useAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI && cpu.X86.HasBMI2

// decideAVX512 writes a verdict for each of n > 0 packets: h decides by the first bytes, which lie in size bytes at mem.
// Where list is not nil, it has the n packets to decide, by descriptor. seen is the or of all verdicts and, 16 bits
// higher, of all flags.
//
//go:noescape
func decideAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8, list *uint32) (seen uint32)

// decideJoinedAVX512 does so for a table whose lanes are joined.
//
//go:noescape
func decideJoinedAVX512(h *headerTable, table *uint16, mem *byte, size int, d *packet.Desc, n int, verdicts *uint8, list *uint32) (seen uint32)

// findAVX512 writes what t says of n > 0 descriptors. It lists those that are undecided; the list has 16 entries more than
// there are descriptors.
//
//go:noescape
func findAVX512(t *parsedTable, d *packet.Desc, n int, verdicts *uint8, list *uint32) (undecided int)

// haveVectors reports that headerTable and vectorProgram are faster than the program here.
func haveVectors() bool { return useAVX512 }

// decide writes a verdict for each descriptor, or for those that list has if it is not nil. whole says that all of
// these packets are decided and have one frame each.
func (h *headerTable) decide(a *packet.Arena, d []packet.Desc, list []uint32, verdicts []uint8) (whole bool) {
	n := len(d)
	if list != nil {
		n = len(list)
	}
	if n == 0 {
		return true
	}
	run := decideAVX512
	if h.joined {
		run = decideJoinedAVX512
	}
	seen := run(h, &h.table[0], unsafe.SliceData(a.Mem), len(a.Mem), &d[0], n, &verdicts[0], unsafe.SliceData(list))
	return seen&(verdictUndecided|uint32(packet.FlagMore)<<16) == 0
}

// find writes a verdict for each descriptor and returns those that are undecided. list has 16 entries more than d.
func (t *parsedTable) find(d []packet.Desc, verdicts []uint8, list []uint32) (undecided []uint32) {
	if useAVX512 {
		return list[:findAVX512(t, &d[0], len(d), &verdicts[0], &list[0])]
	}
	return t.findGo(d, verdicts, list)
}

// The operations on 64 packets with AVX-512, and the choice of the form.

// copyAVX512 copies the first bytes of n packets, which lie in size bytes at mem, to rows, with what lies behind a packet,
// and writes where they are. flags is the or of all flags.
//
//go:noescape
func copyAVX512(mem *byte, size int, d *packet.Desc, n int, rows *[width][rowLen]byte, off, length *laneValues) (flags uint32)

//go:noescape
func loadAVX512(mem *byte, off, length, x *laneValues, c *column, dst *laneValues, rows *[width][rowLen]byte) (valid uint64)

//go:noescape
func computeAVX512(x, y *laneValues, c *column, dst *laneValues)

//go:noescape
func inRangesAVX512(v *laneValues, r *rangeTest, n int) (hit uint64)

//go:noescape
func inSetAVX512(v *laneValues, set *portSet) (hit uint64)

//go:noescape
func expandAVX512(accepted, undecided uint64, n int, verdicts *uint8)

func (s *vectorState) describe(d []packet.Desc) (more uint64) {
	if !useAVX512 {
		return describeGo(d, &s.off, &s.length)
	}
	flags := copyAVX512(unsafe.SliceData(s.mem), len(s.mem), &d[0], len(d), &s.rows, &s.off, &s.length)
	clear(s.length[len(d):])
	if packet.Flags(flags)&packet.FlagMore == 0 {
		return 0
	}
	return describeGo(d, &s.off, &s.length)
}

func (s *vectorState) load(x *laneValues, c *column, dst *laneValues) (valid uint64) {
	if useAVX512 {
		return loadAVX512(unsafe.SliceData(s.mem), &s.off, &s.length, x, c, dst, &s.rows)
	}
	return loadGo(s.mem, &s.off, &s.length, x, c, dst)
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
