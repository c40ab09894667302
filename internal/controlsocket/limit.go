package controlsocket

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of a server, so that clients that connect and do not read cost little. Time-outs are of one step:
// a long answer may take longer as a whole.
const (
	maxConns     = 256              // open connections; more wait in the kernel's queue
	writeTimeout = 10 * time.Second // of a piece of an answer
	idleTimeout  = 30 * time.Second
)

// NewServer returns a server for h that works on at most requests requests at once; others get status 503.
// An answer that its client does not read is given up.
func NewServer(h http.Handler, requests int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           limit(h, requests),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// limit serves at most n requests at once, each with a time-out for every piece that it writes.
func limit(h http.Handler, n int) http.Handler {
	free := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case free <- struct{}{}:
			defer func() { <-free }()
		default:
			w.Header().Set("Retry-After", "1")
			ReplyError(w, http.StatusServiceUnavailable, "too many requests at once")
			return
		}
		timed := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		timed.renew() // a request that computes for long, such as a reload, still gets its answer through
		h.ServeHTTP(timed, r)
	})
}

// timedWriter gives each piece of an answer writeTimeout.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) renew() { _ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) }

// timedPiece is how much is written by one deadline: less than what even a slow client reads in it.
const timedPiece = 64 << 10

func (w *timedWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		w.renew()
		var k int
		k, err = w.ResponseWriter.Write(b[:min(len(b), timedPiece)])
		n, b = n+k, b[k:]
	}
	return n, err
}

// LimitConns returns a listener over l that has at most maxConns connections open.
func LimitConns(l net.Listener) net.Listener {
	return &limitedListener{Listener: l, free: make(chan struct{}, maxConns), closed: make(chan struct{})}
}

type limitedListener struct {
	net.Listener
	free   chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept waits until a connection may be open.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, release: func() { <-l.free }}, nil
}

// Close ends Accept, also one that waits for a place.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *limitedConn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}
