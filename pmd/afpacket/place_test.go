package afpacket_test

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
)

// untagged sends a large TCP packet without a VLAN tag and returns it.
func (p *pairOf) untagged(t *testing.T, payload int) []byte {
	t.Helper()
	frame := tagged(payload)
	frame = append(frame[:12], frame[16:]...)
	b := packet.NewBatch(p.arena.View(), 64)
	p.put(t, b, frame, 64)
	at := uint16(p.arena.Headroom(&b.D[0]))
	b.D[0].Flags |= packet.FlagOffload
	p.arena.SetOffload(&b.D[0], &packet.Offload{
		Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_TCPV4, HeadersEnd: at + headers,
		SegmentSize: 1000, ChecksumFrom: at + 34, ChecksumAt: 16,
	})
	if n, err := p.far.Queues[0].Tx(now(), b); n != b.Len() || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	return frame
}

const headers = 54 // bytes of Ethernet, IPv4 and TCP

// burst returns the next burst.
func (p *pairOf) burst(t *testing.T, b *packet.Batch) {
	t.Helper()
	for end := time.Now().Add(time.Second); b.Len() == 0 && time.Now().Before(end); {
		_, err := p.dev.Queues[0].Rx(now(), b)
		must(t, err)
	}
}

func TestPayloadIsPlaced(t *testing.T) {
	p := newPairOf(t, 512, nil)
	info := p.dev.Queues[0].Info()
	to := make([]byte, 80_000)
	asked, answer := 0, pmd.PlaceDirect
	info.Placer.Attach(func(head []byte, size int) (pmd.Placement, int, [][]byte) {
		asked++
		if size == 60_000+headers && !bytes.Equal(head[:12], tagged(0)[:12]) || len(head) < 1000 {
			t.Errorf("asked about %d bytes of %d: %x", len(head), size, head[:14])
		}
		if answer != pmd.PlaceDirect {
			return answer, 0, nil
		}
		return answer, headers, [][]byte{to[:7], to[100:30_000], to[40_000 : 40_000+size-headers-29_907]}
	})
	b := packet.NewBatch(p.arena.View(), 64)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); { // what Linux sent before
		_, err := p.dev.Queues[0].Rx(now(), b)
		must(t, err)
		p.pools[0].PutBatch(b)
	}
	asked = 0
	before := p.dev.Queues[0].Info().Stats.RxBytes

	want := p.untagged(t, 60_000)
	p.burst(t, b)
	if b.Len() != 1 || asked != 1 {
		t.Fatalf("%d descriptors, asked %d times", b.Len(), asked)
	}
	d := &b.D[0]
	if !d.Flags.Has(packet.FlagOffload) || p.arena.Placed(d) != 60_000 || !bytes.Equal(b.Bytes(0), want[:headers]) {
		t.Errorf("%+v, %d bytes placed, %x", d, p.arena.Placed(d), b.Bytes(0))
	}
	if o := p.arena.Offload(d); o.SegmentSize != 1000 || int(o.HeadersEnd) != p.arena.Headroom(d)+headers {
		t.Errorf("%+v", o)
	}
	got := append(append(append([]byte(nil), to[:7]...), to[100:30_000]...), to[40_000:40_000+60_000-29_907]...)
	if !bytes.Equal(got, want[headers:]) {
		t.Error("the payload is not what was sent")
	}
	if n := p.dev.Queues[0].Info().Stats.RxBytes - before; n != 60_000+headers {
		t.Errorf("%d bytes counted", n)
	}
	p.pools[0].PutBatch(b)

	// Later is not for the first packet of a burst, which would wait for ever. It ends a burst that has one.
	answer = pmd.PlaceLater
	first, second := p.untagged(t, 20_000), p.untagged(t, 30_000)
	for _, want := range [][]byte{first, second} {
		p.burst(t, b)
		if f := testpackets.Split(b); len(f) != 1 || !bytes.Equal(f[0], want) {
			t.Fatalf("%d packets in a burst, or another", len(f))
		}
		if p.arena.Placed(&b.D[0]) != 0 {
			t.Error("a packet in frames counts as placed")
		}
		p.pools[0].PutBatch(b)
	}

	// Tagged packets, and those of a placer without a function, go into frames.
	answer, asked = pmd.PlaceDirect, 0
	want = p.send(t, 5000)
	p.burst(t, b)
	if f := testpackets.Split(b); asked != 0 || len(f) != 1 || !bytes.Equal(f[0], want) {
		t.Errorf("a tagged packet: asked %d times", asked)
	}
	p.pools[0].PutBatch(b)
	info.Placer.Attach(nil)
	want = p.untagged(t, 40_000)
	p.burst(t, b)
	if f := testpackets.Split(b); asked != 0 || len(f) != 1 || !bytes.Equal(f[0], want) {
		t.Errorf("without a function: asked %d times", asked)
	}
	p.pools[0].PutBatch(b)

	// A device that closes while a packet waits loses that packet and no frame.
	p.untagged(t, 40_000)
	must(t, p.dev.Close())
	p.audit(t)
}
