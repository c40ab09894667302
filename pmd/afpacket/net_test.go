package afpacket_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

var (
	_ pmd.Driver  = (*afpacket.Queue)(nil)
	_ ring.Holder = (*afpacket.Queue)(nil)
)

// rig is a device at the end of a veth pair whose other end is Linux.
//
//	linux: eth0 198.18.0.1/24, 2001:db8::1/64 --- mr0: the driver, no address
type rig struct {
	net         *testnet.Net
	linux, here *testnet.Namespace
	arena       *ring.Arena
	pools       []*ring.Pool
	dev         *afpacket.Device
	peer        net.HardwareAddr // of linux's eth0
	flows       map[int]*net.UDPConn
}

var (
	linuxAddr = netip.MustParseAddr("198.18.0.1")
	ourAddr   = netip.MustParseAddr("198.18.0.2")
	ourAddr6  = netip.MustParseAddr("2001:db8::2")
)

// newRig builds the network and opens the device with what change made of the usual configuration.
func newRig(t testing.TB, queues, frames int, change func(*afpacket.Config)) *rig {
	t.Helper()
	r := bareRig(t)
	r.open(t, queues, frames, change)
	return r
}

func bareRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{net: testnet.For(t, "mr-afp")}
	r.linux, r.here = r.net.Namespace("linux"), r.net.Namespace("here")
	must(t, r.net.LinkQueues(r.linux, "eth0", r.here, "mr0", 2))
	for _, ns := range []*testnet.Namespace{r.linux, r.here} {
		must(t, ns.Sysctl("net.ipv6.conf.default.accept_ra", "0"))
	}
	must(t, r.linux.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"))
	usable(t, r.linux, "2001:db8::1")
	must(t, r.here.Sysctl("net.ipv6.conf.mr0.disable_ipv6", "1"))
	must(t, r.here.Up("mr0"))
	must(t, r.linux.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		r.peer = i.HardwareAddr
		return err
	}))
	return r
}

// usable waits until Linux takes packets to its own IPv6 address: the kernel adds the route in its
// own time.
func usable(t testing.TB, ns *testnet.Namespace, addr string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(time.Millisecond) {
		out, err := ns.Run("ip", "-6", "route", "get", addr)
		if err == nil && strings.HasPrefix(out, "local") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no route to %s: %s, %v", addr, out, err)
		}
	}
}

