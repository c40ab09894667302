package tcp

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/wire"
)

// Listener accepts connections to a local address and port (the LISTEN state of RFC 9293
// 3.3.2).
type Listener struct {
	m               *Mux
	local           wire.Addr
	port            uint16
	sharers         *sharers // of its address and port
	index           int      // among them
	id              uint16   // index in passive.listeners, by which half-open records name it
	backlog         int
	halfOpen        int    // records in the SYN queue
	firstHalfOpen   uint32 // of them, slot+1: the others follow by synQueue.links
	fastOpenPending int    // Fast Open connections in the queue whose handshake is not complete
	owner           Owner
	opts            *Options
	synAckOptions   *Options            // as Listen had them: SYN-ACKs under way have announced their window and scale
	deferAccept     time.Duration       // see SetDeferAccept
	deferred        map[uint32]struct{} // by Conn.id: connections in passive.deferred
	queue           []*Conn             // established connections that wait for Accept, the oldest at head
	head            int
	user            uint32
	binding         *Binding // that it has the port from; nil for most
	reportPending   bool     // in passive.ready
	closed          bool
}

// sharers are the listeners of one scope: one, or several that share it.
type sharers = ports.Sharers[Listener]

// listen puts l among the listeners of its scope.
func (p *localPort) listen(s ports.Scope, l *Listener) {
	if l.sharers = p.listeners.Get(s); l.sharers == nil {
		l.sharers = &sharers{Scope: s}
		p.listeners.Set(s, l.sharers)
	}
	l.index = l.sharers.Add(l)
	p.listening.Add(s, l.terms())
}

// endListen undoes listen.
func (p *localPort) endListen(l *Listener) {
	p.listening.Remove(l.sharers.Scope, l.terms())
	if l.sharers.Remove(l.index); l.sharers.Empty() {
		p.listeners.Delete(l.sharers.Scope)
	}
}

// terms returns which listeners may be beside l. SetOptions does not change them.
func (l *Listener) terms() ports.Terms {
	return ports.Terms{Share: l.synAckOptions.Share, User: l.user}
}

// maxListeners is the largest index that a record can hold.
const maxListeners = 1 << 16

