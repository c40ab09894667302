//go:build amd64 && !purego

package expr

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/millrace/millrace/packet"
)

// useAVX512 says that the machine has what decideAVX512 uses. Tests switch it off.
var useAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VBMI && cpu.X86.HasBMI2

// decideAVX512 writes a verdict for each of n > 0 packets: h decides by the first bytes.
//
//go:noescape
func decideAVX512(h *headerTable, table *uint32, mem *byte, d *packet.Desc, n int, verdicts *uint8)

// decide writes a verdict for each descriptor, and reports whether it could.
func (h *headerTable) decide(a *packet.Arena, d []packet.Desc, verdicts []uint8) bool {
	if !useAVX512 {
		return false
	}
	decideAVX512(h, &h.table[0], unsafe.SliceData(a.Mem), &d[0], len(d), &verdicts[0])
	return true
}
