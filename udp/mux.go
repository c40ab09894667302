package udp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Config describes a Mux. Output is required.
type Config struct {
	Output Output
	Groups Groups // nil: no groups can be joined
	Seed   uint64 // for choosing ports and spreading flows over groups; to be secret

	// Budget bounds the memory of all queues together, in bytes; 0 is DefaultBudget. When
	// it is used up, the longest queues make room for the shorter ones.
	Budget     int64
	MaxSockets int // 0 is 65536

	// Owns reports whether datagrams of a flow reach this Mux: Connect chooses its port by
	// it, because RSS gives each flow to one queue. Nil is always.
	Owns func(*wire.Tuple) bool

	// PortFirst and PortLast bound the ports that Bind and Connect choose. 0 is the dynamic
	// ports, 49152 to 65535 (RFC 6335 6).
	PortFirst, PortLast uint16
}

// DefaultBudget is the default of Config for the memory of all queues of a Mux: 32 MiB.
const DefaultBudget = 32 << 20

// Mux holds the sockets of one loop. It does not lock: only the owner of the loop calls it
// and its sockets.
type Mux struct {
	cfg         Config
	ports       map[uint16]*port
	bound       ports.Set // the keys of ports
	searches    ports.Searches
	flows       map[wire.Tuple]*Socket // connected sockets
	lastMatch   *Socket                // the connected socket of the datagram before: flows come in bursts
	sockets     int
	nextID      uint32
	pool        pool
	longest     lengthBuckets
	recentPeers peerCache // peers of unconnected sockets
	rng         uint64
	stats       Stats

	pendingHead, pendingTail *Socket // to be notified at the next Poll
	blockedHead, blockedTail *Socket // whose Write found no room

	// What is passed to the Output lives here, so that nothing escapes to the heap for each
	// call.
	out      Outgoing
	outTuple wire.Tuple
	pieces   [][]byte
}

// Stats are the counters of a Mux, in datagrams. Received is what was queued on a socket at
// least and the sum of Dropped.
type Stats struct {
	Received uint64                  // Input, each of those merged
	Queued   uint64                  // in all queues: multicast may have several for one received
	Sent     uint64                  // taken by the Output
	Dropped  [packet.Verdicts]uint64 // received and queued nowhere, by reason
	Lost     uint64                  // not queued on a socket for want of room, or dropped from the longest queue to make room
	Sockets  int                     // open now
	Memory   int64                   // bytes of queues and leases now
}

// NewMux returns a Mux without sockets.
func NewMux(cfg Config) *Mux {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.MaxSockets == 0 {
		cfg.MaxSockets = 65536
	}
	if cfg.PortFirst == 0 || cfg.PortLast < cfg.PortFirst {
		cfg.PortFirst, cfg.PortLast = 49152, 65535
	}
	return &Mux{
		cfg:   cfg,
		ports: map[uint16]*port{},
		flows: map[wire.Tuple]*Socket{},
		pool:  pool{budget: cfg.Budget},
	}
}

// mark notes an event, which the next Poll reports.
func (s *Socket) mark(ev Events) {
	s.events |= ev
	if s.pending {
		return
	}
	s.pending = true
	m := s.m
	if m.pendingHead == nil {
		m.pendingHead = s
	} else {
		m.pendingTail.nextPending = s
	}
	m.pendingTail = s
}

// writeRetry is the time that a Write which found no room waits until its owner tries again. The
// queue of a device and the pool of frames do not notify when they have room.
const writeRetry = 64 * time.Microsecond

// writeRetries is the number of sockets that try again in one Poll, those first that have waited
// longest. More than that would find no room either, and one user's sockets would keep the
// loop from all others.
const writeRetries = 64

// Poll reports events to owners, and returns when it must be called again: never, now where
// owners caused more events, or soon where a Write found no room. Its owner gets Writable at
// the next Poll, and tries again.
func (m *Mux) Poll(now clock.Time) clock.Time {
	for n := 0; n < writeRetries && m.blockedHead != nil; n++ {
		s := m.blockedHead
		m.blockedHead, s.nextBlocked = s.nextBlocked, nil
		s.writeBlocked = false
		s.mark(Writable)
	}
	s := m.pendingHead
	m.pendingHead, m.pendingTail = nil, nil
	for s != nil {
		next, ev := s.nextPending, s.events
		s.nextPending, s.pending, s.events = nil, false, 0
		if !s.closed && s.owner != nil {
			s.owner.Ready(ev)
		}
		s = next
	}
	switch {
	case m.pendingHead != nil:
		return now
	case m.blockedHead != nil:
		return now.Add(writeRetry)
	}
	return clock.Never
}

// Stats returns the counters.
func (m *Mux) Stats() Stats {
	m.stats.Sockets, m.stats.Memory = m.sockets, m.pool.used
	return m.stats
}

// Each calls f with every socket, in no order. f must not open or close any.
func (m *Mux) Each(f func(*Socket)) {
	for _, p := range m.ports {
		for _, s := range p.all {
			f(s)
		}
	}
}
