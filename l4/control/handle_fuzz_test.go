package control

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/flowmodel"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// fuzzConfig has a service of every mode, option and family, and ranges of ports beside single ones.
const fuzzConfig = `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1, "2001:db8:2::1"]
snat_ports: 5000-5063
tunnel: {source: [198.18.5.0/24, "2001:db8:5::/64"]}
sources: {deny: [198.18.66.0/24]}
limits: {packets: 4000, connections: 2000}
services:
  - {name: nat, hash_size: 251, unavailable: reject, mss: 1400, address: [198.18.1.1:80, "[2001:db8:1::1]:80"],
     backends: [{name: a, address: [198.18.2.11:8080, "[2001:db8:2::11]:8080"]}, {name: b, address: [198.18.2.12:8080, "[2001:db8:2::12]:8080"]}]}
  - {name: natudp, hash_size: 251, protocol: udp, address: [198.18.1.1:53, "[2001:db8:1::1]:53"],
     backends: [{address: [198.18.2.11:5353, "[2001:db8:2::11]:5353"]}]}
  - {name: client, hash_size: 251, source: client, address: [198.18.1.2:80, "[2001:db8:1::2]:80"],
     backends: [{address: [198.18.2.13:8080, "[2001:db8:2::13]:8080"]}]}
  - {name: clientudp, hash_size: 251, protocol: udp, source: client, address: [198.18.1.2:4789, "[2001:db8:1::2]:6081"],
     backends: [{address: [198.18.2.13:5353, "[2001:db8:2::13]:5353"]}]}
  - {name: ipip, hash_size: 251, mode: ipip, mss: auto, address: [198.18.1.3:80, "[2001:db8:1::3]:80"], backends: [{address: 198.18.2.14}]}
  - {name: ipip6, hash_size: 251, mode: ipip, protocol: udp, address: [198.18.1.3:53, "[2001:db8:1::3]:53"], backends: [{address: "2001:db8:2::14"}]}
  - {name: gue, hash_size: 251, mode: gue, protocol: udp, address: [198.18.1.4:53, "[2001:db8:1::4]:53"], backends: [{address: 198.18.2.15}]}
  - {name: gue6, hash_size: 251, mode: gue, address: [198.18.1.4:80, "[2001:db8:1::4]:80"], backends: [{address: "2001:db8:2::15"}]}
  - {name: l2, hash_size: 251, mode: l2, protocol: udp, address: [198.18.1.5:53, "[2001:db8:1::5]:53"],
     backends: [{address: [198.18.2.16]}, {address: ["2001:db8:2::16"]}]}
  - {name: h3, hash_size: 251, protocol: udp, address: 198.18.1.1:443, quic: {rotation: 1, server_id_length: 2, nonce_length: 4},
     backends: [{address: 198.18.2.11:443, server_id: "0a01"}, {address: 198.18.2.12:443, server_id: "0a02"}]}
  - {name: none, unavailable: reject, hash_size: 251, address: [198.18.1.1:81, "[2001:db8:1::1]:81"],
     backends: [{address: [198.18.2.11:81, "[2001:db8:2::11]:81"], state: inactive}]}
  - {name: offset, hash_size: 251, address: ["198.18.1.6:50-99", "[2001:db8:1::6]:50-99"], backends: [{address: ["198.18.2.17:1050-1099", "[2001:db8:2::17]:1050-1099"]}]}
  - {name: all, hash_size: 251, protocol: udp, address: ["198.18.1.6:*", "[2001:db8:1::6]:*"], persistence: {by: client}, backends: [{address: [198.18.2.17, "2001:db8:2::17"]}, {address: [198.18.2.18, "2001:db8:2::18"]}]}
  - {name: one, hash_size: 251, source: client, address: ["198.18.1.6:100-60000", "[2001:db8:1::6]:100-60000"], backends: [{address: [198.18.2.19:443, "[2001:db8:2::19]:443"]}]}
  - {name: inside, hash_size: 251, protocol: udp, source: client, address: ["198.18.1.6:443", "[2001:db8:1::6]:443"], backends: [{address: [198.18.2.17:443, "[2001:db8:2::17]:443"]}]}
`

