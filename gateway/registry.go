package gateway

import (
	"net/netip"

	"github.com/millrace/millrace/gateway/datapath"
	"github.com/millrace/millrace/wire"
)

// registry gives numbers to what connections refer to. A number is for good: it is never used for
// something else, and what comes back to the configuration gets its old number, and with it its
// counters and connections. A number costs about 200 bytes and 0.5 KB of counters for each loop.
type registry struct {
	loops     int
	vips      map[transport]uint32
	services  map[string]uint32
	backends  map[backendName]uint32
	endpoints map[transport]uint32
	snats     map[netip.Addr]uint16
	labels    []label // of backends, by number

	serves []string                // the service of a backend, by its number
	byAddr map[netip.Addr][]uint32 // endpoints of an address
	users  [][]uint32              // backends of an endpoint, by its number
	grown  bool                    // something that packets are found by is new
}

// transport is an address, port and protocol.
type transport struct {
	at    netip.AddrPort
	proto uint8
}

type backendName struct {
	service, name string
	at            netip.AddrPort
	proto         uint8
}

// label is what names a backend in logs.
type label struct {
	Name    string
	Address netip.AddrPort
}

func newRegistry(loops int) *registry {
	return &registry{
		loops:    loops,
		vips:     map[transport]uint32{},
		services: map[string]uint32{}, backends: map[backendName]uint32{},
		endpoints: map[transport]uint32{}, snats: map[netip.Addr]uint16{},
		byAddr: map[netip.Addr][]uint32{},
	}
}

// number returns the number of key, a new one when it has none; grow makes its place.
func number[K comparable](m map[K]uint32, key K, grow func()) uint32 {
	n, ok := m[key]
	if !ok {
		n = uint32(len(m))
		m[key] = n
		grow()
	}
	return n
}

// vip returns the number of a service address, with a place in s.
func (r *registry) vip(s *datapath.Snapshot, t transport) uint32 {
	return number(r.vips, t, func() {
		s.VIPs = append(s.VIPs, datapath.NewVIP(t.at, t.proto))
		r.grown = true
	})
}

func (r *registry) service(s *datapath.Snapshot, name string) uint32 {
	return number(r.services, name, func() {
		s.Services = append(s.Services, datapath.NewService(name, r.loops))
	})
}

func (r *registry) endpoint(s *datapath.Snapshot, t transport) uint32 {
	return number(r.endpoints, t, func() {
		r.byAddr[t.at.Addr()] = append(r.byAddr[t.at.Addr()], uint32(len(s.Endpoints)))
		r.users = append(r.users, nil)
		r.grown = true
		s.Endpoints = append(s.Endpoints, datapath.NewEndpoint(t.at, t.proto))
	})
}

func (r *registry) backend(s *datapath.Snapshot, b backendName) uint32 {
	return number(r.backends, b, func() {
		to := r.endpoint(s, transport{b.at, b.proto})
		r.users[to] = append(r.users[to], uint32(len(s.Backends)))
		s.Backends = append(s.Backends, datapath.NewBackend(r.service(s, b.service), to, r.loops))
		r.serves = append(r.serves, b.service)
		r.labels = append(r.labels, label{b.name, b.at})
	})
}

// snat returns the number of a source address. Numbers start at 1.
func (r *registry) snat(s *datapath.Snapshot, a netip.Addr) uint16 {
	n, ok := r.snats[a]
	if !ok {
		n = uint16(len(r.snats) + 1)
		r.snats[a] = n
		s.AddSNAT(a, r.loops)
		r.grown = true
	}
	return n
}

// protoOf returns the protocol number of a checked configuration's protocol.
func protoOf(name string) uint8 {
	if name == "udp" {
		return wire.ProtoUDP
	}
	return wire.ProtoTCP
}
