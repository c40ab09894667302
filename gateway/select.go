package gateway

// Who gets a packet that the table does not know. Each service has two pools for each address family
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
// middle of a TCP connection, which goes where it went before. The service's adopts allowed it.
func (h *Handler) pick(v *view, s *service, midflow bool) (uint32, bool) {
	return s.byHash(v.hash(), v.is4, midflow)
}

// byHash returns the backend for packets of a family with the given hash; see view.hash. While no
// backend is active or draining those in the middle of a connection go to one that fills: they
// cannot do better.
func (s *service) byHash(hash uint64, is4, midflow bool) (uint32, bool) {
	if midflow {
		if id, ok := s.before[familyOf(is4)].pick(hash); ok {
			return id, true
		}
	}
	return s.now[familyOf(is4)].pick(hash)
}

// hash returns the hash of the packet's flow that chooses its backend, the same in every gateway.
func (v *view) hash() uint64 { return flowHash(v.src, v.sport, v.dport) }

// flowHash is view.hash of packets from a client's address and port to a service's port.
func flowHash(client addr, sport, dport uint16) uint64 {
	return selection.sum(client, uint64(sport)<<16|uint64(dport))
}
