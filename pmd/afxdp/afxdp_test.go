package afxdp

import (
	"bytes"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// exchange sends n frames each way between the peer's raw socket and queue 0, and compares bytes.
func (w *network) exchange(t testing.TB, r *rig, n int) {
	t.Helper()
	peer := w.wire(t)
	host, far := w.mac(t, w.host, dev), w.mac(t, w.peer, peerDev)
	b := packet.NewBatch(r.arena.View(), 64)
	size := func(i int) int { return 60 + i*37%(r.Queues[0].Info().MTU+14-60) }
	hello := frame(host, far, 60, 1<<32-1)
	r.waitForLink(t, b, func() { peer.send(t, hello) })
	for i := range n {
		want := frame(host, far, size(i), uint32(i))
		peer.send(t, want)
		got := r.next(t, b)
		for bytes.Equal(got, hello) { // one that came late
			got = r.next(t, b)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("frame %d: received %d bytes\n%x, sent %d\n%x", i, len(got), got, len(want), want)
		}
		r.pools[0].PutBatch(b)
	}
	for i := range n {
		want := frame(far, host, size(i), uint32(i))
		r.append(t, b, want)
		r.send(t, b)
		if got := peer.recv(t, isTest); !bytes.Equal(got, want) {
			t.Fatalf("frame %d: the peer received %d bytes\n%x, sent %d\n%x", i, len(got), got, len(want), want)
		}
	}
}

// waitForLink sends until something arrives: a link whose XDP program was just attached may lose what comes
// while it starts.
func (r *rig) waitForLink(t testing.TB, b *packet.Batch, send func()) {
	t.Helper()
	for end := time.Now().Add(patience); b.Len() == 0; {
		if time.Now().After(end) {
			t.Fatalf("nothing arrives: %+v", r.Queues[0].Info())
		}
		send()
		for again := time.Now().Add(100 * time.Millisecond); b.Len() == 0 && time.Now().Before(again); {
			if _, err := r.Queues[0].Rx(0, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.pools[0].PutBatch(b)
}

// next receives until a test frame is in, of one frame or several, and returns its bytes. The
// batch is left with its frames.
func (r *rig) next(t testing.TB, b *packet.Batch) []byte {
	t.Helper()
	for {
		r.pools[0].PutBatch(b)
		r.recv(t, b, 1)
		for i := 0; i < b.Len(); i++ {
			var whole []byte
			for ; b.D[i].Flags.Has(packet.FlagMore); i++ {
				whole = append(whole, b.Bytes(i)...)
			}
			if whole = append(whole, b.Bytes(i)...); isTest(whole) {
				return whole
			}
		}
	}
}

// append puts a packet into frames of pool 0, as many as it takes.
func (r *rig) append(t testing.TB, b *packet.Batch, p []byte) {
	t.Helper()
	if !testpackets.Append(b, r.pools[0], p) {
		t.Fatal("no frame is free")
	}
}

// send transmits all of b.
func (r *rig) send(t testing.TB, b *packet.Batch) {
	t.Helper()
	for b.Len() > 0 {
		n, err := r.Queues[0].Tx(r.now, b)
		must(t, err)
		b.Consume(n)
	}
}

func TestFramesPassBothWaysUnchanged(t *testing.T) {
	for _, c := range []struct {
		name  string
		mtu   int
		frame int
		cfg   Config
		caps  pmd.Caps
	}{
		{"native", 1500, 2048, Config{Mode: ModeNative}, pmd.CapPoll | pmd.CapNeedWakeup},
		{"generic", 1500, 2048, Config{Mode: ModeGeneric}, pmd.CapPoll | pmd.CapNeedWakeup},
		{"auto takes native", 1500, 2048, Config{}, pmd.CapPoll | pmd.CapNeedWakeup},
		{"without need_wakeup", 1500, 2048, Config{NoNeedWakeup: true, Copy: CopyOn}, pmd.CapPoll},
		{"busy poll", 1500, 2048, Config{BusyPoll: BusyPoll{Micros: 20}}, pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapBusyPoll},
		{"rings of two entries", 1500, 2048, Config{Rings: Rings{2, 2, 2, 2}}, pmd.CapPoll | pmd.CapNeedWakeup},
		{"multi-buffer though not needed", 1500, 2048, Config{MultiBuf: MultiBufOn}, pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapMultiBuf},
		{"jumbo in frames of 2048", 9000, 2048, Config{}, pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapMultiBuf},
		{"jumbo in frames of 4096", 9000, 4096, Config{}, pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapMultiBuf},
		{"generic jumbo", 9000, 4096, Config{Mode: ModeGeneric}, pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapMultiBuf},
		{"MTU 3000 in one frame", 3000, 4096, Config{}, pmd.CapPoll | pmd.CapNeedWakeup},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNetwork(t, 1, c.mtu)
			c.cfg.All = true
			c.cfg.Pools = []*ring.Pool{cut(t, newArena(t, 1024, c.frame), 0)}
			r := w.open(t, c.cfg)
			info := r.Queues[0].Info()
			t.Log(info.Negotiated)
			if want := c.caps | pmd.CapPartialChecksums; info.Caps != want { // a veth
				t.Errorf("caps are %v, want %v", info.Caps, want)
			}
			w.exchange(t, r, 60)
		})
	}
}
