package quicconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// echo sends back what it reads, as far as there is room.
type echo struct {
	closed  chan error
	stopped chan error
	failed  chan error
	most    int // what was held at most
}

func newEcho() *echo {
	return &echo{closed: make(chan error, 100), stopped: make(chan error, 100), failed: make(chan error, 100)}
}

func (e *echo) Readable(s *Stream) { e.pump(s) }
func (e *echo) Writable(s *Stream) { e.pump(s) }

func (e *echo) pump(s *Stream) {
	for {
		in := s.Input()
		n := min(len(in), s.Room())
		if n == 0 {
			break
		}
		s.Write(in[:n], false)
		s.Consume(n)
		e.most = max(e.most, s.held.size())
	}
	switch err := s.Err(); {
	case err == nil || len(s.Input()) > 0:
	case err == io.EOF:
		s.Write(nil, true)
		s.Release()
	default:
		e.failed <- err
		s.Reset(7)
		s.Release()
	}
}

func (e *echo) Stopped(s *Stream, err error) {
	e.stopped <- err
	s.StopReading(8)
	s.Release()
}

func (e *echo) Closed(err error) { e.closed <- err }

// TestEcho has many streams of many sizes at a time.
func TestEcho(t *testing.T) {
	e := newEcho()
	h := NewHub(runLoop(t))
	q := dial(t, serve(t, h, "echo", nil, Options{}, func(*Conn) Handler { return e }), "echo", nil)
	random := rand.New(rand.NewPCG(1, 1))
	var streams sync.WaitGroup
	for i := range 60 {
		data := make([]byte, []int{0, 1, 100, 3000, 100_000, 1_000_000}[i%6])
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		streams.Go(func() { ask(t, q, data, i%7 == 0) })
		if i%30 == 29 {
			streams.Wait()
		}
	}
	if err := q.CloseWithError(5, "done"); err != nil {
		t.Fatal(err)
	}
	var closed *quic.ApplicationError
	if err := <-e.closed; !errors.As(err, &closed) || closed.Code != 5 || !closed.Remote {
		t.Errorf("closed by %v", err)
	}
	if e.most > MaxHeld {
		t.Errorf("%d bytes were held", e.most)
	}
}

// ask sends data on a stream and compares what comes back. slowly sends the first byte alone.
func ask(t *testing.T, q *quic.Conn, data []byte, slowly bool) {
	s, err := q.OpenStream(timeout(t))
	if err != nil {
		t.Error(err)
		return
	}
	_ = s.SetDeadline(time.Now().Add(patience))
	go func() {
		rest := data
		if slowly && len(data) > 0 {
			_, _ = s.Write(data[:1])
			time.Sleep(time.Millisecond)
			rest = data[1:]
		}
		_, _ = s.Write(rest)
		_ = s.Close()
	}()
	if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(data), err)
	}
}

// sink never reads, or writes without end: as the field says.
type sink struct {
	*echo
	streams chan *Stream
}

func (k *sink) Readable(s *Stream) {
	select {
	case k.streams <- s:
	default:
	}
}
func (k *sink) Writable(*Stream) {}

// TestUnreadInputStopsThePeer has a handler that leaves what comes: the peer can send no more than the windows of QUIC and
// what lies between.
func TestUnreadInputStopsThePeer(t *testing.T) {
	loop := runLoop(t)
	k := &sink{newEcho(), make(chan *Stream, 1)}
	c := &quic.Config{StreamWindow: 64 << 10, MaxStreamWindow: 64 << 10}
	q := dial(t, serve(t, NewHub(loop), "sink", c, Options{}, func(*Conn) Handler { return k }), "sink", nil)
	s, err := q.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for end := time.Now().Add(patience); time.Now().Before(end); {
		_ = s.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, _ := s.Write(make([]byte, 10<<20))
		if sent += n; n == 0 && sent >= 64<<10 {
			break
		}
	}
	if sent > 64<<10+4*large.size || sent < 64<<10 {
		t.Errorf("%d bytes were sent", sent)
	}
	// Once it is read, the rest comes.
	_ = s.SetWriteDeadline(time.Time{})
	go func() {
		_, _ = s.Write(make([]byte, 1<<20))
		_ = s.Close()
	}()
	server, got := <-k.streams, 0
	for end := time.Now().Add(patience); ; {
		var err error
		on(t, loop, func() {
			n := len(server.Input())
			got += n
			if server.Consume(n); len(server.Input()) == 0 {
				err = server.Err() // it follows Input
			}
		})
		if err == io.EOF {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes came, %v", got, err)
		}
	}
	if got != sent+1<<20 {
		t.Errorf("%d bytes came of %d", got, sent+1<<20)
	}
}

