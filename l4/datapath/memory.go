package datapath

import (
	"math/bits"
	"runtime"
	"time"
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

// pageSize is the size of a small page at least, bytes: where it is larger, less is given back.
const pageSize = 4096

// What the kernel is asked for.
const (
	adviceHuge  = unix.MADV_HUGEPAGE
	adviceSmall = unix.MADV_NOHUGEPAGE
)

// advise asks for huge pages or small ones from now on.
func (m memory) advise(advice int) {
	for _, b := range m {
		_ = unix.Madvise(b, advice) // a kernel without huge pages has small ones
	}
}

// release gives the whole pages of s back to the kernel, where s lies in m; they read as zero from now on.
func release[T any](m memory, s []T) {
	var one T
	at := uintptr(unsafe.Pointer(&s[0]))
	size := uintptr(len(s)) * unsafe.Sizeof(one)
	page := uintptr(unix.Getpagesize())
	from, to := (at+page-1)&^(page-1), (at+size)&^(page-1)
	if from >= to {
		return
	}
	for _, b := range m {
		if start := uintptr(unsafe.Pointer(&b[0])); start <= from && to <= start+uintptr(len(b)) {
			_ = unix.Madvise(b[from-start:to-start], unix.MADV_DONTNEED)
			return
		}
	}
}

// freeWith gives the memory back when owner, the only one that leads to it, is gone.
func (m memory) freeWith(owner *table) {
	if len(m) > 0 {
		runtime.AddCleanup(owner, memory.free, m)
	}
}

// freeSet is the free places of a table: a bit for each, and above them levels in which a bit stands for a word that is
// not zero, up to a single word. It finds the lowest free place, so that the places in use lie at the beginning and whole
// pages behind them become free; a list of free places, last in first out, would leave some in use on every page.
type freeSet struct {
	levels [][]uint64
	last   uint64 // of the lowest level: its word where all is free
}

// newFreeSet returns n free places.
func newFreeSet(n int) freeSet {
	f := freeSet{last: ^uint64(0) >> (-uint(n) % 64)}
	for {
		words := make([]uint64, (n+63)/64)
		for i := range words {
			words[i] = ^uint64(0)
		}
		if rest := n % 64; rest != 0 {
			words[len(words)-1] = 1<<rest - 1
		}
		f.levels = append(f.levels, words)
		if n = len(words); n <= 1 {
			return f
		}
	}
}

// take returns the lowest free place, which is in use from now on. There is one.
func (f *freeSet) take() int {
	n := 0
	for k := len(f.levels) - 1; k >= 0; k-- {
		n = n<<6 | bits.TrailingZeros64(f.levels[k][n])
	}
	for k, i := 0, n; k < len(f.levels); k, i = k+1, i>>6 {
		if f.levels[k][i>>6] &^= 1 << (i & 63); f.levels[k][i>>6] != 0 {
			break
		}
	}
	return n
}

// put makes place n free.
func (f *freeSet) put(n int) {
	for _, words := range f.levels {
		was := words[n>>6]
		words[n>>6] |= 1 << (n & 63)
		if was != 0 {
			return
		}
		n >>= 6
	}
}

// free64 reports whether all of the 64 places from 64*word on are free.
func (f *freeSet) free64(word int) bool {
	all := ^uint64(0)
	if word == len(f.levels[0])-1 {
		all = f.last
	}
	return f.levels[0][word] == all
}

// A table gives memory back when at most half of its connections since the last time are left: pages of which nothing is in
// use. It does so in steps of some ten microseconds, one for each tick, and at most every trimRest.
const (
	trimLeast = 4096             // connections: below a peak of so many it is not worth it
	trimStep  = 16               // pages of connections, or of the index, that a step looks at
	trimEvery = time.Millisecond // from one step to the next
	trimRest  = 20 * time.Second // from one end to the next start
)

// A page of connections is 64 of them: a word of the free set.
const (
	trimConns = trimStep * 64
	pageSlots = pageSize / 8 // of the index
)

// trimmer is the state of a table that returns memory.
type trimmer struct {
	peak    int // most connections since the last time
	start   int // connections when this time began
	next    int // step; -1 while there is nothing to do
	resting ticks
	small   bool // the kernel has been asked for small pages
}

// trim does a step where memory can be given back, and reports whether it wants to do another soon.
func (t *table) trim(now ticks) bool {
	x := &t.trimmer
	x.peak = max(x.peak, t.live)
	if x.small && t.live > len(t.conns)/4 {
		x.small = false
		t.memory.advise(adviceHuge)
	}
	if x.next < 0 {
		if x.peak < trimLeast || t.live > x.peak/2 || !x.resting.expired(now) {
			return false
		}
		// Huge pages are split where a part is given back, and the kernel would join, and back, them again.
		x.next, x.start, x.small = 0, t.live, true
		t.memory.advise(adviceSmall)
	}
	conns := (t.high + trimConns - 1) / trimConns
	if x.next < conns {
		t.trimConns(x.next * trimConns)
	} else {
		t.trimIndex((x.next - conns) * trimStep * pageSlots)
	}
	if x.next++; x.next < conns+(len(t.index)+trimStep*pageSlots-1)/(trimStep*pageSlots) {
		return true
	}
	// What has ended behind the steps is found the next time.
	x.next, x.peak, x.resting = -1, x.start, now+ticksIn(trimRest)
	t.lowerHigh()
	return false
}

// trimConns gives back the pages of the free places among those from at on.
func (t *table) trimConns(at int) {
	end := min(at+trimConns, (t.high+63)&^63)
	for at < end {
		from := at
		for at < end && t.free.free64(at/64) {
			at += 64
		}
		if at == from {
			at += 64
			continue
		}
		to := min(at, len(t.conns))
		release(t.memory, t.conns[from:to])
		release(t.memory, t.sequences[from:to])
		release(t.memory, t.seen[from:to])
		release(t.memory, t.closed[from:to])
	}
}

// trimIndex gives back the pages of empty slots among those from at on.
func (t *table) trimIndex(at int) {
	end := min(at+trimStep*pageSlots, len(t.index)) &^ (pageSlots - 1)
	for at < end {
		from := at
		for at < end && empty(t.index[at:at+pageSlots]) {
			at += pageSlots
		}
		if at == from {
			at += pageSlots
			continue
		}
		release(t.memory, t.index[from:at])
	}
}

// empty reports whether all slots are.
func empty(slots []uint64) bool {
	for _, s := range slots {
		if s != 0 {
			return false
		}
	}
	return true
}

// lowerHigh makes high the end of the places that are in use, so that nothing looks at those behind.
func (t *table) lowerHigh() {
	words := (t.high + 63) / 64
	for words > 0 && t.free.free64(words-1) {
		words--
	}
	t.high = min(t.high, 64*words)
}
