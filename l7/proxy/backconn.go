package proxy

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
)

// backConn is a connection to a backend among those of the worker, whatever version of HTTP it speaks. Requests wait for it to be
// established as they wait for the backend's settings: in either case they cannot be sent before the backend has said something.
type backConn struct {
	w       *Worker
	key     backsKey
	bs      *backConns  // of key
	link    *link.Link  // while it is being established; with QUIC it has the deadline alone
	client  *clientInfo // of the first request, for the header of the PROXY protocol
	pass    *pass       // gets the connection in place of exchanges
	conn    side.Backend
	tasks   link.TaskSet
	state   backConnState
	early   early
	shared  bool        // in backConns.shared
	index   int         // among the idle ones, or -1
	uses    int         // requests so far
	waiting []*exchange // for the connection to be established, or for the backend's settings
}

// backConnState is the state of a connection to a backend.
type backConnState uint8

const (
	establishing backConnState = iota // it takes none yet
	inUse                             // it takes requests
	retiring                          // it takes none, and closes after those that it has
	detached                          // it is none of the backend's connections any more
)

// newBackConn returns a connection that is to be opened (connect), for exchanges or for a pass.
func (w *Worker) newBackConn(k backsKey, c *clientInfo) *backConn {
	return &backConn{w: w, key: k, bs: w.backsTo(k), client: c, index: -1}
}

// available reports whether another request may begin.
func (s *backConn) available() bool {
	if s.state != inUse || !s.conn.Reusable() || s.worn(len(s.waiting)) {
		return false
	}
	streams, known := s.conn.Limit()
	if !known {
		return len(s.waiting) < s.bs.mayWait()
	}
	return s.conn.Streams() < streams
}

// worn reports whether the connection has carried, with more requests, as many as it may. Backends with a limit of
// their own close after it: a lower one here means that the gateway closes first, while no request is under way.
func (s *backConn) worn(more int) bool {
	most := s.key.pool.MaxUses
	return most > 0 && s.uses+more >= most
}

// noStreamsGranted reports whether the backend has never permitted a request, and permits none.
func (s *backConn) noStreamsGranted() bool {
	streams, known := s.conn.Limit()
	return s.uses == 0 && (s.state != inUse || known && streams == 0)
}

// unused reports whether the settings have come and no request is in progress, or about to be taken from a queue by run.
//
// A connection whose settings have not come is not unused: requests are about to be given to it.
func (s *backConn) unused() bool {
	_, known := s.conn.Limit()
	return known && s.tasks == 0 && s.state != detached && s.conn.Streams()+len(s.waiting) == 0
}

// begin sends the request of an exchange, perhaps once the backend's settings have arrived. A connection that is full
// now was not when it was chosen: the backend's limit has fallen, and another connection may have a place.
func (s *backConn) begin(x *exchange) {
	s.forget()
	st, caps, err := s.conn.Begin(x, x.outgoing.Protocol != "")
	switch {
	case err == nil:
		s.uses++
		x.opened(s, st, caps)
	case err == side.ErrWait:
		s.await(x)
	case err == side.ErrFull && s.uses > 0:
		s.w.open(x)
	case err == side.ErrFull: // another connection would have no streams either
		s.leave()
		x.backFailed(errUnprocessed)
	default:
		if err == side.ErrUnprocessed {
			s.leave()
		}
		x.backFailed(err)
	}
}

// await has an exchange wait for the connection. Its timer goes on: it is the exchange that gives up, not the connection.
func (s *backConn) await(x *exchange) { s.waiting, x.waits = append(s.waiting, x), s }

// withdraw implements awaited. The connection stays: others may wait for it, or it becomes idle.
func (s *backConn) withdraw(x *exchange) {
	s.waiting = slices.DeleteFunc(s.waiting, func(o *exchange) bool { return o == x })
	s.released()
}

// endWait ends the wait of all exchanges: by an error, or they begin. Those beyond what the backend permits go to
// another connection. None of them ends another, or its wait: sides report events only where the loop calls them.
func (s *backConn) endWait(err error) {
	all := s.waiting
	s.waiting = nil
	for _, x := range all {
		switch x.waits = nil; {
		case err == errBackendFull: // for want of a descriptor
			x.enqueue(s.w.backsTo(s.key))
		case err != nil:
			x.backFailed(err)
		case s.available():
			s.begin(x)
		case s.noStreamsGranted():
			x.backFailed(errUnprocessed)
		default:
			s.w.open(x)
		}
	}
	s.released() // it may permit more than before
}

// leaveOpening takes the connection from those that are being opened. Dial is cleared, since the link treats a
// connection that fails while it is opened differently: nothing of it is read.
func (s *backConn) leaveOpening() {
	s.link.Dial, s.client = nil, nil
	s.bs.opening = slices.DeleteFunc(s.bs.opening, func(o *backConn) bool { return o == s })
}

// established begins the requests that waited for the connection.
func (s *backConn) established(conn side.Backend, shared bool) {
	s.leaveOpening()
	if s.conn, s.state, s.shared = conn, inUse, shared; shared {
		s.bs.shared = append(s.bs.shared, s)
	} else {
		s.bs.exclusive++
	}
	s.endWait(nil)
}

