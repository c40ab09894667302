package controlsocket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Limits of a server, so that clients that connect and do not read cost little. Time-outs are of one step:
// a long answer may take longer as a whole.
const (
	maxConns     = 256              // open connections; beyond that, one that has sent no whole request is closed
	maxBody      = 1 << 20          // bytes of a request: the longest are lists of addresses
	writeTimeout = 10 * time.Second // of a piece of an answer
	idleTimeout  = 30 * time.Second
)

// NewServer returns a server for h that works on at most requests requests at once; others get status 503. A request counts
// once all of it has come, so that clients that send half of one keep no other out (LimitConns).
// An answer that its client does not read is given up.
func NewServer(h http.Handler, requests int, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: whole(limit(h, requests)),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// whole reads all of a request before h gets it. Until then, and from the end of the answer on, its connection may be closed
// for another.
func whole(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			ReplyError(w, http.StatusRequestEntityTooLarge, "a request of more than "+strconv.Itoa(maxBody)+" bytes")
			return
		case err != nil:
			ReplyError(w, http.StatusBadRequest, "the request is incomplete: "+err.Error())
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if c, ok := r.Context().Value(connKey{}).(*limitedConn); ok {
			if !c.serve() {
				return // it has been closed
			}
			defer c.await()
		}
		h.ServeHTTP(w, r)
	})
}

// placeTime bounds the wait of a request for others to end. Those whose clients do not read are ended for it, maxRequests in each writePatience,
// and places go to requests in their order: with maxConns connections that is 4 s.
const placeTime = 10 * time.Second

// place takes a place for a request. False is that none became free.
func place(free chan struct{}, r *http.Request) bool {
	select {
	case free <- struct{}{}:
		return true
	default:
	}
	c, ok := r.Context().Value(connKey{}).(*limitedConn)
	if !ok {
		return false
	}
	end, placed := time.NewTimer(placeTime), make(chan struct{})
	defer end.Stop()
	defer close(placed)
	go func() { // beside the wait, which would lose its turn
		for {
			select {
			case <-placed:
				return
			case <-time.After(c.l.closeOldest(&c.l.writing)):
			}
		}
	}()
	select {
	case free <- struct{}{}:
		return true
	case <-end.C:
		return false
	}
}

// limit serves at most n requests at once, each with a time-out for every piece that it writes.
func limit(h http.Handler, n int) http.Handler {
	free := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !place(free, r) {
			w.Header().Set("Retry-After", "1")
			ReplyError(w, http.StatusServiceUnavailable, "too many requests at once")
			return
		}
		defer func() { <-free }()
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

// timedPiece is the amount written by one deadline: less than what even a slow client reads in it.
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
