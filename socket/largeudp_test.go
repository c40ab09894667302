package socket_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/vnet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// udpSpy counts what a driver sends.
type udpSpy struct {
	pmd.Driver
	large, small int
	most         int // datagrams of a large packet
	ids          map[uint16]bool
	again        int // identifications of datagrams that came before
}

func (s *udpSpy) Tx(now clock.Time, b *packet.Batch) (int, error) {
	for i := 0; i < len(b.D); i += packet.Chain(b.D[i:]) {
		if d := &b.D[i]; !d.Flags.Has(packet.FlagOffload) {
			s.small++
		} else if o := b.Arena.Offload(d); o.GSO == packet.GSOUDP {
			size := 0
			for k := range packet.Chain(b.D[i:]) {
				size += int(b.D[i+k].Len)
			}
			n := packet.Segments(size-(int(o.HeadersEnd)-b.Arena.Headroom(d)), int(o.SegmentSize))
			s.large++
			s.most = max(s.most, n)
			s.identify(wire.IPv4(b.Arena.Bytes(d)[wire.EthernetLen:]), n)
		}
	}
	return s.Driver.Tx(now, b)
}

// identify notes the identifications that a device gives the datagrams of a packet.
func (s *udpSpy) identify(q wire.IPv4, n int) {
	if s.ids == nil || wire.Version(q) != 4 {
		return
	}
	for i := range n {
		id := q.ID() + uint16(i)
		if s.ids[id] {
			s.again++
		}
		s.ids[id] = true
	}
}

// trains are payloads with the size of their datagrams.
var trains = []struct{ payload, size int }{
	{1, 1}, {1400, 1400}, {1401, 1400}, {14 * 1452, 1452}, {13*1452 + 7, 1452}, {64 * 900, 900}, {65 * 900, 900}, {3 * 16, 16}, {40 * 1400, 1400},
}

// trainMessage is the control message of a train.
func trainMessage(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(b[8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(b[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(b[16:], uint16(size))
	return b
}

// exchangeTrains sends each train by from, one after the other, and reads its datagrams by to.
func exchangeTrains(t *testing.T, from *socket.UDPConn, to net.PacketConn) {
	t.Helper()
	dst := to.LocalAddr().(*net.UDPAddr)
	sent, got := make([]byte, 1<<16), make([]byte, 2000)
	for i := range sent {
		sent[i] = byte(i * 2654435761 >> 13)
	}
	if err := to.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, c := range trains {
		if _, _, err := from.WriteMsgUDP(sent[:c.payload], trainMessage(c.size), dst); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < c.payload; {
			want := sent[at:min(at+c.size, c.payload)]
			n, _, err := to.ReadFrom(got)
			if err != nil || !bytes.Equal(got[:n], want) {
				t.Fatalf("%d bytes by %d, at %d: %d bytes, want %d: %v", c.payload, c.size, at, n, len(want), err)
			}
			at += n
		}
	}
}

// TestTrainsToLinux sends trains of datagrams over AF_PACKET. Linux receives each datagram, of both families: large packets
// whole, and where the device has no offloads, datagrams that Linux has cut, with checksums that it verifies.
func TestTrainsToLinux(t *testing.T) {
	for _, c := range []struct {
		name     string
		offloads bool
	}{{"offloads", true}, {"none", false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newLargeWorld(t, "mr-trains-"+c.name)
			if !c.offloads {
				w.check(w.here.NoOffload("mr0"))
			}
			w.check(w.linux.Sysctl("net.ipv6.conf.eth0.accept_dad", "0"))
			_, err := w.linux.Run("ip", "addr", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
			w.check(err)
			for _, addr := range []string{"198.18.0.1", "2001:db8::1"} {
				var to net.PacketConn
				w.check(w.linux.Do(func() (err error) {
					to, err = net.ListenPacket("udp", net.JoinHostPort(addr, "0"))
					return err
				}))
				from, err := w.stack.ListenPacket("udp", ":0")
				w.check(err)
				exchangeTrains(t, from.(*socket.UDPConn), to)
				to.Close()
				from.Close()
			}
			w.close()
			if vnet.SegmentsUDP() && (w.udp.large < 10 || w.udp.most != 64) {
				t.Errorf("%+v: few large packets", w.udp)
			}
		})
	}
}

// memoryPair is two stacks over a wire, and a UDP conn on each.
type memoryPair struct {
	spy   udpSpy
	conns [2]*socket.UDPConn
	other net.PacketConn // at the second stack
}

func newMemoryPair(t *testing.T, offload bool) *memoryPair {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 4096, Huge: ring.HugeOff})
	check(err)
	t.Cleanup(func() { arena.Close() })
	var pools [2]*ring.Pool
	for i := range pools {
		pools[i], err = arena.Cut(2048)
		check(err)
	}
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1], Offload: offload})
	check(err)
	t.Cleanup(func() { a.Close(); b.Close() })
	p := &memoryPair{spy: udpSpy{Driver: a, ids: map[uint16]bool{}}}
	for i, d := range []pmd.Driver{&p.spy, b} {
		addr := netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
		s, err := socket.New(socket.Config{
			Loops: []stack.Config{{Devices: []pmd.Driver{d}, Pool: pools[i], Engine: gpukern.NewCPU(gpukern.Config{})}},
			Addrs: []socket.Address{{Prefix: netip.PrefixFrom(addr, 24)}},
		})
		check(err)
		t.Cleanup(func() { s.Close() })
		pc, err := s.ListenPacket("udp", netip.AddrPortFrom(addr, 9).String())
		check(err)
		p.conns[i] = pc.(*socket.UDPConn)
		if i == 1 {
			p.other, err = s.ListenPacket("udp", netip.AddrPortFrom(addr, 10).String())
			check(err)
		}
	}
	return p
}

