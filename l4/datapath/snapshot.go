package datapath

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
)

// Snapshot is all that handlers know of the configuration, of health and of the neighbours. It is immutable
// once published: every change makes a new one, which shares what stays the same. The control side builds it
// and publishes it by an atomic pointer; a handler reads the pointer once per batch, so there is no lock on
// a packet's path and no packet sees half of a change.
//
// A number is an index into VIPs, Services, Backends or Endpoints, of a port in a range (ranges.go), or of an SNAT address.
// What is gone from the configuration leaves its place behind, so that a connection, which stores numbers, never refers
// to something else: a number means the same in every snapshot, until no loop refers to it any more; see Retired.
type Snapshot struct {
	Round     int      // the reload that it comes from
	Era       uint32   // grows when numbers are freed, and when they are given again
	Retired   *Numbers // numbers without use: loops report which of them they still hold; nil: there are none
	Devices   []Device // by Desc.Port
	keys      index
	own       index // addresses that no packet from outside comes from, see SetOwn
	VIPs      []VIP
	Services  []*Service // elements of these three are shared by snapshots: one that changes is replaced
	Backends  []*Backend
	Endpoints []*Endpoint

	VIPRanges      []VIPRange // see ranges.go
	EndpointRanges []uint32   // places in Endpoints

	snats     []addr             // by number; there is no number 0
	snatStats [][]*metrics.Block // by number, then loop
	snatSince []uint32           // by number: the era in which it was given
	SNAT4     []uint16
	SNAT6     []uint16 // those that new connections may take
	Timeouts  Timeouts
	Selection Selection
	Tunnel    Tunnel
	DropL4    bool // packets with a wrong transport checksum
	Limits    LimitTable

	HoldResets bool // segments of unknown connections are not reset: a peer may know them

	Sources Sources
}

// Clone returns a copy in which services and backends may be replaced.
func (s *Snapshot) Clone() *Snapshot {
	c := *s
	c.Services, c.Backends = slices.Clone(s.Services), slices.Clone(s.Backends)
	return &c
}

// CloneAll returns a copy in which everything that has a number may be replaced.
func (s *Snapshot) CloneAll() *Snapshot {
	c := s.Clone()
	c.VIPs, c.Endpoints = slices.Clone(s.VIPs), slices.Clone(s.Endpoints)
	c.snats, c.snatStats, c.snatSince = slices.Clone(s.snats), slices.Clone(s.snatStats), slices.Clone(s.snatSince)
	return c
}

// Index builds the index of everything that a packet may be for or from. Service addresses and endpoints
// that are gone from the configuration stay: connections may use them. snat are the SNAT addresses of the
// configuration.
func (s *Snapshot) Index(snat []netip.Addr) {
	var all []indexSlot
	for i, f := range s.VIPs {
		if f.Range || f.Free() {
			continue
		}
		all = append(all, indexSlot{f.addr, tagOf(kindVIP, f.Port, f.Proto), uint32(i)})
		if f.Service >= 0 {
			all = append(all, indexSlot{f.addr, tagOf(kindLocal, 0, 0), 0})
		}
	}
	for i, r := range s.VIPRanges {
		v := &s.VIPs[r.VIP]
		all = append(all, indexSlot{v.addr, tagOf(kindVIPRange, 0, v.Proto), uint32(i)})
		if slices.ContainsFunc(r.Spans, func(s Span) bool { return s.Service >= 0 }) {
			all = append(all, indexSlot{v.addr, tagOf(kindLocal, 0, 0), 0})
		}
	}
	for i, place := range s.EndpointRanges {
		e := s.Endpoints[place]
		all = append(all, indexSlot{e.addr, tagOf(kindEndpointRange, 0, e.Proto), uint32(i)})
	}
	for i, e := range s.Endpoints {
		if e.InUse {
			all = append(all, indexSlot{e.addr, tagOf(kindBackend, 0, 0), 0})
		}
		if e.Port == 0 { // of a range, or of a direct mode, whose replies pass by; or free
			continue
		}
		all = append(all, indexSlot{e.addr, tagOf(kindEndpoint, e.Port, e.Proto), uint32(i)})
	}
	for i := 1; i < len(s.snats); i++ {
		if s.snatStats[i] == nil {
			continue
		}
		all = append(all, indexSlot{s.snats[i], tagOf(kindSNAT, 0, 0), uint32(i)})
	}
	for _, a := range snat {
		all = append(all, indexSlot{addrOf(a), tagOf(kindLocal, 0, 0), 0})
	}
	for a, answered := range s.closedAddrs() {
		if answered {
			all = append(all, indexSlot{a, tagOf(kindClosed, 0, 0), 0})
		}
	}
	s.keys = newIndex(all)
}

