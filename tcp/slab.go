package tcp

// Connections lie in pages of 32 that are never freed, so that a number names a connection.
// The table, the timer wheel and the lists hold numbers instead of pointers: the garbage
// collector does not scan them.
const (
	pageShift = 5
	pageSize  = 1 << pageShift
	noConn    = ^uint32(0) // ends lists
)

// slab is the memory of connections.
type slab struct {
	pages []*[pageSize]Conn
	used  uint32 // numbers that were handed out at least once
	free  uint32 // the list of numbers given back, by Conn.link
	live  int
}

// conn returns connection id.
func (m *Mux) conn(id uint32) *Conn { return &m.slab.pages[id>>pageShift][id%pageSize] }

// allocConn returns a connection whose fields are zero, but for m, id and those that say
// "none"; nil at the limit.
func (m *Mux) allocConn() *Conn {
	s := &m.slab
	if s.live >= m.cfg.MaxConns {
		return nil
	}
	s.live++
	id := s.free
	if id != noConn {
		c := m.conn(id)
		s.free = c.link
		*c = Conn{m: m, id: id, link: noConn, armedAt: never, active: m.getActive()}
		return c
	}
	id = s.used
	s.used++
	if id%pageSize == 0 {
		s.pages = append(s.pages, new([pageSize]Conn))
		m.wheel.Grow(len(s.pages) * pageSize)
	}
	c := m.conn(id)
	c.m, c.id, c.link, c.armedAt, c.active = m, id, noConn, never, m.getActive()
	return c
}

// freeConn takes back what allocConn returned. Nothing may refer to its number any more.
func (m *Mux) freeConn(c *Conn) {
	m.slab.live--
	control := c.compacted.cc
	if c.active != nil {
		control = c.sender.cc
		m.putActive(c.active)
	}
	if control != nil {
		m.controls.Put(control)
	}
	*c = Conn{m: m, id: c.id, link: m.slab.free}
	m.slab.free = c.id
}

// dropConn frees all that is left of a closed connection.
func (m *Mux) dropConn(c *Conn) {
	m.wheel.Stop(c.id)
	c.dropReceived()
	m.freeConn(c)
}
