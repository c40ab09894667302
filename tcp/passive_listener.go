package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// Listener takes connections to a local address and port.
type Listener struct {
	m               *Mux
	local           wire.Addr
	port            uint16
	id              uint16 // index in front.listeners, by which half-open records name it
	backlog         int
	halfOpen        int // half-open records
	fastOpenPending int // Fast Open connections in the queue whose handshake is not complete
	owner           Owner
	opts            *Options
	queue           []*Conn // that wait to be accepted, the oldest at head
	head            int
	reportPending   bool // in front.ready
	closed          bool
}

// endpoint is where listeners listen; the zero address is any.
type endpoint struct {
	addr wire.Addr
	port uint16
}

// maxListeners is what an index in a half-open record can name.
const maxListeners = 1 << 16

// Listen takes connections to port at local, any address where that is zero, and any of IPv4 where it is
// wire.Unspecified4. Port 0 is chosen, see Listener.Addr. At most backlog of them
// wait to be accepted; fewer than one counts as one. A nil o is the Mux's Defaults. The options are
// those of the connections too; they must not change.
func (m *Mux) Listen(local wire.Addr, port uint16, backlog int, o *Options, owner Owner) (*Listener, error) {
	f := &m.passive
	if port == 0 {
		if port = m.freePort(local); port == 0 {
			return nil, ErrNoPort
		}
	}
	at := endpoint{local, port}
	if f.byEndpoint[at] != nil {
		return nil, ErrInUse
	}
	if o == nil {
		o = &m.cfg.Defaults
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	id := f.freeID()
	if id < 0 {
		return nil, ErrTooMany
	}
	l := &Listener{m: m, local: local, port: port, id: uint16(id), backlog: max(backlog, 1), owner: owner, opts: o}
	f.listeners[id], f.byEndpoint[at] = l, l
	return l, nil
}

// freePort returns a port at which nobody listens, 0 where there is none.
func (m *Mux) freePort(local wire.Addr) uint16 {
	f := &m.passive
	start := m.random.Uint64()
	for i := range uint64(ports) {
		port := uint16(firstPort + (start+i)%ports)
		if f.byEndpoint[endpoint{local, port}] == nil && f.byEndpoint[endpoint{port: port}] == nil {
			return port
		}
	}
	return 0
}

// freeID returns an index of listeners that is free, -1 where all are taken.
func (f *passive) freeID() int {
	for i, l := range f.listeners {
		if l == nil {
			return i
		}
	}
	if len(f.listeners) == maxListeners {
		return -1
	}
	f.listeners = append(f.listeners, nil)
	return len(f.listeners) - 1
}

// listenerFor returns who listens for t: at its address, else at any.
func (f *passive) listenerFor(t *wire.Tuple) *Listener {
	if len(f.byEndpoint) == 0 {
		return nil
	}
	if l := f.byEndpoint[endpoint{t.Local, t.LocalPort}]; l != nil {
		return l
	}
	if t.Local.Is4() {
		if l := f.byEndpoint[endpoint{wire.Unspecified4, t.LocalPort}]; l != nil {
			return l
		}
	}
	return f.byEndpoint[endpoint{port: t.LocalPort}]
}

// listens reports whether a listener has the port at the address or at any.
func (f *passive) listens(t *wire.Tuple) bool { return f.listenerFor(t) != nil }

// Accept returns the connection that waits longest, nil where none does. It belongs to the caller,
// who names its owner with SetOwner.
func (l *Listener) Accept() *Conn {
	if l.head == len(l.queue) {
		return nil
	}
	c := l.queue[l.head]
	l.queue[l.head] = nil
	l.head++
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	return c
}

// Waiting returns how many connections wait to be accepted.
func (l *Listener) Waiting() int { return len(l.queue) - l.head }

// full reports whether no more may wait.
func (l *Listener) full() bool { return l.Waiting() >= l.backlog }

// enqueue has c wait to be accepted, and the owner hear of it.
func (l *Listener) enqueue(c *Conn) {
	if l.head > 0 && len(l.queue) == cap(l.queue) {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	l.queue = append(l.queue, c)
	if !l.reportPending {
		l.reportPending = true
		l.m.passive.ready = append(l.m.passive.ready, l)
	}
}

// Addr returns the address and the port that l listens on.
func (l *Listener) Addr() (wire.Addr, uint16) { return l.local, l.port }

// Close ends l, forgets its half-open connections, and resets those that nobody has accepted (RFC 9293 3.10.4).
func (l *Listener) Close(now clock.Time) {
	if l.closed {
		return
	}
	l.closed = true
	f := &l.m.passive
	delete(f.byEndpoint, endpoint{l.local, l.port})
	f.listeners[l.id] = nil
	f.dropHalfOpen(l)
	for c := l.Accept(); c != nil; c = l.Accept() {
		c.Abort(now)
	}
}

// dropHalfOpen forgets the half-open connections of l.
func (f *passive) dropHalfOpen(l *Listener) {
	for slot := 0; l.halfOpen > 0 && slot < len(f.synQueue.slots); slot++ {
		if h := &f.synQueue.slots[slot]; h.live() && h.listenerID == l.id {
			l.halfOpen--
			f.synQueue.drop(uint32(slot))
		}
	}
}

// reportAcceptable tells the owners of listeners for which connections have come to wait, once for all of them.
func (f *passive) reportAcceptable() {
	for len(f.ready) > 0 {
		ready := f.ready
		f.ready = f.spare[:0]
		for i, l := range ready {
			ready[i], l.reportPending = nil, false
			if l.owner != nil && !l.closed {
				l.owner.Ready(Acceptable)
			}
		}
		f.spare = ready[:0]
	}
}
