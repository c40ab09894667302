package afxdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// The network of the tests:
//
//	peer                          host
//	+---------------------+      +--------------------------------------+
//	| eth0 198.18.0.2/24  |------| xdp0 198.18.0.1/24   (kernel)        |
//	|      2001:db8::2/64 | veth |      2001:db8::1/64  (kernel)        |
//	+---------------------+      |      198.18.0.9, 2001:db8::9 (driver)|
//	                             +--------------------------------------+
type network struct {
	*testnet.Net
	peer, host *testnet.Namespace
}

const (
	dev     = "xdp0"
	peerDev = "eth0"
)

var (
	peerAddr = netip.MustParseAddr("198.18.0.2")
	hostAddr = netip.MustParseAddr("198.18.0.1")
	ourAddr  = netip.MustParseAddr("198.18.0.9")
	peer6    = netip.MustParseAddr("2001:db8::2")
	our6     = netip.MustParseAddr("2001:db8::9")
)

func newNetwork(t testing.TB, queues, mtu int) *network {
	t.Helper()
	n := testnet.For(t, "mr-afxdp")
	w := &network{n, n.Namespace("peer"), n.Namespace("host")}
	if err := n.LinkQueues(w.peer, peerDev, w.host, dev, queues); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*testnet.Namespace{w.peer, w.host} {
		must(t, ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"))
	}
	if mtu != 1500 {
		w.run(t, w.peer, "ip", "link", "set", peerDev, "mtu", fmt.Sprint(mtu))
		w.run(t, w.host, "ip", "link", "set", dev, "mtu", fmt.Sprint(mtu))
	}
	must(t, w.peer.Up(peerDev, "198.18.0.2/24", "2001:db8::2/64"))
	must(t, w.host.Up(dev, "198.18.0.1/24", "2001:db8::1/64"))
	return w
}

// silencePeer keeps the peer's kernel from sending anything of its own: for tests that count.
func (w *network) silencePeer(t testing.TB) *network {
	t.Helper()
	must(t, w.peer.Sysctl("net.ipv6.conf."+peerDev+".disable_ipv6", "1"))
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *network) run(t testing.TB, ns *testnet.Namespace, name string, args ...string) string {
	t.Helper()
	out, err := ns.Run(name, args...)
	must(t, err)
	return out
}

// mac returns the link address of an interface.
func (w *network) mac(t testing.TB, ns *testnet.Namespace, name string) (mac [6]byte) {
	t.Helper()
	must(t, ns.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			copy(mac[:], i.HardwareAddr)
		}
		return err
	}))
	return mac
}

// wantKernelReset checks whether the host's kernel is reached at addr: it refuses a connection to a
// closed port, once neighbour discovery, the way there and the way back all work.
func (w *network) wantKernelReset(t testing.TB, addr netip.Addr, want bool) {
	t.Helper()
	timeout := patience
	if !want {
		timeout = 300 * time.Millisecond
	}
	err := w.dial(addr, timeout)
	if got := errors.Is(err, unix.ECONNREFUSED); got != want {
		t.Fatalf("the kernel at %v: %v, want an answer: %v", addr, err, want)
	}
}

// dial opens a connection from the peer to a closed port.
func (w *network) dial(addr netip.Addr, timeout time.Duration) error {
	return w.peer.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 9).String(), timeout)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// rig is an open device with its memory, audited when the test ends.
type rig struct {
	*Device
	arena *ring.Arena
	pools []*ring.Pool
	now   clock.Time
}

