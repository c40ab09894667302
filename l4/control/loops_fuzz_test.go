package control

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/flowmodel"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// fuzzPort is a device of a loop: the fuzzer says what it receives, and looks at what it sends.
type fuzzPort struct {
	w    *loopsWorld
	pool *ring.Pool
	dev  uint8
	in   [][]byte
	room uint32 // of the next frames, before the packet
	busy bool   // its transmit ring is full
}

func (p *fuzzPort) Rx(_ clock.Time, b *packet.Batch) (n int, err error) {
	for ; len(p.in) > 0 && b.Room() > 0; n++ {
		if k := p.w.kernel; k != nil {
			if out, v := k.Packet(p.w.now, p.dev, p.in[0]); v == flowmodel.Forwarded {
				p.w.leaves(out, p.in[0])
				p.in = p.in[1:]
				n--
				continue
			}
		}
		off, ok := p.pool.Get()
		if !ok {
			break
		}
		d := packet.Desc{Off: off + 64 + p.room, Len: uint16(len(p.in[0])), Port: p.dev}
		copy(b.Arena.Bytes(&d), p.in[0])
		b.Append(d)
		p.in = p.in[1:]
	}
	return n, nil
}

func (p *fuzzPort) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if p.busy {
		return 0, nil
	}
	for i := range b.D {
		d := &b.D[i]
		if b.Arena.Frame(d.Off) != b.Arena.Frame(d.Off+uint32(max(d.Len, 1))-1) || d.Flags.Has(packet.FlagMore) {
			p.w.t.Errorf("descriptor %+v", *d)
		}
		p.w.leaves(p.dev, bytes.Clone(b.Arena.Bytes(d)))
		p.pool.Put(d.Off)
	}
	return b.Len(), nil
}

func (p *fuzzPort) Info() pmd.Info { return pmd.Info{FD: -1, MTU: 1500} }
func (p *fuzzPort) Close() error   { return nil }

// fuzzLoops is how many loops a loopsWorld has, and loopFrames how many frames each.
const fuzzLoops, loopFrames = 2, 96

// loopsWorld is a gateway on loops as a node has them: with frames, rings between them and an Output. What leaves by a
// device is looked at.
type loopsWorld struct {
	*fuzzWorld
	arena    *ring.Arena
	pools    []*ring.Pool
	loops    []*stack.Loop
	mesh     *stack.Mesh
	ports    [fuzzLoops][2]*fuzzPort
	handlers []*datapath.Handler
	tainted  bool // a packet of this step contradicts itself, so what leaves may
}

