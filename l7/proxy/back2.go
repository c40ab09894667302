package proxy

import (
	"cmp"
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
)

// back2 is a connection to a backend with HTTP/2.
type back2 struct {
	conn2
	pool    *Pool
	backend *pool.Backend
	free    *request2
	uses    int
	early   []*exchange // wait for the backend's settings
	settled bool        // which have arrived
	allowance
	leaving bool // the backend takes no more requests, or the connection has ended
	gone    bool
}

// request2 is a request to a backend on one stream.
type request2 struct {
	flow2
	b     *back2
	next  *request2
	first bool // of its connection
}

// newBack2 returns the session of a connection that has been established.
func newBack2(l *link, p *Pool, b *pool.Backend) *back2 {
	s := &back2{pool: p, backend: b, conn2: conn2{
		l: l, m: http2.NewMachine(http2.RoleClient, http2.Options{Window: backWindow, ConnWindow: maxShared * backWindow}),
		goOn: (*exchange).backWritable,
	}}
	l.session = s
	bs := l.w.backsTo(p, b, l.owner)
	bs.shared = append(bs.shared, s)
	l.deadline(&l.inputBy, cmp.Or(p.Connect, DefaultConnect)) // until the settings of the backend
	s.control()
	return s
}

// available reports whether another request may begin.
func (b *back2) available() bool {
	if b.leaving || !b.l.open() {
		return false
	}
	if max := b.pool.MaxUses; max > 0 && b.uses+len(b.early) >= max {
		return false
	}
	if !b.settled {
		return len(b.early) < b.backends().waiting()
	}
	return b.m.Streams() < int(min(b.m.Peer().MaxStreams, maxShared))
}

func (b *back2) backends() *backends { return b.l.w.backsTo(b.pool, b.backend, b.l.owner) }

const (
	// maxShared bounds the requests at a time on one connection.
	maxShared = 128
	// backWindow bounds the content of a response that waits for its client. The window of the connection is that of all
	// requests together: clients that do not read hold up no other client.
	backWindow = 128 << 10
)

// begin sends the request of an exchange. The first ones wait for the settings: they say how many may begin at a time, and
// whether one may that opens a WebSocket (RFC 8441 3). One that the backend refuses could not be sent again after its content.
func (b *back2) begin(x *exchange) {
	if !b.settled {
		b.early, x.waits = append(b.early, x), b
		return
	}
	s, err := b.m.Open()
	if err != nil {
		b.leaving = true
		x.backFailed(errUnprocessed)
		return
	}
	r := b.free
	if r == nil {
		r = &request2{}
	} else {
		b.free = r.next
	}
	b.uses++
	*r = request2{b: b, flow2: flow2{c: &b.conn2, s: s, x: x, left: -1}, first: b.uses == 1}
	s.User = r
	b.l.inputBy = clock.Never
	x.opened(r)
}

func (b *back2) input(p []byte, fin bool) (taken int) {
	b.allowance.grant(b.m, b.l.w.now)
	for b.l.open() {
		ev, n, err := b.m.Input(p[taken:])
		taken += n
		if err != nil {
			b.control()
			b.lose(errProtocol)
			b.l.close()
			return len(p)
		}
		if ev.Kind == http2.NeedInput {
			break
		}
		b.handle(&ev)
	}
	b.control()
	if fin {
		b.lose(errTerminated)
		b.l.close()
	}
	return len(p)
}

func (b *back2) handle(ev *http2.Event) {
	switch {
	case ev.Kind == http2.PeerSettings:
		b.settle()
		b.unblock() // it may have opened windows (RFC 9113 6.9.2)
		return
	case ev.Kind == http2.GoAway:
		b.goAway(ev.Last)
		return
	case ev.Kind == http2.Window && ev.Stream == nil:
		b.unblock()
		return
	case ev.Stream == nil:
		return
	}
	r, _ := ev.Stream.User.(*request2)
	if r == nil || r.x == nil {
		if ev.Kind == http2.Data {
			b.m.Consumed(ev.Stream, len(ev.Payload))
		}
		return
	}
	switch ev.Kind {
	case http2.Headers:
		r.x.responseHead(&ev.Stream.Message, b.m.EndFollows(ev.Stream))
	case http2.Data:
		r.data(ev.Payload)
	case http2.End:
		if r.x.down.sent {
			r.x.finishIfDone()
		} else {
			r.x.responseEnd(ev.Stream.Trailers)
		}
	case http2.Failed:
		f := errIncomplete
		switch {
		case ev.Code == http2.RefusedStream: // RFC 9113 8.7: not processed
			f = errUnprocessed
		case ev.Err != nil:
			f = errProtocol
		case ev.Code == http2.Cancel && (r.x.phase.answered() || r.x.isGRPC()):
			f = errCanceled
		}
		r.x.backFailed(f)
	case http2.Window:
		r.x.backWritable()
	}
}