// Listen accepts connections to port at local: any address where that is zero, any of IPv4
// where it is wire.Unspecified4. Port 0 chooses one, see Listener.Addr. At most backlog
// connections wait for Accept; less than one counts as one. A nil o is the Mux's Defaults.
// Accepted connections begin with the options, which must not change; see SetOptions.
//
// As on Linux, ErrInUse is a listener on the port with an address in common, unless both
// have the option Share; a connection goes to the listener with the more specific address.
func (m *Mux) Listen(local wire.Addr, port uint16, backlog int, o *Options, owner Owner) (*Listener, error) {
	f := &m.passive
	if o == nil {
		o = &m.cfg.Defaults
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if port == 0 {
		if port = m.freePort(); port == 0 {
			return nil, ErrNoPort
		}
	}
	scope := ports.NewScope(local, o.V6Only)
	if p := f.byPort[port]; p != nil && p.conflict(scope, ports.Terms{Reuse: true, Share: o.Share}) {
		return nil, ErrInUse
	}
	return m.newListener(scope, local, port, backlog, o, owner, 0)
}

// newListener makes a listener at an address and port that it may have.
func (m *Mux) newListener(s ports.Scope, local wire.Addr, port uint16, backlog int, o *Options, owner Owner, user uint32) (*Listener, error) {
	f := &m.passive
	id := f.freeID()
	if id < 0 {
		return nil, ErrTooMany
	}
	l := &Listener{m: m, local: local, port: port, id: uint16(id), backlog: max(backlog, 1), owner: owner, opts: o, synAckOptions: o, user: user}
	f.listeners[id] = l
	f.at(port).listen(s, l)
	return l, nil
}

// freePort returns a port that nothing is bound to, 0 where there is none; if it can, one at which no connection began. It
// begins with a random one, so that closing and listening again does not return the same port (RFC 6056 3.3.1).
func (m *Mux) freePort() uint16 {
	from := uint16(firstPort + m.random.Uint64()%portCount)
	for range ports.QuickTries {
		port, ok := m.passive.bound.Missing(from, firstPort, lastPort)
		if !ok {
			return 0
		}
		if !m.active.has(port) {
			return port
		}
		if from = port + 1; from < firstPort { // 65535 was the last one
			from = firstPort
		}
	}
	port, _ := m.passive.bound.Missing(from, firstPort, lastPort)
	return port
}

// remove ends what newListener began, and returns the port to the binding that l has it from.
func (f *passive) remove(l *Listener) {
	f.listeners[l.id] = nil
	f.freeIDs = append(f.freeIDs, l.id)
	f.byPort[l.port].endListen(l)
	if l.binding != nil {
		l.binding.listenerClosed()
	}
	f.release(l.port)
}

// freeID returns a free index of listeners, -1 where all are taken.
func (f *passive) freeID() int {
	if last := len(f.freeIDs) - 1; last >= 0 {
		id := f.freeIDs[last]
		f.freeIDs = f.freeIDs[:last]
		return int(id)
	}
	if len(f.listeners) == maxListeners {
		return -1
	}
	f.listeners = append(f.listeners, nil)
	return len(f.listeners) - 1
}

// listenerFor returns the listener for t: that of the address, else of any address of its
// version, else of any. Of several that share the scope, the tuple's hash chooses, so that
// all segments of a connection that has no record meet the same one.
func (f *passive) listenerFor(t *wire.Tuple) *Listener {
	p := f.byPort[t.LocalPort]
	if p == nil {
		return nil
	}
	if g, _ := p.listeners.Covering(t.Local, 0); g != nil {
		return f.member(g, t)
	}
	return nil
}

// ListenerAt returns the owner of the listener that a SYN on t would meet, nil for none.
func (m *Mux) ListenerAt(t *wire.Tuple) Owner {
	if l := m.passive.listenerFor(t); l != nil {
		return l.owner
	}
	return nil
}

// member returns the listener of g for t.
func (f *passive) member(g *sharers, t *wire.Tuple) *Listener {
	n := g.Indexes()
	if n == 1 {
		return g.First()
	}
	return g.From(int(uint64(uint32(f.secrets.table.tuple(t, 0))) * uint64(n) >> 32))
}

// listens reports whether a listener has the port at the address or at any.
func (f *passive) listens(t *wire.Tuple) bool { return f.listenerFor(t) != nil }

// Accept returns the connection that has waited longest, nil where none waits. The caller
// owns it, and names the handler of its events with SetOwner.
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

// Waiting returns how many connections wait for Accept.
func (l *Listener) Waiting() int { return len(l.queue) - l.head }

// full reports whether the backlog is used up.
func (l *Listener) full() bool { return l.Waiting()+len(l.deferred) >= l.backlog }

// Options returns the options of the connections that will be accepted.
func (l *Listener) Options() Options { return *l.opts }

// SetOptions changes the options of the connections whose handshake is not complete yet. The
// window scale and the window of SYN-ACKs stay those of Listen's options, because SYN-ACKs under
// way have announced them; so do the keys, V6Only and Share.
func (l *Listener) SetOptions(o *Options) error {
	if err := o.check(); err != nil {
		return err
	}
	x := *o
	x.Keys, x.V6Only, x.Share = l.opts.Keys, l.opts.V6Only, l.opts.Share
	l.opts = &x
	return nil
}

// SetBacklog changes how many connections may wait for Accept; less than one counts as one.
func (l *Listener) SetBacklog(n int) { l.backlog = max(n, 1) }

// SetDeferAccept keeps a connection from Accept until its peer has sent data or a FIN, for d at
// most: a server whose peers speak first is then not woken twice. 0 does not delay.
func (l *Listener) SetDeferAccept(d time.Duration) { l.deferAccept = d }

// DeferAccept returns how long Accept waits for data at most.
func (l *Listener) DeferAccept() time.Duration { return l.deferAccept }

// admit queues c for Accept now, or where s, which completed the handshake, brings nothing to
// read and the listener waits for that, later.
func (l *Listener) admit(now clock.Time, c *Conn, s *Segment) {
	if l.deferAccept == 0 || s.Len > 0 || s.Flags.Has(wire.FlagFIN) {
		l.enqueue(c)
		return
	}
	f := &l.m.passive
	if f.deferred == nil {
		f.deferred = map[uint32]*Listener{}
	}
	if l.deferred == nil {
		l.deferred = map[uint32]struct{}{}
	}
	f.deferred[c.id], l.deferred[c.id] = l, struct{}{}
	c.flags |= flagDeferred
	c.ensureRare().deferUntil = now.Add(l.deferAccept)
	c.m.markDirty(c)
}

// undefer takes c out of the connections that are kept from Accept, and returns their listener.
func (f *passive) undefer(c *Conn) *Listener {
	l := f.deferred[c.id]
	delete(f.deferred, c.id)
	delete(l.deferred, c.id)
	c.flags &^= flagDeferred
	return l
}

// acceptDeferred queues c for Accept: data has come, or the time is up.
func (f *passive) acceptDeferred(c *Conn) { f.undefer(c).enqueue(c) }

// dropDeferred leaves c, which has ended before Accept returned it, to the Mux.
func (f *passive) dropDeferred(c *Conn) {
	f.undefer(c)
	c.flags |= flagOrphaned
}

// closeDeferred passes on the connections of l that are kept from Accept.
func (l *Listener) closeDeferred(now clock.Time) {
	f := &l.m.passive
	for _, id := range slices.Sorted(maps.Keys(l.deferred)) {
		c := l.m.conn(id)
		f.undefer(c)
		l.pass(now, c)
	}
}

// enqueue adds c to the connections that wait for Accept, and reports that to the owner at
// the end of the burst.
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

// Close ends l. Where other listeners with equal options share its address, its connections
// move to them, so that a program can replace one of its listeners and refuse no connection.
// Otherwise its SYN queue records are forgotten, and connections that were not accepted
// are reset (RFC 9293 3.10.4): their peers believe them established and would wait for
// ever.
func (l *Listener) Close(now clock.Time) {
	if l.closed {
		return
	}
	l.closed = true
	f := &l.m.passive
	f.remove(l)
	l.closeHalfOpen()
	l.closeDeferred(now)
	for c := l.Accept(); c != nil; c = l.Accept() {
		l.pass(now, c)
	}
}

// pass moves c, which was not accepted, to the listener that succeeds l, or resets it.
func (l *Listener) pass(now clock.Time, c *Conn) {
	if to := l.successor(&c.tuple); to != nil && !to.full() {
		l.m.passive.moveFastOpen(c, to)
		to.enqueue(c)
	} else {
		c.Abort(now)
	}
}

// successor returns the listener that serves t after l has left, nil where there
// is none. With other options it would answer by another window scale than the SYN-ACK
// announced.
func (l *Listener) successor(t *wire.Tuple) *Listener {
	if l.sharers.Empty() {
		return nil
	}
	to := l.m.passive.member(l.sharers, t)
	if *to.synAckOptions != *l.synAckOptions {
		return nil
	}
	return to
}

// closeHalfOpen moves or forgets the SYN queue records of l. A successor takes them up to twice as many as SYNs make: all of
// one listener's, but not those of many, which each Close that follows would move once more.
func (l *Listener) closeHalfOpen() {
	f := &l.m.passive
	for l.firstHalfOpen != 0 {
		slot := l.firstHalfOpen - 1
		h := f.synQueue.at(slot)
		f.synQueue.unlink(l, slot)
		if to := l.successor(&h.tuple); to != nil && to.halfOpen < 2*to.mostHalfOpen() {
			f.synQueue.link(to, slot)
		} else {
			f.synQueue.drop(slot)
		}
	}
}

// reportAcceptable reports to the owners of listeners that connections wait, once for all that
// came in a burst.
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
