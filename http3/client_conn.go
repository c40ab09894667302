package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/millrace/millrace/quic"
)

// clientConn is a connection of a Transport.
type clientConn struct {
	*conn
	t      *Transport
	goAway atomic.Uint64 // the first request that the server will not process
	active atomic.Int64
	pushes map[uint64]*Push
	cache  *sessionCache // nil without early data

	refusedEarly atomic.Bool
	tls          atomic.Pointer[tls.ConnectionState]
}

func newClientConn(t *Transport, q *quic.Conn, o MachineOptions) *clientConn {
	c := &clientConn{conn: newConn(q, RoleClient, o), t: t}
	c.goAway.Store(none)
	c.conn.event = func(ev Event) {
		switch ev.Kind {
		case GoAway:
			c.goAway.Store(ev.ID)
		case CancelPush:
			c.pushCancelled(ev.ID)
		case PeerSettings:
			if c.cache != nil {
				c.cache.learned(c.m.peer)
			}
		}
	}
	c.conn.push = c.pushStream
	return c
}

// remember has the connection use the server's settings of the session that it resumes, if it sends early data.
func (c *clientConn) remember(cache *sessionCache) {
	if c.cache = cache; cache == nil {
		return
	}
	select {
	case <-c.q.HandshakeComplete(): // the settings come anyway
		return
	default:
	}
	if s := cache.remembered(); s != nil {
		c.m.Remember(*s)
	}
}

// state returns the state of TLS, which is copied once the handshake is complete.
func (c *clientConn) state() *tls.ConnectionState {
	if s := c.tls.Load(); s != nil {
		return s
	}
	s := c.q.State().TLS
	if s.HandshakeComplete {
		c.tls.Store(&s)
	}
	return &s
}

func (c *clientConn) goingAway() bool { return c.goAway.Load() != none }

// acceptStreams takes the bidirectional streams of the server, which are of WebTransport.
func (c *clientConn) acceptStreams() {
	for {
		qs, err := c.q.AcceptStream(c.ctx)
		if err != nil {
			return
		}
		go func() {
			r, err := c.newReader(qs, uint64(qs.ID()))
			if err != nil {
				_ = c.closed(err)
				return
			}
			if ev, err := r.next(); err == nil && ev.Kind == WebTransport {
				c.incoming(r, qs, qs, ev.ID)
			}
		}()
	}
}

// roundTrip sends a request. It returns when the header of the response is there.
func (c *clientConn) roundTrip(req *http.Request) (*http.Response, error) {
	if err := c.ready(req); err != nil {
		closeBody(req)
		return nil, err
	}
	qs, err := c.q.OpenStream(req.Context())
	if err != nil {
		closeBody(req)
		return nil, converted(err)
	}
	if uint64(qs.ID()) >= c.goAway.Load() {
		qs.CancelWrite(uint64(RequestCancelled))
		qs.CancelRead(uint64(RequestCancelled))
		closeBody(req)
		return nil, ErrGoingAway
	}
	r, err := c.newReader(qs, uint64(qs.ID()))
	if err != nil {
		closeBody(req)
		return nil, err
	}
	x := &clientRequest{c: c, req: req, qs: qs, r: r}
	c.active.Add(1)
	if ctx := req.Context(); ctx.Done() != nil {
		x.stop = context.AfterFunc(ctx, func() { r.abort(RequestCancelled) })
	}
	resp, err := x.do()
	if err != nil {
		x.end()
		if cause := req.Context().Err(); cause != nil {
			return nil, cause
		}
		if uint64(qs.ID()) >= c.goAway.Load() {
			return nil, errors.Join(ErrGoingAway, err)
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusTooEarly && x.repeatEarly() {
		_ = resp.Body.Close()
		return c.roundTrip(req)
	}
	return resp, nil
}

// ready waits for what a request depends on: unsafe requests for the handshake, so that no attacker can repeat
// them (RFC 8470 4), and extended CONNECT for the server's permission (RFC 9220 3).
func (c *clientConn) ready(req *http.Request) error {
	ctx := req.Context()
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
	default:
		select {
		case <-c.q.HandshakeComplete():
		case <-c.ctx.Done():
			return converted(context.Cause(c.ctx))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if len(req.Header[":protocol"]) == 0 {
		return nil
	}
	select {
	case <-c.known:
	case <-c.ctx.Done():
		return converted(context.Cause(c.ctx))
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.m.peer.ExtendedConnect {
		return ErrNoExtendedConnect
	}
	return nil
}

// ErrNoExtendedConnect is returned for CONNECT with :protocol where the server does not permit it.
var ErrNoExtendedConnect = errors.New("http3: the server does not permit extended CONNECT")

// retriedEarly reports, once for each connection, that early data was refused by a response.
func (c *clientConn) retriedEarly() bool { return !c.refusedEarly.Swap(true) }

// repeatEarly reports whether a response 425 is a reason to send the request again, after the handshake.
func (x *clientRequest) repeatEarly() bool {
	if x.req.Body != nil && x.req.Body != http.NoBody || x.req.Header.Get("Early-Data") != "" {
		return false
	}
	select {
	case <-x.c.q.HandshakeComplete():
		return x.c.q.State().Used0RTT && x.c.retriedEarly()
	case <-x.c.ctx.Done():
		return false
	}
}
