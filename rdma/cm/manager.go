package cm

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Config describes a Manager. Draw and Notify are required.
type Config struct {
	Addr   wire.Addr     // of the port: its GID
	CAGUID uint64        // identifies the channel adapter
	Draw   func() uint64 // returns random numbers, of which IDs are made
	Notify func(Event)   // takes events in order; called from Input, Poll and the methods of Conn. It may call those of Conn

	MaxConns    int // connections in any state; 0 is 65536
	MaxHalfOpen int // connections that peers began and that are not established; 0 is 1024
	MaxBySource int // the same for one address; 0 is 128

	AcceptTimeout time.Duration // a request that the program has not answered by then is rejected; 0 is 60 s
}

// Peer is the way to the other side: its address, and what the layer below needs to reach it.
type Peer struct {
	Addr wire.Addr
	MAC  wire.MAC
	VLAN uint16
	Dev  uint8
}

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds.
const (
	Requested    EventKind = iota // passive: a REQ; the program calls Accept or Reject
	Replied                       // active: a REP; the program calls Ready or Reject
	Opened                        // passive: RTU has come, the connection is established
	Rejected                      // by the peer: Message.Reason, Info and Private
	Unreachable                   // no answer; or the program did not answer in time
	Disconnected                  // either side ended the established connection, or a DREQ was not answered
	Released                      // the connection is Idle after it was established: its queue pair number may be used again
	eventKinds
)

// String returns the kind's name.
func (k EventKind) String() string {
	return [...]string{"requested", "replied", "opened", "rejected", "unreachable", "disconnected", "released", "unknown"}[min(k, eventKinds)]
}

// Event reports a change of a connection.
type Event struct {
	Kind    EventKind
	Conn    *Conn
	Message *Message // of Requested, Replied, Opened, Rejected, and Disconnected by the peer; borrowed for the call
}

// Errors.
var (
	ErrState   = errors.New("rdma/cm: not permitted in the state of the connection")
	ErrInUse   = errors.New("rdma/cm: the service has a listener: choose another port")
	ErrFull    = errors.New("rdma/cm: the limit of connections is reached: close some")
	ErrMessage = errors.New("rdma/cm: a field of the message is out of range")
)

// Counters count the events of a Manager.
type Counters struct {
	Received [Reasons]uint64 // datagrams, by effect
	Sent     uint64          // datagrams
	Repeated uint64          // of them, those that were sent before
	Expired  uint64          // connections and requests without an answer
}

// remoteKey names a connection by what the peer calls it.
type remoteKey struct {
	addr   wire.Addr
	number uint32
}

// Manager holds the connections of one address.
type Manager struct {
	cfg       Config
	listeners map[uint64]*Listener
	conns     map[uint32]*Conn    // by own communication ID
	byRemote  map[remoteKey]*Conn // passive ones, by the peer's communication ID
	byQPN     map[remoteKey]*Conn // by the peer's queue pair, from the first message that names it on
	bySource  map[wire.Addr]int   // half-open connections
	halfOpen  int

	wheel *clock.Wheel
	slots []*Conn // by timer
	free  []uint32
	ready []*Conn // that have something to send
	stray []reply // messages that are sent once
	count Counters
	at    clock.Time // of the call that runs
}

// reply is a datagram that is sent once.
type reply struct {
	to  Peer
	mad []byte
}

const (
	timerTick = time.Millisecond
	// mostStray bounds answers to datagrams between two Polls; further ones are dropped and counted.
	mostStray = 64
	// timeWait is longer than any packet of the connection lives in a data center.
	timeWait = time.Second
)

