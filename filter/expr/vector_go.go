package expr

import (
	"encoding/binary"
	"math/bits"

	"github.com/millrace/millrace/packet"
)

// The operations on 64 packets, a packet at a time. Processors with AVX-512 have faster ones.

// describeGo writes where the packets of at most 64 descriptors are, and returns which go on in the next one.
func describeGo(d []packet.Desc, off, length *laneValues) (more uint64) {
	*off, *length = laneValues{}, laneValues{}
	for i := range d {
		off[i], length[i] = d[i].Off, uint32(d[i].Len)
		if d[i].Flags&packet.FlagMore != 0 {
			more |= 1 << i
		}
	}
	return more
}

// loadGo loads a column and returns for which packets it could.
func loadGo(mem []byte, off, length, x *laneValues, c *column, dst *laneValues) (valid uint64) {
	for i := range dst {
		dst[i] = 0
		if at := uint64(x[i]) + uint64(c.at); x[i] <= maxIndex && at+4 <= uint64(length[i]) {
			dst[i] = binary.BigEndian.Uint32(mem[uint64(off[i])+at:]) >> c.right & c.mask
			valid |= 1 << i
		}
	}
	return valid
}

// maxIndex is more than the offset of any byte of a packet.
const maxIndex = 1 << 16

func computeGo(x, y *laneValues, c *column, dst *laneValues) {
	for i := range dst {
		dst[i] = x[i]&c.mask>>c.right<<c.left + y[i] + c.at
	}
}

// inRangesGo returns which values are in any of the ranges.
func inRangesGo(v *laneValues, ranges []rangeTest) (hit uint64) {
	for _, r := range ranges {
		for i, x := range v {
			_, outside := bits.Sub32(r.span, x&r.mask-r.low, 0)
			hit |= uint64(1-outside) << i
		}
	}
	return hit
}

// inSetGo returns which values are in a set.
func inSetGo(v *laneValues, set *portSet) (hit uint64) {
	for i, x := range v {
		hit |= uint64(set[uint16(x)>>5]>>(x&31)&1) << i
	}
	return hit
}

// expandGo writes the verdicts of up to 64 packets.
func expandGo(accepted, undecided uint64, verdicts []uint8) {
	for i := range verdicts {
		verdicts[i] = uint8(accepted>>i&1) | uint8(undecided>>i&1)<<1
	}
}
