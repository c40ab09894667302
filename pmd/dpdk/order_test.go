package dpdk_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/dpdk"
)

// TestSegmentsComeBeforeWhatFollows sends a packet that is cut in software and a small one in one batch: the small one arrives last.
func TestSegmentsComeBeforeWhatFollows(t *testing.T) {
	p := newGuestPair(t, dpdk.WithTSO)
	large, o := kind{udp: true, mss: 1000}.build(20_000, p.hostHeader)
	small, _ := kind{udp: true}.build(100, p.hostHeader)
	b := p.chain(0, large, &o)
	b.D = append(b.D, p.chain(0, small, nil).D...)
	for limit := time.Now().Add(10 * time.Second); b.Len() > 0; {
		n, err := p.end(0).Tx(p.now(), b)
		if err != nil || time.Now().After(limit) {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		b.Consume(n)
	}
	list := p.receive(1, 21)
	for i, a := range list {
		if want := 1042; i < 20 && len(a.data) != want || i == 20 && len(a.data) != 142 {
			t.Errorf("packet %d has %d bytes", i, len(a.data))
		}
	}
}

// TestJoinedPacketInSmallBatches receives a packet that is cut into more segments than a batch holds, and another behind it.
func TestJoinedPacketInSmallBatches(t *testing.T) {
	p := newGuestPair(t)
	large, o := kind{mss: 1000}.build(20_000, p.hostHeader)
	small, _ := kind{}.build(100, p.hostHeader)
	p.send(1, large, &o)
	p.send(1, small, nil)
	b := packet.NewBatch(p.arenas[0].View(), 16)
	var sizes []uint16
	for limit := time.Now().Add(10 * time.Second); len(sizes) < 21; {
		if _, err := p.end(0).Rx(p.now(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.D {
			sizes = append(sizes, b.D[i].Len)
		}
		p.pools[0].PutBatch(b)
		if time.Now().After(limit) {
			t.Fatalf("%d packets of 21 arrived", len(sizes))
		}
	}
	for i, n := range sizes {
		if i < 20 && n != 1054 || i == 20 && n != 154 {
			t.Errorf("packet %d has %d bytes", i, n)
		}
	}
}

// TestSegmentsBeyondTheMTU sends a packet whose segments are longer than the device sends: those are counted as invalid, and the
// last one, which is short, leaves.
func TestSegmentsBeyondTheMTU(t *testing.T) {
	p := newGuestPair(t, dpdk.WithTSO)
	data, o := kind{mss: 3000}.build(4000, p.hostHeader)
	p.send(0, data, &o)
	list := p.receive(1, 1)
	if s := p.end(0).Info().Stats; len(list) != 1 || len(list[0].data) != 1054 || s.TxInvalid != 1 || s.TxPackets != 1 {
		t.Errorf("%d packets, the first of %d bytes; %+v", len(list), len(list[0].data), s)
	}
}
