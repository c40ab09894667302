//go:build amd64 && !purego

package roce

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// What the machine can do, read once. Tests switch them off to reach the other forms.
var (
	canFold   = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41
	useAVX512 = cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL
)

// leastWide is the shortest copy for which four registers of 64 bytes pay.
const leastWide = 256

//go:noescape
func foldSSE(crc uint32, dst, src *byte, n int) uint32

//go:noescape
func foldAVX512(crc uint32, dst, src *byte, n int) uint32

// fold copies src, a multiple of 16 bytes and at least leastFold, to dst, which is as long.
func fold(dst, src []byte, crc uint32) uint32 {
	if useAVX512 && len(src) >= leastWide {
		return ^foldAVX512(^crc, &dst[0], &src[0], len(src))
	}
	return ^foldSSE(^crc, &dst[0], &src[0], len(src))
}

//go:noescape
func foldShort(crc uint32, src *byte, n int, mask *byte, masked int) uint32

// short returns crc updated with b, a multiple of 16 bytes and at least 16. Its first bytes count as ones where mask has ones; mask is a
// multiple of 16 bytes, too.
func short(b, mask []byte, crc uint32) uint32 {
	return ^foldShort(^crc, &b[0], len(b), unsafe.SliceData(mask), len(mask))
}
