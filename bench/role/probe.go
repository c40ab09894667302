package role

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/millrace/millrace/wire"
)

// The probe is the packet that every sender sends: UDP without a checksum, to a link address that
// is nobody's so that a kernel that sees it drops it at once. A sequence number lies behind the
// headers; the same in peers/peer.h.
const (
	seqAt    = 42 // Ethernet 14, IPv4 20, UDP 8
	probeMin = seqAt + 8
)

// probeSource is the IPv4 address that the probe comes from.
var probeSource = netip.AddrFrom4([4]byte{198, 18, 0, 1})

func probe(size int) ([]byte, error) {
	if size < probeMin || size > 1514 {
		return nil, fmt.Errorf("packet of %d bytes: %d to 1514 can be sent", size, probeMin)
	}
	p := make([]byte, size)
	copy(p, []byte{
		2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, wire.ProtoUDP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
		0, 9, 0, 9, 0, 0, 0, 0,
	})
	binary.BigEndian.PutUint16(p[16:], uint16(size-14))
	binary.BigEndian.PutUint16(p[38:], uint16(size-34))
	binary.BigEndian.PutUint16(p[24:], wire.Fold(wire.Sum(p[14:34], 0)))
	return p, nil
}

func Stamp(p []byte, seq uint64) { binary.NativeEndian.PutUint64(p[seqAt:], seq) }

func swapMAC(p []byte) {
	_ = p[11]
	dst := [6]byte(p[0:6])
	copy(p[0:6], p[6:12])
	copy(p[6:12], dst[:])
}

// tally checks the sequence numbers of received packets: a hole is a gap, a step back or a
// repetition is a reordering. What it counts is published when there is time, or after some batches:
// an atomic store costs as much as a packet, and the C peers have none.
type tally struct {
	n, bytes, gaps, back, next uint64
	batches                    uint
	shown                      [4]atomic.Uint64
}

// publishEvery is the number of batches that a busy receiver counts for itself.
const publishEvery = 32

// batch ends a batch.
func (t *tally) batch() {
	if t.batches++; t.batches%publishEvery == 0 {
		t.publish()
	}
}

func (t *tally) saw(p []byte) {
	if len(p) < probeMin {
		return
	}
	seq := binary.NativeEndian.Uint64(p[seqAt:])
	if seq >= t.next {
		t.gaps += seq - t.next
		t.next = seq + 1
	} else {
		t.back++
	}
	t.n++
	t.bytes += uint64(len(p))
}

func (t *tally) publish() {
	t.shown[0].Store(t.n)
	t.shown[1].Store(t.bytes)
	t.shown[2].Store(t.gaps)
	t.shown[3].Store(t.back)
}

func (t *tally) counts() map[string]uint64 {
	return map[string]uint64{
		"packets": t.shown[0].Load(), "bytes": t.shown[1].Load(),
		"gaps": t.shown[2].Load(), "reordered": t.shown[3].Load(),
	}
}
