package afxdp

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	proto "github.com/millrace/millrace/wire" // wire is a helper here
)

const largeSegment = 1000

// datagrams returns one UDP datagram to port 9 of the peer, or several in one large packet, whose checksum is still to
// be made: of largeSegment bytes of payload each, filled with their numbers from first on.
func (w *network) datagrams(t testing.TB, first, n int) []byte {
	t.Helper()
	src, dst := ourAddr.As4(), peerAddr.As4()
	size := n * largeSegment
	p := proto.AppendEthernet(nil, w.mac(t, w.peer, peerDev), w.mac(t, w.host, dev), proto.EtherTypeIPv4)
	p = proto.AppendIPv4(p, &proto.IPv4Header{Src: src, Dst: dst, Proto: proto.ProtoUDP, TTL: 64, PayloadLen: proto.UDPLen + size, DontFragment: true})
	p = proto.AppendUDP(p, 9, 9, size)
	pseudo := proto.PseudoHeader4(src, dst, proto.ProtoUDP, uint32(proto.UDPLen+size))
	proto.UDP(p[34:]).SetChecksum(^proto.Fold(pseudo))
	for i := range size {
		p = append(p, byte(first+i/largeSegment))
	}
	if n == 1 {
		udp := proto.UDP(p[34:])
		udp.SetChecksum(0)
		udp.SetChecksum(proto.UDPChecksum(proto.Fold(proto.Sum(udp, pseudo))))
	}
	return p
}

