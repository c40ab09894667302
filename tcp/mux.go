package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/cc"
	"github.com/millrace/millrace/tcp/loss"
	"github.com/millrace/millrace/wire"
)

// Config says how a Mux works. Output is needed; the zero values of the rest are defaults.
type Config struct {
	Output Output
	Now    clock.Time // the time at which the Mux begins
	Secret [32]byte   // of initial sequence numbers, cookies and timestamps (RFC 6528); the same for all loops of a host
	Seed   uint64     // of random numbers that need not be secret

	Budget      int64         // bytes of all buffers; 0 is 64 MiB
	MaxConns    int           // 0 is 1<<20
	MaxHalfOpen int           // records of connections that are being accepted; 0 is 65 536, less than 0 none; cookies serve beyond
	MaxTimeWait int           // records of connections that wait for old segments; 0 is 65 536
	TimeWait    time.Duration // how long TIME-WAIT lasts, 2 MSL; 0 is 60 s

	// Owns reports whether segments of the flow come to this Mux; nil is that all do. Connect chooses a
	// local port with which they do.
	Owns func(t *wire.Tuple) bool

	Defaults Options // of connections and listeners that have none
}

// Defaults and limits of Config.
const (
	defaultBudget   = 64 << 20
	defaultMaxConns = 1 << 20
)

// tick is what timers are rounded up to: pacing and probes need less than a millisecond.
const tick = 64 * time.Microsecond

// Mux holds the connections and listeners of one loop. It does not lock: all calls for it and for its
// connections come from the owner of the loop.
type Mux struct {
	cfg   Config
	stats Stats
	now   clock.Time // of the last call

	slab    slab
	table   table
	wheel   *clock.Wheel
	fire    func(id uint32) // m.expire, bound once
	passive passive

	buffers     buffer.Pool
	queues      []*buffer.Queue // to be used again
	rings       []*buffer.Ring
	spareActive []*active
	losses      loss.Pool
	controls    cc.Pool
	random      random.Source // of what need not be secret

	// Connections with something to send or to tell, by Conn.link.
	dirty, last uint32
	blocked     []uint32 // for room in the Output

	lastOptions *Options // what the last connection had whose options were its own

	out       Outgoing   // of the segment that is being sent
	flow      wire.Tuple // of the connection that is being made
	probeSize uint16     // its size with options, where it is a probe of the path
	options   [wire.TCPMaxOptions]byte
}

// NewMux returns a Mux without connections.
func NewMux(cfg Config) *Mux {
	if cfg.Budget == 0 {
		cfg.Budget = defaultBudget
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	m := &Mux{cfg: cfg, now: cfg.Now, random: random.Source(cfg.Seed), dirty: noConn, last: noConn}
	m.initPassive()
	m.slab.free = noConn
	m.buffers.Budget = cfg.Budget
	m.wheel = clock.NewWheel(0, tick, cfg.Now)
	m.fire = m.expire
	m.table.init(m.passive.secrets.table)
	return m
}

// Input takes a segment that arrived for t, which names the flow as this host sees it. Addresses and
// checksum have been verified. The answer is Deliver or the reason of its drop. What a connection has to
// send because of it leaves with the next Poll; what is said for no connection (SYN-ACK, RST, the ACKs of
// TIME-WAIT) leaves at once.
func (m *Mux) Input(now clock.Time, t *wire.Tuple, s *Segment) packet.Verdict {
	m.now = now
	m.stats.SegmentsIn += uint64(s.Packets)
	m.stats.BytesIn += uint64(s.Len)
	if c := m.lookup(t); c != nil {
		c.ensureActive()
		return c.input(now, s)
	}
	return m.inputUnmatched(now, t, s)
}

// Poll runs timers that are due, tells owners what became possible, and sends what may be sent. It
// returns when it wants to be called again at the latest; a call of Input or of a connection's methods
// wants a Poll at once.
func (m *Mux) Poll(now clock.Time) clock.Time {
	m.now = now
	m.wheel.Advance(now, m.fire)
	m.unblock()
	next := m.pollPassive(now)
	m.passive.reportAcceptable()
	for m.dirty != noConn {
		m.flushDirty(now)
		m.passive.reportAcceptable()
	}
	if len(m.blocked) > 0 {
		return now.Add(tick)
	}
	return min(next, m.wheel.Next())
}

// Idle reports whether no connection has anything to send or to tell, so that Poll would do nothing but run
// timers.
func (m *Mux) Idle() bool {
	return m.dirty == noConn && len(m.blocked) == 0 && len(m.passive.ready) == 0
}

// flushDirty serves the connections that are in the list now; owners may put some into it again.
func (m *Mux) flushDirty(now clock.Time) {
	id := m.dirty
	m.dirty, m.last = noConn, noConn
	for id != noConn {
		c := m.conn(id)
		id = c.link
		c.link = noConn
		c.flags &^= flagDirty
		c.flush(now)
	}
}

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

// markDirty puts c into the list of those to serve.
func (m *Mux) markDirty(c *Conn) {
	if c.has(flagDirty) {
		return
	}
	c.flags |= flagDirty
	c.link = noConn
	if m.last == noConn {
		m.dirty = c.id
	} else {
		m.conn(m.last).link = c.id
	}
	m.last = c.id
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

// Each calls f for every connection that did not end.
func (m *Mux) Each(f func(*Conn)) {
	for id := range m.slab.used {
		if c := m.conn(id); c.state != StateClosed {
			f(c)
		}
	}
}

// Stats returns the counters.
func (m *Mux) Stats() Stats {
	s := m.stats
	s.Conns = m.slab.live
	s.Memory = m.buffers.Used()
	s.HalfOpen, s.TimeWait = m.passive.synQueue.used, m.passive.timeWait.used
	return s
}
