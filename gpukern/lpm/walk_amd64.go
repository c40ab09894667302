//go:build amd64 && !purego

package lpm

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/millrace/millrace/gpukern/tuple"
)

// What the machine can do, read once. Tests switch it off to reach the other form.
var useAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasBMI2 && cpu.X86.HasPOPCNT

//go:noescape
func prefetchAsm(base unsafe.Pointer, shift uint64, at *uint32, n int)

//go:noescape
func bucketsAVX512(base unsafe.Pointer, q *bucketQuery, n int, out *uint16)

// Prefetch asks for the cache lines at base plus each of the indices times 1<<shift, and does not wait.
func Prefetch(base unsafe.Pointer, shift uint64, at []uint32) {
	if len(at) > 0 {
		prefetchAsm(base, shift, &at[0], len(at))
	}
}

// searchBuckets stores the values of all questions in out.
func searchBuckets(base unsafe.Pointer, q []bucketQuery, out *[tuple.ChunkSize]uint16) {
	if useAVX512 && len(q) > 0 {
		bucketsAVX512(base, &q[0], len(q), &out[0])
		return
	}
	searchBucketsPlain(base, q, out)
}
