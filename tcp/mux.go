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

// Config describes a Mux. Output is required; the zero values of the rest are defaults.
type Config struct {
	Output Output
	Now    clock.Time // the time at which the Mux begins
	Secret [32]byte   // keys initial sequence numbers, cookies and timestamps (RFC 6528); loops of one host share it, as flows may move between them
	Seed   uint64     // of random numbers that need not be secret

	Budget      int64         // memory of all buffers, bytes; 0 is 64 MiB
	ReceiveRing int64         // bytes of full segments that the devices hold for this loop; 0: no limit. See ringPromises
	MaxConns    int           // 0 is 1<<20
	MaxHalfOpen int           // records in the SYN queue; 0 is 65 536, less than 0 none; SYN cookies serve what exceeds three quarters of it
	MaxTimeWait int           // TIME-WAIT records; 0 is 65 536; the oldest makes room
	TimeWait    time.Duration // duration of TIME-WAIT, 2 MSL; 0 is 60 s

	// Owns reports whether segments of the flow reach this Mux; nil is always. Connect
	// chooses a local port for which it holds, because RSS gives each flow to one queue.
	Owns func(t *wire.Tuple) bool

	Defaults Options // of connections and listeners that have none
}

// Defaults and limits of Config.
const (
	defaultBudget   = 64 << 20
	defaultMaxConns = 1 << 20
)

// tick is the resolution of the timer wheel. Pacing and tail loss probes within a data
// centre need less than a millisecond.
const tick = 64 * time.Microsecond

// Mux holds the connections and listeners of one loop. It does not lock: only the owner of
// the loop calls it and its connections.
type Mux struct {
	cfg   Config
	stats Stats
	now   clock.Time // of the last call; timers that fire within one Poll see the same time

	slab    slab
	table   table
	active  activePorts
	wheel   *clock.Wheel
	fire    func(id uint32) // m.expire, bound once
	passive passive

	buffers     buffer.Pool
	rxRings     ringPromises
	writers     writerList // that wait for memory
	refused     []uint32   // connections that refused data in order, oldest first
	placed      placements
	reserved    reservation
	queues      spares[buffer.Queue]
	rings       spares[buffer.Ring]
	spareActive spares[active]
	losses      loss.Pool
	controls    cc.Pool
	random      random.Source // of what need not be secret

	// Connections with something to send or to report form a list through Conn.link, oldest
	// first, so that a Poll costs what happened and not what exists.
	dirty, last uint32
	blocked     []uint32 // connections for which the Output had no room; Poll tries them again

	lastOptions *Options // of the newest connection whose options were not the defaults: accepted connections mostly share them

	// Scratch for the segment being sent and the connection being made: on the stack they
	// would escape into the Output and be allocated for each call.
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
	m := &Mux{cfg: cfg, now: cfg.Now, random: random.Source(cfg.Seed), dirty: noConn, last: noConn, writers: writerList{head: noConn, tail: noConn}}
	m.initPassive()
	m.slab.free = noConn
	m.buffers.Budget = cfg.Budget
	m.rxRings.limit = cfg.ReceiveRing
	m.wheel = clock.NewWheel(0, tick, cfg.Now)
	m.fire = m.expire
	m.table.init(m.passive.secrets.table)
	return m
}

// Input handles a segment that arrived for t, which names the flow as this host sees it.
// The caller has verified addresses and checksum. The result is Deliver or the reason of
// the drop. What a connection has to send because of it leaves with the next Poll; replies
// without a connection (SYN-ACK, RST, the ACKs of TIME-WAIT) leave at once.
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

// Poll runs the timers that are due, reports events to owners, and sends what may be sent.
// It returns when it must be called again at the latest. After Input, or a call of a
// connection's methods, the loop calls it without waiting for that time.
func (m *Mux) Poll(now clock.Time) clock.Time {
	m.now = now
	if m.placed.n > 0 {
		m.endPlacements()
	}
	m.wheel.Advance(now, m.fire)
	if len(m.blocked) > 0 {
		m.unblock()
	}
	next := m.pollPassive(now)
	m.passive.reportAcceptable()
	if m.refusedReady() {
		m.announceMemory()
	}
	for woken := 0; m.dirty != noConn || m.writers.head != noConn && woken < maxWoken && m.wakeWriters(&woken); {
		m.flushDirty(now)
		m.passive.reportAcceptable()
	}
	if m.writersReady() || m.refusedReady() {
		return now
	}
	if len(m.blocked) > 0 {
		return now.Add(tick)
	}
	return min(next, m.wheel.Next())
}

// Idle reports whether Poll would only run timers: no connection has anything to send or to
// report.
func (m *Mux) Idle() bool {
	return m.dirty == noConn && len(m.blocked) == 0 && len(m.passive.ready) == 0 && !m.writersReady() && !m.refusedReady()
}

// flushDirty serves the connections that are in the list now. Owners may put connections
// into it again: those wait for the next round, so that one that always has more cannot
// starve the others.
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

// flush reports events, sends, and arms the timer. The owner goes first, so that what it
// writes in response leaves with the ACK of what it read: one segment instead of two.
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
	if c.opt.NotSentLowat > 0 {
		c.reportWritable() // sending makes room, too, and not only an ACK
	}
	c.noteLimit(now)
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

// markDirty puts c into the list of connections that the next Poll serves.
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

// block notes that the Output had no room for c; the next Poll tries again.
func (m *Mux) block(c *Conn) {
	if !c.has(flagBlocked) {
		c.flags |= flagBlocked
		m.blocked = append(m.blocked, c.id)
	}
}

// unblock lets the connections that found no room in the Output try again.
func (m *Mux) unblock() {
	for _, id := range m.blocked {
		c := m.conn(id)
		c.flags &^= flagBlocked
		m.markDirty(c)
	}
	m.blocked = m.blocked[:0]
}

// Len returns the number of connections, idle ones included. Half-open ones and those in TIME-WAIT are records, and none.
func (m *Mux) Len() int { return m.slab.live }

// Each calls f for every connection that is not closed.
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
	pages  []*[pageSize]Conn
	counts []*[pageSize]counts // apart from Conn, which then has its size class
	used   uint32              // numbers that were handed out at least once
	free   uint32              // the list of numbers given back, by Conn.link
	live   int
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
		*c.counts = counts{}
		*c = Conn{m: m, id: id, link: noConn, armedAt: never, active: m.getActive(), counts: c.counts}
		return c
	}
	id = s.used
	s.used++
	if id%pageSize == 0 {
		s.pages, s.counts = append(s.pages, new([pageSize]Conn)), append(s.counts, new([pageSize]counts))
		m.wheel.Grow(len(s.pages) * pageSize)
	}
	c := m.conn(id)
	c.m, c.id, c.link, c.armedAt, c.active = m, id, noConn, never, m.getActive()
	c.counts = &s.counts[id>>pageShift][id%pageSize]
	return c
}

// freeConn takes back what allocConn returned. Nothing may refer to its number any more.
func (m *Mux) freeConn(c *Conn) {
	m.slab.live--
	control := c.compacted.cc
	if c.active != nil {
		c.unpromise()
		control = c.sender.cc
		m.putActive(c.active)
	}
	if control != nil {
		m.controls.Put(control)
	}
	*c = Conn{m: m, id: c.id, link: m.slab.free, counts: c.counts}
	m.slab.free = c.id
}

// dropConn frees all that is left of a closed connection.
func (m *Mux) dropConn(c *Conn) {
	m.wheel.Stop(c.id)
	c.dropReceived()
	m.freeConn(c)
}