// fuzzVIPs is the number of service addresses of each family, ending in 1, 2 ....
const fuzzVIPs = 6

// fuzzSeeds are well-formed frames to a gateway of fuzzConfig.
func fuzzSeeds() (list [][]byte) {
	for n := 1; n <= fuzzVIPs; n++ {
		for _, family := range []struct{ src, dst string }{
			{"198.18.0.9:40000", "198.18.1.%d:%d"}, {"[2001:db8::9]:40000", "[2001:db8:1::%d]:%d"},
		} {
			for _, flags := range []string{"S", "A", "F", "R"} {
				list = append(list, client(family.src, fmt.Sprintf(family.dst, n, 80), flags).bytes())
			}
			if n == fuzzVIPs { // the ends of ranges, and what lies beside
				for _, port := range []int{49, 50, 99, 100, 60000, 60001} {
					list = append(list, client(family.src, fmt.Sprintf(family.dst, n, port), "S").bytes(), client(family.src, fmt.Sprintf(family.dst, n, port), "").bytes())
				}
			}
			for _, port := range []int{53, 443, 4789, 6081} {
				list = append(list, client(family.src, fmt.Sprintf(family.dst, n, port), "").bytes())
			}
		}
		list = append(list, echoRequest("198.18.0.9", fmt.Sprintf("198.18.1.%d", n), 0), echoRequest("2001:db8::9", fmt.Sprintf("2001:db8:1::%d", n), 0))
	}
	pad := [8]byte{0, 0, 1, 4}
	six := client("[2001:db8::9]:40000", "[2001:db8:1::1]:53", "").bytes()
	big := client(host, dns, "")
	big.payload = strings.Repeat("x", 1480)
	list = append(
		list, arpFor("198.18.1.1", layers.ARPRequest), solicit("2001:db8::9", "ff02::1:ff00:1", "2001:db8:1::1", true, 255),
		solicit("::", "ff02::1:ff00:1", "2001:db8:1::1", false, 255), withOptions(client(host, dns, "").bytes(), 7, 7, 4),
		withHeaders(six, []uint8{0, 60}, [][8]byte{pad, pad}), withHeaders(six, []uint8{44}, [][8]byte{{}}),
		client(host, "198.18.1.1:81", "S").bytes(), client("[2001:db8::9]:40000", "[2001:db8:1::1]:81", "S").bytes(), big.bytes(),
		client("198.18.66.6:1", web, "S").bytes())
	return list
}

// script reads a fuzzer's input; it is zeros behind its end.
type script struct{ b []byte }

func (s *script) next() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

// fuzzWorld plays a script: frames in batches, some made of what came out before.
type fuzzWorld struct {
	*world
	t       *testing.T
	seeds   [][]byte
	outs    [][]byte // forwarded by port 1 and 0
	ports   []uint8  // and which it was
	clients map[netip.Addr]bool
	macs    [2]map[[6]byte]bool // sources of frames, by port
	wide    *packet.Arena
}

// frames makes the next frames of the script and says by which port they come.
func (w *fuzzWorld) frames(s *script) (list [][]byte, port uint8) {
	op := s.next()
	k := s.next()
	var p []byte
	switch kind := op & 7; {
	case kind == 1 && len(w.outs) > 0:
		k %= len(w.outs)
		p, port = replyTo(w.outs[k], byte(s.next())), w.ports[k]
	case kind == 2 && len(w.outs) > 0:
		k %= len(w.outs)
		p, port = errorAbout(w.outs[k], s.next(), s.next(), s.next()), w.ports[k]
	case kind == 3:
		p = make([]byte, k)
		for i := range p {
			p[i] = byte(s.next())
		}
	default:
		p = bytes.Clone(w.seeds[k%len(w.seeds)])
	}
	for range op >> 3 & 3 {
		if at := s.next()<<8 | s.next(); len(p) > 0 {
			p[at%len(p)] ^= byte(s.next())
		}
	}
	if op&0x20 != 0 && len(p) > 34 && p[12] == 8 && p[13] == 0 && p[14] == 0x45 {
		wire.IPv4(p[14:]).FillChecksum()
	}
	list = [][]byte{p}
	if op&7 == 4 && len(p) > 54 && (p[14] == 0x45 || p[14]>>4 == 6) {
		list = split(p, 8*(1+s.next()%8), uint32(s.next()))
		if i := s.next() % len(list); op&0x80 != 0 {
			list[0], list[i] = list[i], list[0]
		}
		list = list[:min(len(list), 6)]
	}
	if op&0x40 != 0 {
		for i, p := range list {
			if len(p) >= 14 {
				list[i] = tag(p, wire.EtherTypeVLAN, uint16(s.next()&3))
			}
		}
	}
	return list, port
}