// Handle implements Owner. What may end the exchange comes last in each case: afterwards x may be
// another request's, and *ev.User is nil.
func (s *backConn) Handle(ev *side.Event) {
	if s.early == sendsEarly && s.earlyEvent(ev) {
		return
	}
	if !ev.Kind.OfStream() {
		s.handle(ev)
		return
	}
	x, _ := (*ev.User).(*exchange)
	switch ev.Kind {
	case side.Head:
		x.responseHead(ev.Message, ev.Ending)
	case side.Data:
		if x.responseData(ev.Payload); ev.Left >= bypassLeast && *ev.User != nil {
			x.startBypass(&x.down)
		}
	case side.End:
		x.responseEnd(ev.Trailers)
	case side.Writable:
		x.backWritable()
	case side.Failed:
		err := ev.Err
		// The backend has closed an idle connection while the request was under way, as it may at any time (RFC 9112 9.5): another
		// attempt does not use up the rule's number. A connection that fails with its first request is another matter.
		if x.use > 1 && x.early != sentEarly && !ev.Started && failureOf(err, false) == errTerminated {
			err = errStale
		}
		x.backFailed(err)
	}
}

// handle handles the events of the connection. GOAWAY ends none of the requests that the backend will still answer: the
// connection takes no more, and closes after them (RFC 9113 6.8, RFC 9114 5.2).
func (s *backConn) handle(ev *side.Event) {
	switch ev.Kind {
	case side.Settings:
		s.bs.streams, _ = s.conn.Limit()
		s.endWait(nil)
	case side.Leaving:
		if s.leave(); ev.Err != nil {
			s.endWait(ev.Err)
		}
	case side.Useless:
		s.drop()
	case side.Closed:
		if s.remove(); len(s.waiting) > 0 { // for the end of a handshake that has failed: others ended when it was leaving
			s.endWait(quicFailure(ev.Err))
		}
	}
}

// leave has the connection take no more requests, and close after those that it has. Without max a connection that is
// detached would be retiring again, and be removed twice: connClosed would then count a connection too few, and the
// backend get one too many.
func (s *backConn) leave() {
	s.state = max(s.state, retiring)
	s.released()
}

// released schedules a look at a connection which may have no requests any more.
func (s *backConn) released() { s.w.Run.Add(link.Restart, s, &s.tasks) }

// Run implements link.Runnable: it takes requests that wait for a connection, and acts on a connection without
// requests. It is deferred to the end of the batch: while events are handled a request may end and the next begin, and
// closing in between would lose a connection of use.
func (s *backConn) Run(t link.Task) {
	if s.tasks.Clear(t); s.state == establishing || s.state == detached {
		return
	}
	w, bs := s.w, s.bs
	if s.shared && len(w.queues) > 0 && s.available() {
		w.takeQueued(bs, s)
	}
	if s.state == detached || s.index >= 0 || s.conn.Streams()+len(s.waiting) > 0 {
		return
	}
	if !s.keeps(bs) {
		s.drop()
		return
	}
	s.conn.Rest(cmp.Or(s.key.pool.Idle, DefaultIdle))
	if s.shared { // it is found in shared, idle or not; only connections of HTTP/1.1 have a list of the idle ones
		return
	}
	s.index = len(bs.idle)
	bs.idle = append(bs.idle, s)
	switch v, yielded := w.takeTurn(bs); {
	case yielded:
		s.drop()
	case v != nil:
		v.begin() // after the batch: bytes behind the response may show that the connection is of no use
	}
}

// keeps reports whether a connection without requests waits for others. Connections of a backend that was removed, and those made
// for a client that has gone (PROXY protocol), would wait for requests that cannot come.
func (s *backConn) keeps(bs *backConns) bool {
	k := &s.key
	return s.state == inUse && s.conn.Reusable() && !s.worn(0) && !s.w.draining && !s.w.unused(k.pool, k.backend) &&
		(k.owner == nil || !k.owner.gone) && (s.shared || len(bs.idle) < cmp.Or(k.pool.MaxIdle, DefaultMaxIdle))
}

// drop closes a connection without requests. It is removed first: Close may report its end.
func (s *backConn) drop() {
	s.remove()
	s.conn.Close()
}

// forget takes the connection from the idle ones, if it is one. The last one takes its place: their order matters only
// at the end, from which they are taken.
func (s *backConn) forget() {
	if s.index < 0 {
		return
	}
	bs := s.bs
	last := len(bs.idle) - 1
	bs.idle[s.index] = bs.idle[last]
	bs.idle[s.index].index = s.index
	bs.idle = bs.idle[:last]
	s.index = -1
}

// remove takes the connection from those of its backend, once.
func (s *backConn) remove() {
	if s.state == detached {
		return
	}
	switch bs := s.bs; {
	case s.state == establishing:
		s.leaveOpening()
	case s.shared:
		bs.shared = slices.DeleteFunc(bs.shared, func(o *backConn) bool { return o == s })
	default:
		bs.exclusive--
	}
	s.state = detached
	s.forget()
	s.w.connClosed(s.key.backend)
	s.w.forget(s.key)
}
