package controlsocket

import (
	"container/list"
	"net"
	"sync"
)

// LimitConns returns a listener over l that has at most maxConns connections open. Where another comes, the one is closed
// that has waited for a whole request for the longest: clients that connect and send nothing, or half a request, do not
// keep those out that do. Where all are being answered, Accept waits.
func LimitConns(l net.Listener) net.Listener { return limitConns(l, maxConns) }

func limitConns(l net.Listener, n int) *limitedListener {
	return &limitedListener{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	free   chan struct{}
	once   sync.Once
	closed chan struct{}

	mu      sync.Mutex
	waiting list.List // of *limitedConn that await a request, the oldest first
}

// Accept waits for a connection, and then until it may be open.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !l.place() {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	limited := &limitedConn{Conn: c, l: l}
	limited.await()
	return limited, nil
}

// place takes a place for a connection. False is that the listener was closed.
func (l *limitedListener) place() bool {
	select {
	case l.free <- struct{}{}:
		return true
	default:
	}
	l.closeOldest()
	select {
	case l.free <- struct{}{}:
		return true
	case <-l.closed:
		return false
	}
}

// closeOldest closes the connection that has waited for a request for the longest, if there is one.
func (l *limitedListener) closeOldest() {
	l.mu.Lock()
	oldest := l.waiting.Front()
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Value.(*limitedConn).Close()
	}
}

// Close ends Accept, also one that waits for a place.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn is a connection with a place.
type limitedConn struct {
	net.Conn
	l     *limitedListener
	state connState     // guarded by l.mu
	at    *list.Element // in l.waiting, with connWaiting
}

// connState is the state of a connection.
type connState uint8

const (
	connServed  connState = iota // a whole request is being answered
	connWaiting                  // for a request, or for the rest of one: it may be closed for another
	connClosed
)

// await notes that the connection waits for a request.
func (c *limitedConn) await() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state == connServed {
		c.state, c.at = connWaiting, c.l.waiting.PushBack(c)
	}
}

// serve notes that a whole request has come. False is that the connection has been closed.
func (c *limitedConn) serve() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state == connClosed {
		return false
	}
	c.leave()
	c.state = connServed
	return true
}

// leave takes the connection out of the list. The caller holds l.mu.
func (c *limitedConn) leave() {
	if c.at != nil {
		c.l.waiting.Remove(c.at)
		c.at = nil
	}
}

// Close closes the connection and frees its place for another, once.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	was := c.state
	c.leave()
	c.state = connClosed
	c.l.mu.Unlock()
	if was != connClosed {
		<-c.l.free
	}
	return c.Conn.Close()
}
