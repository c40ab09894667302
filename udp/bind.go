package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/wire"
)

// Socket is an endpoint of a Mux. Its methods belong to the owner of the Mux's loop.
type Socket struct {
	m            *Mux
	id           uint32
	owner        Owner
	tuple        wire.Tuple // Remote is zero unless connected
	scope        ports.Scope
	connected    bool
	closed       bool
	pending      bool // in the Mux's list of sockets with events
	writeBlocked bool // a Write found no room
	events       Events
	opts         Options
	sharers      *sharers  // nil when connected
	index        int       // among sharers
	older, newer *Socket   // of sharers, by the order of binding
	place        int       // in port.all
	local        wire.Addr // that Bind has given it
	bound        bool      // made by Bind: Connect may change its peer

	head, tail  *node
	usedBytes   int // memory of the queue and of leases, bytes
	queueBytes  int // of the queue alone
	bucket      uint8
	bucketNext  *Socket
	bucketPrev  *Socket
	err         error
	errors      []Error // that NextError has not returned
	nextPending *Socket
	nextBlocked *Socket
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
	s.scope = ports.NewScope(local, s.opts.V6Only)
	s.tuple = wire.Tuple{Local: local, LocalPort: port}
	s.local, s.bound = local, true
	if m.sockets >= m.cfg.MaxSockets {
		return nil, ErrTooMany
	}
	if port == 0 {
		var ok bool
		if s.tuple.LocalPort, ok = m.bound.Missing(m.randomPort(), m.cfg.PortFirst, m.cfg.PortLast); !ok {
			return nil, ErrNoPort
		}
	}
	if p := m.ports[s.tuple.LocalPort]; p != nil && p.conflict(s.scope, &s.opts, false) {
		return nil, ErrInUse
	}
	m.insert(s)
	return s, nil
}

// Connect returns a socket that receives what comes from one peer and sends to it by
// default. Local must be an address: the host's for the route to Remote. LocalPort 0 is
// chosen so that Config.Owns holds. ErrPortSearch asks the caller to call again: most ports
// are in use, and the search goes on where it stopped.
func (m *Mux) Connect(t wire.Tuple, o *Options, owner Owner) (*Socket, error) {
	if t.Local.Unspecified() || t.Remote.Unspecified() || t.RemotePort == 0 || t.Local.Is4() != t.Remote.Is4() {
		return nil, ErrAddress
	}
	if m.sockets >= m.cfg.MaxSockets {
		return nil, ErrTooMany
	}
	s := m.newSocket(o, owner)
	s.scope, s.connected = ports.NewScope(t.Local, false), true
	s.tuple = t
	if t.LocalPort == 0 {
		if err := m.choosePort(s); err != nil {
			return nil, err
		}
	}
	if !m.connectable(s) {
		return nil, ErrInUse
	}
	m.insert(s)
	return s, nil
}

// Connect sets or replaces the peer of a socket that Bind has made, as connect(2) does: it then receives from that
// peer alone and sends to it by default. local is the address that it sends from, one of those that it is bound to. What
// waits to be read stays. The error is ErrAddress for another kind of socket or address, and ErrInUse where another one is
// connected so.
func (s *Socket) Connect(local, remote wire.Addr, port uint16) error {
	bound := ports.NewScope(s.local, s.opts.V6Only)
	if s.closed || !s.bound || local.Unspecified() || !bound.Covers(local) {
		return ErrAddress
	}
	if remote.Unspecified() || port == 0 || local.Is4() != remote.Is4() {
		return ErrAddress
	}
	t := wire.Tuple{Local: local, LocalPort: s.tuple.LocalPort, Remote: remote, RemotePort: port}
	if o := s.m.flows[t]; o != nil && o != s {
		return ErrInUse
	}
	s.reconnect(t, ports.NewScope(local, false), true)
	return nil
}

// Disconnect undoes Connect: the socket is as Bind has made it.
func (s *Socket) Disconnect() error {
	if s.closed || !s.bound {
		return ErrAddress
	}
	s.reconnect(wire.Tuple{Local: s.local, LocalPort: s.tuple.LocalPort}, ports.NewScope(s.local, s.opts.V6Only), false)
	return nil
}

// reconnect changes the place of s in the tables.
func (s *Socket) reconnect(t wire.Tuple, scope ports.Scope, connected bool) {
	m := s.m
	m.remove(s)
	s.tuple, s.scope, s.connected = t, scope, connected
	s.sharers, s.routeCache = nil, 0
	m.insert(s)
}

// connectable reports whether no other socket conflicts with the tuple of s.
func (m *Mux) connectable(s *Socket) bool {
	p := m.ports[s.tuple.LocalPort]
	return p == nil || m.flows[s.tuple] == nil && !p.conflict(s.scope, &s.opts, true)
}

func (m *Mux) newSocket(o *Options, owner Owner) *Socket {
	m.nextID++
	s := &Socket{m: m, id: m.nextID, owner: owner}
	if o != nil {
		s.opts = *o
	}
	return s
}

// choosePort sets the local port of s, a socket that is to be connected. It begins with a
// random one (RFC 6056 3.3.1): an attacker who cannot see our datagrams must guess the port
// to forge an answer.
func (m *Mux) choosePort(s *Socket) error {
	x := m.searches.Find(&s.tuple)
	if x == nil {
		n, port := uint32(m.cfg.PortLast)-uint32(m.cfg.PortFirst)+1, uint32(m.randomPort()-m.cfg.PortFirst)
		for i := range min(n, ports.QuickTries) {
			s.tuple.LocalPort = m.cfg.PortFirst + uint16((port+i)%n)
			if m.portFree(s) {
				return nil
			}
		}
		s.tuple.LocalPort = 0
		x = m.searches.Begin(&s.tuple)
	}
	free := func() (bool, clock.Time) { return m.portFree(s), clock.Never }
	found, more := x.Step(0, &s.tuple, m.randomPort(), m.cfg.PortFirst, m.cfg.PortLast, free)
	switch {
	case found:
		return nil
	case more:
		return ErrPortSearch
	}
	return ErrNoPort
}

// portFree reports whether s may be connected from its local port.
func (m *Mux) portFree(s *Socket) bool {
	return m.connectable(s) && (m.cfg.Owns == nil || m.cfg.Owns(&s.tuple))
}

// randomPort returns a random port of the range.
func (m *Mux) randomPort() uint16 {
	return m.cfg.PortFirst + uint16(scale(m.random(), int(m.cfg.PortLast)-int(m.cfg.PortFirst)+1))
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

// Owner returns the handler of events.
func (s *Socket) Owner() Owner { return s.owner }

// Options returns the options in force.
func (s *Socket) Options() Options { return s.opts }

// SetOptions changes the options. Share, Reuse, V6Only and User stay as they were bound.
func (s *Socket) SetOptions(o *Options) {
	was := s.opts
	s.opts = *o
	s.opts.Share, s.opts.Reuse, s.opts.V6Only, s.opts.User = was.Share, was.Reuse, was.V6Only, was.User
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
