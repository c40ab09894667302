package quicconn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/quic"
)

// Hub brings the events of QUIC connections to one loop. All that happens until the loop gets to it is one command of the
// loop.
type Hub struct {
	loop  transport.Loop
	drain func() // made once: Do allocates nothing then

	mu    sync.Mutex
	queue []event
	ended bool

	batch []event // of the loop: the other buffer of queue

	timeouts atomic.Uint64
}

// WriteTimeouts returns how many streams of connections with Options.Counted were reset for Conn.SetWriteTimeout. Any goroutine
// may call it.
func (h *Hub) WriteTimeouts() uint64 { return h.timeouts.Load() }

// event reports that a stream, or a connection if stream is nil, has something to report.
type event struct {
	conn   *Conn
	stream *Stream
}

// NewHub returns the hub of a loop.
func NewHub(loop transport.Loop) *Hub {
	h := &Hub{loop: loop}
	h.drain = h.dispatch
	return h
}

// post brings an event to the loop. It reports false once the loop has ended.
func (h *Hub) post(ev event) bool {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return false
	}
	h.queue = append(h.queue, ev)
	first := len(h.queue) == 1
	h.mu.Unlock()
	if first && !h.loop.Do(h.drain) {
		h.mu.Lock()
		h.ended, h.queue = true, nil
		h.mu.Unlock()
		return false
	}
	return true
}

// dispatch runs on the loop.
func (h *Hub) dispatch() {
	h.mu.Lock()
	h.queue, h.batch = h.batch[:0], h.queue
	h.mu.Unlock()
	for i, ev := range h.batch {
		h.batch[i] = event{}
		if ev.stream != nil {
			ev.stream.report()
		} else {
			ev.conn.report()
		}
	}
}

// Options configures connections. The zero value is valid.
type Options struct {
	// Uni is the number of unidirectional streams that are opened before the connection is reported, in Conn.Uni.
	Uni int
	// Counted is whether streams of the connection count in Hub.WriteTimeouts.
	Counted bool
	// Wait is the time that the peer may take to permit them; 0 is DefaultWait.
	Wait time.Duration
}

// DefaultWait is the default of Options.Wait.
const DefaultWait = 10 * time.Second

// Serve has the hub drive a connection that was accepted or dialed. made is called on the loop, before all other events of
// the connection, and returns its handler. Any goroutine may call Serve. If the peer does not permit the streams of o, or
// the loop has ended, the connection is closed with code and never reported.
func (h *Hub) Serve(q *quic.Conn, o Options, code uint64, made func(c *Conn) Handler) {
	c := &Conn{hub: h, q: q, made: made, counted: o.Counted}
	go func() {
		if err := c.openUni(&o); err != nil {
			_ = q.CloseWithError(code, "the peer permits too few streams")
			return
		}
		if !h.post(event{conn: c}) {
			_ = q.CloseWithError(code, "")
			return
		}
		context.AfterFunc(q.Context(), c.ended)
		go c.acceptUni()
		c.acceptStreams()
	}()
}
