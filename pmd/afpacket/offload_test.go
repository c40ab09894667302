package afpacket_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/wire"
)

// crossing is two devices between two Linux hosts: large packets come and go whole.
//
//	linux: eth0 198.18.0.1 --- mr0 | driver | mr1 --- eth0 198.18.0.2: server
type crossing struct {
	*rig
	server *testnet.Namespace
	other  *afpacket.Device
	undo   func()
}

// newCrossing forwards until stop. Where ends is set, the device that sends leaves nothing to the one that
// receives: Linux cuts what the driver sends on mr0 and mr1, fills in checksums, and the hosts verify them. Where external is
// set, the payload of large packets stays with the driver.
func newCrossing(t *testing.T, ends, external bool) *crossing {
	t.Helper()
	c := &crossing{rig: bareRig(t)}
	c.server = c.net.Namespace("server")
	must(t, c.net.Link(c.server, "eth0", c.here, "mr1"))
	must(t, c.server.Up("eth0", "198.18.0.2/24", "2001:db8::2/64"))
	usable(t, c.server, "2001:db8::2")
	must(t, c.here.Sysctl("net.ipv6.conf.mr1.disable_ipv6", "1"))
	must(t, c.here.Up("mr1"))
	if ends {
		must(t, c.here.NoOffload("mr0"))
		must(t, c.here.NoOffload("mr1"))
	}
	c.open(t, 1, 4096, func(cfg *afpacket.Config) { cfg.Offload = true })
	must(t, c.here.Do(func() (err error) {
		c.other, err = afpacket.Open(afpacket.Config{Interface: "mr1", All: true, Pools: c.pools, Offload: true})
		return err
	}))
	if external {
		c.dev.Queues[0].Info().Placer.Attach(leave)
		c.other.Queues[0].Info().Placer.Attach(leave)
	}
	must(t, c.dev.SetOffload(true))
	must(t, c.other.SetOffload(true))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); forward(t, c.dev.Queues[0], c.other.Queues[0], c.pools[0], stop) }()
	c.undo = func() { close(stop); <-done }
	return c
}

// finish ends forwarding and checks what both devices counted.
func (c *crossing) finish(t *testing.T) (packets uint64) {
	t.Helper()
	c.undo()
	defer c.other.Close()
	a, b := c.dev.Queues[0].Info().Stats, c.other.Queues[0].Info().Stats
	if a.TxInvalid+b.TxInvalid+a.RxInvalid+b.RxInvalid != 0 || a.RxPackets != b.TxPackets || b.RxPackets != a.TxPackets {
		t.Errorf("packets were rejected or lost: %+v, %+v", a, b)
	}
	c.audit(t)
	return a.RxPackets + b.RxPackets
}

func TestLargePacketsPassWholeWithOffload(t *testing.T) {
	for i := range 4 {
		ends, external := i&1 != 0, i&2 != 0
		t.Run(fmt.Sprintf("cut by the sending device %v, external payload %v", ends, external), func(t *testing.T) {
			c := newCrossing(t, ends, external)
			for _, addr := range []string{"198.18.0.2:80", "[2001:db8::2]:80"} {
				transfer(t, c.linux, c.server, addr)
			}
			if n := c.finish(t); n > 2*bulk/1448 {
				t.Errorf("%d packets for %d bytes: they were cut", n, 2*bulk)
			}
		})
	}
}

// A large packet behind a tag goes there and back, and in the end is cut by the driver: byte for byte what was sent.
func TestLargePacketsKeepTheirVLANTag(t *testing.T) {
	r := newRig(t, 1, 512, func(c *afpacket.Config) { c.Offload = true })
	far := &rig{linux: r.here, here: r.linux, arena: r.arena, pools: r.pools}
	must(t, r.linux.Do(func() (err error) {
		far.dev, err = afpacket.Open(afpacket.Config{Interface: "eth0", All: true, Pools: r.pools, Offload: true})
		return err
	}))
	defer far.dev.Close()
	must(t, r.dev.SetOffload(true))
	must(t, far.dev.SetOffload(true))
	const segment, payload = 1000, 5000
	p := tagged(payload)
	b := packet.NewBatch(r.arena.View(), 64)
	r.put(t, b, p, 64)
	start := r.arena.Headroom(&b.D[0])
	b.D[0].Flags |= packet.FlagOffload
	r.arena.SetOffload(&b.D[0], &packet.Offload{
		Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, GSO: unix.VIRTIO_NET_HDR_GSO_TCPV4, HeadersEnd: uint16(start + 58),
		SegmentSize: segment, ChecksumFrom: uint16(start + 38), ChecksumAt: 16,
	})
	for _, way := range [][2]*rig{{r, far}, {far, r}} { // there and back
		n, err := way[0].dev.Queues[0].Tx(now(), b)
		if n != b.Len() || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		b.Reset()
		for end := time.Now().Add(5 * time.Second); b.Len() == 0 && time.Now().Before(end); {
			_, err := way[1].dev.Queues[0].Rx(now(), b)
			must(t, err)
			for b.Len() > 0 && !b.D[0].Flags.Has(packet.FlagOffload) { // what Linux says to its neighbours
				r.pools[0].Put(b.D[0].Off)
				b.Consume(1)
			}
		}
		if got := testpackets.Split(b); len(got) != 1 || !bytes.Equal(got[0], p) {
			t.Fatalf("%d packets came, or not what was sent", len(got))
		}
		if o, at := r.arena.Offload(&b.D[0]), r.arena.Headroom(&b.D[0]); o.SegmentSize != segment || int(o.ChecksumFrom) != at+38 || o.ChecksumAt != 16 {
			t.Errorf("%+v of a packet at %d", o, at)
		}
	}
	must(t, far.dev.SetOffload(false))
	_, err := r.dev.Queues[0].Tx(now(), b)
	must(t, err)
	whole := 0
	for whole < payload {
		for _, q := range far.collect(t, func(got [][]byte) bool { return len(got) > 0 }) {
			if bytes.Equal(q[12:16], p[12:16]) {
				if wire.IPv4(q[18:]).TotalLen() != 40+segment || !checksumOK(q) {
					t.Errorf("a segment of %d bytes, checksum right: %v", len(q), checksumOK(q))
				}
				whole += segment
			}
		}
	}
	b.Reset()
	r.audit(t)
}

