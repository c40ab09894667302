package buffer

import (
	"testing"
	"unsafe"
)

// A Queue and a Ring are allocated by themselves. Loops on different cores must not write one cache line.
func TestQueueAndRingFillCacheLines(t *testing.T) {
	for name, n := range map[string]uintptr{"Queue": unsafe.Sizeof(Queue{}), "Ring": unsafe.Sizeof(Ring{})} {
		if n%64 != 0 {
			t.Errorf("%s has %d bytes, not a multiple of 64", name, n)
		}
	}
}