// replyTo answers a frame as its receiver would, with the given TCP flags.
func replyTo(p []byte, flags byte) []byte {
	p = bytes.Clone(p)
	var dst, src [6]byte
	copy(dst[:], p[0:6])
	copy(src[:], p[6:12])
	copy(p[0:6], src[:])
	copy(p[6:12], dst[:])
	_, l3, ok := wire.Network(p)
	if !ok || len(p) < l3+48 {
		return p
	}
	l4 := l3 + 20
	if p[l3]>>4 == 6 {
		l4 = l3 + 40
		swap(p[l3+8:l3+24], p[l3+24:l3+40])
	} else {
		swap(p[l3+12:l3+16], p[l3+16:l3+20])
	}
	swap(p[l4:l4+2], p[l4+2:l4+4])
	if len(p) >= l4+20 && (p[l3+9] == 6 || p[l3+6] == 6) {
		sum := binary.BigEndian.Uint16(p[l4+16:])
		was := binary.BigEndian.Uint16(p[l4+12:])
		p[l4+13] = flags
		binary.BigEndian.PutUint16(p[l4+16:], wire.Update16(sum, was, binary.BigEndian.Uint16(p[l4+12:])))
	}
	return p
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// errorAbout is an ICMP error about a frame that the gateway sent, by a router behind its receiver.
func errorAbout(p []byte, kind, code, mtu int) []byte {
	_, l3, ok := wire.Network(p)
	if !ok || len(p) < l3+40 {
		return p
	}
	m := message{src: "198.18.7.7", kind: uint8(kind), code: uint8(code), rest: uint32(mtu) * 8, about: append(bytes.Clone(p[:14]), p[l3:]...)}
	copy(m.to[:], p[6:12])
	copy(m.from[:], p[0:6])
	m.dst = netip.AddrFrom4([4]byte(p[l3+12 : l3+16])).String()
	if p[l3]>>4 == 6 {
		m.src, m.dst = "2001:db8:7::7", netip.AddrFrom16([16]byte(p[l3+8:l3+24])).WithZone("").String()
		if netip.MustParseAddr(m.dst).Is4In6() {
			return p
		}
		m.kind = 1 + m.kind&3
	} else {
		m.kind = []uint8{3, 3, 11, 12}[kind&3]
	}
	return m.bytes()
}

// play runs the script.
func (w *fuzzWorld) play(s *script) {
	for turn := 0; turn < 12 && len(s.b) > 0; turn++ {
		var all [][]byte
		port := uint8(0)
		for i := range 1 + s.next()&7 {
			list, from := w.frames(s)
			if i > 0 && from != port {
				break // its frames come another time
			}
			port = from
			all = append(all, list...)
		}
		w.batchOf(all, port, uint32(s.next()))
		w.now = w.now.Add(time.Duration(s.next()*s.next()) * time.Millisecond)
		w.h.Tick(w.now)
	}
}

// batchOf passes frames through engine and handler and looks at each that comes out.
func (w *fuzzWorld) batchOf(all [][]byte, port uint8, room uint32) {
	const headroom = 64
	b := packet.NewBatch(w.wide, len(all))
	for i, p := range all {
		off := uint32(i<<frameBits) + headroom + room&127
		n := copy(w.wide.Mem[off:(i+1)<<frameBits], p)
		b.Append(packet.Desc{Off: off, Len: uint16(n), Port: port})
		if len(p) >= 14 {
			w.macs[port][[6]byte(p[6:12])] = p[6]&1 == 0
		}
	}
	if err := w.engine.Submit(b); err != nil {
		w.t.Fatal(err)
	}
	w.engine.Poll(make([]*packet.Batch, 1))
	before := append([]packet.Desc(nil), b.D...)
	for i := range before {
		d, p := &before[i], b.Bytes(i)
		if ip := int(d.L3); d.Flags&(packet.FlagIPv4|packet.FlagIPv6) != 0 {
			at, size := 8, 16
			if d.Flags.Has(packet.FlagIPv4) {
				at, size = 12, 4
			}
			a, _ := netip.AddrFromSlice(p[ip+at : ip+at+size])
			w.clients[a.Unmap()] = true
			if ns, ok := wire.NeighborRequest(wire.IPv6(p[ip:])); ok {
				mac, _ := ns.SourceMAC()
				w.macs[port][mac] = !mac.Multicast()
			}
		} else if arp := wire.ARP(p[ip:]); arp.Valid() {
			w.macs[port][arp.SenderMAC()] = !arp.SenderMAC().Multicast()
		}
	}
	w.handle(b)
	for i := range b.D {
		w.check(&before[i], &b.D[i], all[i])
	}
}

// handle has the kernel, if there is one, and then the handler decide the packets of a batch.
func (w *fuzzWorld) handle(b *packet.Batch) {
	if w.kernel == nil {
		w.h.Handle(w.now, b)
		return
	}
	rest, at := packet.NewBatch(w.wide, b.Len()), []int(nil)
	for i := range b.D {
		if out, v := w.kernel.Packet(w.now, b.D[i].Port, b.Bytes(i)); v == flowmodel.Forwarded {
			b.D[i].Verdict, b.D[i].Port = packet.Forward, out
			continue
		}
		rest.Append(b.D[i])
		at = append(at, i)
	}
	w.h.Handle(w.now, rest)
	for i, to := range at {
		b.D[to] = rest.D[i]
	}
	_ = w.toFlush.Flush(w.now)
}

// check looks at one packet after the handler.
func (w *fuzzWorld) check(before, d *packet.Desc, in []byte) {
	w.t.Helper()
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Errorf("%s\nin  %x\nout %x", fmt.Sprintf(format, args...), in, w.wide.Bytes(d))
	}
	if d.Len > 0 && w.wide.Frame(d.Off) != w.wide.Frame(d.Off+uint32(d.Len)-1) || w.wide.Frame(d.Off) != w.wide.Frame(before.Off) {
		fail("the packet leaves its frame: %+v", *d)
		return
	}
	if d.Verdict != packet.Forward && !d.Verdict.Dropped() || d.Verdict.String() == "unknown" {
		fail("verdict %v", d.Verdict)
	}
	if d.Verdict != packet.Forward {
		return
	}
	p := w.wide.Bytes(d)
	if d.Port > 1 {
		fail("to port %d", d.Port)
		return
	}
	if mac := [6]byte(p[6:12]); mac != w.g.snap.Load().Devices[d.Port].MAC {
		fail("from link address %x", mac)
	}
	w.outs, w.ports = append(w.outs, bytes.Clone(p)), append(w.ports, d.Port)
	ether, l3, ok := wire.Network(p)
	if !ok {
		fail("no network header")
		return
	}
	to := [6]byte(p[0:6])
	if ether == wire.EtherTypeARP {
		if !w.macs[d.Port][to] {
			fail("ARP to a stranger")
		}
		return
	}
	w.checkIP(before, p[l3:], exit{d.Port, to}, fail)
}

