package afpacket_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
)

// leave is the pmd.PlaceFunc of a gateway.
func leave([]byte, int) (pmd.Placement, int, [][]byte) { return pmd.PlaceExternal, 0, nil }

// newExternalPair is newPairOf where the payload of large packets stays with the driver.
func newExternalPair(t *testing.T) *pairOf {
	t.Helper()
	p := newPairOf(t, 1024, nil)
	p.dev.Queues[0].Info().Placer.Attach(leave)
	b := packet.NewBatch(p.arena.View(), 64)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); { // what Linux sent before
		_, err := p.dev.Queues[0].Rx(now(), b)
		must(t, err)
		p.pools[0].PutBatch(b)
	}
	return p
}

// bytesOf returns all bytes of the packet whose first descriptor is i, external ones too, and the number of its descriptors.
func bytesOf(b *packet.Batch, i int) (p []byte, n int) {
	n = packet.Chain(b.D[i:])
	p = b.Arena.Gather(nil, b.D[i:i+n], 1<<17)
	if b.D[i].Flags.Has(packet.FlagOffload) {
		p = append(p, b.Arena.External(&b.D[i])...)
	}
	return p, n
}

// small sends a packet of one segment and returns it.
func (p *pairOf) small(t *testing.T, payload int) []byte {
	t.Helper()
	frame := tagged(payload)
	frame = append(frame[:12], frame[16:]...)
	b := packet.NewBatch(p.arena.View(), 1)
	p.put(t, b, frame, 64)
	if n, err := p.far.Queues[0].Tx(now(), b); n != 1 || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	return frame
}

// The payload of a large packet is in no frame, and leaves from where it is: byte for byte what came.
func TestPayloadStaysWithTheDriver(t *testing.T) {
	p := newExternalPair(t)
	q := p.dev.Queues[0]
	before := q.Info().Stats
	want := p.untagged(t, 65_000)
	b := packet.NewBatch(p.arena.View(), 64)
	p.burst(t, b)
	d := &b.D[0]
	if got, n := bytesOf(b, 0); b.Len() != 1 || n != 1 || d.Len != 256 || !bytes.Equal(got, want) || len(p.arena.External(d)) != len(want)-256 {
		t.Fatalf("%d descriptors, %d bytes in a frame, %d outside", b.Len(), d.Len, len(p.arena.External(d)))
	}
	if n := q.Info().Stats.RxBytes - before.RxBytes; int(n) != len(want) {
		t.Errorf("%d bytes received", n)
	}
	if o := p.arena.Offload(d); o.SegmentSize != 1000 || int(o.HeadersEnd) != p.arena.Headroom(d)+headers || int(o.ChecksumFrom) != p.arena.Headroom(d)+34 {
		t.Errorf("%+v", o)
	}

	// It returns to the far end, which receives it into frames.
	must(t, p.far.SetRules(afpacket.Rule{Addr: linuxAddr, Proto: 6, PortLo: 2}))
	must(t, p.far.SetOffload(true))
	if n, err := q.Tx(now(), b); n != 1 || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	b.Reset()
	if n := q.Info().Stats.TxBytes - before.TxBytes; int(n) != len(want) {
		t.Errorf("%d bytes sent", n)
	}
	var got []byte
	for end := time.Now().Add(20 * time.Second); got == nil && time.Now().Before(end); {
		_, err := p.far.Queues[0].Rx(now(), b)
		must(t, err)
		for _, f := range testpackets.Split(b) {
			if len(f) > 2000 {
				got = f
			}
		}
		p.pools[0].PutBatch(b)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, not the %d that were sent", len(got), len(want))
	}
	p.audit(t)
}

// Small and large packets come in the order in which they were sent, whether payload stays or not. A burst has one packet whose payload
// stays, and the memory of it is used again by the next.
func TestExternalPayloadKeepsTheOrder(t *testing.T) {
	p := newExternalPair(t)
	r := rand.New(rand.NewPCG(5, 6))
	p.dev.Queues[0].Info().Placer.Attach(func([]byte, int) (pmd.Placement, int, [][]byte) {
		return []pmd.Placement{pmd.PlaceExternal, pmd.PlaceExternal, pmd.PlaceInFrames}[r.IntN(3)], 0, nil
	})
	b := packet.NewBatch(p.arena.View(), 256)
	external := 0
	for round := range 30 {
		var want [][]byte
		for range 1 + r.IntN(20) {
			if r.IntN(2) == 0 {
				want = append(want, p.untagged(t, 2500+r.IntN(62_000)))
			} else {
				want = append(want, p.small(t, r.IntN(1400)))
			}
		}
		for end := time.Now().Add(20 * time.Second); len(want) > 0 && time.Now().Before(end); {
			_, err := p.dev.Queues[0].Rx(now(), b)
			must(t, err)
			inBurst := 0
			for i := 0; i < b.Len(); {
				got, n := bytesOf(b, i)
				if len(want) == 0 || !bytes.Equal(got, want[0]) {
					t.Fatalf("round %d: a packet of %d bytes, %d are left", round, len(got), len(want))
				}
				if b.D[i].Flags.Has(packet.FlagOffload) && b.Arena.External(&b.D[i]) != nil {
					inBurst++
				}
				want, i = want[1:], i+n
			}
			if inBurst > 1 {
				t.Errorf("%d packets of a burst share the memory", inBurst)
			}
			external += inBurst
			p.pools[0].PutBatch(b)
		}
		if len(want) > 0 {
			t.Fatalf("round %d: %d packets did not come", round, len(want))
		}
	}
	if s := p.dev.Queues[0].Info().Stats; s.RxMissed+s.RxInvalid != 0 || external < 50 {
		t.Errorf("%+v, %d packets with external payload", s, external)
	}
	p.audit(t)
}

