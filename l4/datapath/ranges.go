package datapath

import (
	"cmp"
	"net/netip"
	"slices"
)

// A range of ports costs as much as one port, whatever its length: an entry of the index, and one VIP or Endpoint. The
// numbers by which connections refer to a service address or to an endpoint hold the port of a range:
//
//	 31  30           16 15         0
//	+---+---------------+------------+
//	| 0 | place in VIPs or Endpoints |   one port
//	+---+---------------+------------+
//	| 1 | range         | port       |   a port of the range of an address and protocol
//	+---+---------------+------------+
//
// So all keys, hashes and records are those of a single port. An address, port and protocol has one number for good, the
// single port's where it was there first: services and ranges may grow, shrink and move, and connections are still found.
const (
	rangeNumber = 1 << 31
	portMask    = 1<<16 - 1

	// MaxRanges bounds the ranges of service addresses, and of endpoints, in a process.
	MaxRanges = 1 << 15
)

// RangeNumber returns the number of port 0 of a range, which stands for all of it.
func RangeNumber(place uint32) uint32 { return rangeNumber | place<<16 }

// IsRange reports whether a number is that of a port in a range.
func IsRange(n uint32) bool { return n >= rangeNumber }

// IsWholeRange reports whether a number is that of all of a range.
func IsWholeRange(n uint32) bool { return IsRange(n) && n&portMask == 0 }

// VIPAddr returns the address of the service address with a number.
func (s *Snapshot) VIPAddr(n uint32) netip.Addr {
	v, _ := s.vip(n)
	return v.Addr()
}

// wholeRange returns the number of all of the range that n is in; n itself if it is in none.
func wholeRange(n uint32) uint32 {
	if IsRange(n) {
		return n &^ portMask
	}
	return n
}

// rangePlace returns the place of the range that n is in.
func rangePlace(n uint32) uint32 { return n >> 16 & (MaxRanges - 1) }

// VIPRange selects which services the ports of an address and protocol belong to.
type VIPRange struct {
	VIP   uint32 // place in Snapshot.VIPs: the address and protocol
	Spans []Span // by port, without overlaps
}

// Span is ports of a VIPRange.
type Span struct {
	Ports   PortRange
	First   uint16 // of the service's range that they are a part of
	Service int32  // -1: of no service any more, only old connections are served
}

// find returns the span that holds a port, nil when none does.
func (r *VIPRange) find(port uint16) *Span {
	i, ok := slices.BinarySearchFunc(r.Spans, port, func(s Span, port uint16) int {
		if s.Ports.Contains(port) {
			return 0
		}
		return cmp.Compare(s.Ports.First, port)
	})
	if !ok {
		return nil
	}
	return &r.Spans[i]
}

// Has reports whether a port is or was of a service.
func (r *VIPRange) Has(port uint16) bool { return r.find(port) != nil }

// Service returns the service of a port, -1 for none.
func (r *VIPRange) Service(port uint16) int32 {
	if s := r.find(port); s != nil {
		return s.Service
	}
	return -1
}

// EndpointSpan is ports of an endpoint that a backend of a service with ranges answers from.
type EndpointSpan struct {
	Ports        PortRange
	Backend      uint32
	VIP          uint32 // a number of the service address that leads there,
	First        uint16 // and its port that leads to the first
	Several      bool   // several ports of it lead to the one
	PickUp       bool   // connections are picked up from the backend's packets
	ResetUnknown bool
	Transparent  bool
}

// PortMap selects which port of a backend the packets for a port of its service go to. The zero PortMap keeps the port.
type PortMap struct {
	First uint16 // the port that the first of the service's range is translated to; 0 keeps the port
	One   bool   // all ports are translated to First
}

// vip returns the service address with a number, and its port.
func (s *Snapshot) vip(n uint32) (*VIP, uint16) {
	if n < rangeNumber {
		v := &s.VIPs[n]
		return v, v.Port
	}
	return &s.VIPs[s.VIPRanges[rangePlace(n)].VIP], uint16(n)
}

