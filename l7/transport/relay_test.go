package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
)

// relay is both handlers of a pair: what comes from one goes to the other.
type relay struct {
	to     *relay
	c      Conn // the source
	limit  int  // of one call
	total  int
	failed atomic.Pointer[error]
	closed bool
	full   *atomic.Int64 // how often dst had no room
}

func (r *relay) Ready(_ Conn, ev Events) {
	if ev&(Readable|Failed) != 0 {
		r.move()
	}
	if ev&Writable != 0 {
		r.to.move()
	}
}

// move relays from r to r.to.
func (r *relay) move() {
	for !r.closed {
		n, in, out := r.c.Relay(r.to.c, r.limit)
		r.total += n
		switch {
		case out == ErrAgain:
			r.full.Add(1)
			return
		case out != nil:
			r.end(out)
			return
		case in == ErrAgain:
			return
		case in == io.EOF:
			_ = r.to.c.CloseWrite()
			return
		case in != nil:
			r.end(in)
			return
		}
	}
}

func (r *relay) end(err error) {
	r.failed.Store(&err)
	r.closed, r.to.closed = true, true
	r.c.Close()
	r.to.c.Abort()
}

// relayWorld is a listener of w whose connections are relayed to a listener of its peer.
func relayWorld(t *testing.T, w *world, limit int) (at netip.AddrPort, back net.Listener, pairs chan *relay) {
	t.Helper()
	back, err := w.peer.Listen("tcp", w.local.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	to := netip.MustParseAddrPort(back.Addr().String())
	pairs = make(chan *relay, 100)
	at, _ = w.listen(func(c Conn) Handler {
		full := new(atomic.Int64)
		front, rear := &relay{c: c, limit: limit, full: full}, &relay{limit: limit, full: full}
		front.to, rear.to = rear, front
		var err error
		if rear.c, err = loopOf(c).Dial(to, rear); err != nil {
			t.Error(err)
		}
		pairs <- front
		return front
	})
	return at, back, pairs
}

// TestRelay moves bytes both ways, through receivers that are slow, with all limits.
func TestRelay(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		for _, limit := range []int{1 << 10, 64 << 10, 1 << 20} {
			at, back, pairs := relayWorld(t, w, limit)
			request, response := pattern(1<<20+1), pattern(fullBuffers+limit)
			gotRequest := make(chan []byte, 1)
			go func() {
				c, err := back.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(c)
				if err != nil {
					t.Error(err)
				}
				gotRequest <- got
				_, _ = c.Write(response)
				_ = c.Close()
			}()
			c := w.connect(at)
			if _, err := c.Write(request); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			front := next(w, pairs, "the connection")
			if got := next(w, gotRequest, "the request"); !bytes.Equal(got, request) {
				t.Fatalf("limit %d: the request has %d of %d bytes, or others", limit, len(got), len(request))
			}
			w.eventually("the send buffer does not fill", func() bool { return front.full.Load() > 0 })
			if got, err := io.ReadAll(c); !bytes.Equal(got, response) || err != nil {
				t.Fatalf("limit %d: the response has %d of %d bytes, or others: %v", limit, len(got), len(response), err)
			}
			w.on(loopOf(front.c), func() {
				if front.total != len(request) || front.to.total != len(response) {
					t.Errorf("limit %d: counted %d and %d bytes, want %d and %d", limit, front.total, front.to.total, len(request), len(response))
				}
			})
		}
	})
}

// TestRelayErrors: each side's error is returned as that side's.
func TestRelayErrors(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		for _, resetFront := range []bool{true, false} {
			at, back, pairs := relayWorld(t, w, 1<<20)
			c := w.connect(at)
			server, err := back.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			gone := c
			if !resetFront {
				gone = server.(halfCloser)
			}
			_ = gone.SetLinger(0)
			_ = gone.Close()
			front := next(w, pairs, "the connection")
			r := front
			if !resetFront {
				r = front.to
			}
			w.eventually("no error", func() bool { return r.failed.Load() != nil })
			if err := *r.failed.Load(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
			_ = server.Close()
		}
		// Closed connections, and one of another kind.
		at, _ := w.listen(func(Conn) Handler { return newEcho(10) })
		x, y := w.dial(at, nil), w.dial(at, nil)
		w.on(w.client, func() {
			if _, in, out := x.Relay(&stream{}, 1); in != nil || out != errors.ErrUnsupported {
				t.Errorf("to another kind: %v, %v", in, out)
			}
			y.Close()
			if _, in, out := x.Relay(y, 1); in != nil || out != ErrClosed {
				t.Errorf("to a closed connection: %v, %v", in, out)
			}
			if _, in, out := y.Relay(x, 1); in != ErrClosed || out != nil {
				t.Errorf("from a closed connection: %v, %v", in, out)
			}
			x.Close()
		})
	})
}
