package afpacket_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// dial returns a UDP socket inside of a namespace.
func dial(t testing.TB, ns *testnet.Namespace, local, to string) *net.UDPConn {
	t.Helper()
	var c net.Conn
	must(t, ns.Do(func() (err error) {
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

// datagrams keeps the UDP packets among got, by payload.
func datagrams(got [][]byte) (payloads [][]byte, packets [][]byte) {
	for _, p := range got {
		etherType, off, ok := wire.Network(p)
		if !ok {
			continue
		}
		transport := []byte(nil)
		switch {
		case etherType == wire.EtherTypeIPv4 && wire.IPv4(p[off:]).Valid() && wire.IPv4(p[off:]).Proto() == wire.ProtoUDP:
			transport = wire.IPv4(p[off:]).Payload()
		case etherType == wire.EtherTypeIPv6 && wire.IPv6(p[off:]).Valid() && wire.IPv6(p[off:]).NextHeader() == wire.ProtoUDP:
			transport = p[off+wire.IPv6Len:]
		}
		if wire.UDP(transport).Valid() {
			payloads = append(payloads, wire.UDP(transport).Payload())
			packets = append(packets, p)
		}
	}
	return payloads, packets
}

// checksumOK verifies IP and transport checksums of an untagged or tagged packet.
func checksumOK(p []byte) bool {
	etherType, off, _ := wire.Network(p)
	switch etherType {
	case wire.EtherTypeIPv4:
		ip := wire.IPv4(p[off:])
		pseudo := wire.PseudoHeader4(ip.Src(), ip.Dst(), ip.Proto(), uint32(len(ip.Payload())))
		return ip.ChecksumOK() && wire.Fold(wire.Sum(ip.Payload(), pseudo)) == 0
	case wire.EtherTypeIPv6:
		ip := wire.IPv6(p[off:])
		body := p[off+wire.IPv6Len:]
		pseudo := wire.PseudoHeader6(ip.Src(), ip.Dst(), ip.NextHeader(), uint32(len(body)))
		return wire.Fold(wire.Sum(body, pseudo)) == 0
	}
	return false
}

func count(n int) func([][]byte) bool {
	return func(got [][]byte) bool { p, _ := datagrams(got); return len(p) >= n }
}

func TestPartialChecksumsAreCompleted(t *testing.T) {
	r := newRig(t, 1, 256, nil)
	r.know(t)
	for _, to := range []string{"198.18.0.2:9", "[2001:db8::2]:9"} {
		c := dial(t, r.linux, "", to)
		for n := range 40 {
			if _, err := c.Write(bytes.Repeat([]byte{0xA5}, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, packets := datagrams(r.collect(t, count(80)))
	for _, p := range packets {
		if !checksumOK(p) {
			t.Errorf("wrong checksum: %x", p)
		}
	}
	r.audit(t)
}

// A device under test at either end: what one sends with tags arrives with the same tags, though the
// kernel between them takes the outer one out of the packet.
func TestVLANTagsAreRestored(t *testing.T) {
	r := newRig(t, 1, 256, nil)
	far := &rig{linux: r.here, here: r.linux, arena: r.arena, pools: r.pools}
	must(t, r.linux.Do(func() (err error) {
		far.dev, err = afpacket.Open(afpacket.Config{Interface: "eth0", All: true, Pools: r.pools})
		return err
	}))
	defer far.dev.Close()
	plain := r.udp(1, 2, []byte("tagged"))
	copy(plain, bytes.Repeat([]byte{0xff}, 6))
	for _, tags := range [][]byte{
		{0x81, 0x00, 0xA0, 7},
		{0x88, 0xA8, 0xA0, 7},
		{0x81, 0x00, 0, 0},
		{0x88, 0xA8, 0, 9, 0x81, 0, 0x20, 7},
	} {
		want := append(append(bytes.Clone(plain[:12]), tags...), plain[12:]...)
		for _, way := range [][2]*rig{{r, far}, {far, r}} {
			way[0].send(t, want)
			_, packets := datagrams(way[1].collect(t, count(1)))
			if !bytes.Equal(packets[0], want) {
				t.Errorf("sent %x\ngot  %x", want[:30], packets[0][:30])
			}
		}
	}
	r.audit(t)
}

// forward joins two devices until stop is closed.
func forward(t testing.TB, a, b *afpacket.Queue, pool *ring.Pool, stop <-chan struct{}) {
	batch := packet.NewBatch(pool.Arena().View(), 256)
	for {
		moved := 0
		for _, way := range [][2]*afpacket.Queue{{a, b}, {b, a}} {
			n, err := way[0].Rx(now(), batch)
			if err != nil {
				t.Error(err)
				return
			}
			moved += n
			for end := time.Now().Add(time.Second); batch.Len() > 0 && time.Now().Before(end); {
				n, err := way[1].Tx(now(), batch)
				if err != nil {
					t.Error(err)
					return
				}
				batch.Consume(n)
			}
			pool.PutBatch(batch)
		}
		if moved == 0 {
			fds := []unix.PollFd{{Fd: int32(a.Info().FD), Events: unix.POLLIN}, {Fd: int32(b.Info().FD), Events: unix.POLLIN}}
			_, _ = unix.Poll(fds, 1)
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// Linux's TCP, with segmentation offload and checksums left to the device, through two devices of
// the two devices: every byte arrives, and every packet that leaves has the size of the MTU.
func TestBulkTCPThroughTwoDevices(t *testing.T) {
	r := bareRig(t)
	server := r.net.Namespace("server")
	must(t, r.net.Link(server, "eth0", r.here, "mr1"))
	must(t, server.Up("eth0", "198.18.0.2/24", "2001:db8::2/64"))
	usable(t, server, "2001:db8::2")
	must(t, r.here.Sysctl("net.ipv6.conf.mr1.disable_ipv6", "1"))
	must(t, r.here.Up("mr1"))
	r.open(t, 1, 4096, nil)
	var other *afpacket.Device
	must(t, r.here.Do(func() (err error) {
		other, err = afpacket.Open(afpacket.Config{Interface: "mr1", All: true, Pools: r.pools})
		return err
	}))
	defer other.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); forward(t, r.dev.Queues[0], other.Queues[0], r.pools[0], stop) }()
	for _, addr := range []string{"198.18.0.2:80", "[2001:db8::2]:80"} {
		transfer(t, r.linux, server, addr)
	}
	close(stop)
	<-done
	a, b := r.dev.Queues[0].Info().Stats, other.Queues[0].Info().Stats
	if a.TxInvalid+b.TxInvalid+a.RxInvalid+b.RxInvalid != 0 {
		t.Errorf("packets were rejected: %+v, %+v", a, b)
	}
	if a.RxPackets < 2*(bulk/1448) {
		t.Errorf("%d packets for %d bytes: they were not segmented", a.RxPackets, 2*bulk)
	}
	r.audit(t)
}

const bulk = 16 << 20

// transfer sends bulk bytes from one namespace to the other and compares hashes.
func transfer(t testing.TB, from, to *testnet.Namespace, addr string) {
	t.Helper()
	var l net.Listener
	must(t, to.Do(func() (err error) { l, err = net.Listen("tcp", addr); return err }))
	defer l.Close()
	var c net.Conn
	must(t, from.Do(func() (err error) { c, err = net.DialTimeout("tcp", addr, 5*time.Second); return err }))
	defer c.Close()
	sent := sha256.New()
	go func() {
		buf := make([]byte, 64<<10)
		rnd := rand.NewChaCha8([32]byte{1})
		for range bulk / len(buf) {
			_, _ = rnd.Read(buf)
			sent.Write(buf)
			if _, err := c.Write(buf); err != nil {
				t.Error(err)
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	in, err := l.Accept()
	must(t, err)
	defer in.Close()
	must(t, in.SetDeadline(time.Now().Add(30*time.Second)))
	got := sha256.New()
	n, err := io.Copy(got, in)
	if err != nil || n != bulk || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Errorf("%s: %d of %d bytes, %v, or not the same ones", addr, n, bulk, err)
	}
}

// Linux's UDP segmentation offload: one packet of the kernel is many packets of the driver.
func TestUDPSuperPacketsAreSegmented(t *testing.T) {
	r := newRig(t, 1, 512, nil)
	r.know(t)
	for _, to := range []string{"198.18.0.2:9", "[2001:db8::2]:9"} {
		c := dial(t, r.linux, "", to)
		raw, err := c.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000)
		}))
		must(t, err)
		data := make([]byte, 20_345)
		for i := range data {
			data[i] = byte(i / 1000)
		}
		_, err = c.Write(data)
		must(t, err)
		payloads, packets := datagrams(r.collect(t, count(21)))
		if !bytes.Equal(bytes.Join(payloads, nil), data) || len(payloads[0]) != 1000 || len(payloads[20]) != 345 {
			t.Errorf("%s: %d datagrams are not what was sent", to, len(payloads))
		}
		for _, p := range packets {
			if !checksumOK(p) {
				t.Errorf("%s: wrong checksum", to)
			}
		}
	}
	r.audit(t)
}

func TestFanoutKeepsFlowsTogether(t *testing.T) {
	r := newRig(t, 2, 1024, nil)
	r.know(t)
	const flows, each = 64, 8
	where, got := map[uint16]int{}, 0
	share := [2]int{}
	receive := func() {
		for i, q := range r.dev.Queues {
			b := packet.NewBatch(r.arena.View(), 256)
			_, err := q.Rx(now(), b)
			must(t, err)
			_, packets := datagrams(testpackets.Split(b))
			for _, p := range packets {
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
	for range each {
		for f := range flows {
			if r.sendFlow(t, f) != nil {
				t.Fatal("send")
			}
			receive() // a ring of few blocks is soon full: the kernel closes them by time
		}
	}
	for end := time.Now().Add(5 * time.Second); got < flows*each && time.Now().Before(end); {
		receive()
	}
	if got != flows*each {
		t.Errorf("%d packets, want %d, each once", got, flows*each)
	}
	if share[0] == 0 || share[1] == 0 {
		t.Errorf("all on one queue: %v", share)
	}
	for i, q := range r.dev.Queues {
		if q.Info().Queue != i {
			t.Errorf("queue %d says %d", i, q.Info().Queue)
		}
	}
	r.audit(t)
}

// sendFlow sends one datagram of flow f.
func (r *rig) sendFlow(t testing.TB, f int) error {
	if r.flows == nil {
		r.flows = map[int]*net.UDPConn{}
	}
	if r.flows[f] == nil {
		r.flows[f] = dial(t, r.linux, fmt.Sprintf("198.18.0.1:%d", 20000+f), "198.18.0.2:9")
	}
	_, err := r.flows[f].Write([]byte("flow"))
	return err
}

// connectionRefused reports whether Linux answers a connection to a TCP port with RST.
func (r *rig) connectionRefused(addr string) bool {
	err := r.linux.Do(func() error {
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err
	})
	return errors.Is(err, unix.ECONNREFUSED)
}

func TestExclusiveHidesOnlyWhatTheRulesName(t *testing.T) {
	r := bareRig(t)
	must(t, r.here.Sysctl("net.ipv6.conf.mr0.disable_ipv6", "0"))
	must(t, r.here.Up("mr0", "198.18.0.2/24", "2001:db8::2/64")) // the kernel's addresses too
	usable(t, r.here, "2001:db8::2")
	rules := []afpacket.Rule{
		{Addr: ourAddr, Proto: wire.ProtoTCP, PortLo: 80},
		{Addr: ourAddr6, Proto: wire.ProtoTCP, PortLo: 80, PortHi: 81},
	}
	r.open(t, 1, 256, func(c *afpacket.Config) { c.All, c.Rules, c.Exclusive = false, rules, true })
	check := func(addr string, want bool) {
		t.Helper()
		if got := r.connectionRefused(addr); got != want {
			t.Errorf("%s: answered by the kernel: %v, want %v", addr, got, want)
		}
	}
	check("198.18.0.2:80", false)
	check("198.18.0.2:81", true)
	check("[2001:db8::2]:80", false)
	check("[2001:db8::2]:81", false)
	check("[2001:db8::2]:82", true)
	for _, p := range r.collect(t, func(got [][]byte) bool { return len(got) >= 3 }) {
		_, off, _ := wire.Network(p)
		if port := binary.BigEndian.Uint16(p[len(p)-38:]); off != 14 || port == 82 {
			t.Errorf("a packet to port %d", port)
		}
	}
	must(t, r.dev.SetRules(afpacket.Rule{Addr: ourAddr, Proto: wire.ProtoTCP, PortLo: 81}))
	check("198.18.0.2:80", true)
	check("198.18.0.2:81", false)

	// Another process after a SIGKILL of the first: what is left is replaced, not doubled.
	var second *afpacket.Device
	pool, err := r.arena.Cut(0)
	if err == nil {
		t.Fatal("the arena has frames left: ", pool)
	}
	must(t, r.here.Do(func() (err error) {
		second, err = afpacket.Open(afpacket.Config{Interface: "mr0", Pools: r.pools, Rules: rules[:1], Exclusive: true})
		return err
	}))
	check("198.18.0.2:80", false)
	check("198.18.0.2:81", true)
	_, err = r.here.Run("tc", "filter", "del", "dev", "mr0", "ingress", "prio", "49149") // as the package's page says
	must(t, err)
	check("198.18.0.2:80", true)
	must(t, second.Close())
	check("198.18.0.2:80", true)
	check("198.18.0.2:81", true)
	must(t, r.dev.Close())
	out, err := r.here.Run("tc", "qdisc", "show", "dev", "mr0")
	must(t, err)
	if strings.Contains(out, "clsact") {
		t.Errorf("Close left its hook behind: %s", out)
	}
}

func TestSharedWithTheKernelBothSeeThePacket(t *testing.T) {
	r := bareRig(t)
	must(t, r.here.Up("mr0", "198.18.0.2/24"))
	r.open(t, 1, 256, func(c *afpacket.Config) {
		c.All, c.Rules = false, []afpacket.Rule{{Addr: ourAddr, Proto: wire.ProtoTCP, PortLo: 80}, {Addr: ourAddr, Kind: pmd.Neighbor}}
	})
	if !r.connectionRefused("198.18.0.2:80") {
		t.Error("the kernel did not answer")
	}
	got := r.collect(t, func(got [][]byte) bool { return len(got) >= 2 })
	if wire.Ethernet(got[0]).EtherType() != wire.EtherTypeARP {
		t.Errorf("the first packet is no ARP request: %x", got[0])
	}
	if !checksumOK(got[1]) {
		t.Errorf("SYN with a wrong checksum: %x", got[1])
	}
}

func TestOpenErrorsNameWhatIsMissing(t *testing.T) {
	r := bareRig(t)
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 16, Huge: ring.HugeOff})
	must(t, err)
	defer arena.Close()
	pool, _ := arena.Cut(0)
	cfg := afpacket.Config{Interface: "mr0", All: true, Exclusive: true, Pools: []*ring.Pool{pool}}
	tests := []struct {
		name   string
		keep   []int // capabilities
		change func(*afpacket.Config)
		want   error
		says   string
	}{
		{"no rights at all", nil, func(*afpacket.Config) {}, pmd.ErrPermission, "CAP_NET_RAW"},
		{"no right to filter", []int{unix.CAP_NET_RAW}, func(*afpacket.Config) {}, pmd.ErrPermission, "CAP_NET_ADMIN"},
		{"raw sockets are enough", []int{unix.CAP_NET_RAW}, func(c *afpacket.Config) { c.Exclusive = false }, nil, ""},
		{"no such interface", []int{unix.CAP_NET_RAW}, func(c *afpacket.Config) { c.Interface = "mr9" }, pmd.ErrGone, "mr9"},
		{"bad rule", []int{unix.CAP_NET_RAW}, func(c *afpacket.Config) { c.All, c.Rules = false, []afpacket.Rule{{}} }, afpacket.ErrRule, "no address"},
	}
	files := func() int { list, _ := os.ReadDir("/proc/self/fd"); return len(list) }
	before := files()
	defer func() {
		if after := files(); after > before {
			t.Errorf("%d files were open, and %d are", before, after)
		}
	}()
	for _, tt := range tests {
		c := cfg
		tt.change(&c)
		err := r.here.Do(func() error {
			if err := keepCaps(tt.keep); err != nil {
				return err
			}
			d, err := afpacket.Open(c)
			if err == nil {
				err = d.Close()
			}
			return err
		})
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v; want %v that says %q", tt.name, err, tt.want, tt.says)
		}
	}
}

// keepCaps leaves the calling thread, which is thrown away, only these capabilities.
func keepCaps(caps []int) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range caps {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return unix.Capset(&hdr, &data[0])
}