func (w *loopsWorld) open(base *world) {
	w.handlers = nil
	w.loops = nil
	for i := range fuzzLoops {
		o := handlerOptions(base.g.cfg, i)
		o.EnterAfter = 1
		h := datapath.New(o, &base.g.snap)
		h.SyncChanges()
		if w.kernel != nil {
			h.SetForwarder(w.kernel.Loop(16, nil))
		}
		for dev := range w.ports[i] {
			w.ports[i][dev] = &fuzzPort{w: w, pool: w.pools[i], dev: uint8(dev)}
		}
		l, err := stack.NewLoop(stack.Config{
			Devices: []pmd.Driver{w.ports[i][0], w.ports[i][1]}, Pool: w.pools[i], Engine: gpukern.NewCPU(gpukern.Config{}), Handler: h, Burst: 16,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		h.SetOutput(l.Output())
		w.handlers, w.loops = append(w.handlers, h), append(w.loops, l)
	}
	mesh, err := stack.Join(w.loops...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mesh = mesh
}

// step lets all loops poll until what has come is decided.
func (w *loopsWorld) step() {
	for range 6 {
		for _, l := range w.loops {
			l.Poll(w.now)
		}
	}
}

// receive gives frames to the devices of loops. Each source becomes one that may be answered.
func (w *loopsWorld) receive(list [][]byte, port uint8, loops, room int) {
	for i, p := range list {
		p = p[:min(len(p), 1800)]
		to := w.ports[loops>>(i&7)&1][port]
		to.in, to.room = append(to.in, p), uint32(room&127)
		w.tainted = w.tainted || !sound(p)
		if len(p) < 14 {
			continue
		}
		w.knows(port, [6]byte(p[6:12]))
		ether, l3, ok := wire.Network(p)
		if !ok {
			continue
		}
		switch ip := p[l3:]; {
		case ether == wire.EtherTypeARP && len(ip) >= 28:
			w.knows(port, wire.ARP(ip).SenderMAC())
		case len(ip) >= 20 && ip[0]>>4 == 4:
			w.clients[netip.AddrFrom4([4]byte(ip[12:16]))] = true
		case len(ip) >= 40 && ip[0]>>4 == 6:
			w.clients[netip.AddrFrom16([16]byte(ip[8:24])).Unmap()] = true
			if ns, ok := wire.NeighborRequest(wire.IPv6(ip)); ok {
				mac, _ := ns.SourceMAC()
				w.knows(port, mac)
			}
		}
	}
}

func (w *loopsWorld) knows(port uint8, mac [6]byte) {
	w.macs[port][mac] = w.macs[port][mac] || mac[0]&1 == 0
}

// sound reports whether lengths and checksums of a frame are right.
func sound(p []byte) bool {
	_, l3, ok := wire.Network(p)
	right := ok && len(p) > l3
	fail := func(string, ...any) { right = false }
	if right && (p[l3]>>4 == 4 || p[l3]>>4 == 6) {
		if _, ok := checkLengths(p[l3:], fail); ok && right {
			checkSums(p[l3:], fail)
		}
		return right && parses(p) == nil
	}
	return right
}

// parses returns what gopacket says of a frame: of its link, network and transport headers.
func parses(p []byte) error {
	var eth layers.Ethernet
	var vlan layers.Dot1Q
	var arp layers.ARP
	var v4 layers.IPv4
	var v6 layers.IPv6
	var tcp layers.TCP
	var udp layers.UDP
	var icmp4 layers.ICMPv4
	var icmp6 layers.ICMPv6
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &vlan, &arp, &v4, &v6, &tcp, &udp, &icmp4, &icmp6)
	parser.IgnoreUnsupported = true
	var found []gopacket.LayerType
	if err := parser.DecodeLayers(p, &found); err != nil {
		return err
	}
	if parser.Truncated {
		return fmt.Errorf("truncated: %v", found)
	}
	return nil
}

// leaves looks at a frame that a device sends.
func (w *loopsWorld) leaves(dev uint8, p []byte) {
	fail := func(format string, args ...any) {
		w.t.Errorf("%s\nout %x", fmt.Sprintf(format, args...), p)
	}
	if len(p) < 14 || len(p) > 14+4+1500 {
		fail("%d bytes", len(p))
		return
	}
	w.outs, w.fuzzWorld.ports = append(w.outs, p), append(w.fuzzWorld.ports, dev)
	if [6]byte(p[6:12]) != w.g.snap.Load().Devices[dev].MAC {
		fail("from link address %x", p[6:12])
	}
	ether, l3, ok := wire.Network(p)
	if !ok {
		fail("no network header")
		return
	}
	if err := parses(p); err != nil && !w.tainted {
		fail("gopacket: %v", err)
	}
	if ether == wire.EtherTypeARP {
		if !w.macs[dev][[6]byte(p[0:6])] {
			fail("ARP to a stranger")
		}
		return
	}
	flags := packet.FlagL4ChecksumOK
	if w.tainted {
		flags = 0
	}
	w.checkIP(&packet.Desc{Flags: flags}, p[l3:], exit{dev, [6]byte(p[0:6])}, fail)
}

// play runs a script: frames, time, and what the control side does.
func (w *loopsWorld) play(s *script) {
	base := w.g.snap.Load()
	defer w.g.snap.Store(base)
	for step := 0; step < 16 && len(s.b) > 0; step++ {
		w.tainted = w.tainted && w.waits() // a damaged frame may still wait for a device
		switch op := s.next(); {
		case op < 200:
			for range 1 + op&7 {
				list, port := w.frames(s)
				w.receive(list, port, s.next(), s.next())
			}
		case op < 210: // a backend comes to rest, or is back
			next := *w.g.snap.Load()
			next.Backends = slices.Clone(next.Backends)
			i := s.next() % len(next.Backends)
			b := *next.Backends[i]
			b.Inactive = !b.Inactive
			next.Backends[i] = &b
			w.g.snap.Store(&next)
		case op < 218: // so does the way to it
			next := *w.g.snap.Load()
			next.Endpoints = slices.Clone(next.Endpoints)
			i := s.next() % len(next.Endpoints)
			e := *next.Endpoints[i]
			e.Hop.State = datapath.HopState(s.next() % 3)
			next.Endpoints[i] = &e
			w.g.snap.Store(&next)
		case op < 236:
			w.sync(s)
		case op < 242:
			loop := s.next() % fuzzLoops
			w.handlers[loop].ResetAll(s.next(), 1+s.next()%64)
		case op < 248:
			w.ports[op&1][op>>1&1].busy = !w.ports[op&1][op>>1&1].busy
		default:
			w.now = w.now.Add(time.Duration(1+s.next()*s.next()) * 100 * time.Millisecond)
		}
		w.step()
		w.now = w.now.Add(time.Duration(s.next()) * time.Millisecond)
	}
}

// waits reports whether a device takes no frames.
func (w *loopsWorld) waits() bool {
	for i := range w.ports {
		for _, p := range w.ports[i] {
			if p.busy {
				return true
			}
		}
	}
	return false
}

// sync carries records: what changed here, and what the script makes of it or invents.
func (w *loopsWorld) sync(s *script) {
	snap := w.g.snap.Load()
	var list []datapath.Record
	buf := make([]datapath.ConnCopy, 64)
	for _, h := range w.handlers {
		for _, c := range buf[:h.Changes(buf)] {
			if r, ok := snap.Record(&c, w.now); ok {
				list = append(list, r)
			}
		}
	}
	vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(1 + s.next()%fuzzVIPs)}), []uint16{80, 53, 443, 4789}[s.next()&3])
	list = append(list, datapath.Record{
		Client: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(s.next())}), uint16(40000+s.next()&3)), VIP: vip,
		Target: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 2, byte(11 + s.next()%6)}), []uint16{8080, 5353, 443, 0}[s.next()&3]),
		Source: netip.AddrPortFrom(netip.MustParseAddr("198.18.2.1"), uint16(5000+s.next()&63)), Proto: []uint8{6, 17}[s.next()&1],
	})
	directory := datapath.NewDirectory(snap, fuzzLoops, datapath.PortRange(w.g.ports))
	var outcomes [datapath.RecordOutcomes]uint64
	for i := range list {
		r := &list[i]
		if change := s.next(); change&1 != 0 || r.State == 0 {
			r.State, r.FINs, r.Idle = datapath.RecordState(change>>1&7), uint8(change>>4&3), time.Duration(s.next()*s.next())*time.Second
		}
		if c, loop, ok := directory.Conn(r); ok {
			w.clients[r.Client.Addr()] = true
			w.handlers[loop].Import(w.now, []datapath.ConnCopy{c}, &outcomes)
		}
	}
	total := uint64(0)
	for _, n := range outcomes {
		total += n
	}
	if total > uint64(len(list)) {
		w.t.Errorf("%d outcomes of %d records", total, len(list))
	}
}

