package tcp

import "github.com/millrace/millrace/clock"

// flush tells the owner what happened, so that what it does about it leaves together with the ACK,
// sends, and sets the timer.
func (c *Conn) flush(now clock.Time) {
	if c.active == nil {
		c.restore()
	}
	if e := c.events; e != 0 {
		c.events = 0
		if c.owner != nil {
			c.owner.Ready(e)
		}
	}
	if !c.output(now) {
		c.m.block(c)
	}
	if !c.ended() {
		if c.idle() && c.compactAt() <= now {
			c.compact()
		}
		c.arm(c.nextTimer())
	} else if c.has(flagOrphaned) && c.flags&(flagDirty|flagBlocked) == 0 {
		c.m.dropConn(c)
	}
}

// ended reports whether the connection has nothing left to do.
func (c *Conn) ended() bool { return c.state == StateClosed || c.state == StateTimeWait }

// dropConn frees all that is left of c.
func (m *Mux) dropConn(c *Conn) {
	m.wheel.Stop(c.id)
	c.dropReceived()
	m.freeConn(c)
}

// block keeps c, for which the Output had no room, until the next Poll.
func (m *Mux) block(c *Conn) {
	if !c.has(flagBlocked) {
		c.flags |= flagBlocked
		m.blocked = append(m.blocked, c.id)
	}
}

// unblock has those that waited for the Output try again.
func (m *Mux) unblock() {
	for _, id := range m.blocked {
		c := m.conn(id)
		c.flags &^= flagBlocked
		m.markDirty(c)
	}
	m.blocked = m.blocked[:0]
}

// The structures of buffers are used again, with the slices that they have grown.

func (m *Mux) getQueue() *sendQueue {
	if n := len(m.queues); n > 0 {
		q := m.queues[n-1]
		m.queues = m.queues[:n-1]
		return q
	}
	return new(sendQueue)
}

func (m *Mux) putQueue(q *sendQueue) {
	q.release(&m.buffers, q.end)
	if len(m.queues) < maxSpare {
		m.queues = append(m.queues, q)
	}
}

func (m *Mux) getRing() *receiveRing {
	if n := len(m.rings); n > 0 {
		r := m.rings[n-1]
		m.rings = m.rings[:n-1]
		return r
	}
	return new(receiveRing)
}

func (m *Mux) putRing(r *receiveRing) {
	if r.buf != nil {
		m.buffers.put(r.buf)
	}
	*r = receiveRing{ooo: r.ooo[:0]}
	if len(m.rings) < maxSpare {
		m.rings = append(m.rings, r)
	}
}

// maxSpare is how many structures of each kind wait to be used again.
const maxSpare = 4096
