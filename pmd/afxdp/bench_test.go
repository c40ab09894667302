package afxdp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// plainQueue is a queue on rings in ordinary memory, without a kernel: for what the driver itself
// costs.
func plainQueue(t testing.TB, frames int) (*Queue, *ring.Pool) {
	t.Helper()
	a := newArena(t, frames, 2048)
	p := cut(t, a, 0)
	cfg, err := Config{Interface: dev, Pools: []*ring.Pool{p}}.withDefaults()
	must(t, err)
	s := &socket{fd: -1, wakeup: true}
	for _, r := range []*xring{&s.fill, &s.comp, &s.rx, &s.tx} {
		mem := make([]uint64, 2*DefaultRing)
		idx := new([48]uint32)
		*r = xring{prod: &idx[0], cons: &idx[16], flags: &idx[32], entries: entries{unsafe.Pointer(&mem[0]), DefaultRing - 1}, size: DefaultRing}
	}
	q := newQueue(&cfg, s, 0, p)
	q.maxPacket = 1518
	q.refill()
	return q, p
}

// BenchmarkRx receives batches of 64 and frees them. The figure is per packet.
func BenchmarkRx(b *testing.B) {
	q, p := plainQueue(b, 16384)
	batch := packet.NewBatch(q.arena.View(), 64)
	for range b.N / 64 {
		k := *q.fill.cons
		for i := range uint32(64) {
			*q.rx.desc(*q.rx.prod + i) = unix.XDPDesc{Addr: *q.fill.addr(k + i) + 256, Len: 60}
		}
		*q.rx.prod += 64
		*q.fill.cons += 64
		if n, _ := q.Rx(1, batch); n != 64 {
			b.Fatal(n)
		}
		p.PutBatch(batch)
	}
}

// BenchmarkTx sends batches of 64 and reaps them. The figure is per packet.
func BenchmarkTx(b *testing.B) {
	q, p := plainQueue(b, 16384)
	batch := packet.NewBatch(q.arena.View(), 64)
	for range b.N / 64 {
		for range 64 {
			off, _ := p.Get()
			batch.Append(packet.Desc{Off: off, Len: 60})
		}
		if n, _ := q.Tx(1, batch); n != 64 {
			b.Fatal(n)
		}
		batch.Reset()
		k := *q.tx.cons
		for i := range uint32(64) {
			*q.comp.addr(*q.comp.prod + i) = q.tx.desc(k + i).Addr
		}
		*q.tx.cons += 64
		*q.comp.prod += 64
	}
}

// BenchmarkVeth sends bursts of random sizes over a veth pair, by a second driver on the same thread, and receives
// them: with the frames in the fill ring in sequence or in random order, and few or many of them. The figure is the
// CPU time of both sides, ns per packet, the kernel's share included.
func BenchmarkVeth(b *testing.B) {
	for _, size := range []int{60, 1500} {
		for _, frames := range []int{512, 16384} {
			for _, random := range []bool{false, true} {
				b.Run(fmt.Sprintf("size=%d/frames=%d/random=%v", size, frames, random), func(b *testing.B) { benchVeth(b, size, frames, random) })
			}
		}
	}
}

func benchVeth(b *testing.B, size, frames int, random bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := newNetwork(b, 1, 1500).silencePeer(b)
	rng := rand.New(rand.NewPCG(1, 2))
	pools := [2]*ring.Pool{}
	for i := range pools {
		a, err := ring.NewArena(ring.ArenaConfig{Frames: 32768})
		must(b, err)
		b.Cleanup(func() { a.Close() })
		pools[i] = cut(b, a, 0)
	}
	if random {
		offs := slices.Clone(pools[0].GetBatch(frames))
		rng.Shuffle(len(offs), func(i, j int) { offs[i], offs[j] = offs[j], offs[i] })
		for _, off := range offs {
			pools[0].Put(off)
		}
	}
	const n = 16384
	to := w.open(b, Config{All: true, Mode: ModeNative, Pools: pools[:1], Rings: Rings{n, n, n, n}, RxFrames: frames}).Queues[0]
	var from *Device
	must(b, w.peer.Do(func() (err error) {
		from, err = Open(Config{Interface: peerDev, Mode: ModeNative, Pools: pools[1:]})
		return err
	}))
	defer from.Close()
	out, in := packet.NewBatch(pools[1].Arena().View(), 256), packet.NewBatch(to.arena.View(), 64)
	burst := func() (got int) {
		for range 16 + rng.IntN(120) {
			off, _ := pools[1].Get()
			out.Append(packet.Desc{Off: off, Len: uint16(size)})
			out.Bytes(out.Len() - 1)[0] = 2
		}
		sent, err := from.Queues[0].Tx(1, out)
		must(b, err)
		for out.Consume(sent); ; {
			n, err := to.Rx(1, in)
			if must(b, err); n == 0 {
				return got
			}
			got += n
			pools[0].PutBatch(in)
		}
	}
	for got := 0; got < 4*frames; {
		got += burst()
	}
	start, got := threadCPU(), 0
	for b.ResetTimer(); got < b.N; {
		got += burst()
	}
	b.ReportMetric(float64(threadCPU()-start)/float64(got), "cpu-ns/packet")
}

// threadCPU returns the CPU time of this thread, ns.
func threadCPU() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}
