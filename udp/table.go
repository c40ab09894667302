package udp

import (
	"slices"

	"github.com/millrace/millrace/wire"
)

// scope is what a socket is bound to.
type scope struct {
	addr   wire.Addr
	v6Only bool // addr is unspecified and means IPv6 alone
}

// covers reports whether datagrams to a, which is specified, are within the scope.
func (c scope) covers(a wire.Addr) bool {
	switch {
	case c.addr == wire.Unspecified4:
		return a.Is4()
	case c.addr == wire.Addr{}:
		return !c.v6Only || !a.Is4()
	}
	return c.addr == a
}

// overlaps reports whether some address is within both.
func (c scope) overlaps(d scope) bool {
	switch {
	case c.addr.Unspecified() && d.addr.Unspecified():
		return !(c.addr == wire.Unspecified4 && d.v6Only || d.addr == wire.Unspecified4 && c.v6Only)
	case d.addr.Unspecified():
		return d.covers(c.addr)
	}
	return c.covers(d.addr)
}

// specificity orders scopes: the most specific is asked first.
func (c scope) specificity() int {
	switch {
	case !c.addr.Unspecified():
		return 0
	case c.addr == wire.Unspecified4 || c.v6Only:
		return 1
	}
	return 2
}

// group holds the sockets that are bound to one scope and port: one, or several that share
// it.
type group struct {
	scope    scope
	members  []*Socket // by index; nil where one was closed
	open     int       // members that are not nil
	steering *Steering
}

// add gives s a place.
func (g *group) add(s *Socket) {
	s.group, s.index = g, slices.Index(g.members, nil)
	if s.index < 0 {
		s.index = len(g.members)
		g.members = append(g.members, nil)
	}
	g.members[s.index] = s
	g.open++
}

// remove frees the place of s. Others keep theirs; places at the end that are free are
// forgotten.
func (g *group) remove(s *Socket) {
	g.members[s.index] = nil
	g.open--
	for n := len(g.members); n > 0 && g.members[n-1] == nil; n-- {
		g.members = g.members[:n-1]
	}
}

// from returns the first open member from place i on, around the end.
func (g *group) from(i int) *Socket {
	for g.members[i] == nil {
		i = (i + 1) % len(g.members)
	}
	return g.members[i]
}

// pick chooses the member for a datagram: by connection ID, else by the hash of the flow,
// so that a flow stays with its socket.
func (g *group) pick(t *wire.Tuple, d *Datagram, seed uint64) *Socket {
	if len(g.members) == 1 {
		return g.members[0]
	}
	if g.steering != nil && len(d.Payload) > 0 {
		if id := g.steering.connID(d.Payload[0]); id != nil {
			return g.from(g.steering.index(id, len(g.members), seed))
		}
	}
	h := mix(seed, uint64(d.Hash))
	if d.Hash == 0 {
		h = hashFlow(t, seed)
	}
	return g.from(scale(h, len(g.members)))
}

// port holds what is bound to one local port.
type port struct {
	all       []*Socket
	connected int      // of all
	groups    []*group // of those that are not connected, by rank
}

// conflict reports whether a new socket may not be beside those of the port. RFC 768 does
// not say; these are the rules of Linux's SO_REUSEPORT.
func (p *port) conflict(c scope, share, connected bool) bool {
	for _, s := range p.all {
		apart := connected && s.connected // different peers: the table of flows has told
		if !apart && s.scope.overlaps(c) && !(share && s.opts.Share) {
			return true
		}
	}
	return false
}

// group returns the group of a scope, a new one where there is none.
func (p *port) group(c scope) *group {
	for _, g := range p.groups {
		if g.scope == c {
			return g
		}
	}
	g := &group{scope: c}
	at, _ := slices.BinarySearchFunc(p.groups, c.specificity()+1, func(g *group, rank int) int { return g.scope.specificity() - rank })
	p.groups = slices.Insert(p.groups, at, g)
	return g
}

// insert puts s, which has its scope and tuple, into the tables.
func (m *Mux) insert(s *Socket) {
	p := m.ports[s.tuple.LocalPort]
	if p == nil {
		p = &port{}
		m.ports[s.tuple.LocalPort] = p
	}
	p.all = append(p.all, s)
	m.sockets++
	m.lastMatch = nil
	if s.connected {
		p.connected++
		m.flows[s.tuple] = s
		return
	}
	p.group(s.scope).add(s)
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
	} else if s.group.remove(s); s.group.open == 0 {
		p.groups = slices.DeleteFunc(p.groups, func(g *group) bool { return g == s.group })
	}
	if len(p.all) == 0 {
		delete(m.ports, s.tuple.LocalPort)
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
	for _, g := range p.groups {
		if g.scope.covers(t.Local) {
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
