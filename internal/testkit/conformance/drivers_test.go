package conformance_test

import (
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/internal/testkit/conformance"
	"github.com/millrace/millrace/internal/testkit/testpackets"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/pmd/tap"
	"github.com/millrace/millrace/pmd/vnet"
	"github.com/millrace/millrace/ring"
)

const (
	kernel = pmd.CapPoll | pmd.CapMultiBuf                             // what drivers can do that copy
	xdp    = pmd.CapPoll | pmd.CapNeedWakeup | pmd.CapPartialChecksums // over veth
	memory = pmd.CapZeroCopy | pmd.CapMultiBuf
)

// offload is what drivers can do that leave segmentation to the kernel.
var offload = func() pmd.Caps {
	if vnet.SegmentsUDP() {
		return pmd.CapOffload | pmd.CapOffloadUDP
	}
	return pmd.CapOffload
}()

// ethernet is the configuration of captures.
var ethernet = capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet, Name: "test"}}}

func TestMemory(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openMemory, Caps: memory, AnyLength: true, Runts: true, Removable: true})
}

func TestMemoryOfLongPackets(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openMemoryOf(9000), Caps: memory, AnyLength: true, Runts: true, Removable: true, Longest: 9014})
}

func TestPcap(t *testing.T) {
	for _, mode := range []pcap.Mode{pcap.Stream, pcap.Preload, pcap.Resident} {
		t.Run(mode.String(), func(t *testing.T) {
			conformance.Run(t, conformance.Subject{Open: openPcap(mode), Caps: pmd.CapMultiBuf, Resident: mode == pcap.Resident, AnyLength: true, Runts: true})
		})
	}
}

func TestAFXDP(t *testing.T) {
	for mode, m := range map[string]afxdp.Mode{"native": afxdp.ModeNative, "generic": afxdp.ModeGeneric} {
		t.Run(mode, func(t *testing.T) {
			conformance.Run(t, conformance.Subject{Open: openAFXDP(m, 1500, false), Caps: xdp, Flood: 300, Link: true, Removable: true})
		})
		t.Run(mode+", offload", func(t *testing.T) {
			conformance.Run(t, conformance.Subject{Open: openAFXDP(m, 1500, true), Caps: xdp | offload, Flood: 300, Link: true, Removable: true})
		})
		t.Run(mode+", jumbo", func(t *testing.T) {
			conformance.Run(t, conformance.Subject{Open: openAFXDP(m, 9000, false), Caps: xdp | pmd.CapMultiBuf, Longest: 9014, Flood: 300, Link: true, Removable: true})
		})
	}
}

func TestAFPacket(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openAFPacket(1500), Caps: kernel, Flood: 12000, Link: true, Removable: true})
}

func TestAFPacketJumbo(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openAFPacket(9000), Caps: kernel, Longest: 9014, Flood: 1500, Link: true, Removable: true})
}

func TestAFPacketWithOffload(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openOffload, Caps: kernel | offload | pmd.CapExternal, Flood: 3000, Link: true, Removable: true})
}

func TestTAP(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openTAP(1500), Caps: kernel, AnyLength: true, Flood: 600, Link: true, Removable: true})
}

func TestTAPJumbo(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: openTAP(9000), Caps: kernel, AnyLength: true, Longest: 9014, Flood: 600, Link: true, Removable: true})
}

// A wrapper that does nothing is like the driver in it.

func TestImpairAroundMemory(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: impaired(openMemory), Caps: memory | pmd.CapTimed, AnyLength: true, Runts: true, Removable: true})
}

func TestImpairAroundLongPackets(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: impaired(openMemoryOf(9000)), Caps: memory | pmd.CapTimed, AnyLength: true, Runts: true, Removable: true, Longest: 9014})
}

func TestImpairAroundAFPacket(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: impaired(openAFPacket(1500)), Caps: kernel | pmd.CapTimed, Flood: 12000, Link: true, Removable: true})
}

func TestCaptureAroundMemory(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: captured(openMemoryOf(9000)), Caps: memory, AnyLength: true, Runts: true, Removable: true, Longest: 9014})
}

func TestCaptureAroundAFXDP(t *testing.T) {
	conformance.Run(t, conformance.Subject{Open: captured(openAFXDP(afxdp.ModeNative, 1500, false)), Caps: xdp, Flood: 300, Link: true, Removable: true})
}

func openMemory(t testing.TB, s conformance.Setup) conformance.Rig { return openMemoryOf(1500)(t, s) }

// openMemoryOf opens one end of a wire with few slots, so that Tx has to wait. The far end is the
// other end of the wire.
func openMemoryOf(mtu int) func(testing.TB, conformance.Setup) conformance.Rig {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		pool, err := s.Arena.Cut(0)
		must(t, err)
		near, far, err := pmd.NewMemory(pmd.MemoryConfig{A: s.Pool, B: pool, Slots: 64, MTU: mtu})
		must(t, err)
		o := &otherEnd{far: far, pool: pool, b: packet.NewBatch(s.Arena.View(), 64)}
		return conformance.Rig{
			Queue: near, Holders: []ring.Holder{far, pool},
			Send: o.send, Recv: o.recv, Remove: far.Close,
		}
	}
}

// otherEnd is the far end of a wire, whose packets a test sends and receives.
type otherEnd struct {
	far  pmd.Driver
	pool *ring.Pool
	b    *packet.Batch
	came [][]byte
}

func (o *otherEnd) send(p []byte) bool {
	testpackets.Append(o.b, o.pool, p)
	n, _ := o.far.Tx(0, o.b)
	o.b.Consume(n)
	o.pool.PutBatch(o.b) // nothing, or all of it
	return n > 0
}

