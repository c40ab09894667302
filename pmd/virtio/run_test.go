package virtio

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSmallPacketsKeepTheirOrder sends packets of one buffer between those that need more: all arrive in order.
func TestSmallPacketsKeepTheirOrder(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		for i := range 20 {
			at := testBufs + 1000*i
			copy(g.mem[at:at+900], make([]byte, 900))
			g.mem[at+12] = byte(i)
			if i%5 == 3 {
				g.offer(fromDriverRing, item(at, 12), item(at+12, 60))
			} else {
				g.offer(fromDriverRing, item(at, 72))
			}
		}
		list, err := g.rx()
		if err != nil || len(list) != 20 {
			t.Fatalf("%d packets, %v", len(list), err)
		}
		for i, p := range list {
			if len(p) != 60 || p[0] != byte(i) {
				t.Errorf("packet %d: %d bytes, %x", i, len(p), p[:1])
			}
		}
		if n := g.returned(fromDriverRing); n != 20 {
			t.Errorf("%d buffers are returned", n)
		}
	})
}

// TestSegmentationWithoutAChecksumIsInvalid has a guest send small packets whose header contradicts itself: they are counted, and no
// frame has them.
func TestSegmentationWithoutAChecksumIsInvalid(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features|featuresToDevice)
		g.mem[testBufs+1] = 1 // GSO_TCPV4, and no incomplete checksum
		g.offer(fromDriverRing, item(testBufs, 200))
		g.offer(fromDriverRing, item(testBufs+1000, 72))
		if list, err := g.rx(); err != nil || len(list) != 1 {
			t.Errorf("%d packets, %v", len(list), err)
		}
		if n := g.q.Info().Stats.RxInvalid; n != 1 {
			t.Errorf("%d are invalid", n)
		}
	})
}

// TestFaultWithinARun takes the page away in which the second packet of a run ends: the first arrives, nothing of the second, and
// no frame is lost.
func TestFaultWithinARun(t *testing.T) {
	forms(t, func(t *testing.T, features uint64) {
		g := newGuest(t, features)
		const page = testBufs + 4096
		copy(g.mem[testBufs+12:], bytes.Repeat([]byte{7}, 60))
		g.offer(fromDriverRing, item(testBufs, 72))
		g.offer(fromDriverRing, item(page-200, 1000))
		g.offer(fromDriverRing, item(testBufs, 72))
		if err := unix.Ftruncate(g.fd, page); err != nil {
			t.Fatal(err)
		}
		list, err := g.rx()
		if err != nil || len(list) != 1 || !bytes.Equal(list[0], bytes.Repeat([]byte{7}, 60)) {
			t.Errorf("%d packets, %v", len(list), err)
		}
		g.brokenBy("a truncated page")
		if free := g.pool.Free(); free != g.pool.Size() {
			t.Errorf("%d of %d frames", free, g.pool.Size())
		}
	})
}