// exit is where a packet goes on the link.
type exit struct {
	port uint8
	mac  [6]byte
}

// fuzzBackends are the backends of fuzzConfig.
var fuzzBackends = map[netip.Addr]bool{}

func init() {
	for n := 11; n <= 19; n++ {
		fuzzBackends[netip.MustParseAddr(fmt.Sprintf("198.18.2.%d", n))] = true
		fuzzBackends[netip.MustParseAddr(fmt.Sprintf("2001:db8:2::%d", n))] = true
	}
}

// checkIP looks at an IP packet that is sent: where to, and lengths and checksums.
func (w *fuzzWorld) checkIP(before *packet.Desc, ip []byte, at exit, fail func(string, ...any)) {
	dst, ok := checkLengths(ip, fail)
	if !ok {
		return
	}
	vip := strings.HasPrefix(dst.String(), "198.18.1.") || strings.HasPrefix(dst.String(), "2001:db8:1:")
	switch {
	case at.port == 1 && at.mac == macBackend && (fuzzBackends[dst] || vip): // l2 keeps the service's address
	case dst == netip.MustParseAddr("ff02::1") && at.mac == [6]byte(wire.MulticastMAC6(wire.AllNodes)):
	case !w.macs[at.port][at.mac]:
		fail("to link address %x of port %d", at.mac, at.port)
	case !w.clients[dst]:
		fail("to %v, which is nobody", dst)
	}
	if before.Flags.Has(packet.FlagL4ChecksumOK) {
		checkSums(ip, fail)
	}
}

