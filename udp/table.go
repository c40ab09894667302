package udp

import (
	"slices"

	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/wire"
)

// sharers are the sockets that are bound to one scope and port: one, or several that share
// it.
type sharers struct {
	ports.Sharers[Socket]
	steering *Steering
	newest   *Socket // of those that do not share the datagrams
}

// pick chooses the member for a datagram: by connection ID, else by the hash of the flow,
// so that a flow stays with its socket.
func (g *sharers) pick(t *wire.Tuple, d *Datagram, seed uint64) *Socket {
	n := g.Indexes()
	if n == 1 {
		return g.First()
	}
	if g.newest != nil {
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

// port holds what is bound to one local port.
type port struct {
	all       []*Socket
	connected int        // of all
	sharers   []*sharers // of those that are not connected, by rank
}

// conflict reports whether a new socket may not be beside those of the port. RFC 768 does
// not say; these are the rules of Linux's SO_REUSEPORT.
func (p *port) conflict(c ports.Scope, o *Options, connected bool) bool {
	for _, s := range p.all {
		apart := connected && s.connected // different peers: the table of flows has told
		together := o.Share && s.opts.Share || o.Reuse && s.opts.Reuse
		if !apart && s.scope.Overlaps(c) && !together {
			return true
		}
	}
	return false
}

// sharersOf returns those of a scope, a new one where there is none.
func (p *port) sharersOf(c ports.Scope) *sharers {
	for _, g := range p.sharers {
		if g.Scope == c {
			return g
		}
	}
	g := &sharers{Sharers: ports.Sharers[Socket]{Scope: c}}
	at, _ := slices.BinarySearchFunc(p.sharers, c.Rank()+1, func(g *sharers, rank int) int { return g.Scope.Rank() - rank })
	p.sharers = slices.Insert(p.sharers, at, g)
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
	p.all = append(p.all, s)
	m.sockets++
	m.lastMatch = nil
	if s.connected {
		p.connected++
		m.flows[s.tuple] = s
		return
	}
	m.bounds++
	s.boundAs = m.bounds
	s.sharers = p.sharersOf(s.scope)
	s.index = s.sharers.Add(s)
	s.sharers.chooseNewest()
}

// chooseNewest finds the socket that gets all datagrams, which is the one that was bound last unless all of them share.
func (g *sharers) chooseNewest() {
	g.newest = nil
	all := true
	for i := range g.Indexes() {
		s := g.From(i)
		all = all && s.opts.Share
		if g.newest == nil || s.boundAs > g.newest.boundAs {
			g.newest = s
		}
	}
	if all {
		g.newest = nil
	}
}

// remove takes s out of the tables.
func (m *Mux) remove(s *Socket) {
	p := m.ports[s.tuple.LocalPort]
	p.all = slices.DeleteFunc(p.all, func(o *Socket) bool { return o == s })
	m.sockets--
	m.lastMatch = nil
	if s.connected {
		p.connected--
		delete(m.flows, s.tuple)
		m.searches.Release(&s.tuple)
	} else {
		m.searches.Reset() // the port is free for every destination
		if s.sharers.Remove(s.index); s.sharers.Empty() {
			p.sharers = slices.DeleteFunc(p.sharers, func(g *sharers) bool { return g == s.sharers })
		} else {
			s.sharers.chooseNewest()
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
	if p.connected > 0 {
		if s := m.flows[*t]; s != nil && s.acceptsInterface(d) {
			m.lastMatch = s
			return s
		}
	}
	for _, g := range p.sharers {
		if g.Scope.Covers(t.Local) {
			if s := g.pick(t, d, m.cfg.Seed); s.acceptsInterface(d) {
				return s
			}
		}
	}
	return nil
}

// acceptsInterface reports whether s accepts datagrams from the interface by which d
// arrived.
func (s *Socket) acceptsInterface(d *Datagram) bool {
	return s.opts.Interface == 0 || s.opts.Interface == d.Interface
}
