package tcp

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// Connect begins to connect to t's remote end (RFC 9293 3.10.1, active OPEN). Where
// LocalPort is 0 it chooses a free one that Owns approves. The owner gets Connected, or
// Closed. A nil o is the Mux's Defaults. ErrInUse is a listener at the LocalPort, and
// ErrConnected a connection, or one in TIME-WAIT, with the same tuple. ErrPortSearch asks the caller to call again: most
// ports are in use, and the search goes on where it stopped.
func (m *Mux) Connect(now clock.Time, t wire.Tuple, o *Options, owner Owner) (*Conn, error) {
	return m.connect(now, t, o, owner, nil)
}

// connect is Connect from the address and port of b or, where that is nil, from those of t.
func (m *Mux) connect(now clock.Time, t wire.Tuple, o *Options, owner Owner, b *Binding) (*Conn, error) {
	m.now = now
	if o == nil {
		o = &m.cfg.Defaults
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	m.flow = t
	flow := &m.flow
	if flow.LocalPort == 0 {
		if err := m.choosePort(now, flow, m.connected); err != nil {
			return nil, err
		}
	} else if err := m.mayBind(flow, o, b); err != nil {
		return nil, err
	}
	// A tuple without a route fails now; the application would otherwise wait for a
	// timeout.
	mtu := m.cfg.Output.MTU(flow)
	if mtu == 0 {
		return nil, ErrUnreachable
	}
	iss, ok := m.sequenceFor(now, flow)
	if !ok {
		return nil, ErrConnected
	}
	c, err := m.createConn(now, flow, o)
	if err != nil {
		return nil, err
	}
	if o.Keys != nil {
		c.auth = auth.New(o.Keys, flow, iss)
	}
	c.owner = owner
	m.active.add(flow.LocalPort)
	c.startActiveOpen(iss)
	c.state = StateSynSent
	c.promise()
	m.stats.ActiveOpens++
	return c, nil
}

// mayBind returns why t, whose local port the caller has chosen, may not have a connection.
// Connections to several destinations may share a port, as on Linux those of sockets with
// SO_REUSEADDR. A listener there may not be beside, unless both have the option Share. What b may be beside Bind has decided.
func (m *Mux) mayBind(t *wire.Tuple, o *Options, b *Binding) error {
	if p := m.passive.byPort[t.LocalPort]; p != nil && b == nil {
		if p.conflict(ports.NewScope(t.Local, false), ports.Terms{Reuse: true, Share: o.Share}) {
			return ErrInUse
		}
	}
	if m.connected(t) {
		return ErrConnected
	}
	return nil
}

// connected reports whether t has a connection.
func (m *Mux) connected(t *wire.Tuple) bool { return m.lookup(t) != nil }

// createConn makes a connection that is in the table and has neither state nor sequence
// numbers.
func (m *Mux) createConn(now clock.Time, t *wire.Tuple, o *Options) (*Conn, error) {
	c := m.allocConn()
	if c == nil {
		return nil, ErrTooMany
	}
	control, err := m.controls.New(o.Congestion, initialMSS)
	if err != nil {
		m.freeConn(c)
		return nil, err
	}
	c.tuple, c.opt = *t, m.intern(o)
	c.sender.cc, c.sender.maxPacing = control, o.MaxPacing
	c.ackAt, c.probeAt, c.aliveAt, c.progressAt = never, never, now, now
	c.rcvLimit = m.initialReceive(c.opt)
	c.quickACKs = initialQuickACKs
	c.flags |= flagTable
	m.table.insert(m.table.hashTuple(t), c.id)
	return c, nil
}

// initialMSS is the segment size before the handshake (RFC 9293 3.7.1).
const initialMSS = 536

// startActiveOpen begins the send sequence space at iss, which the SYN takes. The SYN
// leaves with the next Poll.
func (c *Conn) startActiveOpen(iss uint32) {
	c.una, c.nxt, c.end, c.partialEnd = iss, iss, iss+1, iss
	c.tsOffset = c.m.passive.secrets.timestampOffset(&c.tuple)
	c.peerMSS = defaultMSS(&c.tuple)
	c.rcvScale = scaleFor(c.opt)
	c.segment = uint16(c.segmentSize())
	c.sender.init(&c.m.losses, iss, c.lossOptions(), c.sender.cc)
	c.m.markDirty(c)
}

// newPassiveConn makes the connection that h describes, in state ESTABLISHED (SYN-RECEIVED
// where h.fastOpen), and enters it in the table. The caller passes it the segment that
// completed the handshake. nil is no room.
func (m *Mux) newPassiveConn(now clock.Time, h *handshake) *Conn {
	c, err := m.createConn(now, &h.tuple, h.opts)
	if err != nil {
		return nil
	}
	c.flags |= flagPassive
	c.auth = h.auth
	c.tsOffset, c.tsRecent = h.tsOffset, h.tsRecent
	c.una, c.nxt, c.end = h.iss+1, h.iss+1, h.iss+1
	c.state = StateEstablished
	if h.fastOpen {
		c.una, c.nxt = h.iss, h.iss
		c.state = StateSynReceived
		c.flags |= flagFastOpen
		if h.cookie != nil {
			c.ensureRare().cookie = slices.Clone(h.cookie)
		}
	}
	c.partialEnd = c.una
	c.rcvNxt, c.lastAcked = h.irs+1, h.irs+1
	// The peer knows the window of the SYN-ACK; ours must not be smaller (RFC 9293 3.8.6).
	c.rcvAdv = c.rcvNxt + h.announced
	c.rcvScale = h.receiveScale
	c.promise()
	c.setNegotiated(h)
	c.wl1, c.wl2 = h.irs, c.una
	c.sndEdge = c.end + uint32(h.window)
	c.maxWnd = uint32(h.window)
	c.segment = uint16(c.segmentSize())
	c.sender.init(&m.losses, c.una, c.lossOptions(), c.sender.cc)
	if h.sent != 0 {
		c.sender.scoreboard.MeasuredRTT(now, now.Sub(h.sent))
	}
	m.stats.PassiveOpens++
	m.markDirty(c)
	return c
}
