package quicconn

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// slowRig is a client with small windows, and the connection of the loop that writes to it.
func slowRig(t *testing.T, streams int) (hub *Hub, client []*quic.Stream, server []*Stream, k *sink) {
	t.Helper()
	loop := runLoop(t)
	k = &sink{newEcho(), make(chan *Stream, streams)}
	hub = NewHub(loop)
	addr := serve(t, hub, "sink", &quic.Config{MaxStreams: 200}, Options{Counted: true}, func(*Conn) Handler { return k })
	q := dial(t, addr, "sink", &quic.Config{StreamWindow: 1024, MaxStreamWindow: 1024})
	for range streams {
		s, err := q.OpenStream(timeout(t))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Write([]byte("x"))
		client, server = append(client, s), append(server, <-k.streams)
	}
	return hub, client, server, k
}

// fill writes as much as there is room for.
func fill(s *Stream) (n int) {
	for {
		room := min(s.Room(), 5000)
		if room == 0 {
			return n
		}
		s.Write(make([]byte, room), false)
		n += room
	}
}

// TestSlowReadersAreReset has streams whose peer reads nothing, also such as were released with their end written. What waits for
// them is dropped, and they are reset. One that is read slowly goes on, for longer than the time-out.
func TestSlowReadersAreReset(t *testing.T) {
	hub, client, server, k := slowRig(t, 12)
	loop, c := hub.loop, server[0].conn
	wrote := 0 // to the first
	on(t, loop, func() {
		c.SetWriteTimeout(600*time.Millisecond, 9)
		for i, s := range server {
			if n := fill(s); i == 0 {
				wrote += n
			}
		}
	})
	time.Sleep(20 * time.Millisecond) // what was held is being written
	on(t, loop, func() {
		for i, s := range server {
			if n := fill(s); i == 0 {
				wrote += n
			}
			if i > 6 {
				s.Write(nil, true)
				s.StopReading(0)
				s.Release()
			}
		}
	})
	slow := client[0]
	read := 0
	for read < 12_000 || hub.WriteTimeouts() < 11 && read < wrote {
		_ = slow.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(slow, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		read += 1000
		time.Sleep(70 * time.Millisecond)
	}
	if held := c.held.Load(); held > 2*MaxHeld { // of the slow one
		t.Errorf("%d bytes are held", held)
	}
	on(t, loop, func() { server[0].Write(nil, true) })
	_ = slow.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, slow); err != nil || read+int(n) != wrote {
		t.Errorf("%d of %d bytes came, %v", read+int(n), wrote, err)
	}
	for i, s := range client[1:] {
		_ = s.SetReadDeadline(time.Now().Add(patience))
		var e *quic.StreamError
		if n, err := io.Copy(io.Discard, s); !errors.As(err, &e) || !e.Remote || e.Code != 9 || n > 1024 {
			t.Errorf("stream %d: %d bytes, %v", i+1, n, err)
		}
	}
	for range 6 { // those that were not released
		if err := <-k.stopped; !errors.Is(err, ErrWriteTimeout) {
			t.Error(err)
		}
	}
	if n := hub.WriteTimeouts(); n != 11 {
		t.Errorf("%d streams are counted", n)
	}
	if held := c.held.Load(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}

// TestAConnectionHoldsSoMuch has many streams that are not read: together they hold MaxConnHeld, and each beyond it leastHeld.
func TestAConnectionHoldsSoMuch(t *testing.T) {
	hub, client, server, _ := slowRig(t, 60)
	for range 20 { // writers take what is held once, and leave room
		on(t, hub.loop, func() {
			for _, s := range server {
				fill(s)
			}
		})
		time.Sleep(5 * time.Millisecond)
	}
	c := server[0].conn
	if held, most := c.held.Load(), int64(MaxConnHeld+2*MaxHeld+len(server)*2*leastHeld); held < MaxConnHeld || held > most {
		t.Errorf("%d bytes are held, at most %d should be", held, most)
	}
	last := server[len(server)-1]
	on(t, hub.loop, func() {
		if n := last.held.size(); n != leastHeld || last.Room() != 0 {
			t.Errorf("%d bytes wait on a stream, and there is room for %d", n, last.Room())
		}
		last.Write(nil, true)
	})
	_ = client[len(client)-1].SetReadDeadline(time.Now().Add(patience)) // what it has is sent, whatever the others do
	if n, err := io.Copy(io.Discard, client[len(client)-1]); err != nil || n < leastHeld {
		t.Errorf("%d bytes, %v", n, err)
	}
}
