package pmd_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

var (
	_ pmd.Driver  = (*pmd.Memory)(nil)
	_ ring.Holder = (*pmd.Memory)(nil)
)

// pair is a memory pair with its pools.
type pair struct {
	arena        *ring.Arena
	poolA, poolB *ring.Pool
	a, b         *pmd.Memory
}

func newPair(t testing.TB, framesA, framesB, slots int) *pair {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: framesA + framesB, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	w := &pair{arena: arena}
	w.poolA, _ = arena.Cut(framesA)
	w.poolB, _ = arena.Cut(framesB)
	w.a, w.b, err = pmd.NewMemory(pmd.MemoryConfig{A: w.poolA, B: w.poolB, Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *pair) audit(t testing.TB, more ...ring.Holder) {
	t.Helper()
	if err := ring.Audit(w.arena, append(more, w.poolA, w.poolB, w.a, w.b)...); err != nil {
		t.Fatal(err)
	}
}

// held makes a batch a holder.
type held struct{ *packet.Batch }

func (h held) Holds(visit func(off uint32)) {
	for i := range h.D {
		visit(h.D[i].Off)
	}
}

// fill appends n packets of size bytes from pool, numbered from seq in their first 8 bytes.
func fill(t testing.TB, b *packet.Batch, pool *ring.Pool, seq, n, size int) {
	t.Helper()
	for i := range n {
		off, ok := pool.Get()
		if !ok {
			t.Fatalf("no frame for packet %d", seq+i)
		}
		b.Append(packet.Desc{Off: off, Len: uint16(size)})
		binary.BigEndian.PutUint64(b.Bytes(b.Len()-1), uint64(seq+i))
	}
}

func seqOf(b *packet.Batch, i int) int { return int(binary.BigEndian.Uint64(b.Bytes(i))) }

func TestMemoryDeliversInOrderWithoutCopyAndReturnsFrames(t *testing.T) {
	w := newPair(t, 8, 4, 16)
	tx, rx := packet.NewBatch(w.arena.View(), 8), packet.NewBatch(w.arena.View(), 3)
	fill(t, tx, w.poolA, 0, 4, 100)
	tx.D[1].Verdict, tx.D[1].Hash, tx.D[1].Flags = packet.Forward, 7, packet.FlagIPv4
	sent := tx.D[1].Off
	if n, err := w.a.Tx(10, tx); n != 4 || err != nil {
		t.Fatalf("Tx = %d, %v; want 4", n, err)
	}
	tx.Reset()
	w.audit(t)
	if n, err := w.b.Rx(20, rx); n != 3 || err != nil {
		t.Fatalf("Rx = %d, %v; want the batch's room, 3", n, err)
	}
	want := packet.Desc{Off: sent, Len: 100, Stamp: 20}
	if d := cmp.Diff(want, rx.D[1]); d != "" {
		t.Errorf("descriptor: %s", d)
	}
	for i := range 3 {
		if seqOf(rx, i) != i {
			t.Errorf("packet %d is number %d", i, seqOf(rx, i))
		}
	}
	w.audit(t, held{rx})
	w.poolB.PutBatch(rx)
	w.audit(t)
	if n, _ := w.b.Rx(30, rx); n != 1 || seqOf(rx, 0) != 3 {
		t.Fatalf("the rest is %d packets", n)
	}
	w.poolB.PutBatch(rx)
	if _, err := w.a.Rx(40, tx); err != nil {
		t.Fatal(err)
	}
	if w.poolA.Free() != 8 || w.poolB.Free() != 4 {
		t.Errorf("pools hold %d and %d frames at rest, want 8 and 4", w.poolA.Free(), w.poolB.Free())
	}
	got := [2]pmd.Stats{w.a.Info().Stats, w.b.Info().Stats}
	stats := [2]pmd.Stats{{TxPackets: 4, TxBytes: 400}, {RxPackets: 4, RxBytes: 400}}
	if d := cmp.Diff(stats, got); d != "" {
		t.Error(d)
	}
}

func TestMemoryRejectsAPacketLongerThanTheRing(t *testing.T) {
	w := newPair(t, 64, 64, 4)
	tx := packet.NewBatch(w.arena.View(), 64)
	fill(t, tx, w.poolA, 0, 6, 64)
	for i := range 4 {
		tx.D[i].Flags = packet.FlagMore
	}
	if n, _ := w.a.Tx(0, tx); n != 5 {
		t.Fatalf("Tx took %d descriptors, want the 5 of the packet that cannot be sent", n)
	}
	tx.Consume(5)
	if s := w.a.Info().Stats; s.TxInvalid != 1 {
		t.Errorf("TxInvalid = %d", s.TxInvalid)
	}
	w.audit(t, held{tx})
}

func TestMemoryCloseReturnsFrames(t *testing.T) {
	for _, first := range []string{"a", "b"} {
		t.Run(first+" closes first", func(t *testing.T) {
			w := newPair(t, 16, 16, 16)
			tx, rx := packet.NewBatch(w.arena.View(), 16), packet.NewBatch(w.arena.View(), 2)
			fill(t, tx, w.poolA, 0, 6, 64)
			tx.D[1].Flags = packet.FlagMore // b receives a part of it, for want of room
			w.a.Tx(0, tx)
			tx.Reset()
			fill(t, tx, w.poolB, 0, 3, 64)
			w.b.Tx(0, tx)
			tx.Reset()
			w.b.Rx(0, rx)
			one, two := w.a, w.b
			if first == "b" {
				one, two = w.b, w.a
			}
			one.Close()
			w.audit(t, held{rx})
			if _, err := one.Rx(0, tx); !errors.Is(err, pmd.ErrClosed) {
				t.Errorf("Rx on the closed end: %v", err)
			}
			fill(t, tx, w.poolB, 0, 1, 64)
			if n, err := two.Tx(0, tx); n != 0 || !errors.Is(err, pmd.ErrGone) {
				t.Errorf("Tx to a closed end = %d, %v; want ErrGone", n, err)
			}
			w.poolB.PutBatch(tx)
			if _, err := two.Rx(0, tx); !errors.Is(err, pmd.ErrGone) {
				t.Errorf("Rx from a closed end: %v", err)
			}
			two.Close()
			two.Close()
			w.poolB.PutBatch(rx)
			w.audit(t)
			if w.poolA.Free() != 16 || w.poolB.Free() != 16 {
				t.Errorf("pools hold %d and %d frames after Close, want 16 and 16", w.poolA.Free(), w.poolB.Free())
			}
			a, b := w.a.Info().Stats, w.b.Info().Stats
			if a.TxPackets != b.RxPackets+b.RxMissed || b.TxPackets != a.RxPackets+a.RxMissed {
				t.Errorf("sent is not received and lost: a %+v, b %+v", a, b)
			}
		})
	}
}

func TestMemoryBetweenTwoGoroutines(t *testing.T) {
	const total = 200_000
	w := newPair(t, 96, 96, 64)
	var wg sync.WaitGroup
	run := func(end *pmd.Memory, pool *ring.Pool, seed uint64) {
		defer wg.Done()
		rnd := rand.New(rand.NewPCG(seed, 1))
		tx, rx := packet.NewBatch(w.arena.View(), 32), packet.NewBatch(w.arena.View(), 32)
		sent, got := 0, 0
		for sent < total || got < total || tx.Len() > 0 {
			if n := min(rnd.IntN(20), pool.Free(), tx.Room(), total-sent); n > 0 {
				fill(t, tx, pool, sent, n, 64)
				sent += n
			}
			n, err := end.Tx(0, tx)
			if err != nil && !errors.Is(err, pmd.ErrGone) {
				t.Error(err)
				return
			}
			tx.Consume(n)
			n, _ = end.Rx(0, rx)
			for i := range n {
				if seqOf(rx, i) != got {
					t.Errorf("packet %d arrived in the place of %d", seqOf(rx, i), got)
					return
				}
				got++
			}
			pool.PutBatch(rx)
			if n == 0 {
				runtime.Gosched()
			}
		}
	}
	wg.Add(2)
	go run(w.a, w.poolA, 1)
	go run(w.b, w.poolB, 2)
	wg.Wait()
	w.audit(t)
}

func TestMemoryCloseWhileThePeerIsPolling(t *testing.T) {
	for range 200 {
		w := newPair(t, 32, 32, 16)
		tx := packet.NewBatch(w.arena.View(), 8)
		done := make(chan struct{})
		go func() {
			defer close(done)
			rx := packet.NewBatch(w.arena.View(), 8)
			for {
				_, err := w.b.Rx(0, rx)
				if err != nil {
					break
				}
				n, _ := w.b.Tx(0, rx)
				rx.Consume(n)
				w.poolB.PutBatch(rx)
			}
			w.b.Close()
		}()
		for range 10 {
			fill(t, tx, w.poolA, 0, min(8, w.poolA.Free()), 64)
			n, _ := w.a.Tx(0, tx)
			tx.Consume(n)
			w.poolA.PutBatch(tx)
		}
		w.a.Close()
		<-done
		w.audit(t)
	}
}

func TestMemoryNeedsPoolsOfOneArena(t *testing.T) {
	w, v := newPair(t, 2, 2, 2), newPair(t, 2, 2, 2)
	if _, _, err := pmd.NewMemory(pmd.MemoryConfig{A: w.poolA, B: v.poolA}); err == nil {
		t.Error("pools of two arenas were accepted")
	}
}

func BenchmarkMemoryRoundTrip(b *testing.B) {
	w := newPair(b, 512, 512, 512)
	batch := packet.NewBatch(w.arena.View(), 256)
	fill(b, batch, w.poolA, 0, 256, 64)
	for i := 0; i < b.N; i += 512 {
		now := clock.Time(i)
		n, _ := w.a.Tx(now, batch)
		batch.Consume(n)
		w.b.Rx(now, batch)
		n, _ = w.b.Tx(now, batch)
		batch.Consume(n)
		w.a.Rx(now, batch)
	}
}

// TestMemorySkipsAPacketThatNoBatchHolds lets a receiver with short batches go on behind it.
func TestMemorySkipsAPacketThatNoBatchHolds(t *testing.T) {
	w := newPair(t, 64, 64, 16)
	tx, rx := packet.NewBatch(w.arena.View(), 16), packet.NewBatch(w.arena.View(), 4)
	for round := range 5 {
		fill(t, tx, w.poolA, round, 6, 64) // a packet, one of four, one
		for i := 1; i < 4; i++ {
			tx.D[i].Flags = packet.FlagMore
		}
		fill(t, tx, w.poolA, round, 5, 64) // one of five
		for i := 6; i < 10; i++ {
			tx.D[i].Flags = packet.FlagMore
		}
		fill(t, tx, w.poolA, round, 1, 64)
		if n, err := w.a.Tx(0, tx); n != 12 || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		tx.Reset()
		var got uint64
		for range 10 {
			if _, err := w.b.Rx(0, rx); err != nil {
				t.Fatal(err)
			}
			w.audit(t, held{rx})
			packets := packet.Packets(rx.D)
			got += packets
			w.poolB.PutBatch(rx)
			w.a.Rx(0, tx) // collects
		}
		if s := w.b.Info().Stats; got != 4 || s.RxInvalid != uint64(round)+1 {
			t.Fatalf("round %d: %d packets came, %+v", round, got, s)
		}
	}
	if a, b := w.a.Info().Stats, w.b.Info().Stats; a.TxPackets != b.RxPackets+b.RxInvalid {
		t.Errorf("sent %d = received %d + invalid %d does not hold", a.TxPackets, b.RxPackets, b.RxInvalid)
	}
}

// TestMemoryWaitsForRoomInTheReturnedRing fills the ring of paid frames: nothing is received, and nothing passed
// over, that could not be paid for.
func TestMemoryWaitsForRoomInTheReturnedRing(t *testing.T) {
	w := newPair(t, 64, 64, 16)
	tx, short, long := packet.NewBatch(w.arena.View(), 16), packet.NewBatch(w.arena.View(), 4), packet.NewBatch(w.arena.View(), 32)
	send := func(chain int) { // a packet of so many descriptors, and small ones up to 16
		t.Helper()
		fill(t, tx, w.poolA, 0, 16, 64)
		for i := range chain - 1 {
			tx.D[i].Flags = packet.FlagMore
		}
		if n, err := w.a.Tx(0, tx); n != 16 || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		tx.Reset()
	}
	receive := func(b *packet.Batch, want int, invalid uint64) {
		t.Helper()
		n, err := w.b.Rx(0, b)
		if s := w.b.Info().Stats; n != want || err != nil || s.RxInvalid != invalid {
			t.Fatalf("Rx = %d, %v; %d invalid; want %d and %d", n, err, s.RxInvalid, want, invalid)
		}
		w.audit(t, held{b})
		w.poolB.PutBatch(b)
	}
	send(5)
	receive(short, 0, 1) // 5 are returned, 11 small ones are there
	send(6)              // collects the 5
	receive(short, 4, 1)
	receive(short, 4, 1)
	receive(short, 3, 1) // 11 are paid: room for 5
	receive(short, 0, 1) // 6 cannot be returned
	receive(long, 0, 1)  // nor be paid for
	w.a.Rx(0, tx)        // collects
	receive(short, 0, 2)
	receive(long, 10, 2)
}
