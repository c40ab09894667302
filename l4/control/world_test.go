package control

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/flowmodel"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// world is a gateway with one loop in virtual time: packets go through the real engine and the
// handler, without drivers. Port 0 leads to clients, port 1 to backends.
type world struct {
	t      testing.TB
	g      *Gateway
	h      *datapath.Handler
	engine gpukern.Engine
	arena  *packet.Arena
	now    clock.Time
	events []Event

	commands chan func() // for the loop, from the control side

	kernel  *flowmodel.Kernel // forwards established connections; nil: none
	toFlush *flowmodel.Loop
	swept   clock.Time
}

var (
	macClient  = [6]byte{2, 0, 0, 0, 0, 0xc1}
	macGw0     = [6]byte{2, 0, 0, 0, 0, 0x90}
	macGw1     = [6]byte{2, 0, 0, 0, 0, 0x91}
	macBackend = [6]byte{2, 0, 0, 0, 0, 0xb1} // the next hop to all backends
)

// addrs makes netip values comparable for cmp.
var addrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

const frameBits = 11

// firstSeq is the sequence number of the first byte that either side of a connection sends.
const firstSeq = 1000

// services of the world; %s is replaced by `source: ...` or nothing.
const worldConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
table: {size: 1024}
services:
  - name: web
    %s
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    backends:
      - {name: b1, address: [198.18.2.11:8080, "[2001:db8:2::11]:8080"]}
      - {name: b2, address: [198.18.2.12:8080, "[2001:db8:2::12]:8080"]}
  - name: dns
    protocol: udp
    %[1]s
    address: [198.18.1.1:53, "[2001:db8:1::1]:53"]
    backends:
      - {name: d1, address: [198.18.2.11:5353, "[2001:db8:2::11]:5353"]}