// checkLengths reports a packet whose IP header contradicts itself or the bytes, and returns where it goes.
func checkLengths(b []byte, fail func(string, ...any)) (netip.Addr, bool) {
	if ip := wire.IPv6(b); len(b) > 0 && b[0]>>4 == 6 && ip.Valid() {
		return ip.DstAddr(), true
	}
	ip := wire.IPv4(b)
	if !ip.Valid() {
		fail("the IP header lies")
		return netip.Addr{}, false
	}
	if wire.SumPlain(b[:ip.HeaderLen()], 0) != 0xffff {
		fail("wrong header checksum")
	}
	return ip.DstAddr(), true
}

// fromTunnel reports whether a packet comes from a tunnel's source: others to the port of GUE are of a service with all
// ports.
func fromTunnel(ip []byte) bool {
	if ip[0]>>4 == 4 {
		return netip.MustParsePrefix("198.18.5.0/24").Contains(wire.IPv4(ip).SrcAddr())
	}
	return netip.MustParsePrefix("2001:db8:5::/64").Contains(wire.IPv6(ip).SrcAddr())
}

// checkSums reports wrong transport checksums, also of the packet in a tunnel.
func checkSums(b []byte, fail func(string, ...any)) {
	var proto uint8
	var l4 []byte
	var pseudo func(n int) uint32
	if b[0]>>4 == 4 {
		ip := wire.IPv4(b)
		if ip.Fragment() {
			return
		}
		proto, l4 = ip.Proto(), ip.Payload()
		pseudo = func(n int) uint32 { return wire.PseudoHeader4(ip.Src(), ip.Dst(), proto, uint32(n)) }
	} else {
		ip := wire.IPv6(b)
		upper, off, frag, ok := wire.Upper6(ip)
		if !ok {
			fail("extension headers lie")
			return
		}
		if !frag.Unfragmented() {
			return
		}
		proto, l4 = upper, b[off:wire.IPv6Len+int(ip.PayloadLen())]
		pseudo = func(n int) uint32 { return wire.PseudoHeader6(ip.Src(), ip.Dst(), proto, uint32(n)) }
	}
	right := true
	switch proto {
	case wire.ProtoIPIP, wire.ProtoIPv6:
		if _, ok := checkLengths(l4, fail); ok {
			checkSums(l4, fail)
		}
	case wire.ProtoTCP, wire.ProtoICMPv6:
		right = wire.SumPlain(l4, pseudo(len(l4))) == 0xffff
	case wire.ProtoICMP:
		right = wire.SumPlain(l4, 0) == 0xffff
	case wire.ProtoUDP:
		udp := wire.UDP(l4)
		if !udp.Valid() {
			fail("the UDP length lies")
			return
		}
		right = udp.Checksum() == 0 && b[0]>>4 == 4 || wire.SumPlain(l4[:udp.Len()], pseudo(int(udp.Len()))) == 0xffff
		if udp.DstPort() == wire.PortGUE && fromTunnel(b) {
			if _, ok := checkLengths(wire.GUE(udp.Payload()).Payload(), fail); ok {
				checkSums(wire.GUE(udp.Payload()).Payload(), fail)
			}
		}
	}
	if !right {
		fail("wrong checksum of protocol %d", proto)
	}
}

