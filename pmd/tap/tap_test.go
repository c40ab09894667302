package tap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/tap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

var (
	_ pmd.Driver  = (*tap.Queue)(nil)
	_ ring.Holder = (*tap.Queue)(nil)
)

// rig is Linux with a TAP interface.
//
//	linux: mr0 198.18.0.1/24, 2001:db8::1/64 --- driver: 198.18.0.2, 2001:db8::2
type rig struct {
	linux *testnet.Namespace
	arena *ring.Arena
	pools []*ring.Pool
	dev   *tap.Device
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bareRig(t testing.TB, queues, frames int) *rig {
	t.Helper()
	n := testnet.For(t, "mr-tap")
	r := &rig{linux: n.Namespace("linux")}
	must(t, r.linux.Sysctl("net.ipv6.conf.default.accept_ra", "0"))
	var err error
	r.arena, err = ring.NewArena(ring.ArenaConfig{Frames: queues * frames, Huge: ring.HugeOff})
	must(t, err)
	t.Cleanup(func() { r.arena.Close() })
	for range queues {
		p, err := r.arena.Cut(frames)
		must(t, err)
		r.pools = append(r.pools, p)
	}
	return r
}

func newRig(t testing.TB, queues, frames int, mtu int) *rig {
	t.Helper()
	r := bareRig(t, queues, frames)
	must(t, r.open(tap.Config{Interface: "mr0", MTU: mtu, Up: true}))
	t.Cleanup(func() {
		if err := r.dev.Close(); err != nil {
			t.Error(err)
		}
	})
	must(t, r.linux.Up("mr0", "198.18.0.1/24", "2001:db8::1/64"))
	usable(t, r.linux, "2001:db8::1")
	mac := r.dev.Queues[0].Info().MAC
	for _, a := range []string{"198.18.0.2", "2001:db8::2"} {
		_, err := r.linux.Run("ip", "neigh", "replace", a, "lladdr", net.HardwareAddr(mac[:]).String(), "dev", "mr0")
		must(t, err)
	}
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

func (r *rig) open(cfg tap.Config) error {
	cfg.Pools = r.pools
	return r.linux.Do(func() (err error) { r.dev, err = tap.Open(cfg); return err })
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

func wait(q *tap.Queue) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(q.Info().FD), Events: unix.POLLIN}}, 5)
}

// dial returns a UDP socket of Linux.
func (r *rig) dial(t testing.TB, local, to string) *net.UDPConn {
	t.Helper()
	var c net.Conn
	must(t, r.linux.Do(func() (err error) {
		d := net.Dialer{}
		if local != "" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(local))
		}
		c, err = d.Dial("udp", to)
		return err
	}))
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// packets copies the UDP packets of b, chains in one piece.
func packets(b *packet.Batch) (out [][]byte) {
	for _, p := range testpackets.Split(b) {
		if udp, _ := transport(p); udp != nil {
			out = append(out, p)
		}
	}
	return out
}

// transport returns the UDP part of a packet and the sum of its pseudo header.
func transport(p []byte) (wire.UDP, uint32) {
	etherType, off, _ := wire.Network(p)
	switch {
	case etherType == wire.EtherTypeIPv4 && wire.IPv4(p[off:]).Proto() == wire.ProtoUDP:
		ip := wire.IPv4(p[off:])
		return wire.UDP(ip.Payload()), wire.PseudoHeader4(ip.Src(), ip.Dst(), wire.ProtoUDP, uint32(len(ip.Payload())))
	case etherType == wire.EtherTypeIPv6 && wire.IPv6(p[off:]).NextHeader() == wire.ProtoUDP:
		ip := wire.IPv6(p[off:])
		return wire.UDP(ip.Payload()), wire.PseudoHeader6(ip.Src(), ip.Dst(), wire.ProtoUDP, uint32(len(ip.Payload())))
	}
	return nil, 0
}

// collect receives on queue 0 until n UDP packets are there.
func (r *rig) collect(t testing.TB, n int) [][]byte {
	t.Helper()
	q, b := r.dev.Queues[0], packet.NewBatch(r.arena.View(), 64)
	var got [][]byte
	for end := time.Now().Add(5 * time.Second); len(got) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d packets came, want %d", len(got), n)
		}
		m, err := q.Rx(now(), b)
		must(t, err)
		if m == 0 {
			wait(q)
		}
		got = append(got, packets(b)...)
		r.pools[0].PutBatch(b)
	}
	return got
}

// send sends packets, in as many frames as they need.
func (r *rig) send(t testing.TB, list ...[]byte) {
	t.Helper()
	b := packet.NewBatch(r.arena.View(), 128)
	for _, p := range list {
		if !testpackets.Append(b, r.pools[0], p) {
			t.Fatal("no frame")
		}
	}
	n, err := r.dev.Queues[0].Tx(now(), b)
	if err != nil || n != b.Len() {
		t.Fatalf("Tx = %d of %d, %v", n, b.Len(), err)
	}
}

