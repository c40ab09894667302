package afxdp

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/packet"
)

// TestOnePacketEachWay is the thin slice: the kernel's raw socket at one end, the driver at the
// other.
func TestOnePacketEachWay(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{All: true, MultiBuf: MultiBufOff})
	t.Log(r.Queues[0].Info().Granted)
	peer := w.wire(t)
	hostMAC, peerMAC := w.mac(t, w.host, dev), w.mac(t, w.peer, peerDev)

	sent := frame(hostMAC, peerMAC, 100, 7)
	peer.send(t, sent)
	b := packet.NewBatch(r.arena.View(), 64)
	for {
		r.recv(t, b, b.Len()+1)
		if isTest(b.Bytes(b.Len() - 1)) {
			break
		}
	}
	if got := b.Bytes(b.Len() - 1); !bytes.Equal(got, sent) {
		t.Errorf("received\n%x, sent\n%x", got, sent)
	}
	r.pools[0].PutBatch(b)

	off, _ := r.pools[0].Get()
	want := frame(peerMAC, hostMAC, 1514, 8)
	copy(r.arena.Mem[off:], want)
	b.Append(packet.Desc{Off: off, Len: 1514})
	if n, err := r.Queues[0].Tx(r.now, b); n != 1 || err != nil {
		t.Fatalf("Tx returned %d, %v", n, err)
	}
	b.Consume(1)
	if got := peer.recv(t, isTest); !bytes.Equal(got, want) {
		t.Errorf("the peer received\n%x, sent\n%x", got, want)
	}
}
