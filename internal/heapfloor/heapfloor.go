// Package heapfloor makes collections of a small heap rare.
//
// The runtime collects when the heap has doubled (GOGC 100). A proxy whose connections are short has some MB in use, so that a few
// hundred handshakes double it: it then spends percents of its time in collections, and the 99th percentile of its latencies is that
// of collections (docs/design/077). A floor is memory that counts as in use and is never touched: it takes address space and no pages.
package heapfloor

import (
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"golang.org/x/sys/unix"
)

// Floor is memory in use. A nil Floor is none.
type Floor struct{ unused []byte }

// usual is the percentage of growth between collections where the user has set none.
const usual = 100

// share is the part of the available memory that a floor takes at most.
const share = 16

// Hold returns a floor of n bytes, or fewer where the machine or the control group has little memory: the heap is collected when it
// has grown by as much, and the process has up to 2n bytes more resident. It returns nil where the user has bounded memory (GOMEMLIMIT)
// or chosen another percentage (GOGC).
func Hold(n int) *Floor {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 || percent() != usual { // -1 only reads the limit
		return nil
	}
	f := &Floor{make([]byte, size(n, available(os.DirFS("/"))))}
	if len(f.unused) == 0 {
		return nil
	}
	_ = unix.Madvise(f.unused, unix.MADV_DONTNEED) // the runtime may have written zeros; without it the pages stay resident
	return f
}

// Size returns the bytes of the floor; 0 of none and once it is released.
func (f *Floor) Size() int {
	if f == nil {
		return 0
	}
	return len(f.unused)
}

// size returns the bytes of a floor of n where so much memory is available; 0 is unknown.
func size(n int, available uint64) int {
	if available > 0 {
		n = int(min(uint64(n), available/share))
	}
	return n
}

// Release ends the floor with the next collection.
func (f *Floor) Release() {
	if f != nil {
		f.unused = nil
	}
}

// percent returns GOGC.
func percent() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