// turn makes a packet its own answer: the sums stay right.
func turn(p []byte) {
	_, off, _ := wire.Network(p)
	swap := func(at, n int) {
		x := bytes.Clone(p[at : at+n])
		copy(p[at:], p[at+n:at+2*n])
		copy(p[at+n:], x)
	}
	swap(0, 6)
	if p[off]>>4 == 4 {
		swap(off+12, 4)
		swap(off+20, 2)
	} else {
		swap(off+8, 16)
		swap(off+40, 2)
	}
}

// Every size around the ends of frames goes to the driver and back, with checksums that need no fix.
func TestLinuxExchangesPacketsWithTheDriver(t *testing.T) {
	for _, mtu := range []int{1500, 9000, 65521} {
		t.Run(fmt.Sprintf("MTU %d", mtu), func(t *testing.T) { exchange(t, mtu) })
	}
}

func exchange(t *testing.T, mtu int) {
	r := newRig(t, 1, 128, mtu)
	data := bytes.Repeat([]byte("millrace"), 65536/8)
	for _, to := range []string{"198.18.0.2:9", "[2001:db8::2]:9"} {
		c := r.dial(t, "", to)
		for _, n := range []int{0, 1, 1400, 1729, 1730, 1749, 1750, 1751, 3777, 3778, 3779, 8900, 8952, 65000} {
			if n+48 > mtu {
				continue
			}
			_, err := c.Write(data[:n])
			must(t, err)
			p := r.collect(t, 1)[0]
			udp, pseudo := transport(p)
			if !bytes.Equal(udp.Payload(), data[:n]) || !udp.ChecksumOK(pseudo) {
				t.Fatalf("MTU %d, %s: %d bytes came as %d, checksum right: %v", mtu, to, n, len(udp.Payload()), udp.ChecksumOK(pseudo))
			}
			turn(p)
			r.send(t, p)
			buf := make([]byte, 65536)
			must(t, c.SetReadDeadline(time.Now().Add(3*time.Second)))
			if m, err := c.Read(buf); err != nil || !bytes.Equal(buf[:m], data[:n]) {
				t.Fatalf("MTU %d, %s: %d bytes went back as %d, %v", mtu, to, n, m, err)
			}
		}
	}
	r.audit(t)
	must(t, r.dev.Close())
}

func TestLargeSendsAreSegmentedByTheKernel(t *testing.T) {
	r := newRig(t, 1, 128, 0)
	c := r.dial(t, "", "198.18.0.2:9")
	raw, err := c.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) }))
	must(t, err)
	_, err = c.Write(make([]byte, 20_345))
	must(t, err)
	for i, p := range r.collect(t, 21) {
		udp, pseudo := transport(p)
		if want := []int{1000, 345}[i/20]; len(udp.Payload()) != want || !udp.ChecksumOK(pseudo) {
			t.Errorf("datagram %d has %d bytes, checksum right: %v", i, len(udp.Payload()), udp.ChecksumOK(pseudo))
		}
	}
}

