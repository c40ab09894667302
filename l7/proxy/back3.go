package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// back3 is a connection to a backend with HTTP/3.
type back3 struct {
	*conn3
	pool    *Pool
	backend *pool.Backend
	uses    int
	early   []*exchange // wait for the backend's settings
	settled bool        // which have arrived
	full    bool        // the backend permits no further stream for now,
	barren  bool        // and never has permitted one
	leaving bool        // the backend takes no more requests, or the connection ends
	warned  bool        // the backend has sent GOAWAY: it closes the connection
	gone    bool
	idleBy  clock.Time
}

// dialQUIC opens a connection to a backend. d waits for it, and its deadline bounds that.
func (w *Worker) dialQUIC(d *dialing) error {
	if w.endpoints == nil {
		return ErrEndpoints
	}
	tc := d.pool.TLS.Clone()
	tc.NextProtos = []string{http3.NextProto}
	addr := net.UDPAddrFromAddrPort(d.backend.Address())
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(d.pool.Connect, DefaultConnect))
	qc := &quic.Config{
		IdleTimeout: cmp.Or(d.pool.Idle, DefaultIdle) + time.Minute, MaxStreams: -1,
		StreamWindow: backWindow, MaxStreamWindow: backWindow, ConnWindow: maxShared * backWindow, MaxConnWindow: maxShared * backWindow,
	}
	go func() {
		defer cancel()
		t, err := w.endpoints.dialer(w)
		if err != nil {
			w.loop.Do(func() { d.failedQUIC(fmt.Errorf("%w: %w", errLocal, err)) })
			return
		}
		q, err := t.Dial(ctx, addr, tc, qc)
		if err != nil {
			w.loop.Do(func() { d.failedQUIC(err) })
			return
		}
		w.hub.Serve(q, quicconn.Options{Uni: 3}, uint64(http3.NoError), d.establishedQUIC)
	}()
	return nil
}

// failedQUIC says that there is no connection.
func (d *dialing) failedQUIC(err error) {
	if d.l.closed() {
		return // the deadline was before
	}
	d.l.finish()
	var te *quic.TransportError
	switch {
	case errors.Is(err, errLocal): // there is no socket
		err = errLocal
	case errors.Is(err, quic.ErrHandshakeTimeout), errors.Is(err, context.DeadlineExceeded):
		err = errConnectTimeout
	case errors.As(err, &te):
		err = errTLS
	default:
		err = errConnect
	}
	d.failed(err)
}

// establishedQUIC begins the requests that wait for a connection.
func (d *dialing) establishedQUIC(c *quicconn.Conn) quicconn.Handler {
	w := d.l.w
	b := &back3{
		pool: d.pool, backend: d.backend, idleBy: clock.Never,
		conn3: w.newConn3(c, http3.NewMachine(http3.RoleClient, http3.MachineOptions{MaxFieldSection: maxBackHeader})),
	}
	b.session = b
	if d.l.closed() {
		b.gone = true
		b.close(http3.NoError, "", nil)
		return b.conn3
	}
	waiting := d.waiting
	d.end()
	d.l.finish()
	bs := w.backsTo(b.pool, b.backend, nil)
	bs.shared = append(bs.shared, b)
	b.rest()
	for _, x := range waiting {
		if x.waits != awaited(d) {
			continue // given up meanwhile
		}
		x.waits = nil
		switch {
		case b.available():
			b.begin(x)
		case b.barren:
			x.backFailed(errUnprocessed)
		default:
			w.open(x)
		}
	}
	return b.conn3
}

// goAwayTime is how long a backend has, after GOAWAY and the last response, to close the connection by itself.
const goAwayTime = 2 * time.Second

// maxBackHeader bounds the header of a response, in bytes.
const maxBackHeader = 256 << 10

func (b *back3) available() bool {
	limit := b.pool.MaxUses
	return !b.leaving && !b.full && !b.closed && len(b.streams) < maxShared && (limit == 0 || b.uses < limit)
}