// closedAddrs returns the addresses of services, and whether ports there that no service has are answered: one service
// with `unknown: drop` leaves its address silent.
func (s *Snapshot) closedAddrs() map[addr]bool {
	all := map[addr]bool{}
	enter := func(a addr, service int32) {
		if service < 0 {
			return
		}
		was, known := all[a]
		all[a] = s.Services[service].AnswerClosed && (was || !known)
	}
	for i := range s.VIPs {
		if v := &s.VIPs[i]; !v.Free() && !v.Range {
			enter(v.addr, v.Service)
		}
	}
	for i := range s.VIPRanges {
		for _, span := range s.VIPRanges[i].Spans {
			enter(s.VIPs[s.VIPRanges[i].VIP].addr, span.Service)
		}
	}
	return all
}

// Closes reports whether ports of a that no service has are answered as closed.
func (s *Snapshot) Closes(a netip.Addr) bool { return s.closes(addrOf(a)) }

func (s *Snapshot) closes(a addr) bool {
	_, ok := s.keys.find(a, tagOf(kindClosed, 0, 0))
	return ok
}

// SetSNAT assigns number n to an SNAT address. Numbers start at 1. Its counters are for so many loops.
func (s *Snapshot) SetSNAT(n uint32, a netip.Addr, loops int) {
	if len(s.snats) == 0 {
		s.snats, s.snatStats, s.snatSince = make([]addr, 1), make([][]*metrics.Block, 1), make([]uint32, 1)
	}
	era := s.begin(n, len(s.snats))
	s.snats = Place(s.snats, n, addrOf(a))
	s.snatStats = Place(s.snatStats, n, newBlocks(loops, portCounters))
	s.snatSince = Place(s.snatSince, n, era)
}

// SNATs yields the SNAT addresses with their numbers: those of the configuration, and those that connections use.
func (s *Snapshot) SNATs() iter.Seq2[uint32, netip.Addr] {
	return func(yield func(uint32, netip.Addr) bool) {
		for n := 1; n < len(s.snats); n++ {
			if s.snatStats[n] != nil && !yield(uint32(n), s.snats[n].Addr()) {
				return
			}
		}
	}
}

// VIP is a service address, with port and protocol, that a service has or had.
type VIP struct {
	addr    addr
	Port    uint16
	Proto   uint8
	Range   bool  // the address of a VIPRange, which says what its ports belong to
	Service int32 // -1: removed by a reload, only old connections are served
	since   uint32
}

// Free reports whether the place has no service address.
func (f *VIP) Free() bool { return f.Proto == 0 }

// NewVIP returns a service address without a service.
func NewVIP(at netip.AddrPort, proto uint8) VIP {
	return VIP{addr: addrOf(at.Addr()), Port: at.Port(), Proto: proto, Service: -1}
}

// Addr returns the address without its port.
func (f *VIP) Addr() netip.Addr { return f.addr.Addr() }

// Service holds what decides on packets to its VIPs. Each address family of packets has two pools; see
// pick.
type Service struct {
	Name             string
	Mode             Mode
	Transparent      bool         // backends see the client's address
	MSS              int          // most that the MSS option of SYNs may say; 0 is no bound, MSSAuto what fits
	QUIC             *QUICRoute   // nil: packets say nothing of backends
	PickUp           bool         // a TCP segment of an unknown connection picks that up: only where backends see the client's address and port
	ResetUnknown     bool         // it is reset otherwise, not only dropped
	AnswerClosed     bool         // ports of its addresses that no service has are answered as closed
	Reject           bool         // without a backend packets are answered, not only dropped
	Persistence      *Persistence // nil: each connection is selected for by itself
	LeastConnections bool         // new connections go to the less loaded of two backends
	Limited          bool         // a backend has a Limit
	WhenFull         FullAction
	Inspection       []uint8          // by device that clients' packets come by: the inspection policy, 0 is none; shorter: none
	NewFlow          [Families]*Pool  // for packets that may open a connection
	MidFlow          [Families]*Pool  // for packets in the middle of one
	drops            []*metrics.Block // by loop, then verdict
	evicted          []*metrics.Block // by loop, then kind
}

