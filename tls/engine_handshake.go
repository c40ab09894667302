package tls

import (
	"crypto/tls"
	"errors"
	"io"
	"iter"
	"net"
	"time"

	"github.com/millrace/millrace/gpukern/sign"
)

// handshake is crypto/tls's handshake, suspended whenever it wants input that has not arrived.
//
// crypto/tls blocks in Read. So it runs on a stack of its own: a coroutine (iter.Pull), which the runtime
// switches to and from in about 0.3 us without the scheduler, or a goroutine where coroutines cannot be
// used (EngineOptions.AnyThread). Either ends with the handshake.
//
// All of it but the user's Config is made by the first step: until its ClientHello arrives, a connection that was
// accepted costs a server next to nothing.
type handshake struct {
	*transport
	user   *tls.Config
	conn   *tls.Conn   // nil before the first step
	resume func() bool // runs until more input is wanted, or the end: then it returns false
	stop   func()      // ends the coroutine, which then sees errAborted
	done   bool
	stays  bool // crypto/tls has it to the end
	err    error
	keys   keyLog
	hello  helloRequests // of a client
	// signing is the signature that the handshake has asked for: nil before and after it.
	signing *sign.Request
	asked   *askedConfig // what GetConfigForClient has answered already, nil if it was not called
}

// errAborted is returned to crypto/tls in a handshake that is aborted.
var errAborted = errors.New("tls: handshake aborted")

func newHandshake(e *Engine, config *tls.Config) *handshake {
	return &handshake{transport: &transport{e: e}, user: config}
}

// begin makes what the handshake needs to run.
func (h *handshake) begin() {
	e := h.transport.e
	h.config(h.user, e.role)
	h.transport.keys = &h.keys
	if e.role == client {
		h.conn = tls.Client(h.transport, h.keys.config)
	} else {
		h.conn = tls.Server(h.transport, h.keys.config)
	}
	if e.options.AnyThread {
		h.goroutine()
	} else {
		h.coroutine(e.options.Coroutines)
	}
}

// coroutine prepares the handshake as a coroutine; it starts with the first resume.
func (h *handshake) coroutine(pool *Coroutines) {
	c := pool.take()
	aborted := false
	c.work = func() { h.err = h.conn.Handshake() }
	h.wait = func() bool {
		if !aborted {
			c.yield(false)
		}
		return !aborted
	}
	h.resume = func() bool {
		finished, ok := c.next()
		if finished {
			pool.give(c)
		}
		return ok && !finished // not ok after a panic
	}
	h.stop = func() {
		aborted = true
		h.resume()
	}
}

// Coroutines keeps the coroutines of finished handshakes for later ones, whose stacks need not grow again: 5 % of a
// handshake's CPU time. It is for the engines of one loop, and is not safe for concurrent use. The zero value is ready.
type Coroutines struct{ idle []*coroutine }

// maxIdleCoroutines is the number of coroutines that a loop keeps. Their stacks are 16 to 32 KiB; the runtime shrinks those that
// are not used.
const maxIdleCoroutines = 16

// coroutine runs one function after the other on a stack of its own.
type coroutine struct {
	work  func()
	yield func(finished bool) bool
	next  func() (finished, ok bool)
	stop  func()
}

func newCoroutine() *coroutine {
	c := &coroutine{}
	c.next, c.stop = iter.Pull(func(yield func(bool) bool) {
		c.yield = yield
		for more := true; more; more = yield(true) {
			c.work()
		}
	})
	return c
}

