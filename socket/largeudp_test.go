package socket_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
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
)

// udpSpy counts what a driver sends.
type udpSpy struct {
	pmd.Driver
	large, small int
	most         int // datagrams of a large packet
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
			s.large++
			s.most = max(s.most, packet.Segments(size-(int(o.HeadersEnd)-b.Arena.Headroom(d)), int(o.SegmentSize)))
		}
	}
	return s.Driver.Tx(now, b)
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
	if err := to.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
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

// TestTrainsInMemory sends trains to another stack over a wire that passes large packets whole, and over one that does not.
func TestTrainsInMemory(t *testing.T) {
	for _, offload := range []bool{true, false} {
		arena, err := ring.NewArena(ring.ArenaConfig{Frames: 4096, Huge: ring.HugeOff})
		if err != nil {
			t.Fatal(err)
		}
		var pools [2]*ring.Pool
		for i := range pools {
			if pools[i], err = arena.Cut(2048); err != nil {
				t.Fatal(err)
			}
		}
		a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[1], Offload: offload})
		if err != nil {
			t.Fatal(err)
		}
		spy := &udpSpy{Driver: a}
		var conns [2]*socket.UDPConn
		var stacks [2]*socket.Stack
		for i, d := range []pmd.Driver{spy, b} {
			addr := netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})
			stacks[i], err = socket.New(socket.Config{
				Loops: []stack.Config{{Devices: []pmd.Driver{d}, Pool: pools[i], Engine: gpukern.NewCPU(gpukern.Config{})}},
				Addrs: []socket.Address{{Prefix: netip.PrefixFrom(addr, 24)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			pc, err := stacks[i].ListenPacket("udp", netip.AddrPortFrom(addr, 9).String())
			if err != nil {
				t.Fatal(err)
			}
			conns[i] = pc.(*socket.UDPConn)
		}
		exchangeTrains(t, conns[0], conns[1])
		for i := range stacks {
			stacks[i].Close()
		}
		if got := spy.large > 0; got != offload {
			t.Errorf("offload %v: %+v", offload, spy)
		}
		a.Close()
		b.Close()
		arena.Close()
	}
}
