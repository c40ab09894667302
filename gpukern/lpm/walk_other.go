//go:build !amd64 || purego

package lpm

import (
	"unsafe"

	"github.com/millrace/millrace/gpukern/tuple"
)

// Prefetch asks for the cache lines at base plus each of the indices times 1<<shift, and does not wait;
// Go has no instruction for it here, so that nothing is asked.
func Prefetch(base unsafe.Pointer, shift uint64, at []uint32) {}

func searchBuckets(base unsafe.Pointer, q []bucketQuery, out *[tuple.ChunkSize]uint16) {
	searchBucketsPlain(base, q, out)
}
