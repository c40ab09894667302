package datapath

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page, bytes. What is smaller lies on the Go heap.
const hugePage = 2 << 20

// memory is the mappings of a table. They lie outside the Go heap, so that the garbage collector never looks
// at them, on huge pages where the kernel has them: random accesses to a million connections then hit the
// TLB. The kernel backs them page by page when they are used, so a large table that stays empty costs little.
type memory [][]byte

// free gives the memory back.
func (m memory) free() {
	for _, b := range m {
		unix.Munmap(b) // of what Mmap returned: it cannot fail
	}
}

// slice returns n zero values of T, which has no pointers, beginning on a cache line.
func slice[T any](m *memory, n int) []T {
	var one T
	size := n * int(unsafe.Sizeof(one))
	if size < hugePage {
		return make([]T, n)
	}
	b, err := unix.Mmap(-1, 0, size+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return make([]T, n) // which says what is wrong, if memory is out
	}
	*m = append(*m, b)
	skip := -uintptr(unsafe.Pointer(&b[0])) & (hugePage - 1)
	b = b[skip : skip+uintptr(size)]
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a kernel without them has small ones
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// freeWith gives the memory back when owner, the only one that leads to it, is gone.
func (m memory) freeWith(owner *table) {
	if len(m) > 0 {
		runtime.AddCleanup(owner, memory.free, m)
	}
}