func newArena(t testing.TB, frames, size int) *ring.Arena {
	t.Helper()
	a, err := ring.NewArena(ring.ArenaConfig{Frames: frames, FrameSize: size, Huge: ring.HugeOff})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

func cut(t testing.TB, a *ring.Arena, n int) *ring.Pool {
	t.Helper()
	p, err := a.Cut(n)
	must(t, err)
	return p
}

// open opens an interface of the host, dev if none is named. A Config without pools gets one of 1024 frames of 2 KiB.
func (w *network) open(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{}
	if cfg.Pools == nil {
		cfg.Pools = []*ring.Pool{cut(t, newArena(t, 1024, 2048), 0)}
	}
	r.pools, r.arena = cfg.Pools, cfg.Pools[0].Arena()
	if cfg.Interface == "" {
		cfg.Interface = dev
	}
	must(t, w.host.Do(func() (err error) {
		r.Device, err = Open(cfg)
		return err
	}))
	t.Cleanup(func() { r.finish(t) })
	return r
}

// finish closes the device and checks that every frame is back in its pool.
func (r *rig) finish(t testing.TB) {
	t.Helper()
	r.audit(t)
	must(t, r.Close())
	for i, p := range r.pools {
		if p.Free() != p.Size() {
			t.Errorf("pool %d has %d of %d frames after Close", i, p.Free(), p.Size())
		}
	}
}

// audit checks that every frame is in a pool or with the kernel, exactly once.
func (r *rig) audit(t testing.TB, others ...ring.Holder) {
	t.Helper()
	seen := map[*ring.Pool]bool{}
	for _, p := range r.pools {
		if !seen[p] {
			others = append(others, p)
		}
		seen[p] = true
	}
	for _, q := range r.Queues {
		others = append(others, q)
		for _, l := range []*frameSet{&q.rxHeld, &q.txHeld} {
			if n := 0; l.n != count(l, &n) {
				t.Errorf("%d frames are held, counted as %d", n, l.n)
			}
		}
	}
	if err := ring.Audit(r.arena, others...); err != nil {
		t.Error(err)
	}
}

func count(h ring.Holder, n *int) int {
	h.Holds(func(uint32) { *n++ })
	return *n
}

// patience bounds how long tests wait for packets.
const patience = 5 * time.Second

// until polls queue i into b until done is true.
func (r *rig) until(t testing.TB, i int, b *packet.Batch, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			t.Fatalf("no packet for %v: %+v", patience, r.Queues[i].Info())
		}
		n, err := r.poll(i, b)
		must(t, err)
		if n == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

func (r *rig) poll(i int, b *packet.Batch) (int, error) {
	r.now = clock.Time(time.Now().UnixNano())
	return r.Queues[i].Rx(r.now, b)
}

// recv polls until b has n packets.
func (r *rig) recv(t testing.TB, b *packet.Batch, n int) {
	t.Helper()
	r.until(t, 0, b, func() bool { return b.Len() >= n })
}

// wire is a raw socket on the peer's end of the veth: the kernel's own driver as the oracle.
type wire struct{ fd, index int }

func (w *network) wire(t testing.TB) *wire {
	t.Helper()
	s := &wire{}
	must(t, w.peer.Do(func() (err error) {
		i, err := net.InterfaceByName(peerDev)
		if err != nil {
			return err
		}
		s.index = i.Index
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: i.Index, Protocol: htons(unix.ETH_P_ALL)})
	}))
	must(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must(t, unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func (s *wire) send(t testing.TB, frame []byte) {
	t.Helper()
	must(t, unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: s.index}))
}

// recv returns the next received frame that want accepts.
func (s *wire) recv(t testing.TB, want func([]byte) bool) []byte {
	t.Helper()
	buf := make([]byte, 65536)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil {
			t.Fatalf("receive at the peer: %v", err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if want(buf[:n]) {
			return buf[:n]
		}
	}
}

// testType is an EtherType for local experiments (IEEE 802 9.2.4): the kernel ignores it.
const testType = 0x88b5

// frame builds an Ethernet frame of n bytes with testType, that carries a number and a pattern.
func frame(dst, src [6]byte, n int, number uint32) []byte {
	f := make([]byte, n)
	copy(f, dst[:])
	copy(f[6:], src[:])
	binary.BigEndian.PutUint16(f[12:], testType)
	binary.BigEndian.PutUint32(f[14:], number)
	for i := 18; i < n; i++ {
		f[i] = byte(i) ^ byte(number)
	}
	return f
}

func isTest(f []byte) bool { return len(f) >= 18 && binary.BigEndian.Uint16(f[12:]) == testType }
func number(f []byte) int  { return int(binary.BigEndian.Uint32(f[14:])) }
