package datapath

import (
	"fmt"
	"math/bits"
)

// Audit returns what does not agree between the table, the half-open queues, the ports and the kernel's entries: nil, unless
// there is a bug. It looks at every connection, so it is for tests and debug builds. Only the loop may
// call it.
func (h *Handler) Audit() error {
	a := audit{h: h, held: map[portPair]int{}, closed: map[portPair]int{}}
	for n := range h.table.conns {
		if h.table.conns[n].state == stateFree {
			continue
		}
		if err := a.connection(n); err != nil {
			return err
		}
	}
	if err := a.table(); err != nil {
		return err
	}
	if err := a.kernel(); err != nil {
		return err
	}
	return a.queues()
}

// audit holds the counts of Audit.
type audit struct {
	h                *Handler
	live, half, used int              // connections, half-open ones, slots of the index that they should have
	entered          int              // that the kernel forwards
	closing          int              // those that have begun to close
	held, closed     map[portPair]int // ports in use, those of closed connections among them
}

// connection checks that connection n is found by both of its keys, holds its own port and slot, and is half-open or
// confirmed.
func (a *audit) connection(n int) error {
	h, c := a.h, &a.h.table.conns[n]
	a.live++
	a.used++
	if c.state.ending() {
		a.closing++
	}
	ck, bk := c.clientKey(), c.backendKey()
	if h.table.byClient(&ck) != n {
		return fmt.Errorf("connection %d is not found by its client", n)
	}
	if !c.direct() {
		a.used++
		if h.table.byBackend(&bk) != n {
			return fmt.Errorf("connection %d is not found by its backend", n)
		}
	}
	if c.pair != 0 {
		pair := c.portPair(c.snat)
		a.held[pair]++
		if c.closed() {
			a.closed[pair]++
		}
		if h.ports.list[c.pair] != h.ports.pairs[pair] {
			return fmt.Errorf("connection %d has another pair's port", n)
		}
	}
	if c.entered() {
		a.entered++
	}
	if c.halfOpen() {
		a.half++
		if int(h.table.halfOpen.slots[c.place].conn) != n {
			return fmt.Errorf("connection %d has another's half-open slot", n)
		}
		if c.state.confirmed() {
			return fmt.Errorf("connection %d is half-open and confirmed", n)
		}
	}
	return nil
}

// table checks the numbers of connections and of slots in use.
func (a *audit) table() error {
	t, used := a.h.table, 0
	for _, s := range t.index {
		if s != 0 {
			used++
		}
	}
	if a.live != t.live || a.half != t.halfOpen.n || used != a.used {
		return fmt.Errorf("%d connections of %d, %d half-open of %d, %d slots of %d", a.live, t.live, a.half, t.halfOpen.n, used, a.used)
	}
	for n := range t.conns {
		if free := t.free.levels[0][n>>6]>>(n&63)&1 != 0; free != (t.conns[n].state == stateFree) || !free && n >= t.high {
			return fmt.Errorf("connection %d of %d: in use %v, free %v", n, t.high, t.conns[n].state != stateFree, free)
		}
	}
	if a.closing != a.h.closing {
		return fmt.Errorf("%d connections close, %d are counted", a.closing, a.h.closing)
	}
	if most := len(t.halfOpen.slots) - 1; a.half > most || a.live > len(t.conns) || a.live-a.half > t.confirmed {
		return fmt.Errorf("%d connections, %d half-open: beyond the budgets", a.live, a.half)
	}
	return nil
}

// kernel checks that each entry is of a connection that the kernel may forward, as it was entered, and has a slot of its own.
func (a *audit) kernel() error {
	k, slots := &a.h.kernel, map[uint32]bool{}
	if a.entered != len(k.entries) {
		return fmt.Errorf("%d connections are in the kernel, %d have an entry", a.entered, len(k.entries))
	}
	for i := range k.entries {
		e := &k.entries[i]
		c := &a.h.table.conns[e.conn]
		switch {
		case !c.entered() || k.entry(c) != e:
			return fmt.Errorf("entry %d is not that of connection %d", i, e.conn)
		case slots[e.slot]:
			return fmt.Errorf("slot %d of the kernel has two connections", e.slot)
		case c.state != stateUDP && c.state != stateEstablished || c.direct():
			return fmt.Errorf("connection %d, %s, is in the kernel", e.conn, stateNames[c.state])
		case c.mac != e.mac || c.dev != e.devs[sideClient] || c.vlan != 0 || c.backend != e.backend || a.h.snap.endpointPlace(c.endpoint) != e.endpoint:
			return fmt.Errorf("connection %d is not as it was entered in the kernel", e.conn)
		}
		slots[e.slot] = true
	}
	return nil
}

// queues checks the ports and the queues of half-open connections.
func (a *audit) queues() error {
	h, aged, paired := a.h, 0, 0
	slots := h.table.halfOpen.slots
	for s := h.table.halfOpen.all.oldest; s != 0; s = slots[s].links[byAge].newer {
		aged++
	}
	for pair, m := range h.ports.pairs {
		if m.free != h.ports.span.Size()-a.held[pair]-m.rest.n {
			return fmt.Errorf("pair %v: %d ports are free, %d held, %d rest", pair, m.free, a.held[pair], m.rest.n)
		}
		if n := m.clear(); n != m.free {
			return fmt.Errorf("pair %v: %d ports are free, %d bits clear", pair, m.free, n)
		}
		n := 0
		for at := m.closed.oldest; at != 0; at = h.table.closed[at-1].newer {
			if c := &h.table.conns[at-1]; !c.closed() || c.pair != m.number {
				return fmt.Errorf("connection %d stands among the closed ones of pair %v", at-1, pair)
			}
			n++
		}
		if n != a.closed[pair] || n != m.ended {
			return fmt.Errorf("pair %v: %d closed connections, %d in the queue", pair, a.closed[pair], n)
		}
		for s := m.half.oldest; s != 0; s = slots[s].links[byPair].newer {
			if c := &h.table.conns[slots[s].conn]; c.portPair(c.snat) != pair {
				return fmt.Errorf("half-open connection %d stands in the queue of another pair", slots[s].conn)
			}
			paired++
		}
	}
	if aged != a.half || paired > a.half {
		return fmt.Errorf("%d half-open connections, %d by age, %d by pair", a.half, aged, paired)
	}
	return nil
}

// clear returns the number of clear bits.
func (m *portMap) clear() (n int) {
	for _, w := range m.used {
		n += bits.OnesCount64(^w)
	}
	return n
}
