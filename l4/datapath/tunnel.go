package datapath

import (
	"maps"
	"net/netip"
	"time"

	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Mode is the forwarding mode of a service: how packets get to its backends.
type Mode uint8

// The forwarding modes.
const (
	ModeNAT  Mode = iota // addresses and ports are rewritten; replies come back through the gateway
	ModeIPIP             // inside IPv4 or IPv6 (RFC 2003, RFC 2473)
	ModeGUE              // inside UDP (draft-ietf-intarea-gue)
	ModeL2               // by link address, unchanged
)

// Direct reports whether backends answer clients directly, with the service's own address and port.
func (w Mode) Direct() bool { return w != ModeNAT }

// longestPacket bounds an outer packet: lengths have 16 bits.
const longestPacket = 0xffff

// Headroom is the least space that drivers leave in front of a received packet, bytes: room for the longest
// headers that are pushed, IPv6, UDP and GUE with a VLAN tag (56).
const Headroom = 64

// guePush is the length that GUE adds to an outer IP header: UDP and a header without optional fields.
const guePush = wire.UDPLen + wire.GUELen

// overhead returns the bytes that are pushed in front of a packet on its way to a backend whose
// address is IPv4 or not.
func (w Mode) overhead(is4 bool) int {
	n := wire.IPv6Len
	if is4 {
		n = wire.IPv4Len
	}
	switch w {
	case ModeIPIP:
		return n
	case ModeGUE:
		return n + guePush
	}
	return 0
}

// Tunnel configures the outer headers.
type Tunnel struct {
	src4, src6 prefixAddrs
	port       uint16 // destination of GUE
	fragment   bool   // packets that do not fit leave in fragments, instead of an error to the client
}

// prefixAddrs are the addresses of a prefix.
type prefixAddrs struct{ base, mask addr } // mask has ones where addresses differ

// NewTunnel returns the tunnel with the UDP port of GUE and at most one prefix of outer source addresses for
// each family. With fragment set, outer packets that are larger than their path are fragmented, and clients are sent no
// errors about them.
func NewTunnel(guePort uint16, sources []netip.Prefix, fragment bool) (t Tunnel) {
	t.port, t.fragment = guePort, fragment
	for _, p := range sources {
		if p.Addr().Is4() {
			t.src4 = addrsOf(p)
		} else {
			t.src6 = addrsOf(p)
		}
	}
	return t
}

func addrsOf(p netip.Prefix) prefixAddrs {
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	return prefixAddrs{addrOf(p.Masked().Addr()), addr{^uint64(0) >> min(n, 64), ^uint64(0) >> max(n-64, 0)}}
}

// source returns the outer source address of a flow.
func (t *Tunnel) source(spread uint64, is4 bool) addr {
	from := &t.src6
	if is4 {
		from = &t.src4
	}
	return addr{from.base.hi | spread>>7&from.mask.hi, from.base.lo | spread&from.mask.lo}
}

// spreading is the key of the hash that tells the flows of a backend apart: digits of e. It is not
// that of the selection: all flows of a backend have something in common there.
var spreading = hashKey{0xb7e151628aed2a6a, 0xbf7158809cf4f3c7, 0x62e7160f38b4da56}

// spread hashes the flow of a packet. Outer addresses, ports and flow labels come from it: they are
// the same for all packets of a flow, so that those stay in order, and differ from flow to flow, so that
// routers (RFC 6438) and the receiver's queues share the load.
func (v *view) spread() uint64 {
	return spreading.sum(v.src, uint64(v.sport)<<16|uint64(v.dport))
}

// holds reports whether a is a source address of outer headers.
func (t *Tunnel) holds(a addr) bool {
	from := &t.src6
	if a.is4() {
		from = &t.src4
	}
	return from.base != addr{} && a.hi&^from.mask.hi == from.base.hi && a.lo&^from.mask.lo == from.base.lo
}

// A tunnel takes packets up to its MTU: that of the path to the backend less the outer headers (RFC 2003 5.1, RFC 2473
// 6.7). What is larger is decided as RFC 2473 7 and RFC 4213 3.2 say:
//
//	inner packet                     too_big: answer          too_big: fragment
//	IPv4 with Don't Fragment         fragmentation needed     outer packet in fragments
//	IPv4 without                     outer packet in fragments, which RFC 2003 5.1 allows: Don't Fragment is copied
//	IPv6, more than 1280 bytes       packet too big           outer packet in fragments
//	IPv6, up to 1280 bytes           outer packet in fragments, because its sender may not be asked for less
//
// The MTU of the path is that of the device at first. An ICMP error from the path lowers it (RFC 1191 3, RFC 8201 4).

// tunnelPath records the path to a backend.
type tunnelPath struct {
	mtu   int
	until ticks
}

// pathLife is the time that a smaller MTU is believed: RFC 8201 4 and RFC 1191 6.3 recommend 10 minutes.
const pathLife = 10 * time.Minute

// leastPath4 is the least MTU of an IPv4 path that an error can make the gateway believe, bytes: as Linux's
// min_pmtu, so that a forged one cannot cut packets into very many fragments. Fragments have no Don't Fragment,
// and routers of a path that takes even less cut them again.
const leastPath4 = 552

// tunnelMTU returns the MTU of the path to a backend, in bytes of outer packets.
func (h tunneler) tunnelMTU(to *Endpoint) int {
	mtu := h.snap.Devices[to.Hop.Dev].MTU
	if mtu == 0 {
		mtu = longestPacket
	}
	if len(h.paths) == 0 {
		return mtu
	}
	if p, ok := h.paths[to.addr]; ok {
		if !p.until.expired(h.now) {
			return min(mtu, p.mtu)
		}
		delete(h.paths, to.addr)
	}
	return mtu
}

// learnPath lowers the MTU of the path to a backend. The error that says so quotes a packet of a connection. There are
// as many paths as backends at most.
func (h tunneler) learnPath(to addr, mtu int) {
	least := ip.MinMTU6
	if to.is4() {
		least = leastPath4
	}
	mtu = max(mtu, least)
	if p, ok := h.paths[to]; ok && !p.until.expired(h.now) && p.mtu < mtu {
		return // an error about an earlier packet; a path that has become wider is found when the entry expires
	}
	h.paths[to] = tunnelPath{mtu, max(h.now+ticksIn(pathLife), 1)}
}

// roomTo returns the largest packet that reaches a backend whole, 0 when any does.
func (h tunneler) roomTo(to *Endpoint, w Mode) int {
	overhead := w.overhead(to.addr.is4())
	if _, narrow := h.paths[to.addr]; overhead == 0 || h.snap.Devices[to.Hop.Dev].MTU == 0 && !narrow {
		return h.snap.Devices[to.Hop.Dev].MTU
	}
	return h.tunnelMTU(to) - overhead
}

// checkDirect is checkHop for a packet to a backend in the given mode, with the headers that are put in front.
func (h tunneler) checkDirect(v *view, to *Endpoint, w Mode) packet.Verdict {
	overhead := w.overhead(to.addr.is4())
	if overhead == 0 {
		return h.tracker().checkHop(v, &to.Hop)
	}
	if verdict := to.Hop.usable(); verdict != packet.Forward {
		return verdict
	}
	room := h.tunnelMTU(to) - overhead
	size := h.translator().needs(v)
	if size <= room || h.mayFragment(v, size, overhead) {
		return packet.Forward
	}
	if v.mtu = room; !v.is4 {
		v.mtu = max(room, ip.MinMTU6)
	}
	return packet.DropTooBig
}

// mayFragment reports whether an inner packet that does not fit may leave in fragments of the outer one.
func (h tunneler) mayFragment(v *view, size, overhead int) bool {
	if h.out == nil || size+overhead > longestPacket || v.d.Flags.Has(packet.FlagOffload) {
		return false
	}
	return h.snap.Tunnel.fragment || !v.is4 && size <= ip.MinMTU6 || v.is4 && !wire.IPv4(v.p[v.d.L3:]).DontFragment()
}

// forgetPaths forgets the paths to addresses that no endpoint in use has.
func (h tunneler) forgetPaths(snap *Snapshot) {
	maps.DeleteFunc(h.paths, func(a addr, _ tunnelPath) bool {
		_, used := snap.keys.find(a, tagOf(kindBackend, 0, 0))
		return !used
	})
}