func (o *otherEnd) recv() []byte {
	if len(o.came) == 0 {
		in := packet.NewBatch(o.b.Arena, 64)
		_, _ = o.far.Rx(0, in)
		o.came = testpackets.Split(in)
		o.pool.PutBatch(in)
	}
	if len(o.came) == 0 {
		return nil
	}
	p := o.came[0]
	o.came = o.came[1:]
	return p
}

// openPcap replays a capture of what is to come in, and writes what goes out to another.
func openPcap(mode pcap.Mode) func(testing.TB, conformance.Setup) conformance.Rig {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		in, out := filepath.Join(t.TempDir(), "in.pcapng"), filepath.Join(t.TempDir(), "out.pcap")
		w, err := capture.Create(in, ethernet)
		must(t, err)
		for i, p := range s.Inbound {
			must(t, w.Write(&capture.Record{Data: p, Len: len(p), Time: int64(i)}))
		}
		must(t, w.Close())
		q, err := pcap.Open(s.Pool, pcap.Config{Files: []string{in}, Out: out, Mode: mode, StampNow: true})
		must(t, err)
		rig := conformance.Rig{Queue: q, AfterClose: true, Recv: reader(t, out)}
		if mode == pcap.Resident {
			rig.Release = q.Release
		}
		return rig
	}
}

// reader returns the packets of a file, which it opens when it is asked first.
func reader(t testing.TB, path string) func() []byte {
	var r *capture.Reader
	return func() []byte {
		if r == nil {
			var err error
			r, err = capture.Open(path)
			must(t, err)
			t.Cleanup(func() { r.Close() })
		}
		rec, err := r.Next()
		if err != nil {
			return nil
		}
		return rec.Data
	}
}

func openAFXDP(mode afxdp.Mode, mtu int, offload bool) func(testing.TB, conformance.Setup) conformance.Rig {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		v := newVeth(t, mtu)
		var d *afxdp.Device
		must(t, v.here.Do(func() (err error) {
			d, err = afxdp.Open(afxdp.Config{Interface: dev, Pools: []*ring.Pool{s.Pool}, Mode: mode, All: true, Offload: offload, Rings: afxdp.Rings{Tx: 64, Completion: 64}})
			return err
		}))
		t.Cleanup(func() { must(t, d.Close()) })
		return v.rig(d.Queues[0])
	}
}

// afpacketRing is a ring in bytes that has a block for each packet in flight and one to spare: a sender that waits for a
// CPU after each packet has the kernel's timer close a block per packet. Slots are smaller than blocks.
const afpacketRing = (conformance.InFlight + 1) * 576 << 10

func openAFPacket(mtu int) func(testing.TB, conformance.Setup) conformance.Rig {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		v := newVeth(t, mtu)
		var d *afpacket.Device
		must(t, v.here.Do(func() (err error) {
			d, err = afpacket.Open(afpacket.Config{Interface: dev, Pools: []*ring.Pool{s.Pool}, All: true, Ring: afpacketRing})
			return err
		}))
		t.Cleanup(func() { must(t, d.Close()) })
		return v.rig(d.Queues[0])
	}
}

func openOffload(t testing.TB, s conformance.Setup) conformance.Rig {
	v := newVeth(t, 1500)
	var d *afpacket.Device
	must(t, v.here.Do(func() (err error) {
		d, err = afpacket.Open(afpacket.Config{Interface: dev, Pools: []*ring.Pool{s.Pool}, All: true, Offload: true, Ring: 512 << 10})
		return err
	}))
	t.Cleanup(func() { must(t, d.Close()) })
	must(t, d.SetOffload(true))
	return v.rig(d.Queues[0])
}

func (v *veth) rig(q pmd.Driver) conformance.Rig {
	return conformance.Rig{
		Queue: q, Send: v.station.send, Recv: v.station.recv, Lost: v.station.lost,
		Link: v.link, Remove: v.remove,
	}
}

func openTAP(mtu int) func(testing.TB, conformance.Setup) conformance.Rig {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		_, list := namespaces(t, "there")
		there := list[0]
		var d *tap.Device
		must(t, there.Do(func() (err error) {
			d, err = tap.Open(tap.Config{Interface: dev, Pools: []*ring.Pool{s.Pool}, MTU: mtu, Up: true})
			return err
		}))
		t.Cleanup(func() { must(t, d.Close()) })
		_, err := there.Run("ip", "link", "set", dev, "txqueuelen", "100")
		must(t, err)
		out := newStation(t, there, dev)
		return conformance.Rig{
			Queue: d.Queues[0], Send: out.send, Recv: out.recv,
			Link:   func(up bool) error { return ip(there, dev, up) },
			Remove: func() error { _, err := there.Run("ip", "link", "del", dev); return err },
		}
	}
}

// opener is what a Subject opens its queue with.
type opener func(testing.TB, conformance.Setup) conformance.Rig

// impaired wraps a queue in an Impair whose profile does nothing.
func impaired(open opener) opener {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		rig := open(t, s)
		q, err := pmd.NewImpair(rig.Queue, pmd.ImpairConfig{Pool: s.Pool})
		must(t, err)
		rig.Holders = append(rig.Holders, rig.Queue.(ring.Holder))
		rig.Queue = q
		return rig
	}
}

// captured wraps a queue in a pcap.Capture that writes a capture.
func captured(open opener) opener {
	return func(t testing.TB, s conformance.Setup) conformance.Rig {
		rig := open(t, s)
		w, err := capture.Create(filepath.Join(t.TempDir(), "tap.pcapng"), ethernet)
		must(t, err)
		t.Cleanup(func() { must(t, w.Close()) })
		rig.Holders = append(rig.Holders, rig.Queue.(ring.Holder))
		rig.Queue = pcap.NewCapture(rig.Queue, w, pcap.CaptureConfig{})
		return rig
	}
}
