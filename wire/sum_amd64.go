//go:build amd64 && !purego

package wire

import "golang.org/x/sys/cpu"

// What the machine can do, read once. Tests switch them off to reach the other forms.
var (
	useAVX512 = cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VNNI && cpu.X86.HasBMI2
	useAVX2   = cpu.X86.HasAVX2
)

// sumChunk is the most bytes that the vector forms add in one call: the sum of 2^15 words of 16 bits
// stays below 2^31.
const sumChunk = 1 << 16

//go:noescape
func sumAVX512(b *byte, n int) uint32

//go:noescape
func sumAVX2(b *byte, n int) uint32

// sumLong is Sum by the widest registers that the machine has.
func sumLong(b []byte, acc uint32) uint32 {
	for ; len(b) > sumChunk; b = b[sumChunk:] {
		acc = sumLong(b[:sumChunk], acc)
	}
	switch whole := len(b) &^ 31; {
	case useAVX512 && len(b) > 0:
		return finish(uint64(sumAVX512(&b[0], len(b))), acc)
	case useAVX2 && whole > 0:
		return sumGeneric(b[whole:], finish(uint64(sumAVX2(&b[0], whole)), acc))
	}
	return sumGeneric(b, acc)
}