// TestUnsentOutputIsBounded writes as much as there is room for to a peer that does not read.
func TestUnsentOutputIsBounded(t *testing.T) {
	loop := runLoop(t)
	k := &sink{newEcho(), make(chan *Stream, 1)}
	addr := serve(t, NewHub(loop), "sink", nil, Options{}, func(*Conn) Handler { return k })
	q := dial(t, addr, "sink", &quic.Config{StreamWindow: 32 << 10, MaxStreamWindow: 32 << 10})
	s, err := q.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("x"))
	server, wrote := <-k.streams, 0
	deadline := time.Now().Add(300 * time.Millisecond)
	for time.Now().Before(deadline) {
		on(t, loop, func() {
			n := min(server.Room(), 5000)
			server.Write(make([]byte, n), false)
			wrote += n
		})
	}
	if most := 32<<10 + maxDirect + 3*MaxHeld; wrote > most || wrote < MaxHeld {
		t.Errorf("%d bytes were taken, at most %d should be", wrote, most)
	}
	on(t, loop, func() { server.Write(nil, true) })
	_ = s.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(s); len(got) != wrote || err != nil {
		t.Errorf("%d of %d bytes came, %v", len(got), wrote, err)
	}
}

// TestResets has each end reset and stop.
func TestResets(t *testing.T) {
	loop := runLoop(t)
	e := newEcho()
	watched := make(chan *Stream, 1)
	addr := serve(t, NewHub(loop), "echo", nil, Options{}, func(*Conn) Handler { return &watching{e, watched} })
	q := dial(t, addr, "echo", nil)
	open := func() *quic.Stream {
		s, err := q.OpenStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SetReadDeadline(time.Now().Add(patience))
		_, _ = s.Write([]byte("x"))
		if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	streamCode := func(err error, remote bool) uint64 {
		t.Helper()
		var e *quic.StreamError
		if !errors.As(err, &e) || e.Remote != remote {
			t.Fatalf("%v", err)
		}
		return e.Code
	}
	s := open()
	<-watched
	s.CancelWrite(3)
	if code := streamCode(<-e.failed, true); code != 3 {
		t.Errorf("reset with %d", code)
	}
	if _, err := s.Read(make([]byte, 1)); streamCode(err, true) != 7 {
		t.Errorf("%v", err)
	}
	s = open()
	<-watched
	s.CancelRead(4)
	if code := streamCode(<-e.stopped, true); code != 4 {
		t.Errorf("stopped with %d", code)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := s.Write([]byte("y")); err != nil {
			if streamCode(err, true) != 8 {
				t.Error(err)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the stop does not arrive")
		}
	}
}

// watching is an echo that watches each stream.
type watching struct {
	*echo
	streams chan *Stream
}

func (w *watching) Readable(s *Stream) {
	if s.User == nil {
		s.User = w
		s.Watch()
		w.streams <- s
	}
	w.echo.Readable(s)
}

// TestWithoutRoomForStreams has a client that permits no unidirectional stream.
func TestWithoutRoomForStreams(t *testing.T) {
	addr := serve(t, NewHub(runLoop(t)), "x", nil, Options{Uni: 1, Wait: 50 * time.Millisecond}, func(*Conn) Handler { t.Error("reported"); return newEcho() })
	q := dial(t, addr, "x", &quic.Config{MaxUniStreams: -1})
	<-q.Context().Done()
	var e *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &e) || e.Code != 1 {
		t.Error(err)
	}
}

// TestUni has both ends open unidirectional streams.
func TestUni(t *testing.T) {
	loop := runLoop(t)
	k := &sink{newEcho(), make(chan *Stream, 1)}
	addr := serve(t, NewHub(loop), "x", nil, Options{Uni: 2}, func(c *Conn) Handler {
		c.Uni[0].Write([]byte("first"), false)
		c.Uni[1].Write([]byte("second"), true)
		return k
	})
	q := dial(t, addr, "x", nil)
	for range 2 {
		s, err := q.AcceptUniStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		n, _ := s.Read(b)
		if want := map[quic.StreamID]string{3: "first", 7: "second"}[s.ID()]; string(b[:n]) != want {
			t.Errorf("%q on %d", b[:n], s.ID())
		}
	}
	s, err := q.OpenUniStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("from the client"))
	server := <-k.streams
	on(t, loop, func() {
		if in := string(server.Input()); in != "from the client" || server.ID() != 2 || server.Err() != nil {
			t.Errorf("%q on %d, %v", in, server.ID(), server.Err())
		}
	})
}

