package dpdk_test

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// chainOf returns a packet in pieces of a size.
func chainOf(arena *ring.Arena, pool *ring.Pool, pieces, size int) *packet.Batch {
	b := packet.NewBatch(arena.View(), pieces)
	for i := range pieces {
		off, _ := pool.Get()
		d := packet.Desc{Off: off, Len: uint16(size), Flags: packet.FlagMore}
		if i == pieces-1 {
			d.Flags = 0
		}
		b.Append(d)
	}
	return b
}

// TestChainsHaveALimit sends packets of as many frames as a packet of 64 KiB has at most, and of one more, which is refused.
func TestChainsHaveALimit(t *testing.T) {
	need(t)
	arena, pools := memory(t, 1, 256, 2048)
	q := open(t, dpdk.Config{Name: "net_ring0", Pools: pools}).Queues[0]
	const limit = 40
	for pieces := limit; pieces <= limit+1; pieces++ {
		b := chainOf(arena, pools[0], pieces, 30)
		if n, err := q.Tx(1, b); n != pieces || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
	}
	in := packet.NewBatch(arena.View(), 128)
	if n, err := q.Rx(1, in); n != limit || err != nil {
		t.Errorf("Rx = %d, %v", n, err)
	}
	pools[0].PutBatch(in)
	if s := q.Info().Stats; s.TxPackets != 2 || s.TxInvalid != 1 || s.TxInvalidBytes != 30*(limit+1) || s.RxPackets != 1 {
		t.Errorf("%+v", s)
	}
}

// TestPacketsThatFitNoFrameOfTheReceiver sends a chain to a queue with another pool, which copies what it receives to one frame.
func TestPacketsThatFitNoFrameOfTheReceiver(t *testing.T) {
	need(t)
	arena, pools := memory(t, 2, 256, 2048)
	near, far, err := dpdk.RingWire(64, dpdk.Config{Pools: pools[:1], MTU: 4000}, dpdk.Config{Pools: pools[1:], MTU: 4000})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{900, 1500} {
		if n, err := near.Queues[0].Tx(1, chainOf(arena, pools[0], 2, size)); n != 2 || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
	}
	in := packet.NewBatch(arena.View(), 64)
	if n, err := far.Queues[0].Rx(1, in); n != 1 || err != nil || in.D[0].Len != 1800 {
		t.Errorf("Rx = %d, %v", n, err)
	}
	pools[1].PutBatch(in)
	if s := far.Queues[0].Info().Stats; s.RxPackets != 1 || s.RxInvalid != 1 {
		t.Errorf("%+v", s)
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	if err := far.Close(); err != nil {
		t.Error(err)
	}
}
