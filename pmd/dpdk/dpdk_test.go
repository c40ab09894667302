package dpdk_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/millrace/millrace/gpukern/cuda/loader" // of the shim
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// need skips a test where DPDK is not asked for: `make dpdk-test` installs it.
func need(t testing.TB) {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	if v, err := dpdk.Version(); err != nil || !strings.HasPrefix(v, "DPDK ") {
		t.Fatal(v, err)
	}
}

// memory makes pools of frames, which all must be free at the end.
func memory(t testing.TB, pools, frames, size int) (*ring.Arena, []*ring.Pool) {
	t.Helper()
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: pools * frames, FrameSize: size, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	list := make([]*ring.Pool, pools)
	for i := range list {
		if list[i], err = arena.Cut(frames); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if p := list[i]; p.Free() != p.Size() {
				t.Errorf("pool %d has %d of %d frames at the end", i, p.Free(), p.Size())
			}
		})
	}
	return arena, list
}

func open(t testing.TB, cfg dpdk.Config) *dpdk.Device {
	t.Helper()
	d, err := dpdk.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestNullReceivesAndSends moves packets of DPDK's null driver, which makes them and drops them.
func TestNullReceivesAndSends(t *testing.T) {
	need(t)
	arena, pools := memory(t, 1, 512, 2048)
	q := open(t, dpdk.Config{Name: "dpdk:net_null0,size=100", Pools: pools}).Queues[0]
	b := packet.NewBatch(arena.View(), 64)
	var packets uint64
	for range 100 {
		n, err := q.Rx(1000, b)
		if err != nil || n == 0 {
			t.Fatalf("Rx = %d, %v", n, err)
		}
		for i := range b.D {
			if d := b.D[i]; d.Len != 100 || arena.Headroom(&b.D[i]) != 128 || d.Stamp != 1000 || d.Flags != 0 {
				t.Fatalf("%+v", d)
			}
		}
		if err := ring.Audit(arena, pools[0], q, holder{b}); err != nil {
			t.Fatal(err)
		}
		packets += uint64(n)
		if n, err = q.Tx(1000, b); err != nil || n != b.Len() {
			t.Fatalf("Tx = %d of %d, %v", n, b.Len(), err)
		}
		b.Reset()
	}
	want := pmd.Stats{RxPackets: packets, RxBytes: 100 * packets, TxPackets: packets, TxBytes: 100 * packets}
	if s := q.Info().Stats; s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if i := q.Info(); i.Driver != "dpdk" || i.Device != "net_null0,size=100" || !strings.Contains(i.Negotiated, "net_null") || i.FD != -1 || i.MTU != 1500 {
		t.Errorf("%+v", i)
	}
	var extended []string
	for _, c := range q.Info().Extended() {
		if c.Name == "rx_good_packets" && c.Value < packets {
			t.Errorf("%d packets by the extended statistics, %d received", c.Value, packets)
		}
		extended = append(extended, c.Name)
	}
	if !slices.Contains(extended, "rx_good_packets") || !slices.Contains(extended, "tx_q0_packets") || slices.Contains(extended, "rx_missed_errors") {
		t.Errorf("extended statistics: %v", extended)
	}
	allocs := testing.AllocsPerRun(100, func() {
		_, _ = q.Rx(1000, b)
		_, _ = q.Tx(1000, b)
		b.Reset()
	})
	if allocs != 0 {
		t.Errorf("%v allocations for Rx and Tx", allocs)
	}
}

type holder struct{ *packet.Batch }

func (h holder) Holds(visit func(off uint32)) {
	for i := range h.D {
		visit(h.D[i].Off)
	}
}

// TestNullWithoutFreeFrames keeps what it receives until nothing is left.
func TestNullWithoutFreeFrames(t *testing.T) {
	need(t)
	arena, pools := memory(t, 1, 100, 2048)
	q := open(t, dpdk.Config{Name: "net_null0", Pools: pools}).Queues[0]
	b := packet.NewBatch(arena.View(), 200)
	for range 100 {
		if _, err := q.Rx(0, b); err != nil {
			t.Fatal(err)
		}
	}
	if b.Len() != 100 {
		t.Errorf("%d frames of 100 received", b.Len())
	}
	if err := ring.Audit(arena, pools[0], q, holder{b}); err != nil {
		t.Error(err)
	}
	pools[0].PutBatch(b)
	if n, err := q.Rx(0, b); err != nil || n == 0 {
		t.Errorf("Rx = %d, %v afterwards", n, err)
	}
	pools[0].PutBatch(b)
}

// TestRingPassesChains sends packets of several frames through a ring to the queue that sent them.
func TestRingPassesChains(t *testing.T) {
	need(t)
	arena, pools := memory(t, 1, 128, 2048)
	q := open(t, dpdk.Config{Name: "net_ring0", Pools: pools}).Queues[0]
	send := func() {
		b := packet.NewBatch(arena.View(), 4)
		for i, n := range []uint16{1000, 300, 7} {
			off, _ := pools[0].Get()
			d := packet.Desc{Off: off + 10, Len: n, Flags: packet.FlagMore}
			if i == 2 {
				d.Flags = 0
			}
			for j := range arena.Bytes(&d) {
				arena.Bytes(&d)[j] = byte(i*3 + j)
			}
			b.Append(d)
		}
		if n, err := q.Tx(0, b); n != 3 || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
	}
	send()
	b := packet.NewBatch(arena.View(), 4)
	pad, _ := pools[0].Get()
	b.Append(packet.Desc{Off: pad, Len: 1})
	b.Append(packet.Desc{Off: pad, Len: 1})
	if n, err := q.Rx(0, b); n != 0 || err != nil {
		t.Errorf("Rx = %d, %v into room for two of three", n, err)
	}
	b.Reset()
	pools[0].Put(pad)
	if n, err := q.Rx(0, b); n != 3 || err != nil {
		t.Fatalf("Rx = %d, %v", n, err)
	}
	for i, n := range []uint16{1000, 300, 7} {
		d := b.D[i]
		if p := b.Bytes(i); d.Len != n || d.Flags.Has(packet.FlagMore) != (i < 2) || p[n-1] != byte(i*3+int(n)-1) {
			t.Errorf("piece %d: %+v", i, d)
		}
	}
	pools[0].PutBatch(b)
	send()
	short := packet.NewBatch(arena.View(), 2)
	if n, err := q.Rx(0, short); n != 0 || err != nil {
		t.Errorf("Rx = %d, %v into a batch that never holds it", n, err)
	}
	if s := q.Info().Stats; s.RxPackets != 1 || s.RxBytes != 1307 || s.RxInvalid != 1 || s.TxPackets != 2 || s.TxBytes != 2614 {
		t.Errorf("%+v", s)
	}
}

// TestTagsDoNotCount sends packets of the MTU's length with VLAN tags, which may be longer by these.
func TestTagsDoNotCount(t *testing.T) {
	need(t)
	arena, pools := memory(t, 1, 64, 2048)
	q := open(t, dpdk.Config{Name: "net_null0", Pools: pools}).Queues[0]
	invalid := uint64(0)
	for _, c := range []struct {
		types  []byte // the types behind the addresses
		length uint16
		passes bool
	}{
		{[]byte{8, 0}, 1514, true},
		{[]byte{8, 0}, 1515, false},
		{[]byte{0x81, 0, 0, 7, 8, 0}, 1518, true},
		{[]byte{0x81, 0, 0, 7, 8, 0}, 1519, false},
		{[]byte{0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0}, 1522, true},
		{[]byte{0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 0x81, 0, 0, 9, 8, 0}, 1526, false},
		{[]byte{8, 0}, 14, true},
		{[]byte{8, 0}, 13, false},
	} {
		b := packet.NewBatch(arena.View(), 1)
		off, _ := pools[0].Get()
		d := packet.Desc{Off: off, Len: c.length}
		copy(arena.Mem[off+12:], c.types)
		b.Append(d)
		if n, err := q.Tx(0, b); n != 1 || err != nil {
			t.Fatalf("Tx = %d, %v", n, err)
		}
		if !c.passes {
			invalid++
		}
		if s := q.Info().Stats; s.TxInvalid != invalid {
			t.Errorf("%x, %d bytes: %d are invalid, want %d", c.types, c.length, s.TxInvalid, invalid)
			invalid = s.TxInvalid
		}
	}
}

// TestQueuesOfADevice closes one of two queues: the device stops, and the other returns ErrClosed.
func TestQueuesOfADevice(t *testing.T) {
	need(t)
	arena, pools := memory(t, 2, 256, 2048)
	d := open(t, dpdk.Config{Name: "net_null0", Pools: pools})
	if len(d.Queues) != 2 || d.Queues[1].Info().Queue != 1 || !strings.Contains(d.Queues[1].Info().Negotiated, "RSS, symmetric key") {
		t.Fatalf("%d queues, %+v", len(d.Queues), d.Queues[1].Info())
	}
	other := make(chan error)
	go func() {
		b := packet.NewBatch(arena.View(), 32)
		for {
			if _, err := d.Queues[1].Rx(0, b); err != nil {
				other <- errors.Join(err, d.Queues[1].Close())
				return
			}
			pools[1].PutBatch(b)
		}
	}()
	b := packet.NewBatch(arena.View(), 32)
	for range 1000 {
		if _, err := d.Queues[0].Rx(0, b); err != nil {
			t.Fatal(err)
		}
		pools[0].PutBatch(b)
	}
	if err := d.Queues[0].Close(); err != nil {
		t.Error(err)
	}
	if err := <-other; !errors.Is(err, pmd.ErrClosed) {
		t.Errorf("the other queue: %v", err)
	}
}

func TestWrongDevices(t *testing.T) {
	need(t)
	_, pools := memory(t, 2, 256, 2048)
	one := pools[:1]
	_, small := memory(t, 1, 32, 4096)
	open(t, dpdk.Config{Name: "net_null7", Pools: one})
	_, strangers := memory(t, 1, 64, 2048)
	for _, c := range []struct {
		what string
		cfg  dpdk.Config
		want error
		text string
	}{
		{"an unknown driver", dpdk.Config{Name: "net_nothing0", Pools: one}, dpdk.ErrNoDevice, "net_nothing0"},
		{"an unknown argument", dpdk.Config{Name: "net_null0,speed=10", Pools: one}, dpdk.ErrArguments, "speed"},
		{"a file that is not there", dpdk.Config{Name: "net_pcap0,rx_pcap=/nowhere.pcap", Pools: one}, dpdk.ErrArguments, "/nowhere.pcap"},
		{"an interface that is not there", dpdk.Config{Name: "net_af_packet0,iface=nowhere0", Pools: one}, dpdk.ErrArguments, "nowhere0"},
		{"a driver that knows no arena", dpdk.Config{Name: "net_virtio_user0,path=/nowhere", Pools: one}, dpdk.ErrArguments, "take virtio:"},
		{"no name of a device", dpdk.Config{Name: "eth0", Pools: one}, dpdk.ErrArguments, "PCI address"},
		{"a device that is open", dpdk.Config{Name: "net_null7", Pools: one}, pmd.ErrBusy, "net_null1"},
		{"too few frames", dpdk.Config{Name: "net_tap0,iface=mrtap9", Pools: small}, dpdk.ErrFrames, "takes 65, and the pool has 32 free"},
		{"too many queues", dpdk.Config{Name: "net_pcap0,tx_pcap=" + t.TempDir() + "/out", Pools: pools}, dpdk.ErrArguments, "2 queues, and the device has 1"},
		{"an MTU beyond the frames", dpdk.Config{Name: "net_null0", Pools: one, MTU: 9000}, dpdk.ErrFrames, "MTU is 9000"},
		{"an MTU beyond the device", dpdk.Config{Name: "net_tap0,iface=mrtap9", Pools: one, MTU: 9000}, dpdk.ErrArguments, "the device takes 46 to 1504"},
		{"no pool", dpdk.Config{Name: "net_null0"}, nil, "no pool"},
		{"pools of two arenas", dpdk.Config{Name: "net_null0", Pools: []*ring.Pool{pools[0], strangers[0]}}, nil, "one arena"},
		{"DMA without huge pages", dpdk.Config{Name: "0000:3b:00.0", Pools: one}, dpdk.ErrNoHugePages, "vm.nr_hugepages"},
	} {
		if c.want == dpdk.ErrNoHugePages && hugePages() {
			continue
		}
		d, err := dpdk.Open(c.cfg)
		if err == nil {
			t.Errorf("%s: opened", c.what)
			d.Close()
			continue
		}
		var op *pmd.OpError
		if !errors.As(err, &op) || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func hugePages() bool {
	b, _ := os.ReadFile("/proc/meminfo")
	return !strings.Contains(string(b), "HugePages_Free:        0")
}

// openXDP opens DPDK's AF_XDP driver on the interface mr0 of a namespace.
func openXDP(t *testing.T, prefix string) (*testnet.Namespace, *ring.Arena, []*ring.Pool, *dpdk.Device) {
	t.Helper()
	n := testnet.For(t, prefix)
	here, there := n.Namespace("here"), n.Namespace("there")
	if err := errors.Join(n.Link(here, "mr0", there, "eth0"), here.Up("mr0"), there.Up("eth0")); err != nil {
		t.Fatal(err)
	}
	arena, pools := memory(t, 1, 8192, 4096)
	var d *dpdk.Device
	err := here.Do(func() (err error) {
		d, err = dpdk.Open(dpdk.Config{Name: "net_af_xdp0,iface=mr0", Pools: pools})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return here, arena, pools, d
}

// TestPacketsThatAreNotTakenAreUnchanged fills the transmit ring of a device that sends nothing. Its packets begin where their
// mbufs must lie, so the shim moves them, and those that the device does not take back again.
func TestPacketsThatAreNotTakenAreUnchanged(t *testing.T) {
	need(t)
	here, arena, pools, d := openXDP(t, "mr-dpdk-full")
	q := d.Queues[0]
	if _, err := q.Rx(0, packet.NewBatch(arena.View(), 1)); err != nil { // it looks at the link, and again when time has passed
		t.Fatal(err)
	}
	if _, err := here.Run("ip", "link", "set", "mr0", "down"); err != nil {
		t.Fatal(err)
	}
	for sent := 0; ; {
		b := packet.NewBatch(arena.View(), 48)
		for range 48 {
			off, _ := pools[0].Get()
			desc := packet.Desc{Off: off, Len: 300}
			for i := range arena.Bytes(&desc) {
				arena.Bytes(&desc)[i] = byte(i) ^ byte(off>>12)
			}
			b.Append(desc)
		}
		n, err := q.Tx(0, b)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		if n == 48 && sent < 5000 {
			continue
		}
		if n == 48 {
			t.Fatalf("%d packets are taken, and nothing is sent", sent)
		}
		b.Consume(n)
		for i := range b.D {
			for j, c := range b.Bytes(i) {
				if want := byte(j) ^ byte(b.D[i].Off>>12); c != want {
					t.Fatalf("packet %d behind %d has %#x at %d, and had %#x", i, sent, c, j, want)
				}
			}
		}
		pools[0].PutBatch(b)
		return
	}
}

// TestIdleQueueReclaims sends a burst and then only polls: the frames that the device has sent return.
func TestIdleQueueReclaims(t *testing.T) {
	need(t)
	_, arena, pools, d := openXDP(t, "mr-dpdk-idle")
	q, in := d.Queues[0], packet.NewBatch(arena.View(), 32)
	owned := func() (n int) {
		q.Holds(func(uint32) { n++ })
		return n
	}
	idle := owned()
	for round := range 20 {
		out := packet.NewBatch(arena.View(), 64)
		for range 64 {
			off, _ := pools[0].Get()
			out.Append(packet.Desc{Off: off, Len: 60})
		}
		for left := 1000; out.Len() > 0 && left > 0; left-- {
			sent, err := q.Tx(0, out)
			if err != nil {
				t.Fatal(err)
			}
			out.Consume(sent)
		}
		if out.Len() > 0 {
			t.Fatalf("%d packets are not taken", out.Len())
		}
		for end := time.Now().Add(10 * time.Second); owned() > idle; time.Sleep(time.Millisecond) {
			if _, err := q.Rx(0, in); err != nil {
				t.Fatal(err)
			}
			pools[0].PutBatch(in)
			if time.Now().After(end) {
				t.Fatalf("round %d: the queue has %d frames, %d when it was idle", round, owned(), idle)
			}
		}
	}
}

// TestTwoProgramsOnADevice opens an interface that dpdk-testpmd has by the same driver.
func TestTwoProgramsOnADevice(t *testing.T) {
	need(t)
	testnet.Program(t, "dpdk-testpmd")
	n := testnet.For(t, "mr-dpdk")
	here, there := n.Namespace("here"), n.Namespace("there")
	if err := n.Link(here, "mr0", there, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(here.Up("mr0"), there.Up("eth0")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix=mrtestpmd", "-l", "0-1",
		"--vdev=net_af_xdp0,iface=mr0", "--", "--total-num-mbufs=8192", "--forward-mode=rxonly", "--stats-period=1")
	var out testnet.Log
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := here.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := os.RemoveAll("/var/run/dpdk/mrtestpmd"); err != nil { // EAL's, of a process that is killed
			t.Error(err)
		}
	})
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "Port statistics"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("dpdk-testpmd does not start:\n%s", out.String())
		}
	}
	_, pools := memory(t, 1, 4096, 4096)
	err := here.Do(func() error {
		d, err := dpdk.Open(dpdk.Config{Name: "net_af_xdp0,iface=mr0", Pools: pools})
		if err == nil {
			err = d.Close()
			t.Error("opened")
		}
		return err
	})
	if !errors.Is(err, pmd.ErrBusy) {
		t.Errorf("%v", err)
	}
}