// TestDialed has the loop open streams.
func TestDialed(t *testing.T) {
	loop := runLoop(t)
	addr := serve(t, NewHub(runLoop(t)), "echo", &quic.Config{MaxStreams: 3}, Options{}, func(*Conn) Handler { return newEcho() })
	k := &sink{newEcho(), make(chan *Stream, 10)}
	conns := make(chan *Conn, 1)
	NewHub(loop).Serve(dial(t, addr, "echo", nil), Options{}, 0, func(c *Conn) Handler { conns <- c; return k })
	c := <-conns
	on(t, loop, func() {
		if !c.HandshakeComplete() {
			t.Error("the handshake is not complete")
		}
		for range 3 {
			s, err := c.Open()
			if err != nil {
				t.Error(err)
				continue
			}
			s.Write([]byte("hello"), true)
		}
		if _, err := c.Open(); !errors.Is(err, quic.ErrStreamLimit) {
			t.Errorf("a fourth stream: %v", err)
		}
	})
	for range 3 {
		s := <-k.streams
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			var in string
			var err error
			on(t, loop, func() { in, err = string(s.Input()), s.Err() })
			if in == "hello" && err == io.EOF {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%q, %v", in, err)
			}
		}
	}
	on(t, loop, func() { c.Close(9, "over") })
	if err := <-k.closed; err == nil {
		t.Error("closed without an error")
	}
}

// TestLoopEnds closes connections that the loop has no use for any more.
func TestLoopEnds(t *testing.T) {
	loop := runLoop(t)
	addr := serve(t, NewHub(loop), "echo", nil, Options{}, func(*Conn) Handler { return newEcho() })
	_ = loop.Close()
	for loop.Do(func() {}) {
		time.Sleep(time.Millisecond)
	}
	q := dial(t, addr, "echo", nil)
	<-q.Context().Done()
	var e *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &e) || e.Code != 1 {
		t.Error(err)
	}
}

// accepted returns a stream that the client has opened and written to, with nothing of it consumed.
func accepted(t *testing.T, bytes int) (client *quic.Stream, server *Stream, do func(func())) {
	t.Helper()
	loop := runLoop(t)
	k := &sink{newEcho(), make(chan *Stream, 1)}
	q := dial(t, serve(t, NewHub(loop), "sink", nil, Options{}, func(*Conn) Handler { return k }), "sink", nil)
	s, err := q.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SetDeadline(time.Now().Add(patience))
	if _, err := s.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	return s, <-k.streams, func(f func()) { on(t, loop, f) }
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// TestResetDropsInput has a peer reset a stream whose input was not consumed: the handler learns of it at once.
func TestResetDropsInput(t *testing.T) {
	client, server, do := accepted(t, 100)
	client.CancelWrite(3)
	eventually(t, "the reset", func() (reset bool) {
		do(func() {
			var e *quic.StreamError
			reset = errors.As(server.Err(), &e) && e.Code == 3 && len(server.Input()) == 0
		})
		return reset
	})
}

// TestStopReading ends the goroutine that waits with what it has read.
func TestStopReading(t *testing.T) {
	client, server, do := accepted(t, 100_000)
	readers := func() int {
		b := make([]byte, 1<<20)
		return bytes.Count(b[:runtime.Stack(b, true)], []byte("quicconn.(*Stream).deliver("))
	}
	eventually(t, "a reader that waits", func() bool { return readers() == 1 })
	do(func() { server.StopReading(5) })
	eventually(t, "the end of the reader", func() bool { return readers() == 0 })
	var e *quic.StreamError
	eventually(t, "the stop", func() bool { _, err := client.Write([]byte("x")); return errors.As(err, &e) })
	if e.Code != 5 {
		t.Errorf("stopped with %d", e.Code)
	}
	do(func() {
		if server.Consume(10); len(server.Input()) != 0 || server.Err() == nil {
			t.Errorf("%d bytes, %v", len(server.Input()), server.Err())
		}
	})
}

// TestDirectIsBounded writes small pieces faster than they can be sent: what QUIC queues without a goroutine has a bound.
func TestDirectIsBounded(t *testing.T) {
	client, server, do := accepted(t, 1)
	do(func() {
		for range 60 {
			server.Write(make([]byte, 1000), false)
			if server.direct > maxDirect {
				t.Errorf("%d bytes are queued", server.direct)
				break
			}
		}
		server.Write(nil, true)
	})
	if b, err := io.ReadAll(client); len(b) != 60_000 || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
