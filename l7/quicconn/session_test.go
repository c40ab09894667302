package quicconn

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/millrace/millrace/quic"
)

// A stream that the peer has stopped makes place for another one, though nothing more is written on it.
func TestStoppedStreamsAreForgotten(t *testing.T) {
	e := newEcho()
	watched := make(chan *Stream, 1)
	addr := serve(t, NewHub(runLoop(t)), "echo", &quic.Config{MaxStreams: 3}, Options{}, func(*Conn) Handler { return &watching{e, watched} })
	q := dial(t, addr, "echo", nil)
	for i := range 12 {
		s, err := q.OpenStream(timeout(t))
		if err != nil {
			t.Fatal(i, err)
		}
		_, _ = s.Write([]byte("x"))
		<-watched
		s.CancelRead(4)
		<-e.stopped
		s.CancelWrite(5)
	}
}

// firsts keeps the first input of each stream, and the error that came with it.
type firsts struct {
	*echo
	seen chan [2]any
}

func (f *firsts) Readable(s *Stream) {
	if s.User != nil {
		return
	}
	in := string(s.Input())
	s.User = f
	f.seen <- [2]any{in, s.Err()}
}

// The beginning of a stream arrives though it is reset at once, in both directions; without quic.Config.ResetAt the stream may not be seen.
func TestFirstBytesArriveDespiteAReset(t *testing.T) {
	loop := runLoop(t)
	f := &firsts{newEcho(), make(chan [2]any, 1)}
	conns := make(chan *Conn, 1)
	addr := serve(t, NewHub(loop), "x", &quic.Config{ResetAt: true}, Options{}, func(c *Conn) Handler { conns <- c; return f })
	q := dial(t, addr, "x", &quic.Config{ResetAt: true})
	c := <-conns
	for i := range 20 {
		on(t, loop, func() {
			s, err := c.OpenUni()
			if err != nil {
				t.Error(err)
				return
			}
			s.WriteFirst([]byte("first"))
			s.Write([]byte("second"), false)
			s.Reset(9)
			s.Release()
		})
		s, err := q.AcceptUniStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(s)
		if e := new(quic.StreamError); !errors.As(err, &e) || e.Code != 9 || len(b) < 5 || string(b[:5]) != "first" {
			t.Fatalf("%d: %q, %v", i, b, err)
		}
		out, err := q.OpenUniStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Write([]byte("first"))
		out.SetReliableBoundary()
		out.CancelWrite(7)
		if got := <-f.seen; got[0] != "first" {
			t.Fatalf("%d: %q, %v", i, got[0], got[1])
		}
	}
}

// A stream whose first bytes come with its reset is reported with both.
func TestAResetComesWithTheFirstBytes(t *testing.T) {
	f := &firsts{newEcho(), make(chan [2]any, 1)}
	conns := make(chan *Conn, 1)
	addr := serve(t, NewHub(runLoop(t)), "x", nil, Options{}, func(c *Conn) Handler { conns <- c; return f })
	dial(t, addr, "x", nil)
	b := small.get()
	b.b = append(b.b, "first"...)
	(<-conns).newStream(3, nil, nil).deliver(b, &quic.StreamError{Code: 7, Remote: true})
	if got := <-f.seen; got[0] != "first" || got[1] == nil {
		t.Errorf("%q, %v", got[0], got[1])
	}
}

// OpenLater brings a stream once the peer permits one more, and none after its context.
func TestOpenLater(t *testing.T) {
	loop := runLoop(t)
	conns := make(chan *Conn, 1)
	addr := serve(t, NewHub(loop), "x", nil, Options{}, func(c *Conn) Handler { conns <- c; return newEcho() })
	q := dial(t, addr, "x", &quic.Config{MaxStreams: 1, MaxUniStreams: 1})
	c := <-conns
	for _, uni := range []bool{false, true} {
		var first *Stream
		late, never := make(chan *Stream, 1), make(chan *Stream, 1)
		on(t, loop, func() {
			open := c.Open
			if uni {
				open = c.OpenUni
			}
			var err error
			if first, err = open(); err != nil {
				t.Error(err)
				return
			}
			first.Write([]byte("x"), false)
			if _, err = open(); !errors.Is(err, quic.ErrStreamLimit) {
				t.Errorf("a second one: %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			c.OpenLater(ctx, uni, func(s *Stream) { never <- s })
			cancel()
			c.OpenLater(context.Background(), uni, func(s *Stream) { late <- s })
			first.Reset(1)
			if !uni {
				first.StopReading(1)
			}
			first.Release()
		})
		if uni {
			s, err := q.AcceptUniStream(timeout(t))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(s)
		} else {
			s, err := q.AcceptStream(timeout(t))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.ReadAll(s)
			s.CancelWrite(1)
		}
		select {
		case <-late:
		case <-timeout(t).Done():
			t.Fatal("no stream")
		}
		select {
		case <-never:
			t.Error("a stream after its context")
		default:
		}
	}
}