// putDatagrams appends a packet of datagrams to b, with FlagOffload where it is large.
func (r *rig) putDatagrams(t testing.TB, b *packet.Batch, p []byte) {
	t.Helper()
	const headroom = 66
	large, room := len(p) > 1514, headroom
	first := b.Len()
	for len(p) > 0 {
		off, ok := r.pools[0].Get()
		if !ok {
			t.Fatal("no frame")
		}
		d := packet.Desc{Off: off + uint32(room), Len: uint16(min(len(p), r.arena.FrameSize()-room))}
		room = 0
		copy(r.arena.Bytes(&d), p)
		if p = p[d.Len:]; len(p) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
	if large {
		b.D[first].Flags |= packet.FlagOffload
		r.arena.SetOffload(&b.D[first], &packet.Offload{
			Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_UDP_L4, HeadersEnd: headroom + 42,
			SegmentSize: largeSegment, ChecksumFrom: headroom + 34, ChecksumAt: 6,
		})
	}
}

// listen opens a UDP socket of the peer.
func (w *network) listen(t testing.TB) net.PacketConn {
	t.Helper()
	var in net.PacketConn
	must(t, w.peer.Do(func() (err error) { in, err = net.ListenPacket("udp", "198.18.0.2:9"); return err }))
	t.Cleanup(func() { in.Close() })
	return in
}

// wantDatagrams reads n datagrams in the order of their numbers.
func wantDatagrams(t testing.TB, in net.PacketConn, n int) {
	t.Helper()
	must(t, in.SetReadDeadline(time.Now().Add(5*time.Second)))
	buf := make([]byte, 2000)
	for i := range n {
		size, _, err := in.ReadFrom(buf)
		must(t, err)
		if size != largeSegment || buf[0] != byte(i) || buf[size-1] != byte(i) {
			t.Fatalf("datagram %d: %d bytes of %d", i, size, buf[0])
		}
	}
}

func TestLargePacketsAreSentInOrder(t *testing.T) {
	for _, mode := range []Mode{ModeNative, ModeGeneric} {
		for _, offloads := range []bool{true, false} {
			t.Run(fmt.Sprintf("mode %v, device segments %v", mode, offloads), func(t *testing.T) {
				w := newNetwork(t, 1, 1500)
				if !offloads { // the kernel segments and makes the checksums, and the peer verifies them
					must(t, w.host.NoOffload(dev))
				}
				r := w.open(t, Config{Mode: mode, Offload: true})
				in := w.listen(t)
				b := packet.NewBatch(r.arena.View(), 256)
				number := 0
				for _, n := range []int{1, 20, 1, 1, 5, 7, 1, 30} {
					r.putDatagrams(t, b, w.datagrams(t, number, n))
					number += n
				}
				n, err := r.Queues[0].Tx(0, b)
				if n != b.Len() || err != nil {
					t.Fatalf("Tx = %d of %d, %v", n, b.Len(), err)
				}
				wantDatagrams(t, in, number)
				if s := r.Queues[0].Info().Stats; s.TxPackets != 8 || s.TxInvalid != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// What still waits in the ring leaves before a large packet.
func TestLargePacketsWaitForTheRing(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{Offload: true})
	in, q := w.listen(t), r.Queues[0]
	b := packet.NewBatch(r.arena.View(), 256)
	r.putDatagrams(t, b, w.datagrams(t, 0, 1))
	q.enqueue(b.D) // and no kick: as if the kernel had stopped
	b.Reset()
	r.putDatagrams(t, b, w.datagrams(t, 1, 3))
	n, err := q.Tx(0, b)
	if n != b.Len() || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	wantDatagrams(t, in, 4)
}

// A large packet that the kernel rejects is counted, and what is behind it leaves.
func TestInvalidLargePacketsAreCounted(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{Offload: true})
	in, q := w.listen(t), r.Queues[0]
	b := packet.NewBatch(r.arena.View(), 256)
	r.putDatagrams(t, b, w.datagrams(t, 0, 3))
	bad := b.Len()
	r.putDatagrams(t, b, w.datagrams(t, 0, 3))
	r.arena.SetOffload(&b.D[bad], &packet.Offload{Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: 99, HeadersEnd: 66 + 42, SegmentSize: 1000, ChecksumFrom: 66 + 34, ChecksumAt: 6})
	r.putDatagrams(t, b, w.datagrams(t, 3, 2))
	r.putDatagrams(t, b, w.datagrams(t, 5, 1))
	n, err := q.Tx(0, b)
	if n != b.Len() || err != nil {
		t.Fatalf("Tx = %d, %v", n, err)
	}
	wantDatagrams(t, in, 6)
	if s := q.Info().Stats; s.TxPackets != 4 || s.TxInvalid != 1 {
		t.Errorf("%+v", s)
	}
}

func TestLargePacketsNeedCopyModeWithoutAQueueingDiscipline(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	offers := func(cfg Config) bool {
		r := w.open(t, cfg)
		defer r.Close()
		return r.Queues[0].Info().Caps&pmd.CapOffload != 0
	}
	if offers(Config{}) || !offers(Config{Offload: true}) {
		t.Error("large packets without Config.Offload, or none with it")
	}
	w.run(t, w.host, "tc", "qdisc", "replace", "dev", dev, "root", "pfifo")
	if offers(Config{Offload: true}) {
		t.Error("large packets in front of a queueing discipline, which AF_XDP bypasses")
	}
}

func TestAnyLarge(t *testing.T) {
	const more, large = packet.FlagMore, packet.FlagOffload
	for _, c := range []struct {
		flags []packet.Flags
		large bool
		n     int
	}{
		{nil, false, 0},
		{[]packet.Flags{0, 0}, false, 2},
		{[]packet.Flags{0, large}, true, 2},
		{[]packet.Flags{large | more, more, 0, large, 0}, true, 5},
		{[]packet.Flags{large | more, more}, false, 0}, // its end is not there
		{[]packet.Flags{0, large | more}, false, 1},
		{[]packet.Flags{large, 0, more}, true, 2},
	} {
		var ds []packet.Desc
		for _, f := range c.flags {
			ds = append(ds, packet.Desc{Flags: f})
		}
		if l, n := anyLarge(ds); n != c.n || l != c.large {
			t.Errorf("%v: %v, %d", c.flags, l, n)
		}
	}
}

// The packet socket takes the small packets of a batch with a large one, the tx ring those of a batch without.
func TestSmallPacketsFollowLargeOnes(t *testing.T) {
	w := newNetwork(t, 1, 1500)
	r := w.open(t, Config{Offload: true})
	in, q := w.listen(t), r.Queues[0]
	b := packet.NewBatch(r.arena.View(), 256)
	number := 0
	for _, c := range []struct {
		packets []int // datagrams in each
		ring    uint32
	}{{[]int{1, 1}, 2}, {[]int{1, 4, 1}, 0}, {[]int{1}, 1}} {
		for _, n := range c.packets {
			r.putDatagrams(t, b, w.datagrams(t, number, n))
			number += n
		}
		head, calls := q.tx.head, q.Info().Stats.Wakeups
		n, err := q.Tx(0, b)
		if n != b.Len() || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		b.Reset()
		if got := q.tx.head - head; got != c.ring {
			t.Errorf("%v: %d packets in the ring, want %d", c.packets, got, c.ring)
		}
		if got := q.Info().Stats.Wakeups - calls; got != 1 {
			t.Errorf("%v: %d system calls", c.packets, got)
		}
	}
	wantDatagrams(t, in, number)
}
