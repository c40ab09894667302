package gpukern_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

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

func benchEngine(b *testing.B, ops Ops, t Tables, batch *packet.Batch) {
	b.Helper()
	c := NewCPU(Config{Ops: ops, Tables: t})
	done := make([]*packet.Batch, 1)
	measure(b, 1, func(int) {
		if err := c.Submit(batch); err != nil {
			b.Fatal(err)
		}
		c.Poll(done)
	})
}

// BenchmarkPass measures the operations alone and together, a thousand rules and 100 routes.
func BenchmarkPass(b *testing.B) {
	g := kernref.Generator{Rand: rand.New(rand.NewPCG(1, 2))}
	rules := kernref.ClassBench(g, 1000)
	l := kernref.Lists{Rules: rules, Routes: kernref.Internet(g, 100)}
	t := compile(b, l)
	for _, size := range []int{64, 1408} {
		batch := kernref.FlowBatch(packet.BatchSize, size, kernref.TraceFor(g, rules))
		for _, ops := range []Ops{OpParse, OpChecksum, OpHash, OpACL, OpLPM, OpsHeader} {
			b.Run(fmt.Sprintf("%dB/%v", size, ops), func(b *testing.B) { benchEngine(b, ops, t, batch) })
		}
	}
}

// BenchmarkTables measures all operations at once by the size of the tables.
func BenchmarkTables(b *testing.B) {
	g := kernref.NewGenerator(8)
	for _, routes := range []int{100, 1000000} {
		hops := kernref.Internet(g, routes)
		for _, n := range []int{0, 100, 10000} {
			rules := kernref.ClassBench(g, n)
			t := compile(b, kernref.Lists{Rules: rules, Routes: hops})
			for _, size := range []int{64, 1408} {
				batch := kernref.FlowBatch(packet.BatchSize, size, kernref.TraceFor(g, rules))
				b.Run(fmt.Sprintf("%dB/rules=%d/routes=%d", size, n, routes), func(b *testing.B) {
					benchEngine(b, OpsHeader, t, batch)
				})
			}
		}
	}
}

