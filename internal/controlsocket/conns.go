package controlsocket

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// LimitConns returns a listener over l that has at most maxConns connections open. Where another comes, the one is closed
// that has waited for a whole request for the longest, or for its client to read: clients that connect and send nothing, or half a
// request, or that read no answer, do not keep those out that do. Each has some time first, so that clients which
// connect anew at once do not close one whose request is on its way. Where all are being answered, Accept waits.
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
	writing list.List // of those whose answer is being written, the oldest first
}

// The time that a connection may wait before it is closed for another: for a request, and for its client to read.
const (
	requestPatience = 100 * time.Millisecond
	writePatience   = 250 * time.Millisecond
)

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
	for {
		again := time.NewTimer(l.closeOldest(&l.waiting, &l.writing))
		select {
		case l.free <- struct{}{}:
			again.Stop()
			return true
		case <-l.closed:
			again.Stop()
			return false
		case <-again.C:
		}
	}
}

// closeOldest closes the connection that has waited for the longest, of the first list that has one whose patience is over. It returns when to
// try again.
func (l *limitedListener) closeOldest(lists ...*list.List) time.Duration {
	l.mu.Lock()
	now, next := time.Now(), writePatience
	var oldest *limitedConn
	for _, of := range lists {
		if e := of.Front(); e != nil && oldest == nil {
			c := e.Value.(*limitedConn)
			patience := requestPatience
			if of == &l.writing {
				patience = writePatience
			}
			if left := patience - now.Sub(c.since); left > 0 {
				next = min(next, left)
			} else {
				oldest = c
			}
		}
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return next
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
	at    *list.Element // in l.waiting with connWaiting, or in l.writing
	in    *list.List    // which of them
	since time.Time     // it is there
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
		c.state = connWaiting
		c.enter(&c.l.waiting)
	}
}

// enter puts the connection at the end of a list. The caller holds l.mu.
func (c *limitedConn) enter(in *list.List) {
	c.leave()
	c.in, c.at, c.since = in, in.PushBack(c), time.Now()
}

// Write notes that an answer is being written.
func (c *limitedConn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	noted := c.state == connServed
	if noted {
		c.enter(&c.l.writing)
	}
	c.l.mu.Unlock()
	n, err := c.Conn.Write(b)
	if noted {
		c.l.mu.Lock()
		if c.in == &c.l.writing {
			c.leave()
		}
		c.l.mu.Unlock()
	}
	return n, err
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
		c.in.Remove(c.at)
		c.in, c.at = nil, nil
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
