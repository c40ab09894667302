package afxdp

import (
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