// NewService returns a service without backends. Its counters are for so many loops.
func NewService(name string, loops int) *Service {
	return &Service{
		Name: name, drops: newBlocks(loops, packet.Verdicts), evicted: newBlocks(loops, evictions),
		NewFlow: [Families]*Pool{EmptyPool, EmptyPool}, MidFlow: [Families]*Pool{EmptyPool, EmptyPool},
	}
}

// Drops returns the number of the service's packets that were dropped for a reason.
func (s *Service) Drops(v packet.Verdict) (n uint64) {
	for _, block := range s.drops {
		n += block.Load(int(v))
	}
	return n
}

// Evictions returns the number of connections that made room for others, by kind.
func (s *Service) Evictions() (halfOpen, confirmed uint64) {
	for _, block := range s.evicted {
		halfOpen += block.Load(evictedHalfOpen)
		confirmed += block.Load(evictedConfirmed)
	}
	return halfOpen, confirmed
}

// Address families of packets, as indices. A tunnel may carry a packet to a backend of the other family.
const (
	Family4 = iota
	Family6
	Families
)

func familyOf(is4 bool) int {
	if is4 {
		return Family4
	}
	return Family6
}

// Backend is one address of a backend in one service.
type Backend struct {
	Service    uint32
	Endpoint   uint32  // place in Snapshot.Endpoints
	Ports      PortMap // of an endpoint with a range
	Mode       Mode
	QUIC       *QUICRoute       // of the service
	Limit      *ConnLimit       // nil: none
	Configured bool             // in the configuration
	Usable     bool             // healthy, not inactive, and not removed with `removed: drop`
	Inactive   bool             // inactive: its connections are over
	Ejected    bool             // by the outlier detector: it takes no new connections
	free       bool             // the place has no backend
	since      uint32           // the era in which its number was given
	stats      []*metrics.Block // by loop, then what counts of a backend
	Name       string
}

// What is counted for each backend, as arguments of Backend.Count.
const (
	ToPackets = iota
	ToBytes
	FromPackets
	FromBytes
	Opened
	Closed
	Closing       // connections that a FIN or RST began to close
	Ended         // and those of them that are forgotten
	Answered      // TCP: SYN+ACK of the backend seen; UDP: its first datagram
	Refused       // TCP: RST in answer to a SYN
	Unanswered    // half-open connections that ended without an answer
	Unreachable   // ICMP errors that say that a packet did not reach the backend
	BackendCounts // how many there are
)

// NewBackend returns a backend of a service at an endpoint. Its counters are for so many loops.
func NewBackend(name string, service, endpoint uint32, loops int) *Backend {
	return &Backend{Name: name, Service: service, Endpoint: endpoint, Usable: true, stats: newBlocks(loops, BackendCounts)}
}

// Free reports whether the place has no backend.
func (b *Backend) Free() bool { return b.free }

// Flows returns the number of connections of a backend. What closes meanwhile counts as open.
func (b *Backend) Flows() uint64 {
	over := b.Count(Closed)
	return b.Count(Opened) - over
}

// ClosingFlows returns the number of a backend's connections that a FIN or RST has begun to close.
func (b *Backend) ClosingFlows() uint64 {
	over := b.Count(Ended)
	return b.Count(Closing) - over
}

// Count returns a count of a backend over all loops.
func (b *Backend) Count(what int) (n uint64) {
	for _, block := range b.stats {
		n += block.Load(what)
	}
	return n
}

// Endpoint is an address, port and protocol that replies come from: of one or several backends.
type Endpoint struct {
	addr           addr
	Port           uint16
	Proto          uint8
	Range          bool   // all ports of the address, see Spans
	InUse          bool   // by a backend of the configuration
	Transparent    bool   // one of them answers to clients' own addresses
	ResetUnknown   bool   // its segments of unknown connections are reset
	WasTransparent bool   // or did in an earlier configuration: connections may be left
	PickUp         PickUp // of packets without a connection
	Hop            Hop
	free           bool   // the place has no endpoint
	since          uint32 // the era in which its number was given

	Spans   []EndpointSpan // backends of services with ranges, of all services of an endpoint with a range
	Replies []PortRange    // of an endpoint with a range: ports from which backends answer to clients' own addresses, or did
}