// counts returns what the spy has seen, while no loop sends.
func (p *memoryPair) counts(t *testing.T) udpSpy {
	t.Helper()
	var s udpSpy
	if err := p.conns[0].SetOptions(func(*socket.UDPOptions) { s = p.spy }); err != nil { // with the loop held
		t.Fatal(err)
	}
	return s
}

// TestTrainsInMemory sends trains to another stack over a wire that passes large packets whole, and over one that does not.
func TestTrainsInMemory(t *testing.T) {
	for _, offload := range []bool{true, false} {
		p := newMemoryPair(t, offload)
		exchangeTrains(t, p.conns[0], p.conns[1])
		if s := p.counts(t); s.large > 0 != offload || s.again != 0 {
			t.Errorf("offload %v: %+v", offload, s)
		}
	}
}

// TestTrainsThatWaitAreJoined sends trains by one call, so that each finds the one before in the queue. Those that one write
// could have sent leave as one packet. The receiver gets each datagram.
func TestTrainsThatWaitAreJoined(t *testing.T) {
	p := newMemoryPair(t, true)
	dst := p.conns[1].LocalAddr().(*net.UDPAddr).AddrPort()
	if _, err := p.conns[0].WriteTo([]byte("x"), p.conns[1].LocalAddr()); err != nil { // resolves the address
		t.Fatal(err)
	}
	got := make([]byte, 2000)
	if err := p.conns[1].SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.conns[1].ReadFrom(got); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 1<<16)
	for i := range sent {
		sent[i] = byte(i * 40503 >> 5)
	}
	for _, c := range []struct {
		what   string
		trains [][2]int // payload, size
		tos    uint8    // of the last one
		large  int
	}{
		{"alike", [][2]int{{2900, 1450}, {4350, 1450}, {2900, 1450}}, 0, 1},
		{"the last one ends short", [][2]int{{2900, 1450}, {2901, 1450}}, 0, 1},
		{"behind a short one", [][2]int{{2899, 1450}, {2900, 1450}}, 0, 2},
		{"another size", [][2]int{{2900, 1450}, {2800, 1400}}, 0, 2},
		{"another TOS", [][2]int{{2900, 1450}, {2900, 1450}}, 2, 2},
		{"behind a single one", [][2]int{{2900, 1450}, {900, 900}, {2900, 1450}}, 0, 2},
		{"more than 64 KiB", [][2]int{{29000, 1450}, {29000, 1450}, {8700, 1450}}, 0, 2},
		{"more than IPv4 expresses", [][2]int{{32768, 1024}, {32740, 1024}}, 0, 2},
		{"as much as IPv4 expresses", [][2]int{{32768, 1024}, {32739, 1024}}, 0, 1},
		{"more than 64 datagrams", [][2]int{{3300, 100}, {3200, 100}}, 0, 2},
		{"64 datagrams", [][2]int{{3300, 100}, {3100, 100}}, 0, 1},
	} {
		before := p.counts(t)
		msgs := make([]socket.Message, len(c.trains))
		var want [][]byte
		for i, train := range c.trains {
			b := sent[i*100:][:train[0]]
			msgs[i] = socket.Message{Buffers: [][]byte{b}, SegmentSize: train[1]}
			msgs[i].SetPeer(dst)
			want = slices.AppendSeq(want, slices.Chunk(b, train[1]))
		}
		msgs[len(msgs)-1].TOS = c.tos
		if n, err := p.conns[0].WriteMessages(msgs); n != len(msgs) || err != nil {
			t.Fatal(n, err)
		}
		for i := range want {
			n, _, err := p.conns[1].ReadFrom(got)
			if err != nil || !bytes.Equal(got[:n], want[i]) {
				t.Fatalf("%s: datagram %d has %d bytes, want %d: %v", c.what, i, n, len(want[i]), err)
			}
		}
		if s := p.counts(t); s.large-before.large != c.large || s.again != 0 {
			t.Errorf("%s: %d large packets, want %d; %d identifications came again", c.what, s.large-before.large, c.large, s.again)
		}
	}
}

// TestTrainsWithoutChecksumsAreCut: a device fills in the checksum of each datagram, and these have none (RFC 768).
func TestTrainsWithoutChecksumsAreCut(t *testing.T) {
	p := newMemoryPair(t, true)
	if err := p.conns[0].SetOptions(func(o *socket.UDPOptions) { o.NoChecksum = true }); err != nil {
		t.Fatal(err)
	}
	exchangeTrains(t, p.conns[0], p.conns[1])
	if s := p.counts(t); s.large != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTrainsToSeveralPortsAreApart sends trains that differ in the port alone.
func TestTrainsToSeveralPortsAreApart(t *testing.T) {
	p := newMemoryPair(t, true)
	if _, err := p.conns[0].WriteTo([]byte("x"), p.conns[1].LocalAddr()); err != nil { // resolves the address
		t.Fatal(err)
	}
	got := make([]byte, 2000)
	read := func(from net.PacketConn, want int) {
		t.Helper()
		if err := from.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := from.ReadFrom(got); n != want || err != nil {
			t.Fatalf("%d bytes, want %d: %v", n, want, err)
		}
	}
	read(p.conns[1], 1)
	var msgs [2]socket.Message
	for i, to := range []net.PacketConn{p.conns[1], p.other} {
		msgs[i] = socket.Message{Buffers: [][]byte{make([]byte, 2000+i)}, SegmentSize: 1000}
		msgs[i].SetPeer(to.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	if n, err := p.conns[0].WriteMessages(msgs[:]); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for range 2 {
		read(p.conns[1], 1000)
	}
	for _, n := range []int{1000, 1000, 1} {
		read(p.other, n)
	}
}
