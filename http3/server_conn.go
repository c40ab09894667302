package http3

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/quic"
)

// serverConn is a connection of a Server.
type serverConn struct {
	*conn
	server   *Server
	base     context.Context // of requests
	remote   string
	tls      atomic.Pointer[tls.ConnectionState] // once the handshake is complete
	handlers atomic.Int64
	lastID   atomic.Uint64 // of requests: the next one that was not accepted
	draining atomic.Bool
	idle     chan struct{} // signals that a handler ended while draining

	priorities map[uint64]Priority       // updates that came before their request
	active     map[uint64]*serverRequest // those whose priority can be changed
	pushes     map[uint64]*serverRequest // by push ID
}

// maxEarlyPriorities bounds the updates that are kept for requests to come (RFC 9218 7).
const maxEarlyPriorities = 64

// ServeConn serves one connection until it ends.
func (s *Server) ServeConn(q *quic.Conn) error {
	c := &serverConn{
		conn: newConn(q, RoleServer, s.machineOptions()), server: s, remote: q.RemoteAddr().String(),
		idle: make(chan struct{}, 1), active: map[uint64]*serverRequest{},
	}
	c.conn.event = c.controlEvent
	if !s.add(c) {
		_ = q.CloseWithError(uint64(NoError), "")
		return ErrServerClosed
	}
	defer s.remove(c)
	c.base = context.WithValue(context.WithValue(c.ctx, http.ServerContextKey, s), http.LocalAddrContextKey, q.LocalAddr())
	if s.ConnContext != nil {
		c.base = s.ConnContext(c.base, q)
	}
	if err := c.start(); err != nil {
		return err
	}
	for {
		qs, err := q.AcceptStream(c.ctx)
		if err != nil {
			return converted(err)
		}
		c.accept(qs)
	}
}

// accept starts the handler of a request's stream.
func (c *serverConn) accept(qs *quic.Stream) {
	most := int64(c.server.MaxHandlers)
	if most == 0 {
		most = DefaultMaxHandlers
	}
	if c.draining.Load() || c.handlers.Load() >= most {
		// RFC 9114 4.1.1: it was not processed, so the client may send it again.
		qs.CancelRead(uint64(RequestRejected))
		qs.CancelWrite(uint64(RequestRejected))
		return
	}
	c.lastID.Store(uint64(qs.ID()) + 4)
	c.handlers.Add(1)
	go func() {
		defer c.ended()
		c.serve(qs)
	}()
}

// ended takes notice that a handler has.
func (c *serverConn) ended() {
	if c.handlers.Add(-1) == 0 && c.draining.Load() {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// drain has the client open no more requests, waits for those under way and closes (RFC 9114 5.2).
func (c *serverConn) drain() {
	// The client may have sent more by the time that it learns of this. They are served.
	c.mu.Lock()
	c.m.GoAway(maxVarint &^ 3)
	c.mu.Unlock()
	c.flush()
	rtt := c.q.Stats().SmoothedRTT
	select {
	case <-time.After(min(2*rtt+10*time.Millisecond, time.Second)):
	case <-c.ctx.Done():
	}
	c.draining.Store(true)
	c.mu.Lock()
	c.m.GoAway(c.lastID.Load())
	c.mu.Unlock()
	c.flush()
	for c.handlers.Load() > 0 {
		select {
		case <-c.idle:
		case <-c.ctx.Done():
			return
		}
	}
	c.awaitDelivery()
	_ = c.q.CloseWithError(uint64(NoError), "")
}

// awaitDelivery gives the last responses the time to arrive: closing a connection abandons what is
// under way. A client that has nothing left to receive closes by itself.
func (c *serverConn) awaitDelivery() {
	select {
	case <-time.After(min(max(3*c.q.Stats().SmoothedRTT, 50*time.Millisecond), time.Second)):
	case <-c.ctx.Done():
	}
}

// controlEvent handles events of the control stream.
func (c *serverConn) controlEvent(ev Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ev.Kind == CancelPush:
		if x := c.pushes[ev.ID]; x != nil {
			x.out.CancelWrite(uint64(RequestCancelled)) // RFC 9114 7.2.3
		}
		return
	case ev.Kind != PriorityUpdate:
		return
	}
	requests := c.active
	if ev.Push {
		requests = c.pushes
	}
	if r := requests[ev.ID]; r != nil {
		r.out.SetPriority(ev.Priority.Urgency, ev.Priority.Incremental)
	} else if !ev.Push && ev.ID >= c.lastID.Load() && len(c.priorities) < maxEarlyPriorities {
		if c.priorities == nil {
			c.priorities = map[uint64]Priority{}
		}
		c.priorities[ev.ID] = ev.Priority
	}
}
