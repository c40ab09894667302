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

// decide writes a verdict for each descriptor. ok is false where this processor cannot; whole says that all packets are
// decided and have one frame each.
func (h *headerTable) decide(a *packet.Arena, d []packet.Desc, verdicts []uint8) (whole, ok bool) {
	if !useAVX512 {
		return false, false
	}
	seen := decideAVX512(h, &h.table[0], unsafe.SliceData(a.Mem), len(a.Mem), &d[0], len(d), &verdicts[0])
	return seen&(verdictUndecided|uint32(packet.FlagMore)<<16) == 0, true
}