func (r *rig) open(t testing.TB, queues, frames int, change func(*afpacket.Config)) {
	t.Helper()
	var err error
	if r.arena, err = ring.NewArena(ring.ArenaConfig{Frames: queues * frames, Huge: ring.HugeOff}); err != nil {
		t.Fatal(err)
	}
	cfg := afpacket.Config{Interface: "mr0", All: true}
	for range queues {
		p, err := r.arena.Cut(frames)
		must(t, err)
		r.pools = append(r.pools, p)
	}
	cfg.Pools = r.pools
	if change != nil {
		change(&cfg)
	}
	must(t, r.here.Do(func() error {
		r.dev, err = afpacket.Open(cfg)
		return err
	}))
	t.Cleanup(func() {
		if err := r.dev.Close(); err != nil {
			t.Error(err)
		}
		r.arena.Close()
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) audit(t testing.TB, batches ...*packet.Batch) {
	t.Helper()
	var holders []ring.Holder
	for i := range r.pools {
		holders = append(holders, r.pools[i], r.dev.Queues[i])
	}
	for _, b := range batches {
		holders = append(holders, testpackets.Frames{Batch: b})
	}
	if err := ring.Audit(r.arena, holders...); err != nil {
		t.Fatal(err)
	}
}

func now() clock.Time { return clock.Time(time.Now().UnixNano()) }

// wait sleeps on the queue, at most a while.
func wait(q *afpacket.Queue) {
	fds := []unix.PollFd{{Fd: int32(q.Info().FD), Events: unix.POLLIN}}
	_, _ = unix.Poll(fds, 5)
}

// collect receives on queue 0 until enough is true, or fails after some seconds. It gives the
// frames back, and returns copies of the packets, put together.
func (r *rig) collect(t testing.TB, enough func(got [][]byte) bool) [][]byte {
	t.Helper()
	q, b := r.dev.Queues[0], packet.NewBatch(r.arena.View(), 256)
	var got [][]byte
	for end := time.Now().Add(5 * time.Second); !enough(got); {
		if time.Now().After(end) {
			t.Fatalf("%d packets came, and not what is awaited", len(got))
		}
		n, err := q.Rx(now(), b)
		must(t, err)
		if n == 0 {
			wait(q)
		}
		got = append(got, testpackets.Split(b)...)
		r.pools[0].PutBatch(b)
	}
	return got
}

// send makes a batch of the packets and sends it.
func (r *rig) send(t testing.TB, packets ...[]byte) {
	t.Helper()
	b := packet.NewBatch(r.arena.View(), 512)
	for _, p := range packets {
		if !testpackets.Append(b, r.pools[0], p) {
			t.Fatal("no frame")
		}
	}
	for b.Len() > 0 {
		n, err := r.dev.Queues[0].Tx(now(), b)
		must(t, err)
		b.Consume(n)
	}
}

// udp returns a UDP packet to Linux with the given payload.
func (r *rig) udp(src, dst uint16, payload []byte) []byte {
	mac := r.dev.Queues[0].Info().MAC
	p := wire.AppendEthernet(nil, wire.MAC(r.peer), wire.MAC(mac), wire.EtherTypeIPv4)
	p = append(p, make([]byte, 28)...)
	p = append(p, payload...)
	ip := wire.IPv4(p[14:])
	ip.SetHeaderLen(20)
	ip.SetTotalLen(uint16(28 + len(payload)))
	ip.SetTTL(64)
	ip.SetProto(wire.ProtoUDP)
	ip.SetSrc(ourAddr.As4())
	ip.SetDst(linuxAddr.As4())
	ip.FillChecksum()
	u := wire.UDP(p[34:])
	u.SetSrcPort(src)
	u.SetDstPort(dst)
	u.SetLen(uint16(8 + len(payload)))
	u.FillChecksum(wire.PseudoHeader4(ip.Src(), ip.Dst(), wire.ProtoUDP, uint32(8+len(payload))))
	return p
}

// know gives Linux the driver's link address, so that it need not resolve it.
func (r *rig) know(t testing.TB) {
	t.Helper()
	mac := net.HardwareAddr(func() []byte { m := r.dev.Queues[0].Info().MAC; return m[:] }())
	for _, a := range []string{ourAddr.String(), ourAddr6.String()} {
		_, err := r.linux.Run("ip", "neigh", "replace", a, "lladdr", mac.String(), "dev", "eth0")
		must(t, err)
	}
}

// echo answers ARP and ICMP echo requests for the driver's address in place: a responder of few lines.
func echo(p []byte) bool {
	e := wire.Ethernet(p)
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	switch {
	case e.EtherType() == wire.EtherTypeARP && netip.AddrFrom4([4]byte(p[38:42])) == ourAddr && p[21] == 1:
		copy(p[32:42], p[22:32]) // its sender is the target
		copy(p[22:28], mac[:])
		copy(p[28:32], ourAddr.AsSlice())
		p[21] = 2
	case e.EtherType() == wire.EtherTypeIPv4 && wire.IPv4(p[14:]).DstAddr() == ourAddr && wire.IPv4(p[14:]).Proto() == wire.ProtoICMP && p[34] == 8:
		ip := wire.IPv4(p[14:])
		src := ip.Src()
		ip.SetSrc(ip.Dst())
		ip.SetDst(src)
		p[34] = 0
		sum := wire.Update16(uint16(p[36])<<8|uint16(p[37]), 8<<8|uint16(p[35]), uint16(p[35]))
		p[36], p[37] = byte(sum>>8), byte(sum)
	default:
		return false
	}
	copy(p[0:6], p[6:12])
	copy(p[6:12], mac[:])
	return true
}

// respond answers pings until stop is closed, and sends what it does not know to the pool.
func (r *rig) respond(t testing.TB, stop <-chan struct{}) {
	q, b, out := r.dev.Queues[0], packet.NewBatch(r.arena.View(), 64), packet.NewBatch(r.arena.View(), 64)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, err := q.Rx(now(), b)
		if err != nil && !errors.Is(err, pmd.ErrDown) {
			t.Error(err)
			return
		}
		if n == 0 {
			wait(q)
		}
		for i := range b.D {
			if echo(b.Bytes(i)) {
				out.Append(b.D[i])
			} else {
				r.pools[0].Put(b.D[i].Off)
			}
		}
		b.Reset()
		n, _ = q.Tx(now(), out)
		out.Consume(n)
		r.pools[0].PutBatch(out)
	}
}