// end lets everything come to its end, and checks that tables are empty and each frame is where it began.
func (w *loopsWorld) end() {
	for i := range w.ports {
		for _, p := range w.ports[i] {
			p.busy = false
		}
		if err := w.handlers[i].Audit(); err != nil {
			w.t.Error(err)
		}
	}
	w.tainted = true // what waited may be of any step
	for range 5 {
		w.step()
		w.now = w.now.Add(3 * time.Hour)
	}
	w.step()
	holders := []ring.Holder{w.mesh}
	var sum stack.Stats
	for i, l := range w.loops {
		if n := w.handlers[i].Connections(); n != 0 {
			w.t.Errorf("%d connections never end", n)
		}
		sum.Add(l.Stats())
		holders = append(holders, w.pools[i], l)
	}
	if n := sum.InFlight(); n != 0 {
		w.t.Errorf("%d packets are nowhere: %+v", n, sum)
	}
	if err := ring.Audit(w.arena, holders...); err != nil {
		w.t.Error(err)
	}
	for _, l := range w.loops {
		l.Close()
	}
	if w.kernel == nil {
		return
	}
	if n, keys := w.kernel.Entered(); n != 0 || keys != 0 || w.kernel.Misuse() != nil {
		w.t.Errorf("%d connections and %d keys stay in the kernel: %v", n, keys, w.kernel.Misuse())
	}
}