func (b *back3) begin(x *exchange) {
	if x.outgoing.Protocol != "" && !b.settled { // they say whether it may (RFC 9220 3)
		b.early, x.waits = append(b.early, x), b
		return
	}
	if b.closed {
		x.backFailed(errUnprocessed)
		return
	}
	s, err := b.c.Open()
	if errors.Is(err, quic.ErrStreamLimit) {
		if b.uses == 0 { // another connection would have no streams either
			b.barren, b.leaving = true, true
			b.rest()
			x.backFailed(errUnprocessed)
			return
		}
		b.full = true
		b.w.open(x)
		return
	}
	if err != nil {
		b.leaving = true
		x.backFailed(errUnprocessed)
		return
	}
	h, err := b.m.Open(s.ID())
	if err != nil {
		s.Reset(uint64(http3.RequestCancelled))
		s.Release()
		x.backFailed(errProtocol)
		return
	}
	b.uses++
	st := b.newStream(s, h)
	st.x, st.first = x, b.uses == 1
	b.enlist(st)
	b.idleBy = clock.Never
	b.arm(b.w.now.Add(backWrite / 4))
	x.opened(backRequest3{st})
}

func (b *back3) withdraw(x *exchange) {
	b.early = slices.DeleteFunc(b.early, func(o *exchange) bool { return o == x })
	b.rest()
}

func (b *back3) unused() bool { return !b.gone && len(b.streams)+len(b.early) == 0 }

func (b *back3) leave() {
	b.leaving = true
	b.rest()
}

func (b *back3) opened(*stream3) bool { return false } // the machine refuses streams of the server

func (b *back3) message(st *stream3, ev *http3.Event) {
	x := st.x
	if x == nil {
		return
	}
	switch ev.Kind {
	case http3.Headers:
		b.head(st, x)
	case http3.TooLarge:
		st.abort(http3.ExcessiveLoad)
		x.backFailed(errProtocol)
	case http3.Data:
		x.responseData(ev.Payload)
	case http3.End:
		if st.arrived = true; x.down.sent {
			x.finishIfDone()
		} else {
			x.responseEnd(st.trailers())
		}
	}
}

// head passes the header of a response on.
func (b *back3) head(st *stream3, x *exchange) {
	m := &st.h.Message
	if m.Status < 200 {
		x.responseHead(m, false)
		return
	}
	st.keepHeader()
	empty := m.ContentLength <= 0 || m.Status == 304 || x.outgoing.Method == "HEAD" // otherwise the content is missing
	x.responseHead(m, st.last && empty)
}

func (b *back3) control(ev *http3.Event) {
	switch ev.Kind {
	case http3.PeerSettings:
		early := b.early
		b.settled, b.early = true, nil
		for _, x := range early { // one that fails may be the end of the connection
			if x.waits != awaited(b) {
				continue
			}
			if x.waits = nil; b.available() {
				b.begin(x)
			} else {
				b.w.open(x)
			}
		}
	case http3.GoAway:
		b.goAway(ev.ID)
	}
}

// goAway has the connection take no further requests, and those begin anew that are not processed (RFC 9114 5.2).
func (b *back3) goAway(id uint64) {
	b.leaving, b.warned = true, true
	for _, st := range slices.Clone(b.streams) {
		if st.s != nil && st.s.ID() >= id && st.x != nil {
			st.x.backFailed(errUnprocessed)
		}
	}
	b.rest()
}

func (b *back3) broken(st *stream3, err error) {
	f := errIncomplete
	var remote *quic.StreamError
	var malformed *http3.StreamError
	switch {
	case errors.As(err, &remote) && http3.ErrorCode(remote.Code) == http3.RequestRejected: // RFC 9114 4.1.1: not processed
		f = errUnprocessed
	case errors.As(err, &malformed):
		f = errProtocol
	}
	if st.x != nil {
		st.x.backFailed(f)
		return
	}
	st.end(http3.RequestCancelled)
	b.rest()
}