`

func parse(t testing.TB, src string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hopsOf leads to every backend of the configurations by port 1.
func hopsOf(cs ...*config.Config) nexthop.Static {
	hops := nexthop.Static{}
	for _, c := range cs {
		for _, s := range c.Services {
			for _, b := range s.Backends {
				for _, ap := range b.Addresses {
					hops[ap.Addr()] = nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready}
				}
			}
		}
	}
	return hops
}

func newWorld(t testing.TB, src string, more ...string) *world {
	t.Helper()
	c := parse(t, src)
	all := []*config.Config{c}
	for _, m := range more {
		all = append(all, parse(t, m))
	}
	return newWorldWith(t, c, hopsOf(all...))
}

func newWorldWith(t testing.TB, c *config.Config, r nexthop.Resolver) *world {
	t.Helper()
	return newWorldOf(t, c, r, func(*Options) {})
}

// newWorldOf is newWorldWith, with other options.
func newWorldOf(t testing.TB, c *config.Config, r nexthop.Resolver, change func(*Options)) *world {
	t.Helper()
	w := &world{
		t: t, now: clock.Time(time.Hour),
		commands: make(chan func(), 16),
		arena:    &packet.Arena{Mem: make([]byte, 256<<frameBits), Shift: frameBits},
		engine:   gpukern.NewCPU(gpukern.Config{}),
	}
	o := Options{
		Devices:  []datapath.Device{{Name: "gw0", MAC: macGw0, MTU: 1500}, {Name: "gw1", MAC: macGw1, MTU: 1500}},
		Resolver: r,
		OnEvent:  func(e Event) { w.events = append(w.events, e) },
	}
	change(&o)
	g, err := Open(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	w.g, w.h = g, g.Handlers()[0]
	if kernelFlows && c.Loops() == 1 {
		w.openKernel()
	}
	return w
}

// sent is a packet behind the handler.
type sent struct {
	verdict packet.Verdict
	port    uint8
	p       []byte
}

// batch returns a batch of the given packets, all from port.
func (w *world) batch(port uint8, pkts ...[]byte) *packet.Batch {
	b := packet.NewBatch(w.arena, len(pkts))
	for i, p := range pkts {
		off := uint32(i<<frameBits) + 128
		copy(w.arena.Mem[off:], p)
		b.Append(packet.Desc{Off: off, Len: uint16(len(p)), Port: port})
	}
	return b
}

// run passes a batch through the engine and the handler.
func (w *world) run(b *packet.Batch) {
	w.t.Helper()
	if w.kernel != nil {
		w.runKernel(b)
		return
	}
	w.describe(b)
	w.h.Handle(w.now, b)
}

// describe passes a batch through the engine.
func (w *world) describe(b *packet.Batch) {
	w.t.Helper()
	if err := w.engine.Submit(b); err != nil {
		w.t.Fatal(err)
	}
	done := make([]*packet.Batch, 1)
	if w.engine.Poll(done) != 1 {
		w.t.Fatal("the engine kept the batch")
	}
}

// send passes one packet through and returns what became of it.
func (w *world) send(port uint8, p []byte) sent {
	w.t.Helper()
	b := w.batch(port, p)
	w.run(b)
	return sent{b.D[0].Verdict, b.D[0].Port, bytes.Clone(b.Bytes(0))}
}

// expect is send for a packet that must be forwarded by port.
func (w *world) expect(from uint8, p []byte, to uint8) []byte {
	w.t.Helper()
	s := w.send(from, p)
	if s.verdict != packet.Forward || s.port != to {
		w.t.Fatalf("verdict %v to port %d, want forward to %d", s.verdict, s.port, to)
	}
	return s.p
}

// refused is send for a packet that must be dropped.
func (w *world) refused(from uint8, p []byte, why packet.Verdict) {
	w.t.Helper()
	if s := w.send(from, p); s.verdict != why {
		w.t.Fatalf("verdict %v, want %v", s.verdict, why)
	}
}

// after lets virtual time pass, with Tick as a loop calls it.
func (w *world) after(d time.Duration) {
	end := w.now.Add(d)
	for next := w.h.Tick(w.now); next <= end; {
		w.now = next
		next = w.h.Tick(w.now)
	}
	w.now = end
}

// seg describes a TCP segment or, without flags, a UDP datagram.
type seg struct {
	src, dst netip.AddrPort
	flags    string // of "SARFP"; "" is UDP
	payload  string
	ttl      uint8 // 0 is 64
	from, to [6]byte
	options  []byte // of TCP, a multiple of 4

	seq, ack uint32 // 0 is what follows a SYN with number firstSeq-1
	window   uint16 // 0 is 5000
}

// client returns a segment from a client to a service address.
func client(src, dst, flags string) seg {
	return seg{
		src: netip.MustParseAddrPort(src), dst: netip.MustParseAddrPort(dst), flags: flags,
		payload: "a request to the service", from: macClient, to: macGw0,
	}
}

// answer returns a segment back to where a packet came from, by the backend that it was sent to.
func answer(p []byte, flags string) seg {
	got := flowOf(p)
	return seg{src: got.dst, dst: got.src, flags: flags, payload: "from the backend", from: macBackend, to: macGw1}
}

// bytes returns the packet, made by gopacket.
func (s seg) bytes() []byte {
	if s.ttl == 0 {
		s.ttl = 64
	}
	eth := &layers.Ethernet{SrcMAC: s.from[:], DstMAC: s.to[:], EthernetType: layers.EthernetTypeIPv6}
	proto := layers.IPProtocolTCP
	if s.flags == "" {
		proto = layers.IPProtocolUDP
	}
	var ip gopacket.SerializableLayer
	var nl gopacket.NetworkLayer
	if s.src.Addr().Is4() {
		eth.EthernetType = layers.EthernetTypeIPv4
		v4 := &layers.IPv4{Version: 4, TTL: s.ttl, Protocol: proto, Id: 7, SrcIP: s.src.Addr().AsSlice(), DstIP: s.dst.Addr().AsSlice()}
		ip, nl = v4, v4
	} else {
		v6 := &layers.IPv6{Version: 6, HopLimit: s.ttl, NextHeader: proto, SrcIP: s.src.Addr().AsSlice(), DstIP: s.dst.Addr().AsSlice()}
		ip, nl = v6, v6
	}
	p := serialize(eth, ip, s.transport(nl), gopacket.Payload(string(s.options)+s.payload))
	if s.options != nil { // gopacket would not write all that tests want
		tcp := p[len(p)-len(s.payload)-len(s.options)-wire.TCPLen:]
		tcp[12] += uint8(len(s.options) / 4 << 4)
		wire.TCP(tcp).SetChecksum(wire.Update16(wire.TCP(tcp).Checksum(), 0x5000, uint16(tcp[12])<<8))
	}
	return p
}

func (s seg) transport(nl gopacket.NetworkLayer) gopacket.SerializableLayer {
	if s.flags == "" {
		u := &layers.UDP{SrcPort: layers.UDPPort(s.src.Port()), DstPort: layers.UDPPort(s.dst.Port())}
		u.SetNetworkLayerForChecksum(nl)
		return u
	}
	has := func(f string) bool { return strings.Contains(s.flags, f) }
	if s.seq == 0 {
		if s.seq = firstSeq; has("S") {
			s.seq--
		}
	}
	if s.window == 0 {
		s.window = 5000
	}
	if s.ack == 0 && has("A") {
		s.ack = firstSeq
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.src.Port()), DstPort: layers.TCPPort(s.dst.Port()), Seq: s.seq, Ack: s.ack, Window: s.window,
		SYN: has("S"), ACK: has("A"), RST: has("R"), FIN: has("F"), PSH: has("P"),
	}
	tcp.SetNetworkLayerForChecksum(nl)
	return tcp
}

func serialize(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// flow is what gopacket finds in a packet.
type flow struct {
	srcMAC, dstMAC net.HardwareAddr
	src, dst       netip.AddrPort
	ttl            uint8
	payload        string
}

func flowOf(p []byte) flow {
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
	eth := pk.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	f := flow{srcMAC: eth.SrcMAC, dstMAC: eth.DstMAC}
	src, dst := netip.Addr{}, netip.Addr{}
	switch ip := pk.NetworkLayer().(type) {
	case *layers.IPv4:
		src, dst, f.ttl = netip.AddrFrom4([4]byte(ip.SrcIP)), netip.AddrFrom4([4]byte(ip.DstIP)), ip.TTL
	case *layers.IPv6:
		src, dst, f.ttl = netip.AddrFrom16([16]byte(ip.SrcIP)), netip.AddrFrom16([16]byte(ip.DstIP)), ip.HopLimit
	}
	switch t := pk.TransportLayer().(type) {
	case *layers.TCP:
		f.src, f.dst = netip.AddrPortFrom(src, uint16(t.SrcPort)), netip.AddrPortFrom(dst, uint16(t.DstPort))
		f.payload = string(t.Payload)
	case *layers.UDP:
		f.src, f.dst = netip.AddrPortFrom(src, uint16(t.SrcPort)), netip.AddrPortFrom(dst, uint16(t.DstPort))
		f.payload = string(t.Payload)
	}
	return f
}

// recomputed returns the packet with every length and checksum computed anew by gopacket: a right
// packet is equal to it.
func recomputed(p []byte) []byte {
	pk := gopacket.NewPacket(p, layers.LayerTypeEthernet, gopacket.Default)
	tl := pk.TransportLayer()
	switch t := tl.(type) {
	case *layers.TCP:
		t.SetNetworkLayerForChecksum(pk.NetworkLayer())
	case *layers.UDP:
		t.SetNetworkLayerForChecksum(pk.NetworkLayer())
	}
	return serialize(
		pk.LinkLayer().(gopacket.SerializableLayer), pk.NetworkLayer().(gopacket.SerializableLayer),
		tl.(gopacket.SerializableLayer), gopacket.Payload(tl.LayerPayload()))
}

func (w *world) checksumsRight(p []byte) {
	w.t.Helper()
	if want := recomputed(p); !bytes.HasPrefix(want, p) || len(want) > max(len(p), 60) { // gopacket pads
		w.t.Fatalf("rewritten packet\n%x\nrecomputed\n%x", p, want)
	}
}

// fill returns worldConfig. Segments of unknown connections are dropped there, as most tests expect, unless source
// says more.
func fill(source string) string {
	if source == "" {
		source = "unknown: drop"
	}
	return fmt.Sprintf(worldConfig, source)
}