// BenchmarkCold measures operations over packets that are in no cache: 512 Ki frames of 2 KiB in random order. The
// figure is CPU time, ns per packet: of all, and of the 32 Ki packets that went best.
func BenchmarkCold(b *testing.B) {
	const packets, slot, part = 1 << 19, 2048, 1 << 15
	g := kernref.NewGenerator(8)
	rules := kernref.ClassBench(g, 100)
	t := compile(b, kernref.Lists{Rules: rules, Routes: kernref.Internet(g, 100)})
	a, err := ring.NewArena(ring.ArenaConfig{Frames: packets, FrameSize: slot})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	runtime.LockOSThread() // its CPU time
	defer runtime.UnlockOSThread()
	small := kernref.FlowBatch(4096, 64, kernref.TraceFor(g, rules))
	var all []packet.Desc
	for i, p := range g.Perm(packets) {
		d := packet.Desc{Off: uint32(p*slot + 256), Len: 64}
		copy(a.View().Bytes(&d), small.Bytes(i%4096))
		all = append(all, d)
	}
	for _, burst := range []int{64, packet.BatchSize} {
		for _, ops := range []Ops{OpParse, OpParse | OpChecksum | OpHash, OpsHeader} {
			b.Run(fmt.Sprintf("burst=%d/%v", burst, ops), func(b *testing.B) {
				c := NewCPU(Config{Ops: ops, Tables: t})
				done := make([]*packet.Batch, 1)
				batch := &packet.Batch{Arena: a.View()}
				best, sum, at := int64(1e18), int64(0), 0
				for range b.N {
					start := threadCPU()
					for range part / burst {
						batch.D = all[at : at+burst]
						if err := c.Submit(batch); err != nil {
							b.Fatal(err)
						}
						c.Poll(done)
						at = (at + burst) % packets
					}
					took := threadCPU() - start
					best, sum = min(best, took), sum+took
				}
				b.ReportMetric(float64(sum)/float64(part*b.N), "ns/packet")
				b.ReportMetric(float64(best)/part, "best-ns/packet")
				b.ReportMetric(1000*part/float64(best), "best-Mpps")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// threadCPU returns the CPU time of this thread, ns.
func threadCPU() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}

// BenchmarkCompile measures how long tables take to make.
func BenchmarkCompile(b *testing.B) {
	g := kernref.NewGenerator(8)
	rules, routes := kernref.ClassBench(g, 10000), kernref.Internet(g, 1000000)
	b.Run("rules=10000", func(b *testing.B) {
		for b.Loop() {
			if _, err := acl.Compile(rules); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("routes=1000000", func(b *testing.B) {
		for b.Loop() {
			if _, err := lpm.Compile(routes); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkACL measures the pass with rules and nothing else over 64 batches of different packets.
func BenchmarkACL(b *testing.B) {
	for _, n := range []int{0, 10, 100, 1000, 10000} {
		g := kernref.Generator{Rand: rand.New(rand.NewPCG(uint64(n), 3))}
		rules := kernref.ClassBench(g, n)
		t := compile(b, kernref.Lists{Rules: rules})
		var batches []*packet.Batch
		for range 16 {
			batches = append(batches, kernref.FlowBatch(packet.BatchSize, 64, kernref.TraceFor(g, rules)))
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportMetric(float64(t.ACL.Size())/1024, "KiB")
			benchACL(b, t.ACL, batches)
		})
	}
}

// benchACL measures the stage alone, on tuples that are parsed already.
func benchACL(b *testing.B, a *acl.List, batches []*packet.Batch) {
	b.Helper()
	work := make([]Stages, len(batches))
	for i := range work {
		work[i].Parse(batches[i])
	}
	measure(b, len(work), func(k int) { work[k].ACL(batches[k], a) })
}

// BenchmarkLPM measures lookups of random addresses inside of the routes.
func BenchmarkLPM(b *testing.B) {
	for _, n := range []int{100, 10000, 1000000} {
		g := kernref.Generator{Rand: rand.New(rand.NewPCG(uint64(n), 4))}
		routes := kernref.Internet(g, n)
		t := compile(b, kernref.Lists{Routes: routes})
		var batches []*packet.Batch
		for range 16 {
			batches = append(batches, kernref.FlowBatch(packet.BatchSize, 64, func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
				r := routes[g.IntN(len(routes))].Prefix
				dst = r.Addr().As4()
				mask := uint32(uint64(1)<<(32-r.Bits()) - 1)
				binary.BigEndian.PutUint32(dst[:], binary.BigEndian.Uint32(dst[:])|g.Uint32()&mask)
				return dst, dst, 1, 2, wire.ProtoTCP
			}))
		}
		works := make([]Stages, len(batches))
		for i := range works {
			works[i].Parse(batches[i])
		}
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			b.ReportMetric(float64(t.Routes.Size())/1024, "KiB")
			measure(b, len(works), func(i int) { works[i].LPM(batches[i], t.Routes) })
		})
	}
}

// BenchmarkMemo measures rules and routes with and without a flow table that remembers them: 64 batches of
// different packets of known flows, 10000 rules, a million routes.
func BenchmarkMemo(b *testing.B) {
	g := kernref.NewGenerator(8)
	rules := kernref.ClassBench(g, 10000)
	t := compile(b, kernref.Lists{Rules: rules, Routes: kernref.Internet(g, 1000000)})
	for _, flows := range []int{1000, 100000} {
		all := make([]func() (src, dst [4]byte, sport, dport uint16, proto uint8), flows)
		trace := kernref.TraceFor(g, rules)
		for i := range all {
			s, d, sp, dp, p := trace()
			binary.BigEndian.PutUint32(d[:], binary.BigEndian.Uint32(d[:]))
			all[i] = func() (src, dst [4]byte, sport, dport uint16, proto uint8) { return s, d, sp, dp, p }
		}
		var batches []*packet.Batch
		for range 64 {
			batches = append(batches, kernref.FlowBatch(packet.BatchSize, 64, func() (src, dst [4]byte, sport, dport uint16, proto uint8) {
				return all[g.IntN(flows)]()
			}))
		}
		for name, ops := range map[string]Ops{"tables": OpACL | OpLPM, "flow": OpFlow, "flow+tables": OpFlow | OpACL | OpLPM, "all": OpsHeader | OpFlow, "header": OpsHeader} {
			b.Run(fmt.Sprintf("flows=%d/%s", flows, name), func(b *testing.B) {
				c := NewCPU(Config{
					Ops: ops, Tables: t, Flows: newFlows(b, flow.Config{Flows: flows + flows/4}),
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
