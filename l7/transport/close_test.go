package transport

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// TestCloseInHandler: a connection may be closed in each place that has it, and is not called after.
func TestCloseInHandler(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		var calls atomic.Int64
		var inAccept atomic.Bool
		inAccept.Store(true)
		at, _ := w.listen(func(c Conn) Handler {
			if inAccept.Load() {
				c.Close()
			}
			return handlerFunc(func(c Conn, _ Events) {
				calls.Add(1)
				c.Close()
				c.Close()
				c.Abort()
				c.Linger()
			})
		})
		for _, want := range []int64{0, 1} {
			c := w.connect(at)
			_, _ = c.Write([]byte("x")) // unread: the peer may see a reset
			if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			inAccept.Store(false)
			for _, l := range w.servers {
				w.on(l, func() {}) // what runs has ended
			}
			if n := calls.Load(); n != want {
				t.Errorf("%d calls, want %d", n, want)
			}
		}
		// A dial that is closed before it is established, and one that is in its first event.
		w.on(w.client, func() {
			c, err := w.client.Dial(at, handlerFunc(func(Conn, Events) { t.Error("called after Close") }))
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
		closed := make(chan struct{})
		w.dial(at, handlerFunc(func(c Conn, ev Events) {
			if c.Close(); ev&Writable == 0 {
				t.Errorf("events %b", ev)
			}
			close(closed)
		}))
		next(w, closed, "the connection")
	})
}

// TestOneClosesAnother: of two connections that are ready in one batch, the one that is called first closes the other.
func TestOneClosesAnother(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		if w.servers = w.servers[:1]; !w.reachesOne() {
			return // the connections would belong to several loops
		}
		for range 50 {
			var both []Conn
			calls := 0
			ready, hold := make(chan struct{}), make(chan struct{})
			at, list := w.listen(func(c Conn) Handler {
				if both = append(both, c); len(both) == 2 {
					close(ready)
				}
				return handlerFunc(func(Conn, Events) {
					calls++
					both[0].Close()
					both[1].Close()
				})
			})
			a, b := w.connect(at), w.connect(at)
			next(w, ready, "two connections")
			go w.servers[0].Do(func() { <-hold })
			_, _ = a.Write([]byte("x"))
			_, _ = b.Write([]byte("x"))
			close(hold)
			_, _ = io.ReadAll(a)
			_, _ = io.ReadAll(b)
			w.on(w.servers[0], func() {
				if calls != 1 {
					t.Errorf("%d calls", calls)
				}
				list[0].Close()
			})
			_, _ = a.Close(), b.Close()
		}
	})
}

// TestClosedConn: every method of a closed connection says so.
func TestClosedConn(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(Conn) Handler { return newEcho(100) })
		opened := make(chan struct{})
		c := w.dial(at, handlerFunc(func(Conn, Events) { close(opened) }))
		next(w, opened, "the connection")
		w.on(w.client, func() {
			if n, err := c.Read(nil); n != 0 || err != nil {
				t.Errorf("empty read: %d, %v", n, err)
			}
			if n, err := c.Write(nil); n != 0 || err != nil {
				t.Errorf("empty write: %d, %v", n, err)
			}
			if n, err := c.Read(make([]byte, 1)); n != 0 || err != ErrAgain {
				t.Errorf("read of nothing: %d, %v", n, err)
			}
			local, remote := c.Local(), c.Remote()
			if remote != at || !local.IsValid() || local.Port() == 0 {
				t.Errorf("from %v to %v, want to %v", local, remote, at)
			}
			c.Close()
			_, e1 := c.Read(make([]byte, 1))
			_, e2 := c.Write([]byte("x"))
			if e3 := c.CloseWrite(); e1 != ErrClosed || e2 != ErrClosed || e3 != ErrClosed {
				t.Error(e1, e2, e3)
			}
			if c.Err() != nil || c.Remote() != remote || c.Local() != local {
				t.Error(c.Err(), c.Local(), c.Remote())
			}
		})
	})
}

// TestAddresses: both ends agree on them.
func TestAddresses(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		got := make(chan [2]string, 1)
		at, _ := w.listen(func(c Conn) Handler {
			got <- [2]string{c.Local().String(), c.Remote().String()}
			return newEcho(100)
		})
		c := w.connect(at)
		want := [2]string{c.RemoteAddr().String(), c.LocalAddr().String()}
		if a := next(w, got, "the connection"); a != want {
			t.Errorf("%v, want %v", a, want)
		}
	})
}

func TestAbort(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(c Conn) Handler {
			return handlerFunc(func(c Conn, _ Events) {
				if n, _ := c.Read(make([]byte, 10)); n > 0 { // unread, it would make Close a reset, too
					c.Abort()
				}
			})
		})
		c := w.connect(at)
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
}

// TestLinger: a server that answers before it has read the request to its end, to a client that sends it all before it
// reads. Close makes that a reset, which takes the answer with it. This is RFC 9112 9.6.
func TestLinger(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		answer := pattern(20_000)
		at, _ := w.listen(func(Conn) Handler {
			return handlerFunc(func(c Conn, _ Events) {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					if n, err := c.Write(answer); n != len(answer) || err != nil {
						t.Error(n, err)
					}
					c.Linger()
				}
			})
		})
		c := w.connect(at)
		for range 50 { // more than buffers hold, so that someone must read it
			if _, err := c.Write(make([]byte, 200<<10)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Microsecond)
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, answer) {
			t.Errorf("%d of %d bytes, %v", len(got), len(answer), err)
		}
		_ = c.Close()
	})
}

