package kernelflows_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

var (
	macClient  = wire.MAC{2, 0, 0, 0, 0, 0xc1}
	macGw0     = wire.MAC{2, 0, 0, 0, 0, 0x90}
	macGw1     = wire.MAC{2, 0, 0, 0, 0, 0x91}
	macBackend = wire.MAC{2, 0, 0, 0, 0, 0xb1}
)

const worldConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
services:
  - {name: web, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], backends: [{name: b1, address: [198.18.2.11:8080, "[2001:db8:2::11]:8080"]}]}
  - {name: dns, protocol: udp, address: [198.18.1.1:53, "[2001:db8:1::1]:53"], backends: [{name: d1, address: [198.18.2.11:5353, "[2001:db8:2::11]:5353"]}]}
`

// mtu is that of both devices.
const mtu = 1500

// world is a gateway with one loop in virtual time, and a table whose programs the kernel runs frame by frame.
type world struct {
	t      testing.TB
	h      *datapath.Handler
	engine gpukern.Engine
	arena  *packet.Arena
	now    clock.Time
	table  *kernelflows.Table
	ns     *testnet.Namespace
}

func newWorld(t testing.TB) *world {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(worldConfig))
	must(t, err)
	hop := nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready}
	g, err := control.Open(c, control.Options{
		Devices:  []datapath.Device{{Name: "gw0", MAC: macGw0, MTU: mtu}, {Name: "gw1", MAC: macGw1, MTU: mtu}},
		Resolver: nexthop.Static{netip.MustParseAddr("198.18.2.11"): hop, netip.MustParseAddr("2001:db8:2::11"): hop},
	})
	must(t, err)
	t.Cleanup(func() { g.Close() })
	table, ns := openTable(t)
	return &world{
		t: t, table: table, ns: ns, h: g.Handlers()[0], engine: gpukern.NewCPU(gpukern.Config{}), now: clock.Time(time.Hour),
		arena: &packet.Arena{Mem: make([]byte, 1<<16), Shift: 16},
	}
}

// openTable returns a table whose devices 0 and 1 are the loopback interface of a namespace, by which test runs come.
func openTable(t testing.TB) (*kernelflows.Table, *testnet.Namespace) {
	t.Helper()
	ns := testnet.For(t, "mr-kflows").Namespace("host")
	table, err := kernelflows.Open(kernelflows.Options{Loops: 1, Slots: 64, Now: stack.Now})
	must(t, err)
	t.Cleanup(func() { must(t, table.Close()) })
	must(t, ns.Do(func() error {
		for dev := range 2 {
			if _, err := table.Attach(dev, 1, kernelflows.HookTC); err != nil {
				return err
			}
		}
		return nil
	}))
	return table, ns
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send passes a frame through engine and handler, and returns the verdict and the frame behind it.
func (w *world) send(port uint8, frame []byte) (packet.Verdict, []byte) {
	w.t.Helper()
	b := packet.NewBatch(w.arena, 1)
	const headroom = 128
	copy(w.arena.Mem[headroom:], frame)
	b.Append(packet.Desc{Off: headroom, Len: uint16(len(frame)), Port: port})
	must(w.t, w.engine.Submit(b))
	w.engine.Poll(make([]*packet.Batch, 1))
	w.h.Handle(w.now, b)
	return b.D[0].Verdict, bytes.Clone(b.Bytes(0))
}

// forwarded is send for a frame that must be forwarded.
func (w *world) forwarded(port uint8, frame []byte) []byte {
	w.t.Helper()
	v, out := w.send(port, frame)
	if v != packet.Forward {
		w.t.Fatalf("the handler's verdict is %v", v)
	}
	return out
}

// seg is a packet to make.
type seg struct {
	from, to  wire.MAC
	src, dst  netip.AddrPort
	proto     uint8
	ttl       uint8
	flags     wire.TCPFlags
	seq, ack  uint32
	window    uint16
	payload   int
	options   []byte // of TCP
	dontFrag  bool
	noChecked bool // UDP without a checksum
}

func (s *seg) bytes() []byte {
	b := append(append(append([]byte{}, s.to[:]...), s.from[:]...), 0, 0)
	four := s.src.Addr().Is4()
	l4 := wire.UDPLen
	if s.proto == wire.ProtoTCP {
		l4 = wire.TCPLen + len(s.options)
	}
	if four {
		b[12], b[13] = 8, 0
		b = wire.AppendIPv4(b, &wire.IPv4Header{
			Src: s.src.Addr().As4(), Dst: s.dst.Addr().As4(), Proto: s.proto, TTL: s.ttl, DontFragment: s.dontFrag, PayloadLen: l4 + s.payload,
		})
	} else {
		b[12], b[13] = 0x86, 0xdd
		b = wire.AppendIPv6(b, &wire.IPv6Header{
			Src: s.src.Addr().As16(), Dst: s.dst.Addr().As16(), NextHeader: s.proto, HopLimit: s.ttl, PayloadLen: l4 + s.payload,
		})
	}
	at := len(b)
	if s.proto == wire.ProtoTCP {
		b = wire.AppendTCP(b, &wire.TCPHeader{
			SrcPort: s.src.Port(), DstPort: s.dst.Port(), Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: s.window, Options: s.options,
		})
	} else {
		b = wire.AppendUDP(b, s.src.Port(), s.dst.Port(), s.payload)
	}
	for i := range s.payload {
		b = append(b, byte(i*7+int(s.seq)))
	}
	sum := wire.Fold(wire.Sum(b[at:], wire.PseudoHeader(s.src.Addr().As16(), s.dst.Addr().As16(), s.proto, uint32(len(b)-at))))
	switch {
	case s.proto == wire.ProtoTCP:
		wire.TCP(b[at:]).SetChecksum(sum)
	case !s.noChecked:
		wire.UDP(b[at:]).SetChecksum(wire.UDPChecksum(sum))
	}
	return b
}

// pathOf reads from a frame before and after the handler how packets of this direction change.
func pathOf(dev, out uint8, before, after []byte) fastpath.Direction {
	x, y := endsOf(before), endsOf(after)
	l3 := wire.AddDiff(wire.Diff128(x.src, y.src), wire.Diff128(x.dst, y.dst))
	ports := wire.AddDiff(wire.Diff32(uint32(x.sport), uint32(y.sport)), wire.Diff32(uint32(x.dport), uint32(y.dport)))
	return fastpath.Direction{
		Dev: dev, Src: x.src, Dst: x.dst, SrcPort: x.sport, DstPort: x.dport, From: [6]byte(before[6:12]), To: [6]byte(before[:6]),
		OutDev: out, NewSrc: y.src, NewDst: y.dst, NewSrcPort: y.sport, NewDstPort: y.dport,
		NextHop: [6]byte(after[:6]), OutMAC: [6]byte(after[6:12]), MaxLen: mtu, L3Delta: l3, L4Delta: wire.AddDiff(l3, ports),
	}
}

type ends struct {
	src, dst     [16]byte
	sport, dport uint16
}

func endsOf(frame []byte) (e ends) {
	l4 := 54
	if ip := frame[14:]; ip[0]>>4 == 4 {
		l4 = 34
		e.src, e.dst = netip.AddrFrom4([4]byte(ip[12:])).As16(), netip.AddrFrom4([4]byte(ip[16:])).As16()
	} else {
		e.src, e.dst = [16]byte(ip[8:]), [16]byte(ip[24:])
	}
	e.sport, e.dport = wire.UDP(frame[l4:]).SrcPort(), wire.UDP(frame[l4:]).DstPort()
	return e
}