// New returns a Manager without connections.
func New(now clock.Time, cfg Config) *Manager {
	for _, d := range []struct {
		v *int
		n int
	}{{&cfg.MaxConns, 1 << 16}, {&cfg.MaxHalfOpen, 1024}, {&cfg.MaxBySource, 128}} {
		if *d.v == 0 {
			*d.v = d.n
		}
	}
	if cfg.AcceptTimeout == 0 {
		cfg.AcceptTimeout = time.Minute
	}
	return &Manager{
		cfg: cfg, listeners: map[uint64]*Listener{}, conns: map[uint32]*Conn{}, byRemote: map[remoteKey]*Conn{}, byQPN: map[remoteKey]*Conn{},
		bySource: map[wire.Addr]int{}, wheel: clock.NewWheel(0, timerTick, now),
	}
}

// Counters returns the counters.
func (m *Manager) Counters() Counters { return m.count }

// Conns returns the number of connections, and HalfOpen of those that peers began and that are not established.
func (m *Manager) Conns() int    { return len(m.conns) }
func (m *Manager) HalfOpen() int { return m.halfOpen }

// Listener takes requests for a service.
type Listener struct {
	m       *Manager
	service uint64
	backlog int
	waiting int // connections in ReqReceived
	Data    any // the caller's
}

// Listen takes requests for a service. At most backlog of them wait for the program; later ones are dropped, and the peer repeats them.
func (m *Manager) Listen(service uint64, backlog int, data any) (*Listener, error) {
	switch {
	case m.listeners[service] != nil:
		return nil, fmt.Errorf("%w: %#x", ErrInUse, service)
	case backlog < 1:
		return nil, fmt.Errorf("%w: backlog is %d", ErrMessage, backlog)
	}
	l := &Listener{m: m, service: service, backlog: backlog, Data: data}
	m.listeners[service] = l
	return l, nil
}

// Close ends the listener. Requests that wait for the program stay.
func (l *Listener) Close() {
	if l.m.listeners[l.service] == l {
		delete(l.m.listeners, l.service)
	}
}

// newID returns a communication ID that no connection has and a third party cannot guess.
func (m *Manager) newID() uint32 {
	for {
		if id := uint32(m.cfg.Draw()); id != 0 && m.conns[id] == nil {
			return id
		}
	}
}

// Poll sends what is due, and returns when to call it next. out sends one datagram, which it borrows; it reports false where there is no
// room now: Poll offers the datagram again.
func (m *Manager) Poll(now clock.Time, out func(to *Peer, mad []byte) bool) clock.Time {
	m.at = now
	m.wheel.Advance(now, func(slot uint32) {
		if c := m.slots[slot]; c != nil {
			c.expire(now)
		}
	})
	for i := range m.stray {
		if !out(&m.stray[i].to, m.stray[i].mad) {
			m.stray = append(m.stray[:0], m.stray[i:]...)
			return now
		}
		m.count.Sent++
	}
	m.stray = m.stray[:0]
	for i, c := range m.ready {
		if c.last != nil && !out(&c.peer, c.last) {
			m.ready = append(m.ready[:0], m.ready[i:]...)
			return now
		}
		c.queued = false
		if c.last != nil { // else the state has changed since
			m.count.Sent++
		}
	}
	clear(m.ready)
	m.ready = m.ready[:0]
	return m.wheel.Next()
}

// answer queues a message that is sent once.
func (m *Manager) answer(to *Peer, r *Message) {
	m.stray = append(m.stray, reply{to: *to, mad: r.Append(nil)})
}

// answerPeer is answer for messages that a datagram causes: a flood of those is not answered in full.
func (m *Manager) answerPeer(to *Peer, r *Message) bool {
	if len(m.stray) >= mostStray {
		m.count.Received[RepliesFull]++
		return false
	}
	m.answer(to, r)
	return true
}

func (m *Manager) notify(k EventKind, c *Conn, r *Message) {
	m.cfg.Notify(Event{Kind: k, Conn: c, Message: r})
}

// Timeout returns the time that a code of 5 bits stands for: 4.096 us * 2^code (12.7.5).
func Timeout(code uint8) time.Duration { return 4096 << (code & 31) }
