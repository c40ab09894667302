package socket

import (
	"testing"
	"unsafe"
)

// Waiters of loops on different cores must not share a cache line, nor must their channels. The address of a
// channel is what its variable holds.
func TestWaitersShareNoCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(waiter{}); n%64 != 0 {
		t.Errorf("a waiter has %d bytes, not a multiple of 64", n)
	}
	for range 100 {
		w := waiters.New().(*waiter)
		if at := *(*uintptr)(unsafe.Pointer(&w.woken)); at%64 != 0 {
			t.Fatalf("a channel begins at %#x, inside of a cache line", at)
		}
	}
}