func (b *back3) writable(st *stream3) {
	if st.x != nil {
		st.x.backWritable()
	}
}

// stopped says that the backend wants no more of a request: the response follows, or a reset (RFC 9114 4.1).
func (b *back3) stopped(st *stream3, _ error) {
	if st.x != nil {
		st.x.backWritable() // what is held is dropped
	}
}

func (b *back3) lost(error) {
	b.leaving = true
	early := b.early
	b.early = nil
	for _, x := range early {
		x.waits = nil
		x.backFailed(errUnprocessed)
	}
	for len(b.streams) > 0 {
		st := b.streams[len(b.streams)-1]
		st.mute, st.arrived = true, true
		if st.x != nil {
			st.x.backFailed(errTerminated)
		} else {
			st.end(http3.NoError)
		}
	}
	b.remove()
}

// remove takes the connection from those of its backend.
func (b *back3) remove() {
	if b.gone {
		return
	}
	b.gone = true
	b.w.connClosed(b.backend)
	bs := b.w.backsTo(b.pool, b.backend, nil)
	bs.shared = slices.DeleteFunc(bs.shared, func(o sharedBack) bool { return o == sharedBack(b) })
}

// rest acts on a connection without requests.
func (b *back3) rest() {
	if len(b.w.queues) > 0 && b.available() {
		b.w.takeQueued(b.w.backsTo(b.pool, b.backend, nil), b)
	}
	if len(b.streams)+len(b.early) > 0 || b.closed {
		return
	}
	if b.warned {
		b.remove()
		b.idleBy = b.w.now.Add(goAwayTime)
		b.arm(b.idleBy)
		return
	}
	if b.leaving || b.pool.MaxUses > 0 && b.uses >= b.pool.MaxUses || b.w.draining || b.w.unused(b.pool, b.backend) {
		b.remove()
		b.close(http3.NoError, "", nil)
		b.w.forgetUnused(backsKey{b.pool, b.backend, nil})
		return
	}
	b.idleBy = b.w.now.Add(cmp.Or(b.pool.Idle, DefaultIdle))
	b.arm(b.idleBy)
}

func (b *back3) passed() {
	if len(b.streams)+len(b.early) > 0 {
		b.checkStuck()
		b.arm(b.w.now.Add(backWrite / 4))
		return
	}
	if b.idleBy <= b.w.now {
		b.remove()
		b.close(http3.NoError, "", nil)
		return
	}
	b.arm(b.idleBy)
}

// checkStuck ends the requests that the backend has taken nothing of for a time.
func (b *back3) checkStuck() {
	for _, st := range slices.Clone(b.streams) {
		if st.s != nil && st.x != nil && st.stuck != 0 && b.w.now >= st.stuck.Add(backWrite) {
			st.x.backFailed(errReadTimeout)
		}
	}
}

// backRequest3 is a request to a backend on a stream: the exchange's side of it.
type backRequest3 struct{ *stream3 }

func (r backRequest3) reused() bool { return !r.first }

func (r backRequest3) head(m *semantics.Message, end bool) error {
	st := r.stream3
	k := st.conn
	switch {
	case m.Protocol != "":
		if peer, _ := k.m.Peer(); !peer.ExtendedConnect {
			return errUpgrade
		}
		st.h.ExpectTunnel()
		end = false
	case m.Method == "HEAD":
		st.h.ExpectNoContent()
	}
	st.out = k.m.AppendRequest(st.output(), st.s.ID(), m)
	st.fin = end
	return nil
}

func (r backRequest3) end(trailers []semantics.Field) { r.finish(trailers) }
func (r backRequest3) cancel()                        { r.abort(http3.RequestCancelled) }

// release gives the stream back. A request whose response is complete needs no rest (RFC 9114 4.1).
func (r backRequest3) release() {
	st := r.stream3
	b := st.conn.session.(*back3)
	code := http3.RequestCancelled
	if st.arrived {
		code = http3.NoError
	}
	st.end(code)
	b.full = false
	b.rest()
}