// settle begins the requests that waited for the settings. Those beyond what the backend permits go to another connection.
func (b *back2) settle() {
	first, early := !b.settled, b.early
	b.settled, b.early = true, nil
	streams := int(min(b.m.Peer().MaxStreams, maxShared))
	b.backends().streams = streams
	for _, x := range early {
		x.waits = nil
		switch {
		case b.available():
			b.begin(x)
		case streams == 0:
			x.backFailed(errUnprocessed)
		default:
			b.l.w.open(x)
		}
	}
	if first || b.backends().first != nil { // it may permit more than before
		b.idle()
	}
}

// failEarly ends the requests that wait for the settings.
func (b *back2) failEarly(f *failure) {
	early := b.early
	b.early = nil
	for _, x := range early {
		x.waits = nil
		x.backFailed(f)
	}
}

// goAway has the connection take no further requests, and those begin anew that were not processed (RFC 9113 6.8).
func (b *back2) goAway(last uint32) {
	b.leaving = true
	b.m.Each(func(s *http2.Stream) {
		if r, ok := s.User.(*request2); ok && s.ID() > last && r.x != nil {
			r.x.backFailed(errUnprocessed)
		}
	})
	b.idle()
}

// lose ends all requests.
func (b *back2) lose(f *failure) {
	b.leaving = true
	b.failEarly(f)
	b.m.Each(func(s *http2.Stream) {
		if r, ok := s.User.(*request2); ok && r.x != nil {
			r.x.backFailed(f)
		}
	})
	b.remove()
}

// remove takes the connection from those of its backend.
func (b *back2) remove() {
	if b.gone {
		return
	}
	b.gone = true
	b.l.w.connClosed(b.backend)
	defer b.l.w.forgetOwned(backsKey{b.pool, b.backend, b.l.owner})
	bs := b.l.w.backsTo(b.pool, b.backend, b.l.owner)
	for i, o := range bs.shared {
		if o == b {
			bs.shared = append(bs.shared[:i], bs.shared[i+1:]...)
			return
		}
	}
}

// idle takes requests that wait for a connection, and acts on a connection without requests.
func (b *back2) idle() {
	if len(b.l.w.queues) > 0 && b.settled && b.available() {
		b.l.w.takeQueued(b.backends(), b)
	}
	if b.m.Streams() > 0 || len(b.early) > 0 || !b.l.open() {
		return
	}
	if b.leaving || b.l.owner != nil && b.l.owner.gone || b.pool.MaxUses > 0 && b.uses >= b.pool.MaxUses || b.l.w.draining || b.l.w.unused(b.pool, b.backend) {
		b.remove()
		b.l.close()
		b.l.w.forgetUnused(backsKey{b.pool, b.backend, b.l.owner})
		return
	}
	b.l.deadline(&b.l.inputBy, cmp.Or(b.pool.Idle, DefaultIdle))
}

func (r *request2) reused() bool { return !r.first }

func (r *request2) head(m *semantics.Message, end bool) error {
	b := r.b
	if m.Protocol != "" {
		if !b.m.Peer().ExtendedConnect {
			return errUpgrade
		}
		end = false
	}
	var err error
	b.l.out, err = b.m.AppendRequest(b.output(), r.s, m, end)
	return err
}

// data is content of the response. It borrows p.
func (r *request2) data(p []byte) {
	r.x.responseData(p)
	r.consumed(len(p))
}

func (r *request2) cancel() {
	r.b.m.Reset(r.s, http2.Cancel)
	r.b.control()
}

func (r *request2) release() {
	b, s := r.b, r.s
	if s == nil {
		return
	}
	r.x, r.s = nil, nil
	s.User = nil
	b.m.Release(s)
	b.control()
	if !r.waiting {
		r.next, b.free = b.free, r
	}
	b.idle()
}

func (b *back2) writable() { b.unblock() }

func (b *back2) expired(output bool) {
	if !output && !b.settled {
		b.l.abort()
		b.lose(errConnectTimeout)
		return
	}
	if !output && b.m.Streams() > 0 {
		return
	}
	if output {
		b.lose(errReadTimeout)
		b.l.abort()
		return
	}
	b.remove()
	b.m.GoAway(http2.NoError)
	b.control()
	b.l.close()
}

func (b *back2) failed(err error) { b.lose(failureOf(err, false)) }

func (b *back2) withdraw(x *exchange) {
	b.early = slices.DeleteFunc(b.early, func(o *exchange) bool { return o == x })
	b.idle()
}

func (b *back2) unused() bool { return b.settled && !b.gone && b.m.Streams()+len(b.early) == 0 }

func (b *back2) leave() {
	b.leaving = true
	b.idle()
}
