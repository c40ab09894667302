package exception_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/exception"
	"github.com/millrace/millrace/ring"
)

// TestQueuesShareAnInterface has a device with two queues: the kernel gets what comes on both, and answers by any.
func TestQueuesShareAnInterface(t *testing.T) {
	ns := testnet.For(t, "mr-exc-queues").Namespace("box")
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 2048, FrameSize: 2048, Huge: ring.HugeOff})
	must(t, err)
	defer arena.Close()
	var devices, peers [2]pmd.Driver
	var pools, peerPools [2]*ring.Pool
	for i := range 2 {
		pools[i], err = arena.Cut(512)
		must(t, err)
		peerPools[i], err = arena.Cut(512)
		must(t, err)
		devices[i], peers[i], err = pmd.NewMemory(pmd.MemoryConfig{A: pools[i], B: peerPools[i]})
		must(t, err)
	}
	var path *exception.Path
	must(t, ns.Do(func() (err error) {
		path, err = exception.Open(exception.Config{Device: devices[:], Pools: pools[:], Interface: "mr0"})
		return err
	}))
	_, err = ns.Run("ip", "addr", "add", "198.18.0.2/24", "dev", "mr0")
	must(t, err)

	in, now := packet.NewBatch(arena.View(), 64), clock.Time(1)
	for asked := range 2 {
		out := packet.NewBatch(arena.View(), 1)
		off, _ := peerPools[asked].Get()
		d := packet.Desc{Off: off + 128, Len: uint16(len(arpRequest(boxIP)))}
		copy(arena.Bytes(&d), arpRequest(boxIP))
		out.Append(d)
		if n, err := peers[asked].Tx(now, out); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		answered := false
		for end := time.Now().Add(10 * time.Second); !answered; {
			now = now.Add(time.Millisecond)
			for i, q := range path.Queues {
				if _, err := q.Rx(now, in); err != nil || in.Len() != 0 {
					t.Fatal(in.Len(), err)
				}
				if _, err := peers[i].Rx(now, in); err != nil {
					t.Fatal(err)
				}
				for k := range in.D {
					answered = answered || isARPReply(in.Bytes(k))
				}
				peerPools[i].PutBatch(in)
			}
			if time.Now().After(end) {
				t.Fatalf("no answer to a request on queue %d", asked)
			}
		}
		if to := path.Queues[asked].Info().Stats.ToKernel; to != 1 {
			t.Errorf("queue %d passed %d packets", asked, to)
		}
	}
	must(t, path.Close())
	for i := range 2 {
		must(t, peers[i].Close())
		if pools[i].Free() != 512 || peerPools[i].Free() != 512 {
			t.Errorf("queue %d: %d and %d of 512 frames", i, pools[i].Free(), peerPools[i].Free())
		}
	}
}
