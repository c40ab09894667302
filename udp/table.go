package udp

import (
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/wire"
)

// sharers are the sockets that are bound to one scope and port: one, or several that share
// it.
type sharers struct {
	ports.Sharers[Socket]
	steering *Steering
	newest   *Socket // bound last; those bound before it follow by Socket.older
	unshared int     // members without Options.Share
}

// pick chooses the member for a datagram: by connection ID, else by the hash of the flow,
// so that a flow stays with its socket.
func (g *sharers) pick(t *wire.Tuple, d *Datagram, seed uint64) *Socket {
	n := g.Indexes()
	if n == 1 {
		return g.First()
	}
	if g.unshared > 0 {
		return g.newest
	}
	if g.steering != nil && len(d.Payload) > 0 {
		if id := g.steering.connID(d.Payload[0]); id != nil {
			return g.From(g.steering.index(id, n, seed))
		}
	}
	h := mix(seed, uint64(d.Hash))
	if d.Hash == 0 {
		h = hashFlow(t, seed)
	}
	return g.From(scale(h, n))
}

// add makes s a member: the newest one.
func (g *sharers) add(s *Socket) {
	s.sharers, s.index = g, g.Add(s)
	if !s.opts.Share {
		g.unshared++
	}
	if s.older = g.newest; s.older != nil {
		s.older.newer = s
	}
	g.newest = s
}

// remove undoes add, in the same time however many members there are.
func (g *sharers) remove(s *Socket) {
	g.Remove(s.index)
	if !s.opts.Share {
		g.unshared--
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		g.newest = s.older
	}
	if s.older != nil {
		s.older.newer = s.newer
	}
	s.older, s.newer = nil, nil
}

// port holds what is bound to one local port. One user may have all sockets that a Mux
// permits there, so that no request and no unicast datagram visits them one by one.
type port struct {
	all       []*Socket   // each at its Socket.place
	bound     ports.Taken // of all, those that are not connected
	connected ports.Taken
	scopes    ports.ByScope[sharers]  // of those that are not connected
	groups    map[wire.Addr][]*Socket // members of multicast groups; nil for most
}

// conflict reports whether a new socket may not be beside those of the port. RFC 768 does
// not say; these are the rules of Linux's SO_REUSEADDR and SO_REUSEPORT. Connected sockets
// do not conflict with each other: the table of flows keeps their peers apart.
func (p *port) conflict(c ports.Scope, o *Options, connected bool) bool {
	x := o.terms()
	return p.bound.Conflict(c, x) || !connected && p.connected.Conflict(c, x)
}

func (o *Options) terms() ports.Terms {
	return ports.Terms{Reuse: o.Reuse, Share: o.Share, User: o.User}
}

// sharersOf returns those of a scope, a new one where there is none.
func (p *port) sharersOf(c ports.Scope) *sharers {
	g := p.scopes.Get(c)
	if g == nil {
		g = &sharers{Sharers: ports.Sharers[Socket]{Scope: c}}
		p.scopes.Set(c, g)
	}
	return g
}

// insert puts s, which has its scope and tuple, into the tables.
func (m *Mux) insert(s *Socket) {
	p := m.ports[s.tuple.LocalPort]
	if p == nil {
		p = &port{}
		m.ports[s.tuple.LocalPort] = p
		m.bound.Add(s.tuple.LocalPort)
	}
	s.place = len(p.all)
	p.all = append(p.all, s)
	m.sockets++
	m.lastMatch = nil
	for _, x := range s.members {
		p.join(s, x.group)
	}
	if s.connected {
		p.connected.Add(s.scope, s.opts.terms())
		m.flows[s.tuple] = s
		return
	}
	p.bound.Add(s.scope, s.opts.terms())
	p.sharersOf(s.scope).add(s)
}

// remove takes s out of the tables.
func (m *Mux) remove(s *Socket) {
	p := m.ports[s.tuple.LocalPort]
	last := len(p.all) - 1
	p.all[s.place] = p.all[last]
	p.all[s.place].place = s.place
	p.all[last] = nil
	p.all = p.all[:last]
	m.sockets--
	m.lastMatch = nil
	for _, x := range s.members {
		p.leave(s, x.group)
	}
	if s.connected {
		p.connected.Remove(s.scope, s.opts.terms())
		delete(m.flows, s.tuple)
		m.searches.Release(&s.tuple)
	} else {
		m.searches.Reset() // the port is free for every destination
		p.bound.Remove(s.scope, s.opts.terms())
		if s.sharers.remove(s); s.sharers.Empty() {
			p.scopes.Delete(s.scope)
		}
	}
	if len(p.all) == 0 {
		delete(m.ports, s.tuple.LocalPort)
		m.bound.Remove(s.tuple.LocalPort)
	}
}

// find returns the socket for a datagram to one of the host's addresses: the one connected
// to its source, else bound to its address, else to any.
func (m *Mux) find(t *wire.Tuple, d *Datagram) *Socket {
	if m.lastMatch != nil && m.lastMatch.tuple == *t && m.lastMatch.acceptsInterface(d) {
		return m.lastMatch
	}
	p := m.ports[t.LocalPort]
	if p == nil {
		return nil
	}
	if p.connected.Len() > 0 {
		if s := m.flows[*t]; s != nil && s.acceptsInterface(d) {
			m.lastMatch = s
			return s
		}
	}
	for g, next := p.scopes.Covering(t.Local, 0); g != nil; g, next = p.scopes.Covering(t.Local, next) {
		if s := g.pick(t, d, m.cfg.Seed); s.acceptsInterface(d) {
			return s
		}
	}
	return nil
}

// acceptsInterface reports whether s accepts datagrams from the interface by which d
// arrived.
func (s *Socket) acceptsInterface(d *Datagram) bool {
	return s.opts.Interface == 0 || s.opts.Interface == d.Interface
}
