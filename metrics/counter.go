// Package metrics holds the counters and histograms that loops write while they run, and the series
// that a scrape reads from them.
//
// A loop owns what it writes: a Counter, Block or Histogram has one writer, which uses plain atomic
// stores and never a locked instruction, and any number of readers, which sum over the loops. What
// is counted is named by the packages above, by a Source that a Registry calls at each scrape:
//
//	reg := metrics.NewRegistry(metrics.Build{Version: "1.2.0"})
//	reg.Add(func(w *metrics.Writer) {
//		w.Counter("millrace_gateway_connections_total", "Connections accepted.", opened.Sum(),
//			metrics.Label{Name: "service", Value: "web"})
//	})
//	series, err := reg.Gather()
//
// Serving them over HTTP is up to the program: cmd/prom does it with Prometheus's client library,
// which a program that imports this package need not link.
//
// Names are millrace_<layer>_<thing>_<unit>, with _total behind counters; units are the base units
// (seconds, bytes). The package imports no other of Millrace, so that each may import it.
package metrics

import (
	"sync/atomic"
	"unsafe"
)

// pad keeps what two cores write on different cache lines, 128 bytes because CPUs prefetch lines in pairs.
type pad [128]byte

// Counter only grows. One goroutine adds, any may read.
type Counter struct {
	v atomic.Uint64
	_ [120]byte // the next counter of a slice belongs to another loop
}

// Add adds n. Only the counter's owner may call it: two would lose counts.
func (c *Counter) Add(n uint64) { c.v.Store(c.v.Load() + n) }

// Load returns the count.
func (c *Counter) Load() uint64 { return c.v.Load() }

// Block is a row of counters that one loop owns, indexed by a small number: a drop reason, a
// protocol. They share cache lines with each other but not with anything else.
type Block struct{ row []atomic.Uint64 }

// linePairs is the number of counters in a pair of cache lines.
const linePairs = len(pad{}) / 8

// NewBlock returns n counters.
func NewBlock(n int) *Block {
	whole := make([]atomic.Uint64, n+2*linePairs)
	return &Block{whole[linePairs : linePairs+n : linePairs+n]}
}

// Len returns the number of counters.
func (b *Block) Len() int { return len(b.row) }

// Addr returns the address of the first counter, for a prefetch.
func (b *Block) Addr() uintptr { return uintptr(unsafe.Pointer(&b.row[0])) }

// Add adds n to counter i. Only the block's owner may call it.
func (b *Block) Add(i int, n uint64) { b.row[i].Store(b.row[i].Load() + n) }

// Load returns counter i.
func (b *Block) Load(i int) uint64 { return b.row[i].Load() }

// AddTo adds each counter to the same place of sum, which is at least as long as the block.
func (b *Block) AddTo(sum []uint64) {
	for i := range b.row {
		sum[i] += b.row[i].Load()
	}
}
