package flow

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// BenchmarkFlows measures the stage alone, on tuples that are parsed already, by the number of flows in
// a table that is full: packets of known flows at random, and new flows only.
func BenchmarkFlows(b *testing.B) {
	for _, flows := range []int{1000, 1 << 20, MaxFlows} {
		if testing.Short() && flows > 1<<20 {
			continue
		}
		table, err := New(Config{Flows: flows, Idle: 1, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		for i := range flows {
			k := keyOf(uint32(i))
			table.find(&k, table.hash.sum(&k))
		}
		r := rand.New(rand.NewPCG(1, 1))
		works, batches, stage := make([]tuple.Chunk, 256), make([]*packet.Batch, 256), new(Stage)
		for i := range works {
			batches[i] = &packet.Batch{D: make([]packet.Desc, tuple.ChunkSize)}
			chunkOf(&works[i], batches[i], func() uint32 { return r.Uint32N(uint32(flows)) })
		}
		b.Run(fmt.Sprintf("known/flows=%d", flows), func(b *testing.B) {
			b.ReportMetric(float64(table.Size())/(1<<20), "MiB")
			measure(b, len(works), func(i int) { stage.Assign(&works[i], batches[i], table) })
		})
		// Steady state: as many flows end as begin, no place was never used.
		next := uint32(flows)
		for range 3 * flows {
			if next%uint32(max(flows/8, 1)) == 0 {
				table.Advance()
			}
			k := keyOf(next)
			table.find(&k, table.hash.sum(&k))
			next++
		}
		b.Run(fmt.Sprintf("new/flows=%d", flows), func(b *testing.B) {
			w, batch := new(tuple.Chunk), &packet.Batch{D: make([]packet.Desc, tuple.ChunkSize)}
			measure(b, 1, func(int) {
				if next%uint32(max(flows/8, 1)) < tuple.ChunkSize {
					table.Advance()
				}
				chunkOf(w, batch, func() uint32 { next++; return next })
				stage.Assign(w, batch, table)
			})
			if full := table.Stats().Full; full > uint64(next)/1000 {
				b.Errorf("%d flows of %d found no room", full, next)
			}
		})
		table.Close()
	}
}

// keyOf returns the key of flow i.
func keyOf(i uint32) key {
	u := tupleNumber(i)
	var k key
	k.set(&u, packet.FlagIPv4)
	return k
}

func tupleNumber(i uint32) tuple.Tuple {
	return tuple.Tuple{
		SrcHi: uint64(i*2654435761) << 32, DstHi: 0xc6120001 << 32, Ports: i<<16 | 443,
		Proto: wire.ProtoTCP, Known: tuple.Ports,
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