// endpoint returns the endpoint with a number, and its port.
func (s *Snapshot) endpoint(n uint32) (*Endpoint, uint16) {
	if n < rangeNumber {
		e := s.Endpoints[n]
		return e, e.Port
	}
	return s.Endpoints[s.EndpointRanges[rangePlace(n)]], uint16(n)
}

// EndpointAt returns the endpoint with a number, and its port: 0 for all of a range.
func (s *Snapshot) EndpointAt(n uint32) (*Endpoint, uint16) { return s.endpoint(n) }

// findVIP returns the number of a service address.
func (s *Snapshot) findVIP(a addr, port uint16, proto uint8) (uint32, bool) {
	if n, ok := s.keys.find(a, tagOf(kindVIP, port, proto)); ok || len(s.VIPRanges) == 0 {
		return n, ok
	}
	return s.findVIPRange(a, port, proto)
}

// findVIPRange is findVIP of an address and port that has no number of its own.
func (s *Snapshot) findVIPRange(a addr, port uint16, proto uint8) (uint32, bool) {
	place, ok := s.keys.find(a, tagOf(kindVIPRange, 0, proto))
	if !ok || s.VIPRanges[place].find(port) == nil {
		return 0, false
	}
	return RangeNumber(place) | uint32(port), true
}

// serviceOf returns the service of a service address, -1 for none.
func (s *Snapshot) serviceOf(n uint32) int32 {
	if n < rangeNumber {
		return s.VIPs[n].Service
	}
	return s.VIPRanges[rangePlace(n)].Service(uint16(n))
}

// findEndpoint returns the number of an endpoint.
func (s *Snapshot) findEndpoint(a addr, port uint16, proto uint8) (uint32, bool) {
	if n, ok := s.keys.find(a, tagOf(kindEndpoint, port, proto)); ok || len(s.EndpointRanges) == 0 {
		return n, ok
	}
	place, ok := s.keys.find(a, tagOf(kindEndpointRange, 0, proto))
	return RangeNumber(place) | uint32(port), ok
}

// endpointOf returns the number of the endpoint of a backend to which packets for a service address go.
func (s *Snapshot) endpointOf(backend, front uint32) uint32 {
	b := s.Backends[backend]
	e := s.Endpoints[b.Endpoint]
	if !e.Range {
		return b.Endpoint
	}
	n, _ := s.findEndpoint(e.addr, s.backendPort(b, front), e.Proto)
	return n
}

// backendPort returns the port of a backend that packets for a service address go to.
func (s *Snapshot) backendPort(b *Backend, front uint32) uint16 {
	v, port := s.vip(front)
	switch {
	case b.Ports.One:
		return b.Ports.First
	case b.Ports.First == 0:
		return port
	}
	place, ok := s.keys.find(v.addr, tagOf(kindVIPRange, 0, v.Proto)) // a single port may have become a part of a range
	if !ok {
		return b.Ports.First
	}
	if span := s.VIPRanges[place].find(port); span != nil {
		return b.Ports.First + port - span.First
	}
	return b.Ports.First
}

// pickUpOf returns what packets of an endpoint belong to where no connection is known.
func (s *Snapshot) pickUpOf(n uint32) PickUp {
	e, port := s.endpoint(n)
	p := e.PickUp
	for i := range e.Spans {
		span := &e.Spans[i]
		if !span.PickUp || !span.Ports.Contains(port) {
			continue
		}
		front, _ := s.vip(span.VIP)
		vip, ok := s.findVIP(front.addr, span.First+port-span.Ports.First, e.Proto)
		if !ok || s.serviceOf(vip) != int32(s.Backends[span.Backend].Service) {
			continue // another service has this port of the range
		}
		if p.Known || p.Several || span.Several {
			return PickUp{}
		}
		p = PickUp{VIP: vip, Backend: span.Backend, Known: true}
	}
	return p
}

// resetsUnknown reports whether segments of an endpoint that belong to no connection are reset.
func (s *Snapshot) resetsUnknown(n uint32) bool {
	e, port := s.endpoint(n)
	return e.ResetUnknown || slices.ContainsFunc(e.Spans, func(span EndpointSpan) bool {
		return span.ResetUnknown && span.Ports.Contains(port)
	})
}
