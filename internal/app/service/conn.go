package service

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxAcceptDelay is the longest pause after a passing error of a listener.
const maxAcceptDelay = time.Second

// Serve serves the connections of l, which it takes, until Shutdown or Close (ErrClosed) or until the
// listener fails.
func (s *Server) Serve(l net.Listener) error {
	door := &listener{Listener: l, s: s}
	if s.kind == HTTP {
		return s.serveHTTP(door)
	}
	if !s.open(l, func() { l.Close() }) {
		l.Close()
		return ErrClosed
	}
	defer s.leave(l)
	for {
		c, err := door.Accept()
		if err != nil {
			return s.ending(err)
		}
		go func() {
			defer c.Close()
			s.stream(c.(*conn))
		}()
	}
}

// ending says what a failure of a listener means.
func (s *Server) ending(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || errors.Is(err, http.ErrServerClosed) {
		return ErrClosed
	}
	return err
}

// listener counts the connections that it accepts and refuses those above the limit.
type listener struct {
	net.Listener
	s *Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	pause := 5 * time.Millisecond
	for {
		c, err := l.Listener.Accept()
		var passing interface{ Temporary() bool } // as net/http does: out of descriptors is no end
		if errors.As(err, &passing) && passing.Temporary() && l.s.ctx.Err() == nil {
			l.s.acceptErrors.Add(1)
			time.Sleep(pause)
			pause = min(2*pause, maxAcceptDelay)
			continue
		}
		if err != nil {
			return nil, err
		}
		if t := l.s.admit(c); t != nil {
			return t, nil
		}
		c.Close()
	}
}

// admit notes a connection; nil refuses it.
func (s *Server) admit(c net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.cfg.Limits.Connections {
		s.refused.Add(1)
		return nil
	}
	t := &conn{Conn: c, s: s, number: s.accepted.Add(1)}
	s.conns[t] = true
	s.work.Add(1)
	return t
}

// conn is a connection of a Server: it counts bytes, and ends when it is idle for too long.
type conn struct {
	net.Conn
	s      *Server
	number uint64       // in the order of Accept, from 1
	idle   atomic.Int64 // when the deadline was set last, Unix ns
	free   sync.Once
}

// touch moves the deadline on, now and then: setting one costs more than a read.
func (c *conn) touch() {
	limit := c.s.cfg.Limits.Idle
	now := time.Now()
	last := c.idle.Load()
	if now.UnixNano()-last < int64(limit/8) || !c.idle.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	_ = c.Conn.SetDeadline(now.Add(limit)) // fails only on a closed one, which the next call tells
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if c.s.kind != HTTP { // net/http sets deadlines of its own
		c.touch()
	}
	n, err := c.Conn.Read(b)
	c.s.in.Add(uint64(n))
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.s.kind != HTTP {
		c.touch()
	}
	n, err := c.Conn.Write(b)
	c.s.out.Add(uint64(n))
	return n, err
}

// CloseWrite ends our direction, where the connection can.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.free.Do(func() {
		c.s.mu.Lock()
		delete(c.s.conns, c)
		c.s.mu.Unlock()
		c.s.work.Done()
	})
	return err
}

// finish ends our direction and waits until the client ends its own, so that nothing we wrote is lost by a
// reset, but not for longer than the client stays idle.
func (c *conn) finish() {
	if c.CloseWrite() == nil {
		discard(c)
	}
}