func TestVLANTagsStayInThePacket(t *testing.T) {
	r := newRig(t, 1, 64, 0)
	raw := -1
	must(t, r.linux.Do(func() (err error) {
		raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	defer unix.Close(raw)
	index := 0
	must(t, r.linux.Do(func() error {
		i, err := net.InterfaceByName("mr0")
		index = i.Index
		return err
	}))
	c := r.dial(t, "", "198.18.0.2:9")
	_, err := c.Write([]byte("tagged"))
	must(t, err)
	plain := r.collect(t, 1)[0]
	want := append(append(bytes.Clone(plain[:12]), 0x81, 0, 0x20, 7), plain[12:]...)
	must(t, unix.Sendto(raw, want, 0, &unix.SockaddrLinklayer{Ifindex: index}))
	if got := r.collect(t, 1)[0]; !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestGrownMTUIsNoticed(t *testing.T) {
	r := newRig(t, 1, 64, 1500)
	_, err := r.linux.Run("ip", "link", "set", "mr0", "mtu", "9000")
	must(t, err)
	c := r.dial(t, "", "198.18.0.2:9")
	q, b := r.dev.Queues[0], packet.NewBatch(r.arena.View(), 16)
	for end := time.Now().Add(3 * time.Second); q.Info().Stats.RxInvalid == 0 && time.Now().Before(end); {
		_, err := c.Write(make([]byte, 8000))
		must(t, err)
		_, err = q.Rx(now(), b)
		must(t, err)
		r.pools[0].PutBatch(b)
	}
	_, err = c.Write(make([]byte, 8000))
	must(t, err)
	if udp, pseudo := transport(r.collect(t, 1)[0]); len(udp.Payload()) != 8000 || !udp.ChecksumOK(pseudo) {
		t.Errorf("%d bytes", len(udp.Payload()))
	}
	if n := q.Info().Stats.RxInvalid; n != 1 {
		t.Errorf("%d packets were cut, want 1", n)
	}
	r.audit(t)
}

func TestQueuesKeepFlowsTogether(t *testing.T) {
	r := newRig(t, 2, 256, 0)
	const flows, each = 48, 6
	conns := make([]*net.UDPConn, flows)
	for f := range conns {
		conns[f] = r.dial(t, fmt.Sprintf("198.18.0.1:%d", 20000+f), "198.18.0.2:9")
	}
	where, share, got := map[uint16]int{}, [2]int{}, 0
	for range each {
		for _, c := range conns {
			_, err := c.Write([]byte("flow"))
			must(t, err)
		}
		for i, q := range r.dev.Queues {
			b := packet.NewBatch(r.arena.View(), 128)
			_, err := q.Rx(now(), b)
			must(t, err)
			for _, p := range packets(b) {
				port := binary.BigEndian.Uint16(p[34:])
				if was, seen := where[port]; seen && was != i {
					t.Fatalf("flow %d is on both queues", port)
				}
				where[port] = i
				share[i]++
				got++
			}
			r.pools[i].PutBatch(b)
		}
	}
	if got != flows*each || share[0] == 0 || share[1] == 0 {
		t.Errorf("%d of %d packets, by queue %v", got, flows*each, share)
	}
	if !strings.Contains(r.dev.Queues[1].Info().Negotiated, "multi-queue") || r.dev.Queues[1].Info().Queue != 1 {
		t.Errorf("%+v", r.dev.Queues[1].Info())
	}
	r.audit(t)
}

func TestCloseRemovesTheInterfaceAndLeavesAPersistentOne(t *testing.T) {
	r := newRig(t, 1, 64, 0)
	c := r.dial(t, "", "198.18.0.2:9")
	for range 100 {
		_, err := c.Write(make([]byte, 100))
		must(t, err)
	}
	b := packet.NewBatch(r.arena.View(), 4)
	if n, _ := r.dev.Queues[0].Rx(now(), b); n != 4 {
		t.Errorf("Rx = %d", n)
	}
	must(t, r.dev.Close())
	must(t, r.dev.Close())
	if _, err := r.dev.Queues[0].Rx(now(), b); !errors.Is(err, pmd.ErrClosed) {
		t.Errorf("Rx: %v", err)
	}
	if _, err := r.dev.Queues[0].Tx(now(), b); !errors.Is(err, pmd.ErrClosed) {
		t.Errorf("Tx: %v", err)
	}
	r.audit(t, b)
	r.pools[0].PutBatch(b)
	if _, err := r.linux.Run("ip", "link", "show", "mr0"); err == nil {
		t.Error("the interface is still there")
	}
	_, err := r.linux.Run("ip", "tuntap", "add", "dev", "mr1", "mode", "tap")
	must(t, err)
	must(t, r.open(tap.Config{Interface: "mr1"}))
	must(t, r.dev.Close())
	if _, err := r.linux.Run("ip", "link", "show", "mr1"); err != nil {
		t.Error("the interface that was there before is gone:", err)
	}
	must(t, r.open(tap.Config{}))
	if r.dev.Name == "" || strings.Contains(r.dev.Name, "%") {
		t.Errorf("the kernel's choice of a name is %q", r.dev.Name)
	}
}

func TestOpenErrorsNameWhatIsMissing(t *testing.T) {
	r := newRig(t, 1, 64, 0)
	first := r.dev
	defer func() { r.dev = first }()
	_, err := r.linux.Run("ip", "link", "add", "mr2", "type", "veth", "peer", "name", "mr3")
	must(t, err)
	tests := []struct {
		name string
		cfg  tap.Config
		want error
		says string
	}{
		{"taken", tap.Config{Interface: "mr0"}, pmd.ErrBusy, "tap.test (process"},
		{"not a TAP interface", tap.Config{Interface: "mr2"}, pmd.ErrNotSupported, "no TAP interface"},
		{"MTU out of range", tap.Config{Interface: "mr4", MTU: 10}, unix.EINVAL, "MTU 10"},
		{"headroom", tap.Config{Interface: "mr4", Headroom: 1500}, nil, "more than half"},
	}
	files := func() int { list, _ := os.ReadDir("/proc/self/fd"); return len(list) }
	before := files()
	defer func() {
		if after := files(); after > before {
			t.Errorf("%d files were open, and %d are", before, after)
		}
	}()
	for _, tt := range tests {
		err := r.open(tt.cfg)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v; want %v that says %q", tt.name, err, tt.want, tt.says)
		}
	}
	err = r.linux.Do(func() error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil { // of this thread, which is thrown away
			return err
		}
		_, err := tap.Open(tap.Config{Interface: "mr5", Pools: r.pools})
		return err
	})
	if !errors.Is(err, pmd.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("without rights: %v", err)
	}
}

func TestShortAndOverlongPacketsAreCounted(t *testing.T) {
	r := newRig(t, 1, 64, 0)
	r.send(t, []byte{1, 2, 3}, make([]byte, 60))
	if s := r.dev.Queues[0].Info().Stats; s.TxPackets != 2 || s.TxInvalid != 1 {
		t.Errorf("%+v", s)
	}
	r.send(t, make([]byte, 36*2048))
	if s := r.dev.Queues[0].Info().Stats; s.TxPackets != 3 || s.TxInvalid != 2 {
		t.Errorf("%+v", s)
	}
	r.audit(t)
}
