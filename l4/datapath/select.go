package datapath

import (
	"crypto/sha256"
	"net/netip"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/l4/quiclb"
	"github.com/millrace/millrace/packet"
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

// pick chooses the backend of a packet that the table does not know. Without one it returns the reason:
// no_backend, or backend_full when connections are limited. midflow is a packet in the middle of a TCP
// connection, which goes where it went before. Only services whose backends see the client's address and port
// have such packets.
func (h selector) pick(v *view, s *Service, midflow bool) (uint32, packet.Verdict) {
	if s.QUIC != nil {
		if id, ok := h.backendByID(v, s.QUIC); ok {
			return id, packet.Forward
		}
	}
	hash := h.snap.hash(s, v.src, v.sport, v.dport, midflow)
	if (s.LeastConnections || s.Limited) && !midflow {
		return h.pickByLoad(s, s.NewFlow[familyOf(v.is4)], hash)
	}
	id, ok := s.byHash(hash, v.is4, midflow)
	if !ok {
		return 0, packet.DropNoBackend
	}
	return id, packet.Forward
}

// byHash returns the backend for packets of a family with the given hash; see Snapshot.hash. While no
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

// SelectionKey keys the hash that selects backends. Gateways with one key agree. Without the key a client cannot
// choose an address and port that lead to a certain backend: SipHash is a pseudorandom function. The zero key is public,
// and its hash is the cheaper one of the index.
type SelectionKey struct {
	secret bool
	key    random.Key
}

// NewSelectionKey returns the key that is derived from a secret of any length; the public one from none.
func NewSelectionKey(secret []byte) SelectionKey {
	if len(secret) == 0 {
		return SelectionKey{}
	}
	sum := sha256.Sum256(append([]byte("millrace selection\x00"), secret...))
	return SelectionKey{true, random.KeyFrom(sum[:])}
}

// sum hashes an address and a word.
func (k *SelectionKey) sum(a addr, w uint64) uint64 {
	if !k.secret {
		return selection.sum(a, w)
	}
	h := k.key.Start()
	h.Word(a.hi)
	h.Word(a.lo)
	h.Word(w)
	return h.Sum(24, 0)
}

// Selection holds the keys by which packets are hashed to select a backend: with the key Now or, in the middle of a TCP connection,
// with that from before a change of the key.
type Selection struct{ Now, Before SelectionKey }

// Persistence sends all connections of a client to one backend: what is hashed of a packet is a prefix of
// the client's address. It is a pure function too, so gateways agree and it outlives restarts.
type Persistence struct{ masks [Families]addr }

// NewPersistence returns the persistence by prefixes of the given lengths: up to 32 and 128 bits.
func NewPersistence(bits4, bits6 int) *Persistence {
	mask := func(n int) addr { return addr{^(^uint64(0) >> min(n, 64)), ^(^uint64(0) >> max(n-64, 0))} }
	return &Persistence{[Families]addr{Family4: mask(96 + bits4), Family6: mask(bits6)}}
}

// hash returns the hash of a flow to a service that selects its backend, the same in every gateway with the key.
func (s *Snapshot) hash(to *Service, client addr, sport, dport uint16, midflow bool) uint64 {
	key := &s.Selection.Now
	if midflow {
		key = &s.Selection.Before
	}
	if p := to.Persistence; p != nil {
		mask := &p.masks[familyOf(client.is4())]
		return key.sum(addr{client.hi & mask.hi, client.lo & mask.lo}, 0)
	}
	return key.sum(client, uint64(sport)<<16|uint64(dport))
}

// FlowHash returns the hash by which the packets of a client's flow to a port of a service pick their
// backend; see Pool.Pick.
func (s *Snapshot) FlowHash(to *Service, client netip.AddrPort, port uint16, midflow bool) uint64 {
	return s.hash(to, addrOf(client.Addr()), client.Port(), port, midflow)
}

// ConnLimit bounds the open connections of a backend, over its addresses.
type ConnLimit struct {
	Max int64
	Of  []uint32 // numbers of the backend's addresses
}

// FullAction selects the handling of a connection whose backend has no connection left.
type FullAction uint8

// The actions.
const (
	FullNext  FullAction = iota // it goes to another backend
	FullReset                   // TCP reset, port unreachable
	FullDrop                    // its packet is dropped; a SYN is sent again
)

// pickByLoad chooses a backend for a new connection by the connections that backends have.
func (h selector) pickByLoad(s *Service, pool *Pool, hash uint64) (uint32, packet.Verdict) {
	n, ok := pool.index(hash)
	if !ok {
		return 0, packet.DropNoBackend
	}
	if s.LeastConnections {
		n = h.lessLoaded(pool, n, hash)
	}
	if id := pool.ids[n]; !h.full(id) {
		return id, packet.Forward
	}
	if s.WhenFull != FullNext {
		return 0, packet.DropBackendFull
	}
	for range rehashes { // rather than the neighbour in the list, which would get all that the full one does not
		hash = rehash(hash)
		if k, _ := pool.index(hash); !h.full(pool.ids[k]) {
			return pool.ids[k], packet.Forward
		}
	}
	for i := range pool.ids {
		if id := pool.ids[(n+i)%len(pool.ids)]; !h.full(id) {
			return id, packet.Forward
		}
	}
	return 0, packet.DropBackendFull
}

// rehashes is the number of draws of another backend before all are tried in turn.
const rehashes = 8

// rehash returns another hash for the same flow.
func rehash(hash uint64) uint64 { return mum(hash^selection[0], selection[1]) }

// lessLoaded returns the one of two backends, n and another by the hash, that has fewer connections for its weight. Two choices
// bound the highest load nearly as well as looking at all (Mitzenmacher, "The Power of Two Choices", 2001), and
// a burst does not go to the one backend that has the fewest.
func (h selector) lessLoaded(pool *Pool, n int, hash uint64) int {
	other := n
	for i := 0; other == n && i < rehashes; i++ {
		hash = rehash(hash)
		other, _ = pool.index(hash)
	}
	a, b := h.open(pool.ids[n])+1, h.open(pool.ids[other])+1
	if b*int64(pool.weights[n]) < a*int64(pool.weights[other]) {
		return other
	}
	return n
}

// full reports whether a backend has as many connections as it may.
func (h selector) full(id uint32) bool {
	l := h.snap.Backends[id].Limit
	if l == nil {
		return false
	}
	var n int64
	for _, of := range l.Of {
		n += h.open(of)
	}
	return n >= l.Max
}

// open returns the number of a backend's connections of all loops that no FIN or RST has begun to close. Loops publish their
// counts after each batch, so what others have opened since is missing.
func (h selector) open(id uint32) int64 {
	b, t := h.snap.Backends[id], &h.tallies[id]
	own := int64(t[Opened]) - int64(t[Closed]) - int64(t[Closing]) + int64(t[Ended])
	return max(int64(b.Flows())-int64(b.ClosingFlows())+own, 0)
}

// backendFull decides a packet for whose service all backends that it may go to have as many connections as they may.
func (h selector) backendFull(v *view, service uint32) packet.Verdict {
	s := h.snap.Services[service]
	if (s.WhenFull == FullReset || s.WhenFull == FullNext && s.Reject) && h.responder().reject(v, answerFull) {
		return packet.Forward
	}
	return h.tracker().drop(service, packet.DropBackendFull)
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
// a backend made (clients choose the first), or when its server takes no packets. Step 1 of
// draft-ietf-quic-load-balancers 4.2; the steps behind it are the table, by address and port, and the
// hash.
func (h selector) backendByID(v *view, r *QUICRoute) (uint32, bool) {
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
func (h selector) namesOtherBackend(c *Conn, v *view) bool {
	r := h.snap.Backends[c.backend].QUIC
	if r == nil || v.part == later {
		return false
	}
	id, ok := h.backendByID(v, r)
	return ok && id != c.backend
}