// fuzzedConfig returns the configuration of a fuzzer: for one with a kernel, which gets nothing of clients with a limit of
// packets, without that.
func fuzzedConfig(t testing.TB, src string, kernel bool) *config.Config {
	if kernel {
		src = strings.Replace(src, "packets: 4000, ", "", 1)
	}
	return parse(t, src)
}

// FuzzHandle plays scripts of frames, well-formed and not, through engine and handler of a gateway with
// every mode. Nothing may panic, and what is forwarded must be whole, right, and for a backend or a
// client.
func FuzzHandle(f *testing.F) {
	seeds := fuzzSeeds()
	for i := range seeds {
		n := byte(i)
		f.Add([]byte{1, 0, n, 0, n, 0, 1, 1, 0, 1, 0, 0x12, 0, 1, 1, 0, 0, n, 0, 0, 0})                                                          // with a reply, and again
		f.Add([]byte{0, 0, n, 9, 1, 1, 0, 2, 0, 0, 4, 150, 9, 1, 1})                                                                             // and an error
		f.Add([]byte{0, 4, n, 8, 3, 0, 5, 1, 1})                                                                                                 // in fragments
		f.Add([]byte{0, 0, n, 1, 2, 2, 0, 1, 0, 0, 1, 2, 2, 0, 0, n, 1, 2, 2, 0, 0, n, 1, 2, 2, 0, 1, 0, 0, 1, 2, 2, 0, 2, 0, 1, 1, 9, 1, 1, 1}) // to and fro
		f.Add([]byte{0, 0x40, n, 100, 0, 1, 1, 0, 0x48, n, 14, 20, 9, 7, 1, 1})
	}
	var bases []*world
	for _, kernel := range []bool{false, true} {
		c := fuzzedConfig(f, fuzzConfig, kernel)
		c.Table.Size, c.Table.HalfOpen, c.Table.Fragments, c.Limits.Clients = 64, 48, 16, 64 // full soon
		bases = append(bases, newWorldWith(f, c, hopsOf(c)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1500 {
			return
		}
		for i, base := range bases {
			w := &fuzzWorld{
				world: base, t: t, seeds: seeds, clients: map[netip.Addr]bool{}, macs: [2]map[[6]byte]bool{{}, {}},
				wide: &packet.Arena{Mem: make([]byte, 64<<frameBits), Shift: frameBits},
			}
			base.now = clock.Time(time.Hour)
			o := handlerOptions(base.g.cfg, 0)
			o.EnterAfter = 1
			base.h, base.kernel = datapath.New(o, &base.g.snap), nil
			if i == 1 {
				base.withKernel(16)
			}
			w.play(&script{b})
			w.settle()
		}
	})
}

// settle checks that everything that connections hold is given back when they end.
func (w *fuzzWorld) settle() {
	for range 4 {
		w.now = w.now.Add(3 * time.Hour)
		w.h.Tick(w.now)
	}
	if n := w.h.Connections(); n != 0 {
		w.t.Errorf("%d connections never end", n)
	}
	if w.kernel == nil {
		return
	}
	_ = w.toFlush.Flush(w.now)
	if n, keys := w.kernel.Entered(); n != 0 || keys != 0 {
		w.t.Errorf("%d connections and %d keys stay in the kernel", n, keys)
	}
	if err := w.kernel.Misuse(); err != nil {
		w.t.Error(err)
	}
}
