package afxdp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
)

// pass plays the kernel: it moves n frames of the fill ring, with a packet in each, to the rx ring.
func (q *Queue) pass(n int) {
	from, to := *q.fill.cons, *q.rx.prod
	for i := range uint32(n) {
		*q.rx.desc(to + i) = unix.XDPDesc{Addr: *q.fill.addr(from + i) + 256, Len: 60}
	}
	*q.fill.cons += uint32(n)
	*q.rx.prod += uint32(n)
}

// inFill returns the frames in the fill ring, the next one first.
func (q *Queue) inFill() (offs []uint64) {
	for i := *q.fill.cons; i != *q.fill.prod; i++ {
		offs = append(offs, *q.fill.addr(i))
	}
	return offs
}

// Frames that are received and freed go back to the kernel in the order in which it used them, whatever the sizes of
// bursts: in random order each packet misses the TLB. Without this the order is random after a million packets.
func TestFramesKeepTheirOrder(t *testing.T) {
	q, p := plainQueue(t, 16384)
	q.nextProbe = clock.Never   // there is no socket
	next := map[uint64]uint64{} // the frame that follows
	first := q.inFill()
	if !slices.IsSorted(first) {
		t.Errorf("the first frames do not ascend: %d, %d, ...", first[0], first[1])
	}
	for i, off := range first {
		next[off] = first[(i+1)%len(first)]
	}
	b := packet.NewBatch(q.arena.View(), 64)
	rng := rand.New(rand.NewPCG(1, 2))
	for got := 0; got < 1_000_000; {
		for q.pass(int(1 + rng.Uint32()%130)); ; {
			n, err := q.Rx(1, b)
			if must(t, err); n == 0 {
				break
			}
			got += n
			p.PutBatch(b)
			if rng.Uint32()%8 == 0 { // the next packets come before the ring is found empty
				break
			}
		}
	}
	kept, now := 0, q.inFill()
	for i := range now[1:] {
		if next[now[i]] == now[i+1] {
			kept++
		}
	}
	if kept < len(now)-10 {
		t.Errorf("%d of %d frames follow the one they followed at the beginning", kept, len(now))
	}
}

// A burst that takes most of a small fill ring is made up for at once: the next Rx may be late.
func TestSmallFillRingIsRefilledWithinRx(t *testing.T) {
	q, _ := plainQueue(t, 512) // 128 frames wait for packets
	b := packet.NewBatch(q.arena.View(), 100)
	q.pass(100)
	if n, err := q.Rx(1, b); n != 100 || err != nil {
		t.Fatal(n, err)
	}
	if got := len(q.inFill()); got != 128 {
		t.Errorf("%d frames in the fill ring, want 128", got)
	}
}

// In copy mode frames are back in the pool when Tx returns, unless the kernel sends them later, as it does at times.
func TestCopyModeReapsWithinTx(t *testing.T) {
	w := newNetwork(t, 1, 1500).silencePeer(t)
	r := w.open(t, Config{Mode: ModeNative})
	q, pool := r.Queues[0], r.pools[0]
	b := packet.NewBatch(r.arena.View(), 32)
	for range 100 {
		for b.Room() > 0 {
			off, _ := pool.Get()
			b.Append(packet.Desc{Off: off, Len: 60})
			copy(b.Bytes(b.Len()-1), frame([6]byte{2}, [6]byte{4}, 60, 1))
		}
		n, err := q.Tx(1, b)
		must(t, err)
		if b.Consume(n); q.txHeld.n == 0 {
			return
		}
	}
	t.Error("no Tx of 100 found its frames sent")
}
