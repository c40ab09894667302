package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Socket is an endpoint of a Mux. Its methods belong to the owner of the Mux's loop.
type Socket struct {
	m            *Mux
	id           uint32
	owner        Owner
	tuple        wire.Tuple // Remote is zero unless connected
	scope        scope
	connected    bool
	closed       bool
	pending      bool // in the Mux's list of sockets with events
	writeBlocked bool // a Write found no room
	events       Events
	opts         Options
	group        *group // nil when connected
	index        int

	head, tail  *node
	usedBytes   int // memory of the queue and of leases, bytes
	queueBytes  int // of the queue alone
	bucket      uint8
	bucketNext  *Socket
	bucketPrev  *Socket
	err         error
	nextPending *Socket
	routeCache  uint64
	members     []membership
	stats       SocketStats
}

// SocketStats counts what a socket did, in datagrams.
type SocketStats struct {
	Received uint64 // put into the queue
	Lost     uint64 // not queued for want of room
	Sent     uint64
}

// Bind returns a socket that receives what comes to an address and port. The zero address
// is any, of both versions unless V6Only; wire.Unspecified4 is any of IPv4. Port 0 is
// chosen. A multicast address receives only what comes to that group.
func (m *Mux) Bind(local wire.Addr, port uint16, o *Options, owner Owner) (*Socket, error) {
	s := m.newSocket(o, owner)
	s.scope = scope{local, s.opts.V6Only && local == wire.Addr{}}
	s.tuple = wire.Tuple{Local: local, LocalPort: port}
	if m.sockets >= m.cfg.MaxSockets {
		return nil, ErrTooMany
	}
	if port == 0 && !m.choosePort(func(n uint16) bool {
		s.tuple.LocalPort = n
		return m.ports[n] == nil
	}) {
		return nil, ErrNoPort
	}
	if p := m.ports[s.tuple.LocalPort]; p != nil && p.conflict(s.scope, s.opts.Share, false) {
		return nil, ErrInUse
	}
	m.insert(s)
	return s, nil
}

// Connect returns a socket that receives what comes from one peer and sends to it by
// default. Local must be an address: the host's for the route to Remote. LocalPort 0 is
// chosen so that Config.Owns holds.
func (m *Mux) Connect(t wire.Tuple, o *Options, owner Owner) (*Socket, error) {
	if t.Local.Unspecified() || t.Remote.Unspecified() || t.RemotePort == 0 || t.Local.Is4() != t.Remote.Is4() {
		return nil, ErrAddress
	}
	if m.sockets >= m.cfg.MaxSockets {
		return nil, ErrTooMany
	}
	s := m.newSocket(o, owner)
	s.scope, s.connected = scope{addr: t.Local}, true
	s.tuple = t
	if t.LocalPort == 0 && !m.choosePort(func(n uint16) bool {
		s.tuple.LocalPort = n
		return m.connectable(s) && (m.cfg.Owns == nil || m.cfg.Owns(&s.tuple))
	}) {
		return nil, ErrNoPort
	}
	if !m.connectable(s) {
		return nil, ErrInUse
	}
	m.insert(s)
	return s, nil
}

// connectable reports whether no other socket conflicts with the tuple of s.
func (m *Mux) connectable(s *Socket) bool {
	p := m.ports[s.tuple.LocalPort]
	return p == nil || m.flows[s.tuple] == nil && !p.conflict(s.scope, s.opts.Share, true)
}

func (m *Mux) newSocket(o *Options, owner Owner) *Socket {
	m.nextID++
	s := &Socket{m: m, id: m.nextID, owner: owner}
	if o != nil {
		s.opts = *o
	}
	return s
}

// choosePort tries ports from a random one on until ok (RFC 6056 3.3.1): an attacker who
// cannot see our datagrams must guess the port to forge an answer.
func (m *Mux) choosePort(ok func(uint16) bool) bool {
	first, n := int(m.cfg.PortFirst), int(m.cfg.PortLast)-int(m.cfg.PortFirst)+1
	start := scale(m.random(), n)
	for i := range n {
		if ok(uint16(first + (start+i)%n)) {
			return true
		}
	}
	return false
}

// random returns the next number of a sequence that is secret if the seed is.
func (m *Mux) random() uint64 {
	m.rng++
	return mix(mix(m.cfg.Seed, m.rng), m.cfg.Seed)
}

// Close takes the socket out of the Mux, leaves its groups and frees its queue. No event is
// reported any more. Leases stay valid. It may be called twice.
func (s *Socket) Close(now clock.Time) {
	if s.closed {
		return
	}
	s.closed = true
	s.leaveAll(now)
	s.m.remove(s)
	for s.head != nil {
		s.free(s.pop())
	}
}

// Tuple returns the addresses: Remote is zero unless connected.
func (s *Socket) Tuple() wire.Tuple { return s.tuple }

// Options returns the options in force.
func (s *Socket) Options() Options { return s.opts }

// SetOptions changes the options. Share and V6Only stay as they were bound.
func (s *Socket) SetOptions(o *Options) {
	share, v6Only := s.opts.Share, s.opts.V6Only
	s.opts = *o
	s.opts.Share, s.opts.V6Only = share, v6Only
}

// SetOwner sets the handler of events. The next Poll reports to it what is already
// possible.
func (s *Socket) SetOwner(o Owner) {
	s.owner = o
	if s.Readable() {
		s.mark(Readable)
	}
}

// Stats returns the counters.
func (s *Socket) Stats() SocketStats { return s.stats }
