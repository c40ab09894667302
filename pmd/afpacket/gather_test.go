package afpacket

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// A packet that cannot be received leaves no frame behind.
func TestGatherReturnsFramesOnFailure(t *testing.T) {
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 8, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	pool, err := a.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	q := &Queue{dev: &Device{}, pool: pool, rx: -1, packet: received{queued: true, size: 5000}}
	b := packet.NewBatch(a.View(), 8)
	q.take(b, 0, 5000)
	if q.gather(b, 0) || b.Len() != 0 || pool.Free() != pool.Size() || q.count.RxInvalid.Load() != 1 {
		t.Errorf("%d descriptors, %d of %d frames, %d invalid", b.Len(), pool.Free(), pool.Size(), q.count.RxInvalid.Load())
	}
}

func TestSlotSize(t *testing.T) {
	for mtu, want := range map[int]int{68: 2048, 1500: 2048, 1930: 2048, 1931: 4096, 9000: 16 << 10, 65536: 16 << 10} {
		if got := slotSize(mtu); got != want {
			t.Errorf("MTU %d: %d bytes, want %d", mtu, got, want)
		}
	}
}