// tagged returns a TCP packet of so many bytes of payload behind a tag, whose checksum is still to be made.
func tagged(payload int) []byte {
	p := wire.AppendEthernet(nil, wire.MAC{2, 0, 0, 0, 0, 9}, wire.MAC{2, 0, 0, 0, 0, 8}, wire.EtherTypeVLAN)
	p = wire.AppendVLAN(p, 7, wire.EtherTypeIPv4)
	src, dst := ourAddr.As4(), linuxAddr.As4()
	p = wire.AppendIPv4(p, &wire.IPv4Header{Src: src, Dst: dst, Proto: wire.ProtoTCP, TTL: 64, PayloadLen: 20 + payload, DontFragment: true})
	p = wire.AppendTCP(p, &wire.TCPHeader{SrcPort: 1, DstPort: 2, Flags: wire.FlagACK})
	sum := ^wire.Fold(wire.PseudoHeader4(src, dst, wire.ProtoTCP, uint32(20+payload)))
	wire.TCP(p[38:]).SetChecksum(sum)
	for i := range payload {
		p = append(p, byte(i/1000))
	}
	return p
}

// put appends a packet in frames of the pool, the first with headroom.
func (r *rig) put(t testing.TB, b *packet.Batch, p []byte, headroom int) {
	t.Helper()
	for len(p) > 0 {
		off, ok := r.pools[0].Get()
		if !ok {
			t.Fatal("no frame")
		}
		d := packet.Desc{Off: off + uint32(headroom), Len: uint16(min(len(p), r.arena.FrameSize()-headroom))}
		headroom = 0
		copy(r.arena.Bytes(&d), p)
		if p = p[d.Len:]; len(p) > 0 {
			d.Flags = packet.FlagMore
		}
		b.Append(d)
	}
}

func TestUDPSuperPacketsPassWholeWithOffload(t *testing.T) {
	c := newCrossing(t, true, true)
	for i, to := range []string{"198.18.0.2:9", "[2001:db8::2]:9"} {
		var in net.PacketConn
		must(t, c.server.Do(func() (err error) { in, err = net.ListenPacket("udp", to); return err }))
		defer in.Close()
		out := dial(t, c.linux, "", to)
		_, err := out.Write([]byte("who is there")) // ARP, neighbour discovery
		must(t, err)
		buf := make([]byte, 2000)
		must(t, in.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, _, err = in.ReadFrom(buf)
		must(t, err)
		raw, err := out.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) }))
		must(t, err)
		data := make([]byte, 20_345)
		for j := range data {
			data[j] = byte(j/1000 + i)
		}
		_, err = out.Write(data)
		must(t, err)
		var got []byte
		for len(got) < len(data) {
			n, _, err := in.ReadFrom(buf)
			must(t, err)
			if n != min(1000, len(data)-len(got)) {
				t.Fatalf("a datagram of %d bytes", n)
			}
			got = append(got, buf[:n]...)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%s: not what was sent", to)
		}
	}
	if n := c.finish(t); n > 40 {
		t.Errorf("%d packets crossed: segments were cut", n)
	}
}

func TestOffloadIsForDevicesOpenedWithIt(t *testing.T) {
	r := newRig(t, 1, 64, nil)
	if err := r.dev.SetOffload(true); !errors.Is(err, pmd.ErrNotSupported) {
		t.Errorf("SetOffload: %v", err)
	}
	if i := r.dev.Queues[0].Info(); i.Caps&pmd.CapOffload != 0 {
		t.Errorf("%v", i.Caps)
	}
	err := r.here.Do(func() error {
		_, err := afpacket.Open(afpacket.Config{Interface: "mr0", Pools: r.pools, Offload: true, Headroom: packet.OffloadLen - 1})
		return err
	})
	if err == nil {
		t.Error("a headroom without room for what is left to do was accepted")
	}
}