// Equal reports whether nothing differs between two endpoints.
func (e *Endpoint) Equal(o *Endpoint) bool {
	return e.addr == o.addr && e.Port == o.Port && e.Proto == o.Proto && e.Range == o.Range && e.InUse == o.InUse &&
		e.Transparent == o.Transparent && e.ResetUnknown == o.ResetUnknown && e.WasTransparent == o.WasTransparent &&
		e.PickUp == o.PickUp && e.Hop == o.Hop && e.free == o.free && e.since == o.since &&
		slices.Equal(e.Spans, o.Spans) && slices.Equal(e.Replies, o.Replies)
}

// NewEndpoint returns an endpoint that no backend uses.
func NewEndpoint(at netip.AddrPort, proto uint8) *Endpoint {
	return &Endpoint{addr: addrOf(at.Addr()), Port: at.Port(), Proto: proto}
}

// Free reports whether the place has no endpoint.
func (e *Endpoint) Free() bool { return e.free }

// Addr returns the address without its port.
func (e *Endpoint) Addr() netip.Addr { return e.addr.Addr() }

func newBlocks(loops, n int) []*metrics.Block {
	var blocks []*metrics.Block
	for range loops {
		blocks = append(blocks, metrics.NewBlock(n))
	}
	return blocks
}

// index finds the number of what has an address, port and protocol: an immutable open-addressed
// hash table, at most half full.
type index struct {
	slots []indexSlot
	mask  uint64
}

type indexSlot struct {
	addr   addr
	tag    uint32 // port << 16 | protocol << 8 | kind; 0 in an empty slot
	number uint32
}

// The kinds of numbers in an index.
const (
	kindVIP      = 1 + iota
	kindEndpoint // where backends answer from
	kindSNAT     // without port and protocol
	kindLocal    // an address that the gateway answers for: without port and protocol
	kindBackend  // an address of a backend: without port and protocol
	kindClosed   // an address whose ports without a service are answered as closed: without port and protocol

	kindVIPRange      // the ranges of ports of an address, without port
	kindEndpointRange // the same of endpoints
)

func tagOf(kind uint8, port uint16, proto uint8) uint32 {
	return uint32(port)<<16 | uint32(proto)<<8 | uint32(kind)
}

// newIndex returns an index over the given slots. Of two with the same key the first counts. The hash has a
// fixed key: whoever chooses service addresses can be trusted, and all loops share the index.
func newIndex(all []indexSlot) index {
	size := 8
	for size < 2*len(all) {
		size *= 2
	}
	x := index{slots: make([]indexSlot, size), mask: uint64(size - 1)}
	for _, s := range all {
		i := selection.sum(s.addr, uint64(s.tag)) & x.mask
		for x.slots[i].tag != 0 && (x.slots[i].tag != s.tag || x.slots[i].addr != s.addr) {
			i = (i + 1) & x.mask
		}
		if x.slots[i].tag == 0 {
			x.slots[i] = s
		}
	}
	return x
}

// find returns the number with the given key.
func (x *index) find(a addr, tag uint32) (uint32, bool) {
	for i := selection.sum(a, uint64(tag)) & x.mask; x.slots[i].tag != 0; i = (i + 1) & x.mask {
		if s := &x.slots[i]; s.tag == tag && s.addr == a {
			return s.number, true
		}
	}
	return 0, false
}

// Device is a device of the loops, known by its place in Desc.Port.
type Device struct {
	Name string
	MAC  [6]byte // packets to another link address are dropped, answers and forwarded packets come from it
	MTU  int     // largest network-layer packet to send, bytes; 0 is no limit
}

// Hop is the next hop to an address: the device to send on, and the link address.
type Hop struct {
	MAC   [6]byte
	VLAN  uint16 // 802.1Q VLAN identifier to tag with; 0 is none
	Dev   uint8  // index of the device, as in Desc.Port
	State HopState
}

// HopState is the known part of a Hop.
type HopState uint8

// The states of a hop.
const (
	HopUnresolved HopState = iota // there is a route; the next hop's link address is not known (yet)
	HopReady                      // all fields are valid
	HopNoRoute                    // no route, or one by none of the gateway's devices
)
