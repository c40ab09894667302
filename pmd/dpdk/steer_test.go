package dpdk_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern/cuda/dl"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
)

// TestSteeringOnVirtualDevices gives claims to devices of DPDK: a driver without rte_flow, and the one for TAP devices, whose rules
// the kernel has to have a classifier for. Both leave the claims to software and say why.
func TestSteeringOnVirtualDevices(t *testing.T) {
	need(t)
	ns := testnet.For(t, "mr-dpdk-flow").Namespace("box")
	for name, want := range map[string]string{
		"net_null0":           "function not implemented",
		"net_tap0,iface=mrf0": "",
	} {
		_, pools := memory(t, 2, 1024, 2048)
		var d *dpdk.Device
		if err := ns.Do(func() (err error) {
			d, err = dpdk.Open(dpdk.Config{Name: name, Pools: pools})
			return err
		}); err != nil {
			t.Fatal(name, err)
		}
		web := pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Proto: 6, PortLo: 80}
		if err := d.Steer(web); err != nil {
			t.Error(name, err)
		}
		why := d.InSoftware()
		if why == nil || !strings.Contains(why.Error(), want) {
			t.Errorf("%s: %v", name, why)
		}
		t.Log(name, why, d.Queues[0].Info().Negotiated)
		if err := d.Close(); err != nil {
			t.Error(name, err)
		}
	}
}

// buildDevice builds testdata/device.c, which does what a NIC would, and returns its functions.
func buildDevice(t *testing.T) func(name string, args ...uintptr) int64 {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "device.so")
	flags, err := exec.Command("pkg-config", "--cflags", "libdpdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	args := append(strings.Fields(string(flags)), "-DALLOW_EXPERIMENTAL_API", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", lib, "testdata/device.c", "-lrte_ethdev", "-lrte_mbuf", "-lrte_eal")
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	handle, err := dl.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, args ...uintptr) int64 {
		fn, err := dl.Find(handle, name)
		if err != nil {
			t.Fatal(err)
		}
		return int64(dl.Call(fn, args...))
	}
}

