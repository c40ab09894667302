package dpdk_test

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// tapRig is a device of DPDK's TAP driver, whose interface is of Linux, 198.18.0.2.
type tapRig struct {
	here  *testnet.Namespace
	arena *ring.Arena
	pool  *ring.Pool
	q     *dpdk.Queue
}

func newTAPRig(t *testing.T) *tapRig {
	t.Helper()
	need(t)
	n := testnet.For(t, "mr-dpdk-tap")
	here := n.Namespace("here")
	arena, pools := memory(t, 1, 1024, 2048)
	var d *dpdk.Device
	if err := here.Do(func() (err error) {
		d, err = dpdk.Open(dpdk.Config{Name: "net_tap0,iface=mrt0", Pools: pools})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := here.Up("mrt0", "198.18.0.2/24"); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Run("ip", "neigh", "replace", "198.18.0.1", "lladdr", "02:00:00:00:00:02", "dev", "mrt0", "nud", "permanent"); err != nil {
		t.Fatal(err)
	}
	return &tapRig{here, arena, pools[0], d.Queues[0]}
}

// send sends a packet of a kind, addressed to the interface.
func (r *tapRig) send(t *testing.T, k kind, n int) (data []byte) {
	t.Helper()
	data, o := k.build(n, 128)
	mac := r.q.Info().MAC
	copy(data, mac[:])
	g := &guestPair{t: t, hostHeader: 128, arenas: [2]*ring.Arena{r.arena}, pools: [2]*ring.Pool{r.pool}}
	b := g.chain(0, data, &o)
	for limit := time.Now().Add(10 * time.Second); b.Len() > 0; {
		k, err := r.q.Tx(clock.Time(time.Now().UnixNano()), b)
		if err != nil || time.Now().After(limit) {
			t.Fatalf("Tx = %d, %v", k, err)
		}
		b.Consume(k)
	}
	return data
}

// TestLinuxBehindTAPReceivesLargePackets sends large datagrams and segments to Linux through DPDK's TAP driver: Linux verifies the
// checksums of the datagrams, and a packet socket sees the segments.
func TestLinuxBehindTAPReceivesLargePackets(t *testing.T) {
	r := newTAPRig(t)
	var udp *net.UDPConn
	var raw int
	if err := r.here.Do(func() (err error) {
		if udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(198, 18, 0, 2), Port: 80}); err != nil {
			return err
		}
		raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x0300) // ETH_P_ALL
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	defer unix.Close(raw)
	if err := errors.Join(udp.SetReadBuffer(1<<20), unix.SetsockoptTimeval(raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})); err != nil {
		t.Fatal(err)
	}
	for _, k := range []kind{{udp: true, mss: 1200}, {udp: true}} {
		n := 1001
		if k.mss > 0 {
			n = 20_000
		}
		data := r.send(t, k, n)
		var all []byte
		buf := make([]byte, 2048)
		for len(all) < n {
			if err := udp.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			m, err := udp.Read(buf)
			if err != nil {
				t.Fatalf("%v: %d bytes of %d arrived: %v", k, len(all), n, err)
			}
			all = append(all, buf[:m]...)
		}
		if !bytes.Equal(all, data[42:]) {
			t.Errorf("%v: the payload differs", k)
		}
	}
	for _, k := range []kind{{mss: 1448}, {v6: true, mss: 1400}, {tagged: true, mss: 1000}, {}, {v6: true}} {
		n, want := 1001, 1
		if k.mss > 0 {
			n = 30_001
			want = packet.Segments(n, int(k.mss))
		}
		data := r.send(t, k, n)
		var list []arrived
		buf := make([]byte, 4096)
		for len(list) < want {
			m, from, err := unix.Recvfrom(raw, buf, 0)
			if err != nil {
				t.Fatalf("%v: %d of %d segments arrived: %v", k, len(list), want, err)
			}
			// Linux answers by itself, and a packet socket sees that too.
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING && m > 54 && bytes.Equal(buf[6:12], data[6:12]) && (k.tagged || bytes.Equal(buf[12:14], data[12:14])) && !isUDP(buf[:m]) {
				list = append(list, arrived{data: bytes.Clone(buf[:m])})
			}
		}
		if k.tagged { // a packet socket gets the tag beside the packet
			data = append(data[:12:12], data[16:]...)
		}
		expectSegments(t, data, int(k.mss), list)
	}
	if s := r.q.Info().Stats; s.TxPackets != 7 || s.TxInvalid != 0 {
		t.Errorf("%+v", s)
	}
}

func isUDP(p []byte) bool { return p[12] == 8 && p[23] == 17 }

// TestTAPVerifiesChecksums receives datagrams of Linux: DPDK's driver has verified their checksums, and the descriptor has that.
func TestTAPVerifiesChecksums(t *testing.T) {
	r := newTAPRig(t)
	var c net.Conn
	if err := r.here.Do(func() (err error) {
		c, err = net.Dial("udp4", "198.18.0.1:9")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := packet.NewBatch(r.arena.View(), 64)
	for limit := time.Now().Add(10 * time.Second); ; {
		if _, err := c.Write([]byte("a datagram")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.q.Rx(clock.Time(time.Now().UnixNano()), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.D {
			if p := b.Bytes(i); len(p) == 52 && isUDP(p) {
				if b.D[i].Flags != packet.FlagL4ChecksumOK {
					t.Errorf("flags %#x", b.D[i].Flags)
				}
				checked(t, p)
				r.pool.PutBatch(b)
				return
			}
		}
		r.pool.PutBatch(b)
		b.Reset()
		if time.Now().After(limit) {
			t.Fatal("no datagram arrives")
		}
	}
}
