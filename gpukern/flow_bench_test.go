package gpukern

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

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
		table, err := NewFlowTable(FlowConfig{Flows: flows, Idle: 1, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		for i := range flows {
			k := keyOf(uint32(i))
			table.find(&k, table.hash.sum(&k))
		}
		r := rand.New(rand.NewPCG(1, 1))
		works, batches, stage := make([]chunk, 256), make([]*packet.Batch, 256), new(flowWork)
		for i := range works {
			batches[i] = &packet.Batch{D: make([]packet.Desc, chunkSize)}
			works[i].of(batches[i], func() uint32 { return r.Uint32N(uint32(flows)) })
		}
		b.Run(fmt.Sprintf("known/flows=%d", flows), func(b *testing.B) {
			b.ReportMetric(float64(table.Size())/(1<<20), "MiB")
			measure(b, len(works), func(i int) { stage.flow(&works[i], batches[i], table) })
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
			w, batch := new(chunk), &packet.Batch{D: make([]packet.Desc, chunkSize)}
			measure(b, 1, func(int) {
				if next%uint32(max(flows/8, 1)) < chunkSize {
					table.Advance()
				}
				w.of(batch, func() uint32 { next++; return next })
				stage.flow(w, batch, table)
			})
			if full := table.Stats().Full; full > uint64(next)/1000 {
				b.Errorf("%d flows of %d found no room", full, next)
			}
		})
		table.Close()
	}
}

// keyOf returns the key of flow i.
func keyOf(i uint32) flowKey {
	u := tupleNumber(i)
	var k flowKey
	k.set(&u, packet.FlagIPv4)
	return k
}

func tupleNumber(i uint32) tuple {
	return tuple{
		srcHi: uint64(i*2654435761) << 32, dstHi: 0xc6120001 << 32, ports: i<<16 | 443,
		proto: wire.ProtoTCP, known: knowsPorts,
	}
}

// of fills w with packets of flows.
func (w *chunk) of(b *packet.Batch, id func() uint32) {
	w.n = len(b.D)
	for k := range b.D {
		b.D[k].Flags = packet.FlagIPv4
		w.at[k], w.tuple[k] = int32(k), tupleNumber(id())
	}
}

// BenchmarkSketch measures the stage alone by the number of sources, in the sketch of the default size.
func BenchmarkSketch(b *testing.B) {
	for _, sources := range []uint32{1000, 1 << 20} {
		s := newSketch(b, SketchConfig{})
		r := rand.New(rand.NewPCG(1, 1))
		works, batches, stage := make([]chunk, 256), make([]*packet.Batch, 256), new(sketchWork)
		for i := range works {
			batches[i] = &packet.Batch{D: make([]packet.Desc, chunkSize)}
			works[i].of(batches[i], func() uint32 { return r.Uint32N(sources) })
		}
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			measure(b, len(works), func(i int) { stage.sketch(&works[i], batches[i], s) })
		})
	}
}

// BenchmarkMemo measures rules and routes with and without a flow table that remembers them: 64 batches of
// different packets of known flows, 10000 rules, a million routes.
func BenchmarkMemo(b *testing.B) {
	g := newGenerator(8)
	rules := classBench(g, 10000)
	t := Lists{Rules: rules, Routes: internet(g, 1000000)}.compile(b)
	for _, flows := range []int{1000, 100000} {
		all := make([]func() (src, dst [4]byte, sport, dport uint16, proto uint8), flows)
		trace := traceFor(g, rules)
		for i := range all {
			s, d, sp, dp, p := trace()
			binary.BigEndian.PutUint32(d[:], binary.BigEndian.Uint32(d[:]))
			all[i] = func() (src, dst [4]byte, sport, dport uint16, proto uint8) { return s, d, sp, dp, p }
		}
		var batches []*packet.Batch
		for range 64 {
			batches = append(batches, flowBatch(packet.BatchSize, 64, func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
				return all[g.IntN(flows)]()
			}))
		}
		for name, ops := range map[string]Ops{"tables": OpACL | OpLPM, "flow": OpFlow, "flow+tables": OpFlow | OpACL | OpLPM, "all": OpsHeader | OpFlow | OpSketch, "header": OpsHeader} {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, name), func(b *testing.B) {
				c := NewCPU(Config{
					Ops: ops, Tables: t, Flows: newFlows(b, FlowConfig{Flows: flows + flows/4}), Sketch: newSketch(b, SketchConfig{}),
				})
				done := make([]*packet.Batch, 1)
				measure(b, len(batches), func(i int) {
					if err := c.Submit(batches[i]); err != nil {
						b.Fatal(err)
					}
					c.Poll(done)
				})
			})
		}
	}
}
