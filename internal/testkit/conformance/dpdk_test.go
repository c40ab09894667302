package conformance_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/clock"
	_ "github.com/millrace/millrace/gpukern/cuda/loader" // of DPDK's shim
	"github.com/millrace/millrace/internal/testkit/conformance"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// needDPDK skips a test where DPDK is not asked for: `make dpdk-test` installs it.
func needDPDK(t testing.TB) {
	t.Helper()
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	if _, err := dpdk.Version(); err != nil {
		t.Fatal(err)
	}
}

func openDPDK(t testing.TB, cfg dpdk.Config) *dpdk.Device {
	t.Helper()
	d, err := dpdk.Open(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// TestDPDKPcap replays a capture by DPDK's pcap driver, which writes what is sent to another.
func TestDPDKPcap(t *testing.T) {
	needDPDK(t)
	open := func(t testing.TB, s conformance.Setup) conformance.Rig {
		dir, err := os.MkdirTemp("", "dpdk") // that of t has commas, which end an argument of a device
		must(t, err)
		t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
		in, out := filepath.Join(dir, "in.pcap"), filepath.Join(dir, "out.pcap")
		w, err := capture.Create(in, ethernet)
		must(t, err)
		for i, p := range s.Inbound {
			must(t, w.Write(&capture.Record{Data: p, Len: len(p), Time: int64(i)}))
		}
		must(t, w.Close())
		d := openDPDK(t, dpdk.Config{Name: "net_pcap0,rx_pcap=" + in + ",tx_pcap=" + out, Pools: []*ring.Pool{s.Pool}})
		return conformance.Rig{Queue: d.Queues[0], AfterClose: true, Recv: reader(t, out)}
	}
	conformance.Run(t, conformance.Subject{Open: open})
}

// farDPDK makes the far end of a queue.
func farDPDK(s conformance.Setup, pool *ring.Pool, d *dpdk.Device) *otherEnd {
	return &otherEnd{far: d.Queues[0], pool: pool, b: packet.NewBatch(s.Arena.View(), 64)}
}

// TestDPDKRing sends packets by rings of mbufs to another queue, with another pool.
func TestDPDKRing(t *testing.T) {
	needDPDK(t)
	open := func(t testing.TB, s conformance.Setup) conformance.Rig {
		pool, err := s.Arena.Cut(0)
		must(t, err)
		near, far, err := dpdk.RingWire(64, dpdk.Config{Pools: []*ring.Pool{s.Pool}}, dpdk.Config{Pools: []*ring.Pool{pool}})
		must(t, err)
		t.Cleanup(func() { must(t, near.Close()); must(t, far.Close()) })
		o := farDPDK(s, pool, far)
		return conformance.Rig{Queue: near.Queues[0], Holders: []ring.Holder{far.Queues[0], pool}, Send: o.send, Recv: o.recv}
	}
	conformance.Run(t, conformance.Subject{Open: open, Caps: pmd.CapZeroCopy | pmd.CapMultiBuf})
}

// TestDPDKMemif sends packets by memory that two devices share, as two processes would.
func TestDPDKMemif(t *testing.T) {
	needDPDK(t)
	open := func(t testing.TB, s conformance.Setup) conformance.Rig {
		dir, err := os.MkdirTemp("", "dpdk")
		must(t, err)
		t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
		pool, err := s.Arena.Cut(0)
		must(t, err)
		args := ",id=1,rsize=6,socket-abstract=no,socket=" + filepath.Join(dir, "memif")
		near := openDPDK(t, dpdk.Config{Name: "net_memif0,role=server" + args, Pools: []*ring.Pool{s.Pool}})
		far := openDPDK(t, dpdk.Config{Name: "net_memif1,role=client" + args, Pools: []*ring.Pool{pool}})
		o := farDPDK(s, pool, far)
		awaitLink(t, s, near.Queues[0], far.Queues[0])
		return conformance.Rig{Queue: near.Queues[0], Holders: []ring.Holder{far.Queues[0], pool}, Send: o.send, Recv: o.recv}
	}
	conformance.Run(t, conformance.Subject{Open: open, Caps: pmd.CapMultiBuf})
}

// awaitLink polls queues until their links are up: two ends of memif find each other once a second.
func awaitLink(t testing.TB, s conformance.Setup, queues ...*dpdk.Queue) {
	t.Helper()
	b := packet.NewBatch(s.Arena.View(), 1)
	for i, end := 0, time.Now().Add(10*time.Second); i < len(queues); {
		switch _, err := queues[i].Rx(clock.Time(time.Now().UnixNano()), b); {
		case err == nil:
			i++
		case !errors.Is(err, pmd.ErrDown) || time.Now().After(end):
			t.Fatal(err)
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

// openDPDKOn opens a device of DPDK on one end of a veth pair, whose other end is Linux's.
func openDPDKOn(name string) opener {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		v := newVeth(t, 1500)
		var d *dpdk.Device
		must(t, v.here.Do(func() (err error) {
			d, err = dpdk.Open(dpdk.Config{Name: name + ",iface=" + dev, Pools: []*ring.Pool{s.Pool}})
			return err
		}))
		t.Cleanup(func() { must(t, d.Close()) })
		return v.rig(d.Queues[0])
	}
}

func TestDPDKAFPacket(t *testing.T) {
	needDPDK(t)
	conformance.Run(t, conformance.Subject{
		// The driver does not count what its ring has no room for, so the ring is longer than the flood.
		Open: openDPDKOn("net_af_packet0,framecnt=1024"), Caps: pmd.CapMultiBuf | pmd.CapPartialChecksums, FrameSize: 4096, Link: true, Removable: true,
	})
}

func TestDPDKAFXDP(t *testing.T) {
	needDPDK(t)
	conformance.Run(t, conformance.Subject{
		Open: openDPDKOn("net_af_xdp0"), Caps: pmd.CapPartialChecksums, FrameSize: 4096, Lends: 2048, Flood: 6000, Link: true, Removable: true,
	})
}

func TestDPDKTAP(t *testing.T) {
	needDPDK(t)
	open := func(t testing.TB, s conformance.Setup) conformance.Rig {
		_, list := namespaces(t, "there")
		there := list[0]
		var d *dpdk.Device
		must(t, there.Do(func() (err error) {
			d, err = dpdk.Open(dpdk.Config{Name: "net_tap0,iface=" + dev, Pools: []*ring.Pool{s.Pool}})
			return err
		}))
		t.Cleanup(func() { must(t, d.Close()) })
		must(t, there.Up(dev))
		out := newStation(t, there, dev)
		return conformance.Rig{
			Queue: d.Queues[0], Send: out.send, Recv: out.recv,
			Link:   func(up bool) error { return ip(there, dev, up) },
			Remove: func() error { _, err := there.Run("ip", "link", "del", dev); return err },
		}
	}
	conformance.Run(t, conformance.Subject{Open: open, Caps: pmd.CapMultiBuf | pmd.CapOffload | pmd.CapOffloadUDP | pmd.CapRxChecksum, Lends: 64, Flood: 1500, Link: true, Removable: true})
}
