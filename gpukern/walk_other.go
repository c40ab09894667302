//go:build !amd64 || purego

package gpukern

import "unsafe"

// prefetch asks for the cache lines at base plus each of the indices times 1<<shift, and does not wait;
// Go has no instruction for it here, so that nothing is asked.
func prefetch(base unsafe.Pointer, shift uint64, at []uint32) {}

func searchBuckets(base unsafe.Pointer, q []bucketQuery, out *[chunkSize]uint16) {
	searchBucketsPlain(base, q, out)
}