// stream is a Conn whose peer sends without end.
type stream struct {
	Conn
	sends   int // bytes that a Read finds, 0 for none
	read    int
	closed  bool
	handler Handler
}

func (s *stream) Read(p []byte) (int, error) {
	n := min(len(p), s.sends)
	if s.read += n; n == 0 {
		return 0, ErrAgain
	}
	return n, nil
}
func (s *stream) CloseWrite() error    { return nil }
func (s *stream) SetHandler(h Handler) { s.handler = h }
func (s *stream) Close()               { s.closed = true }

// TestLingerIsBounded in bytes and time.
func TestLingerIsBounded(t *testing.T) {
	var l lingerers
	flood := &stream{sends: 1000}
	if l.add(0, flood); !flood.closed || flood.read < lingerBytes || flood.read > lingerBytes+1000 {
		t.Errorf("closed %v after %d bytes", flood.closed, flood.read)
	}
	start := clock.Time(5)
	var silent [3]*stream
	for i := range silent {
		silent[i] = &stream{}
		l.add(start+clock.Time(i), silent[i])
	}
	silent[1].sends = 1 << 20
	silent[1].handler.Ready(silent[1], Readable) // ends early
	if end := start.Add(lingerTime); l.expire(end-1) != end || silent[0].closed || !silent[1].closed {
		t.Error("before the time", silent[0].closed, silent[1].closed)
	}
	if next := l.expire(start.Add(lingerTime)); next != start.Add(lingerTime)+2 || !silent[0].closed || silent[2].closed {
		t.Error("at the time", next, silent[0].closed, silent[2].closed)
	}
	if next := l.expire(clock.Never - 1); next != clock.Never || !silent[2].closed || len(l.list) != 0 {
		t.Error("in the end", next, silent[2].closed)
	}
}

// TestLingerEnds: a loop closes connections that linger, when their time is up.
func TestLingerEnds(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, _ := w.listen(func(c Conn) Handler {
			c.Linger()
			s := lingerersOf(loopOf(c))
			s.list[0].until = loopOf(c).Now().Add(100 * time.Millisecond)
			return nil
		})
		c := w.connect(at)
		if _, err := io.ReadAll(c); err != nil { // the end of the output comes at once
			t.Fatal(err)
		}
		w.eventually("the connection is still open", func() bool {
			_, err := c.Write([]byte("x")) // answered with a reset once nobody reads
			time.Sleep(10 * time.Millisecond)
			return err != nil
		})
	})
}

// TestLingerInTick: the loop does not sleep beyond the time of a connection that its last tick made linger.
func TestLingerInTick(t *testing.T) {
	var c Conn
	accept := func(a Conn) Handler { c = a; return nil }
	tick := func(clock.Time) clock.Time { c.Linger(); return clock.Never }
	t.Run("epoll", func(t *testing.T) {
		l := newLoop(t)
		dialLocal(t, listenLocal(t, l, accept).addr)
		iterateUntil(t, l, "a connection", func() bool { return c != nil })
		l.SetTick(tick)
		if l.iterate(); l.limit(l.now) <= 0 || l.limit(l.now) > int(lingerTime/time.Millisecond) {
			t.Errorf("the loop sleeps %d ms", l.limit(l.now))
		}
	})
	t.Run("stack", func(t *testing.T) {
		w := newStackWorld(t, 1)
		opened := make(chan struct{})
		at, _ := w.listen(func(a Conn) Handler { close(opened); return accept(a) })
		w.connect(at)
		next(w, opened, "a connection")
		l := w.servers[0].(*StackLoop)
		w.on(l, func() {
			l.SetTick(tick)
			if d := l.poll(l.Now()).Sub(l.Now()); d <= 0 || d > lingerTime {
				t.Errorf("the loop sleeps %v", d)
			}
			l.SetTick(nil)
		})
	})
}

func lingerersOf(l Loop) *lingerers {
	if e, ok := l.(*EpollLoop); ok {
		return &e.lingering
	}
	return &l.(*StackLoop).lingering
}

// TestListenerClose: connections that are complete are accepted, later ones refused.
func TestListenerClose(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		var accepted atomic.Int64
		at, list := w.listen(func(Conn) Handler {
			accepted.Add(1)
			return newEcho(100)
		})
		const conns = 20
		hold, done := make(chan struct{}), make(chan struct{}, len(w.servers))
		for i, l := range w.servers {
			if _, kernel := l.(*EpollLoop); kernel {
				// The kernel completes handshakes while the loop is held up.
				go l.Do(func() {
					<-hold
					list[i].Close()
					list[i].Close()
					done <- struct{}{}
				})
			}
		}
		var all []halfCloser
		for range conns {
			all = append(all, w.connect(at))
		}
		close(hold)
		for i, l := range w.servers {
			if _, kernel := l.(*EpollLoop); kernel {
				next(w, done, "the close")
				continue
			}
			// The last ACK of a handshake is still on its way when the peer has its connection.
			w.eventually("connections are missing", func() bool { return accepted.Load() == conns })
			w.on(l, func() { list[i].Close(); list[i].Close() })
		}
		if n := accepted.Load(); n != conns {
			t.Errorf("%d of %d connections were accepted", n, conns)
		}
		for _, c := range all { // they go on
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.peer.Dial("tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial after Close: %v", err)
		}
	})
}