// Packets whose payload cannot stay come in frames: tagged ones, and those that pass in segments.
func TestPayloadThatDoesNotStay(t *testing.T) {
	p := newExternalPair(t)
	q := p.dev.Queues[0]
	b := packet.NewBatch(p.arena.View(), 64)
	want := p.send(t, 5000)
	p.burst(t, b)
	if got, n := bytesOf(b, 0); n != 3 || !bytes.Equal(got, want) {
		t.Errorf("a tagged packet: %d descriptors, %d bytes", n, len(got))
	}
	p.pools[0].PutBatch(b)

	must(t, p.dev.SetOffload(false))
	p.untagged(t, 5000)
	p.burst(t, b)
	if got := testpackets.Split(b); len(got) != 5 || len(got[0]) != headers+1000 || !checksumOK(got[4]) {
		t.Errorf("%d segments", len(got))
	}
	p.pools[0].PutBatch(b)
	must(t, p.dev.SetOffload(true))

	// Without a frame for the headers the packet waits.
	want = p.untagged(t, 30_000)
	var taken []uint32
	for p.pools[0].Free() > 0 {
		off, _ := p.pools[0].Get()
		taken = append(taken, off)
	}
	if n, err := q.Rx(now(), b); n != 0 || err != nil {
		t.Errorf("Rx = %d, %v without a frame", n, err)
	}
	for _, off := range taken {
		p.pools[0].Put(off)
	}
	p.burst(t, b)
	if got, n := bytesOf(b, 0); n != 1 || !bytes.Equal(got, want) {
		t.Errorf("%d descriptors, %d bytes", n, len(got))
	}

	// A device that closes loses the packets that wait, and no frame; it does so while one of its packets is under way.
	p.untagged(t, 40_000)
	p.pools[0].PutBatch(b)
	must(t, p.dev.Close())
	must(t, p.dev.Close())
	p.audit(t)
}

// A packet that the device rejects goes, and those behind it are sent.
func TestRejectedExternalPayload(t *testing.T) {
	p := newExternalPair(t)
	q := p.dev.Queues[0]
	b := packet.NewBatch(p.arena.View(), 64)
	p.untagged(t, 20_000)
	p.burst(t, b)
	o := p.arena.Offload(&b.D[0])
	rest := p.arena.External(&b.D[0])
	o.GSO = 77 // no kind of large packet
	p.arena.SetOffload(&b.D[0], &o)
	p.arena.SetExternal(&b.D[0], rest)
	p.put(t, b, p.udp(1, 2, []byte("behind it")), 64)
	before := q.Info().Stats
	n, err := q.Tx(now(), b)
	if s := q.Info().Stats; n != 2 || err != nil || s.TxInvalid != before.TxInvalid+1 || s.TxPackets != before.TxPackets+2 {
		t.Errorf("Tx = %d, %v: %+v", n, err, s)
	}
	b.Reset()
	p.audit(t)
}

func TestForwardingExternalPayloadDoesNotAllocate(t *testing.T) {
	p := newExternalPair(t)
	q, b := p.dev.Queues[0], packet.NewBatch(p.arena.View(), 64)
	src := packet.NewBatch(p.arena.View(), 64)
	got := testing.AllocsPerRun(50, func() {
		at := uint16(64)
		var total int
		for total = 30_054; total > 0; {
			off, _ := p.pools[0].Get()
			d := packet.Desc{Off: off + uint32(at), Len: uint16(min(total, 2048-int(at)))}
			if total -= int(d.Len); total > 0 {
				d.Flags = packet.FlagMore
			}
			at = 0
			src.Append(d)
		}
		copy(src.Bytes(0), allocFrame)
		src.D[0].Flags |= packet.FlagOffload
		p.arena.SetOffload(&src.D[0], &packet.Offload{
			Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_TCPV4, HeadersEnd: 64 + headers,
			SegmentSize: 1000, ChecksumFrom: 64 + 34, ChecksumAt: 16,
		})
		n, _ := p.far.Queues[0].Tx(1, src)
		src.Consume(n)
		for i := 0; b.Len() == 0 && i < 1e6; i++ {
			_, _ = q.Rx(1, b)
		}
		n, _ = q.Tx(1, b)
		b.Consume(n)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

var allocFrame = func() []byte {
	f := tagged(30_000)
	return append(f[:12], f[16:]...)
}()