// take returns a coroutine; without a pool it is a new one.
func (p *Coroutines) take() *coroutine {
	if p == nil || len(p.idle) == 0 {
		return newCoroutine()
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return c
}

// give returns a coroutine that has finished or not begun.
func (p *Coroutines) give(c *coroutine) {
	c.work = nil
	if p == nil || len(p.idle) >= maxIdleCoroutines {
		c.stop()
		return
	}
	p.idle = append(p.idle, c)
}

// Close ends the coroutines that are kept. Those of unfinished handshakes are ended by Engine.Close.
func (p *Coroutines) Close() {
	for _, c := range p.idle {
		c.stop()
	}
	p.idle = nil
}

// goroutine prepares the handshake as a goroutine that runs while its caller waits.
func (h *handshake) goroutine() {
	in, out := make(chan bool), make(chan bool)
	aborted := false
	h.wait = func() bool {
		if !aborted {
			out <- true
			aborted = !<-in
		}
		return !aborted
	}
	run := func() {
		h.err = h.conn.Handshake()
		out <- false
	}
	running := false
	h.resume = func() bool {
		if running {
			in <- true
		} else {
			running = true
			go run()
		}
		return <-out
	}
	h.stop = func() {
		in <- false
		<-out
	}
}

// step runs the handshake with more input, and returns how many bytes of it were consumed: none while it awaits a signature.
func (h *handshake) step(in []byte) int {
	switch {
	case h.done || h.awaitsSignature() || h.conn != nil && len(in) == 0 && !h.eof && !h.signed():
		return 0
	case h.conn == nil:
		h.begin()
	}
	skipped := 0
	if h.transport.e.role == client && len(in) > 0 {
		if in, skipped = h.hello.skip(in); len(in) == 0 {
			return skipped
		}
	}
	h.in = in
	h.done = !h.resume()
	n := skipped + len(in) - len(h.in)
	h.in = nil
	return max(0, n) // what was held before counted when it was
}

// abort ends the handshake where it is.
func (h *handshake) abort() {
	if h.conn != nil && !h.done {
		h.stop()
	}
	h.done = true
}

// transport is the net.Conn under a tls.Conn of an engine. Reads take what Next was given, one record at
// most. Writes always succeed: crypto/tls never continues after an error of Write.
type transport struct {
	e    *Engine
	in   []byte // input not consumed yet
	eof  bool
	cut  recordCutter
	wait func() bool // suspends the handshake until there is input; nil after it, false aborts
	keys *keyLog     // until the handshake is complete
}

// Read never returns bytes of two records. So crypto/tls has no ciphertext of a later record in its buffer
// when the handshake ends, and the next record has the first sequence number of its key.
func (t *transport) Read(p []byte) (int, error) {
	for len(t.in) == 0 {
		switch {
		case t.eof:
			return 0, io.EOF
		case t.wait == nil:
			return 0, errNoInput
		case !t.wait():
			return 0, errAborted
		}
	}
	n := copy(p, t.in[:t.cut.take(len(p), t.in)])
	if t.keys != nil {
		t.keys.received(t.in[:n])
	}
	t.in = t.in[n:]
	return n, nil
}

func (t *transport) Write(p []byte) (int, error) {
	t.e.out.write(p)
	if t.keys != nil {
		t.keys.sent(p)
	}
	return len(p), nil
}

func (t *transport) Close() error                     { return nil }
func (t *transport) SetDeadline(time.Time) error      { return nil }
func (t *transport) SetReadDeadline(time.Time) error  { return nil }
func (t *transport) SetWriteDeadline(time.Time) error { return nil }
func (t *transport) LocalAddr() net.Addr              { return addrOr(t.e.options.Local) }
func (t *transport) RemoteAddr() net.Addr             { return addrOr(t.e.options.Remote) }

// noAddr is the address of an engine that was given none. crypto/tls keeps sessions by server name or
// address, and keeps none for an empty one.
type noAddr struct{}

func (noAddr) Network() string { return "" }
func (noAddr) String() string  { return "" }

func addrOr(a net.Addr) net.Addr {
	if a == nil {
		return noAddr{}
	}
	return a
}

// recordCutter follows the borders of records in a stream.
type recordCutter struct {
	header [recordHeader]byte
	held   int // bytes of the header
	left   int // bytes of the payload still to come

	// protected counts the records behind ChangeCipherSpec: before TLS 1.3, those under the new keys.
	protected uint64
	changed   bool
}

// take returns how many bytes of in, at most limit, belong to the current record, and counts them as taken.
func (c *recordCutter) take(limit int, in []byte) int {
	if c.left == 0 {
		n := copy(c.header[c.held:], in[:min(limit, len(in))])
		if c.held += n; c.held == recordHeader {
			c.held = 0
			if c.changed {
				c.protected++
			}
			c.changed = c.changed || c.header[0] == typeChangeCipherSpec
			c.left = int(c.header[3])<<8 | int(c.header[4])
		}
		return n
	}
	n := min(limit, len(in), c.left)
	c.left -= n
	return n
}
