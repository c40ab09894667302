package datapath

import (
	"net/netip"

	"github.com/millrace/millrace/gateway/quiclb"
	"github.com/millrace/millrace/wire"
)

// Selection of a backend for a packet that the table does not know. Each service has two pools for each address family
// of packets, pure functions of the names, weights and states of its backends, so that gateways with
// one configuration agree:
//
//	            backends in it       asked for
//	now         filling, active      packets that may open a connection: SYN, any UDP datagram
//	before      active, draining     TCP packets in the middle of a connection
//
// A connection that comes from another gateway so finds its backend also while one fills or drains.

// pick chooses the backend of a packet that the table does not know, false when there is none: then
// the packet is dropped as no_backend, and answered too if s.reject. midflow is a packet in the
// middle of a TCP connection, which goes where it went before. Only services whose backends see the
// client's address and port have such packets.
func (h *Handler) pick(v *view, s *Service, midflow bool) (uint32, bool) {
	if s.QUIC != nil {
		if id, ok := h.backendByID(v, s.QUIC); ok {
			return id, true
		}
	}
	return s.byHash(v.hash(), v.is4, midflow)
}

// byHash returns the backend for packets of a family with the given hash; see view.hash. While no
// backend is active or draining those in the middle of a connection go to one that fills: they
// cannot do better.
func (s *Service) byHash(hash uint64, is4, midflow bool) (uint32, bool) {
	if midflow {
		if id, ok := s.MidFlow[familyOf(is4)].Pick(hash); ok {
			return id, true
		}
	}
	return s.NewFlow[familyOf(is4)].Pick(hash)
}

// hash returns the hash of the packet's flow that chooses its backend, the same in every gateway.
func (v *view) hash() uint64 { return flowHash(v.src, v.sport, v.dport) }

// FlowHash returns the hash by which the packets of a client's flow to a port of a service pick their
// backend; see Pool.Pick.
func FlowHash(client netip.AddrPort, port uint16) uint64 {
	return flowHash(addrOf(client.Addr()), client.Port(), port)
}

// flowHash is view.hash of packets from a client's address and port to a service's port.
func flowHash(client addr, sport, dport uint16) uint64 {
	return selection.sum(client, uint64(sport)<<16|uint64(dport))
}

// QUICRoute finds backends by the connection IDs of QUIC packets.
type QUICRoute struct {
	codec   *quiclb.Codec
	servers map[quiclb.ServerID]server
}

// NewQUICRoute returns a route without servers.
func NewQUICRoute(codec *quiclb.Codec) *QUICRoute {
	return &QUICRoute{codec: codec, servers: map[quiclb.ServerID]server{}}
}

// Set makes a backend the one that serves packets of a family whose connection IDs carry id.
func (r *QUICRoute) Set(id quiclb.ServerID, family int, backend uint32) {
	to := r.servers[id]
	to[family].id, to[family].has = backend, true
	r.servers[id] = to
}

// server is the addresses of a backend, by the family of the packets that they serve.
type server [Families]struct {
	id  uint32
	has bool
}

// backendByID returns the backend that a datagram's connection ID names: false when the ID is not one that
// a server of ours made (clients choose the first), or when its server takes no packets. Step 1 of
// draft-ietf-quic-load-balancers 4.2; the steps behind it are the table, by address and port, and the
// hash.
func (h *Handler) backendByID(v *view, r *QUICRoute) (uint32, bool) {
	dcid, _, ok := quiclb.Destination(v.udpPayload(), r.codec.Len())
	if !ok {
		return 0, false
	}
	name, ok := r.codec.Decode(dcid, &h.cid)
	if !ok {
		return 0, false
	}
	to := r.servers[name][familyOf(v.is4)]
	return to.id, to.has && h.snap.Backends[to.id].Usable
}

// udpPayload returns the payload of a UDP packet, or the part of it that is in the first fragment:
// without what pads a short Ethernet frame.
func (v *view) udpPayload() []byte {
	udp := v.p[v.d.L4:]
	end := min(len(udp), max(int(wire.UDP(udp).Len()), wire.UDPLen))
	return udp[wire.UDPLen:end]
}

// namesOtherBackend reports whether a datagram's connection ID names another backend than the one of the
// connection that its addresses and ports belong to: a client has come to have them that another one
// had, or has two connections of QUIC there.
func (h *Handler) namesOtherBackend(c *Conn, v *view) bool {
	r := h.snap.Backends[c.backend].QUIC
	if r == nil || v.part == later {
		return false
	}
	id, ok := h.backendByID(v, r)
	return ok && id != c.backend
}