// FuzzLoops plays scripts on a gateway as a node runs it, on loops that hand packets over to each other: fragments are held,
// outer packets cut, discarded connections reset, records of a peer entered, backends come and go. Every frame that
// leaves must be whole, right and for a backend or a client, and every frame of the pools has one owner. Build with
// -tags debug to have freed frames poisoned.
func FuzzLoops(f *testing.F) {
	seeds := fuzzSeeds()
	for i := range seeds {
		n := byte(i)
		f.Add([]byte{0, 0, n, 1, 9, 5, 0, 1, 0, 0x12, 2, 9, 5, 0, 0, n, 3, 9, 5, 205, 0, 1, 250, 9, 9, 0})
		f.Add([]byte{0, 0, n, 1, 9, 5, 0, 1, 0, 0, 1, 9, 5, 0, 0, n, 1, 9, 5, 0, 0, n, 1, 9, 5, 0, 1, 0, 0, 1, 9, 5, 205, 0, 1, 250, 0, 0, n, 2, 9, 0})
		f.Add([]byte{0, 4, n, 3, 0, 5, 1, 1, 0x84, n, 3, 7, 2, 1, 1, 0, 2, n, 0, 4, 1, 1, 250, 2, 9, 1})
		f.Add([]byte{2, 0, n, 1, 0, 1, 0, 0x12, 2, 0, 2, 0, 3, 4, 150, 0, 0, 5, 220, 1, 2, 9, 0, 3, 1, 7, 1, 2, 238, 0, 0, 9, 1})
	}
	two := strings.Replace(fuzzConfig, "[{name: gw0}, {name: gw1}]", "[{name: gw0, queues: 2}, {name: gw1, queues: 2}]", 1)
	var bases []*world
	for _, kernel := range []bool{false, true} {
		c := fuzzedConfig(f, two, kernel)
		c.Table.Size, c.Table.HalfOpen, c.Table.Fragments, c.Limits.Clients = 128, 96, 32, 128
		bases = append(bases, newWorldWith(f, c, hopsOf(c)))
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: fuzzLoops * loopFrames, Huge: ring.HugeOff})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { arena.Close() })
	var pools []*ring.Pool
	for range fuzzLoops {
		p, err := arena.Cut(loopFrames)
		if err != nil {
			f.Fatal(err)
		}
		pools = append(pools, p)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1500 {
			return
		}
		for i, base := range bases {
			base.now, base.kernel = clock.Time(time.Hour), nil
			if i == 1 {
				base.kernel = flowmodel.New()
			}
			w := &loopsWorld{
				fuzzWorld: &fuzzWorld{world: base, t: t, seeds: seeds, clients: map[netip.Addr]bool{}, macs: [2]map[[6]byte]bool{{}, {}}},
				arena:     arena, pools: pools,
			}
			w.open(base)
			w.play(&script{b})
			w.end()
		}
	})
}
