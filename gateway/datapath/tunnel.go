package datapath

import (
	"net/netip"

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

// longestPacket is how long an outer packet can be: lengths have 16 bits.
const longestPacket = 0xffff

// Headroom is what drivers leave at least in front of a received packet, bytes: room for the longest
// headers that are pushed, IPv6, UDP and GUE with a VLAN tag (56).
const Headroom = 64

// guePush is what GUE adds to an outer IP header: UDP and a header without optional fields.
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

// Tunnel is what outer headers are made of.
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