// pcapFile writes packets to a file of libpcap.
func pcapFile(t *testing.T, packets ...[]byte) string {
	t.Helper()
	le := binary.LittleEndian
	file := le.AppendUint32(nil, 0xa1b2c3d4)
	file = append(file, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0)
	for _, p := range packets {
		file = append(file, make([]byte, 8)...)
		file = le.AppendUint32(le.AppendUint32(file, uint32(len(p))), uint32(len(p)))
		file = append(file, p...)
	}
	name := filepath.Join(t.TempDir(), "in.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestMarkedPackets receives packets of which the device has marked some as claimed.
func TestMarkedPackets(t *testing.T) {
	need(t)
	device := buildDevice(t)
	to := func(last byte, size int) []byte {
		p := make([]byte, size)
		copy(p, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
		copy(p[30:], []byte{198, 18, 0, last})
		return p
	}
	// The third takes several frames.
	sizes := []int{64, 64, 4000, 4000, 64}
	file := pcapFile(t, to(10, 64), to(11, 64), to(10, 4000), to(11, 4000), to(10, 64))
	arena, pools := memory(t, 1, 256, 2048)
	d := open(t, dpdk.Config{Name: "net_pcap0,rx_pcap=" + file, Pools: pools})
	if device("test_mark", uintptr(d.Port()), 0, uintptr(binary.NativeEndian.Uint32([]byte{198, 18, 0, 10}))) != 0 {
		t.Fatal("no callback")
	}
	if err := d.Steer(pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10")}); err != nil {
		t.Fatal(err)
	}
	b := packet.NewBatch(arena.View(), 64)
	for end := time.Now().Add(10 * time.Second); packet.Packets(b.D) < 5 && time.Now().Before(end); {
		if _, err := d.Queues[0].Rx(1, b); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := 0, 0; at < len(b.D); i++ {
		first := b.D[at]
		want := uint16(0)
		if i%2 == 0 {
			want = packet.RuleClaimed
		}
		n := packet.Chain(b.D[at:])
		if _, size := packet.Count(b.D[at : at+n]); first.Rule != want || int(size) != sizes[i] {
			t.Errorf("packet %d of %d bytes: rule %#x", i, size, first.Rule)
		}
		at += n
	}
	if s := d.Queues[0].Info().Stats; s.RxPackets != 5 || s.Steered != 3 || s.SteeredSoftware != 2 {
		t.Errorf("%+v", s)
	}
	pools[0].PutBatch(b)
}

// TestRulesOfTAPDevice has DPDK's TAP driver install rules, by classifiers of Linux: what Linux sends to a claimed address and port
// comes to the queue of its rule, and Linux has none left when nothing is claimed. `make dpdk-vm` runs it in a guest, because few
// kernels have all of the classifiers. The driver's program for RSS is one that kernels refuse by now.
func TestRulesOfTAPDevice(t *testing.T) {
	if os.Getenv("MILLRACE_DPDK_FLOWER") == "" {
		t.Skip("the kernel of this machine may lack cls_flower: `make dpdk-vm` runs this")
	}
	need(t)
	ns := testnet.For(t, "mr-dpdk-tapflow").Namespace("box")
	arena, pools := memory(t, 2, 1024, 2048)
	var d *dpdk.Device
	if err := ns.Do(func() (err error) {
		d, err = dpdk.Open(dpdk.WithoutRSS(dpdk.Config{Name: "net_tap0,iface=mrf0", Pools: pools}))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	run := func(args ...string) string {
		out, err := ns.Run(args[0], args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := ns.Up("mrf0", "198.18.0.2/24", "2001:db8::2/64"); err != nil {
		t.Fatal(err)
	}
	run("ip", "neigh", "replace", "198.18.0.10", "lladdr", "02:00:00:00:00:02", "dev", "mrf0", "nud", "permanent")
	run("ip", "neigh", "replace", "2001:db8::10", "lladdr", "02:00:00:00:00:02", "dev", "mrf0", "nud", "permanent")
	v4, v6 := netip.MustParseAddr("198.18.0.10"), netip.MustParseAddr("2001:db8::10")
	claims := []pmd.Rule{ // to queues 0 and 1, by their ports; the driver compares whole ports only, and refuses the range
		{Addr: v4, Proto: 17, PortLo: 80},
		{Addr: v6, Proto: 17, PortLo: 53},
		{Addr: v4, Proto: 17, PortLo: 1024, PortHi: 2047},
		{Addr: v4, Proto: 17, PortLo: 81},
		{Addr: v6, Kind: pmd.From, Proto: 6, PortLo: 9},
	}
	if err := d.Steer(claims...); err != nil || !errors.Is(d.InSoftware(), unix.ENOTSUP) || !strings.Contains(d.Queues[0].Info().Negotiated, "rte_flow steers 4 of 5 claims") {
		t.Error(err, d.InSoftware(), d.Queues[0].Info().Negotiated)
	}
	in := run("tc", "filter", "show", "dev", "mrf0")
	for _, want := range []string{"dst_ip 198.18.0.10", "dst_port 80", "dst_ip 2001:db8::10", "dst_port 53", "dst_port 81", "src_ip 2001:db8::10", "src_port 9", "queue_mapping 0", "queue_mapping 1"} {
		if !strings.Contains(in, want) {
			t.Errorf("no %q in the rules:\n%s", want, in)
		}
	}
	sendFrom(t, ns, 20, v4, 80)
	sendFrom(t, ns, 20, v6, 53)
	b := packet.NewBatch(arena.View(), 64)
	var got [2]map[uint16]int // packets by destination port, of each queue
	for i, q := range d.Queues {
		got[i] = map[uint16]int{}
		await(t, "packets", func() bool {
			_, err := q.Rx(1, b)
			for k := range b.D {
				p := b.Bytes(k)
				switch {
				case p[12] == 8 && p[23] == 17:
					got[i][binary.BigEndian.Uint16(p[36:])]++
				case p[12] == 0x86 && p[20] == 17:
					got[i][binary.BigEndian.Uint16(p[56:])]++
				}
			}
			pools[i].PutBatch(b)
			return err != nil || got[i][80]+got[i][53] == 20
		})
	}
	if got[0][80] != 20 || got[1][53] != 20 {
		t.Errorf("queues by ports: %v", got)
	}
	if err := d.Steer(claims[0]); err != nil {
		t.Error(err)
	}
	if in := run("tc", "filter", "show", "dev", "mrf0"); !strings.Contains(in, "dst_port 80") || strings.Contains(in, "dst_port 53") || strings.Contains(in, "1024") {
		t.Errorf("rules that nothing claims:\n%s", in)
	}
	if err := d.Steer(); err != nil {
		t.Error(err)
	}
	if in := run("tc", "filter", "show", "dev", "mrf0"); strings.Contains(in, "flower") {
		t.Errorf("rules that nothing claims:\n%s", in)
	}
	if err := d.Steer(claims...); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// sendFrom sends datagrams from as many ports.
func sendFrom(t *testing.T, ns *testnet.Namespace, n int, to netip.Addr, port uint16) {
	t.Helper()
	if err := ns.Do(func() error {
		for range n {
			c, err := net.Dial("udp", netip.AddrPortFrom(to, port).String())
			if err != nil {
				return err
			}
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			c.Close()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
