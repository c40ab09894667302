package afpacket

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
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

// So does one whose payload is placed; the next is received.
func TestPlacingReturnsTheFrameOnFailure(t *testing.T) {
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
	q.placer.Attach(func([]byte, int) (pmd.Placement, int, [][]byte) {
		return pmd.PlaceDirect, 54, [][]byte{make([]byte, 4946)}
	})
	b := packet.NewBatch(a.View(), 8)
	if how := q.placePayload(b, 0); how != pmd.PlaceDirect || b.Len() != 0 || pool.Free() != pool.Size() || q.count.RxInvalid.Load() != 1 || q.count.RxBytes.Load() != 0 {
		t.Errorf("%v: %d descriptors, %d of %d frames, %d invalid", how, b.Len(), pool.Free(), pool.Size(), q.count.RxInvalid.Load())
	}
	for pool.Free() > 0 {
		pool.Get()
	}
	if how := q.placePayload(b, 0); how != pmd.PlaceInFrames {
		t.Errorf("without a frame: %v", how)
	}
}

func TestSlotSize(t *testing.T) {
	for mtu, want := range map[int]int{68: 2048, 1500: 2048, 1930: 2048, 1931: 4096, 9000: 16 << 10, 65536: 16 << 10} {
		if got := slotSize(mtu); got != want {
			t.Errorf("MTU %d: %d bytes, want %d", mtu, got, want)
		}
	}
}
