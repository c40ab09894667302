package metrics

import (
	"sync"
	"testing"
	"unsafe"
)

func TestCounterFillsWholeCacheLines(t *testing.T) {
	if size := unsafe.Sizeof(Counter{}); size != 128 {
		t.Errorf("a Counter has %d bytes, want 128: neighbours would share a cache line", size)
	}
}

func TestBlockSharesNoCacheLineWithItsNeighbours(t *testing.T) {
	b := NewBlock(3)
	b.Add(0, 1)
	b.Add(2, 5)
	b.Add(2, 2)
	sum := []uint64{10, 10, 10}
	b.AddTo(sum)
	if b.Len() != 3 || sum[0] != 11 || sum[1] != 10 || sum[2] != 17 || b.Load(2) != 7 {
		t.Errorf("block holds %v, want 11, 10, 17 after adding to tens", sum)
	}
	if cap(b.row) != 3 {
		t.Errorf("the row can grow to %d, into its padding", cap(b.row))
	}
}

func TestReadersSumWhatTheLoopsCountWhileTheyCount(t *testing.T) {
	const loops, each = 4, 20_000
	counters := make([]Counter, loops)
	total := func() (sum uint64) {
		for i := range counters {
			sum += counters[i].Load()
		}
		return sum
	}
	blocks := make([]*Block, loops)
	var wg sync.WaitGroup
	for i := range loops {
		blocks[i] = NewBlock(2)
		wg.Go(func() {
			for range each {
				counters[i].Add(1)
				blocks[i].Add(1, 2)
			}
		})
	}
	var last uint64
	for range 100 {
		now := total()
		if now < last {
			t.Fatalf("the sum fell from %d to %d", last, now)
		}
		last = now
	}
	wg.Wait()
	sum := make([]uint64, 2)
	for _, b := range blocks {
		b.AddTo(sum)
	}
	if total() != loops*each || sum[0] != 0 || sum[1] != 2*loops*each {
		t.Errorf("counted %d and %v, want %d and [0 %d]", total(), sum, loops*each, 2*loops*each)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	var c Counter
	b, h := NewBlock(8), new(Histogram)
	sum, d := make([]uint64, 8), new(Distribution)
	n := testing.AllocsPerRun(100, func() {
		c.Add(3)
		b.Add(7, 1)
		b.AddTo(sum)
		h.Record(12345)
		h.RecordN(99, 64)
		h.AddTo(d)
		_ = d.Quantile(0.99)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
