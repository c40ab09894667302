package control

import (
	"net/netip"
	"slices"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/wire"
)

// registry gives numbers to what connections refer to. What comes back to the configuration while something still
// refers to it gets its old number, and with it its counters and connections. A number that nothing refers to any more
// is given again, see release. A backend's number costs 3 KB, most of it counters for each loop.
type registry struct {
	loops     int
	vips      numbers[transport]
	services  numbers[string]
	backends  numbers[backendName]
	endpoints numbers[transport]
	snats     numbers[netip.Addr]
	labels    []label // of backends, by number

	vipRanges      map[rangeKey]uint32   // places in Snapshot.VIPRanges
	endpointRanges map[rangeKey]uint32   // numbers of endpoints
	singles        map[rangeKey][]uint32 // single ports of an address and protocol: numbers of vips

	serials []uint32                // of services, by number: how many had come when the one came that has the number
	serial  uint32                  // of the last one
	serves  []string                // the service of a backend, by its number
	byAddr  map[netip.Addr][]uint32 // endpoints of an address
	users   [][]uint32              // backends of an endpoint, by its number
	grown   bool                    // something that packets are found by is new
}

// numbers are the numbers of one kind, by what has them.
type numbers[K comparable] struct {
	of   map[K]uint32
	free []uint32
	next uint32 // of those that were never given
}

// newNumbers returns numbers from first on.
func newNumbers[K comparable](first uint32) numbers[K] {
	return numbers[K]{of: map[K]uint32{}, next: first}
}

// get returns the number of key. It is fresh if key had none.
func (x *numbers[K]) get(key K) (n uint32, fresh bool) {
	n, ok := x.of[key]
	if ok {
		return n, false
	}
	if last := len(x.free) - 1; last >= 0 {
		n, x.free = x.free[last], x.free[:last]
	} else {
		n = x.next
		x.next++
	}
	x.of[key] = n
	return n, true
}

// release takes its number from key: another one may get it.
func (x *numbers[K]) release(key K) {
	x.free = append(x.free, x.of[key])
	delete(x.of, key)
}

// transport is an address, port and protocol.
type transport struct {
	at     netip.AddrPort
	proto  uint8
	ranged bool // all ports of the address: port 0
}

type backendName struct {
	service, name string
	at            netip.AddrPort // of a range with the first port, so that a range can grow
	proto         uint8
}

// label names a backend in logs.
type label struct {
	Name    string
	Address config.AddrPorts
}

func newRegistry(loops int) *registry {
	return &registry{
		loops:    loops,
		vips:     newNumbers[transport](0),
		services: newNumbers[string](0), backends: newNumbers[backendName](0),
		endpoints: newNumbers[transport](0), snats: newNumbers[netip.Addr](1),
		byAddr: map[netip.Addr][]uint32{}, vipRanges: map[rangeKey]uint32{}, endpointRanges: map[rangeKey]uint32{},
		singles: map[rangeKey][]uint32{},
	}
}

// vip returns the number of a service address with one port, with a place in s. A port that a range had keeps its number
// in the range.
func (r *registry) vip(s *datapath.Snapshot, t transport) uint32 {
	key := rangeKey{t.at.Addr(), t.proto}
	place, ranged := r.vipRanges[key]
	if _, known := r.vips.of[t]; ranged && !known && s.VIPRanges[place].Has(t.at.Port()) {
		return datapath.RangeNumber(place) | uint32(t.at.Port())
	}
	n, fresh := r.vips.get(t)
	if fresh {
		r.singles[key] = append(r.singles[key], n)
		s.SetVIP(n, datapath.NewVIP(t.at, t.proto))
		r.grown = true
	}
	return n
}

func (r *registry) service(s *datapath.Snapshot, name string) uint32 {
	n, fresh := r.services.get(name)
	if fresh {
		r.serial++
		r.serials = datapath.Place(r.serials, n, r.serial)
		s.SetService(n, datapath.NewService(name, r.loops))
	}
	return n
}

func (r *registry) endpoint(s *datapath.Snapshot, t transport) uint32 {
	n, fresh := r.endpoints.get(t)
	if fresh {
		r.byAddr[t.at.Addr()] = append(r.byAddr[t.at.Addr()], n)
		r.users = datapath.Place(r.users, n, nil)
		r.grown = true
		e := datapath.NewEndpoint(t.at, t.proto)
		e.Range = t.ranged
		s.SetEndpoint(n, e)
	}
	return n
}

// backend returns the number of a backend with address a, as the service sv of the configuration has it; it is fresh if it
// had none. The backend in s may be written to.
func (r *registry) backend(s *datapath.Snapshot, b backendName, sv *config.Service, a config.AddrPorts) (n uint32, fresh bool) {
	to, ports := r.endpointOf(s, sv, a, b.proto)
	n, fresh = r.backends.get(b)
	if fresh {
		s.SetBackend(n, datapath.NewBackend(b.name, r.service(s, b.service), to, r.loops))
		r.serves = datapath.Place(r.serves, n, b.service)
		r.labels = datapath.Place(r.labels, n, label{b.name, a})
	}
	if !slices.Contains(r.users[to], n) {
		r.users[to] = append(r.users[to], n)
	}
	s.Backends[n].Endpoint, s.Backends[n].Ports = to, ports
	r.labels[n].Address = a
	return n, fresh
}

// snat returns the number of a source address. Numbers start at 1.
func (r *registry) snat(s *datapath.Snapshot, a netip.Addr) uint16 {
	n, fresh := r.snats.get(a)
	if fresh {
		s.SetSNAT(n, a, r.loops)
		r.grown = true
	}
	return uint16(n)
}

// protoOf returns the protocol number of a checked configuration's protocol.
func protoOf(name string) uint8 {
	if name == "udp" {
		return wire.ProtoUDP
	}
	return wire.ProtoTCP
}
