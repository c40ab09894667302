package choose

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/expression"
)

// Expressions search pieces of streams for regular expressions: on all cores, on a GPU, or on the faster one (KindAuto).
// The results are the same. They belong to one goroutine at a time.
type Expressions struct {
	set  *expression.Set
	gpu  *cuda.Expressions // nil where the cores do everything
	auto bool
	now  func() time.Time

	// Measured with the first call that has something to measure; 0 before.
	coreNs float64 // of a byte, on all cores
	gpuNs  float64 // of a call of gpuBytes
	size   int     // gpuBytes

	Cores, GPU uint64 // bytes that each has searched
}

// OpenExpressions opens a search for a set. The caller closes it before the Opener. Without room on the GPU, KindCUDA fails
// and KindAuto takes the cores.
func (o *Opener) OpenExpressions(set *expression.Set) (*Expressions, error) {
	e := &Expressions{set: set, auto: o.cfg.Kind == KindAuto, now: time.Now}
	if o.device == nil {
		return e, nil
	}
	gpu, err := o.device.NewExpressions(set, cuda.ExpressionsConfig{})
	switch {
	case err == nil:
		e.gpu = gpu
	case o.cfg.Kind == KindCUDA:
		return nil, fmt.Errorf("%w: %w", ErrNoGPU, err)
	case o.cfg.Without != nil:
		o.cfg.Without(err)
	}
	return e, nil
}

// Close frees what is on the GPU.
func (e *Expressions) Close() error {
	if e.gpu == nil {
		return nil
	}
	return e.gpu.Close()
}

// Lost returns why the GPU is no longer used; nil while it is, and without one.
func (e *Expressions) Lost() error {
	if e.gpu == nil {
		return nil
	}
	return e.gpu.Lost()
}

// sampleBytes is the size of the text by which the cores are measured: a whole call takes too long.
const sampleBytes = 256 << 10

// ScanPieces is expression.Set.ScanPieces.
func (e *Expressions) ScanPieces(pieces []expression.Piece, hits []expression.Hit) []expression.Hit {
	n := 0
	for i := range pieces {
		n += len(pieces[i].Bytes)
	}
	if e.gpu == nil || e.gpu.Lost() != nil || e.auto && !e.pays(pieces, n) {
		e.Cores += uint64(n)
		return e.onCores(pieces, hits)
	}
	e.GPU += uint64(n)
	began := e.now()
	hits = e.gpu.ScanPieces(pieces, hits)
	if e.size < n {
		e.size, e.gpuNs = n, float64(e.now().Sub(began))
	}
	return hits
}

// pays reports whether a call of n bytes takes the GPU less time than all cores. The first large call goes to the GPU, and so measures
// it; a smaller one takes it no less than a fifth of that time.
func (e *Expressions) pays(pieces []expression.Piece, n int) bool {
	if e.coreNs == 0 {
		if n < sampleBytes {
			return false
		}
		e.coreNs = e.measureCores(pieces)
	}
	if e.size == 0 {
		return n >= sampleBytes
	}
	return float64(n)*e.coreNs > e.gpuNs*max(0.2, float64(n)/float64(e.size))
}

// measureCores searches the first pieces with copies of their streams and returns the time of a byte.
func (e *Expressions) measureCores(pieces []expression.Piece) float64 {
	copies := map[*expression.Stream]*expression.Stream{}
	var sample []expression.Piece
	n := 0
	for i := range pieces {
		p := pieces[i]
		if copies[p.Stream] == nil {
			copies[p.Stream] = &expression.Stream{Rows: slices.Clone(p.Stream.Rows), Found: slices.Clone(p.Stream.Found)}
		}
		p.Stream = copies[p.Stream]
		sample = append(sample, p)
		if n += len(p.Bytes); n >= sampleBytes {
			break
		}
	}
	began := e.now()
	e.onCores(sample, nil)
	return float64(e.now().Sub(began)) / float64(n)
}

// onCores searches on all cores, each the pieces of some streams.
func (e *Expressions) onCores(pieces []expression.Piece, hits []expression.Hit) []expression.Hit {
	cores := min(runtime.GOMAXPROCS(0), max(1, len(pieces)/16))
	if cores == 1 {
		return e.set.ScanPieces(pieces, hits)
	}
	parts := make([]struct {
		pieces []expression.Piece
		which  []uint32
		hits   []expression.Hit
		bytes  int
	}, cores)
	of := map[*expression.Stream]int{}
	for i := range pieces {
		part, known := of[pieces[i].Stream]
		if !known { // the one that has the least to do
			for k := range parts {
				if parts[k].bytes < parts[part].bytes {
					part = k
				}
			}
			of[pieces[i].Stream] = part
		}
		p := &parts[part]
		p.pieces, p.which, p.bytes = append(p.pieces, pieces[i]), append(p.which, uint32(i)), p.bytes+len(pieces[i].Bytes)
	}
	var work sync.WaitGroup
	for k := range parts {
		work.Go(func() { parts[k].hits = e.set.ScanPieces(parts[k].pieces, nil) })
	}
	work.Wait()
	first := len(hits)
	for k := range parts {
		for _, h := range parts[k].hits {
			h.Text = parts[k].which[h.Text]
			hits = append(hits, h)
		}
	}
	expression.SortHits(hits[first:], len(pieces))
	return hits
}
