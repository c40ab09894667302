package reassembly

import "math/bits"

// Budget bounds the memory of many streams: what is allocated for them, not what is in it. The zero value has no space. It
// keeps windows of streams that have ended, for the next ones, where they fit beside what is used.
type Budget struct {
	Max  int // bytes
	used int

	free      [freeSizes][][]byte // by capacity: 1 KiB << index
	freeBytes int
}

// Windows of 1 KiB to 128 KiB are kept, up to 8 MiB of them.
const (
	smallestWindow = 10 // log2
	freeSizes      = 8
	maxFree        = 8 << 20
)

// windowSize returns the capacity of a window of so many bytes.
func windowSize(size int) int {
	if i := max(bits.Len(uint(size-1))-smallestWindow, 0); i < freeSizes {
		return 1 << (smallestWindow + i)
	}
	return (size + largeWindow) &^ (largeWindow - 1)
}

// largeWindow divides the capacities of windows that are not kept: whole pages of the allocator.
const largeWindow = 64 << 10

// window returns an empty slice of a capacity that windowSize has returned.
func (b *Budget) window(size int) []byte {
	i := bits.Len(uint(size)) - 1 - smallestWindow
	if b == nil || i >= freeSizes || len(b.free[i]) == 0 {
		return make([]byte, 0, size)
	}
	n := len(b.free[i])
	w := b.free[i][n-1]
	b.free[i][n-1] = nil
	b.free[i] = b.free[i][:n-1]
	b.freeBytes -= cap(w)
	return w
}

// recycle takes a window that no stream has any more, and that is not counted any more.
func (b *Budget) recycle(w []byte) {
	i := bits.Len(uint(cap(w))) - 1 - smallestWindow
	if b == nil || i < 0 || i >= freeSizes || cap(w) != 1<<(smallestWindow+i) || b.freeBytes+cap(w) > maxFree || b.used+b.freeBytes+cap(w) > b.Max {
		return
	}
	b.free[i] = append(b.free[i], w[:0])
	b.freeBytes += cap(w)
}

// reclaim drops windows that are kept until n bytes are free, the largest first.
func (b *Budget) reclaim(n int) {
	for i := freeSizes - 1; i >= 0 && b.used+b.freeBytes+n > b.Max; i-- {
		for k := len(b.free[i]); k > 0 && b.used+b.freeBytes+n > b.Max; k-- {
			b.freeBytes -= cap(b.free[i][k-1])
			b.free[i][k-1] = nil
			b.free[i] = b.free[i][:k-1]
		}
	}
}

// Used returns how many bytes the streams hold.
func (b *Budget) Used() int { return b.used }

// take reserves n bytes, or returns them where n is negative.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	if n > 0 && b.used+n > b.Max {
		return false
	}
	if n > 0 && b.used+b.freeBytes+n > b.Max {
		b.reclaim(n)
	}
	b.used += n
	return true
}

// Reserve takes n bytes of the budget for something else than a stream, or returns them where n is negative. It reports false,
// and takes none, where there are fewer.
func (b *Budget) Reserve(n int) bool { return b.take(n) }

// Charge takes n bytes of the budget that are held already, or returns them where n is negative. It may exceed the bound:
// Reserve fails then.
func (b *Budget) Charge(n int) {
	b.used += n
	if b.used+b.freeBytes > b.Max {
		b.reclaim(0)
	}
}
