package sketch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// BenchmarkSketch measures the stage alone by the number of sources, in the sketch of the default size.
func BenchmarkSketch(b *testing.B) {
	for _, sources := range []uint32{1000, 1 << 20} {
		s := newSketch(b, Config{})
		r := rand.New(rand.NewPCG(1, 1))
		works, batches, stage := make([]tuple.Chunk, 256), make([]*packet.Batch, 256), new(Stage)
		for i := range works {
			batches[i] = &packet.Batch{D: make([]packet.Desc, tuple.ChunkSize)}
			chunkOf(&works[i], batches[i], func() uint32 { return r.Uint32N(sources) })
		}
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			measure(b, len(works), func(i int) { stage.Count(&works[i], batches[i], s) })
		})
	}
}

// chunkOf fills w with packets of flows.
func chunkOf(w *tuple.Chunk, b *packet.Batch, id func() uint32) {
	w.N = len(b.D)
	for k := range b.D {
		b.D[k].Flags = packet.FlagIPv4
		w.At[k], w.Tuple[k] = int32(k), tupleNumber(id())
	}
}

func tupleNumber(i uint32) tuple.Tuple {
	return tuple.Tuple{
		SrcHi: uint64(i*2654435761) << 32, DstHi: 0xc6120001 << 32, Ports: i<<16 | 443,
		Proto: wire.ProtoTCP, Known: tuple.Ports,
	}
}

// measure runs do(0) to do(n-1), each of which handles one batch, in turns, and reports the time of a
// packet: the mean, and that of the best run of each batch, which other programs on the machine
// disturb less.
func measure(b *testing.B, n int, do func(i int)) {
	b.Helper()
	best := make([]time.Duration, n)
	for i := range best {
		best[i] = time.Hour
	}
	b.ReportAllocs()
	runs := 0
	for b.Loop() {
		i := runs % n
		start := time.Now()
		do(i)
		best[i] = min(best[i], time.Since(start))
		runs++
	}
	if runs < n {
		return
	}
	var sum time.Duration
	for _, d := range best {
		sum += d
	}
	mean := float64(b.Elapsed().Nanoseconds()) / float64(packet.BatchSize*runs)
	ns := float64(sum.Nanoseconds()) / float64(packet.BatchSize*n)
	b.ReportMetric(mean, "ns/packet")
	b.ReportMetric(ns, "best-ns/packet")
	b.ReportMetric(1000/ns, "best-Mpps")
	b.ReportMetric(0, "ns/op")
}
