package socket

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// TestPeekAndWriteZeroCopy moves bytes without copies on either side.
func TestPeekAndWriteZeroCopy(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	within(t, 20*time.Second, "zero-copy write", func() {
		var done sync.WaitGroup
		go func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 50_000)
				done.Add(1)
				if err := c.WriteZeroCopy(rest[:n], done.Done); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			_ = c.CloseWrite()
		}()
		var got []byte
		for {
			err := s.Peek(func(a, b []byte) int {
				got = append(append(got, a...), b...)
				return len(a) + len(b)
			})
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes", len(got), len(data))
		}
		done.Wait() // every piece came back
	})
	_, _ = s.Write([]byte("abc"))
	for _, want := range []string{"abc", "bc", "bc"} {
		take := 1
		if err := c.Peek(func(a, b []byte) int {
			if got := string(a) + string(b); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if want == "bc" {
				take = 0
			}
			return take
		}); err != nil {
			t.Error(err)
		}
	}
	_ = c.SetDeadline(time.Unix(1, 0))
	if err := c.Peek(nil); err == nil {
		t.Error("a deadline does not hold for Peek")
	}
	if err := c.WriteZeroCopy([]byte("x"), nil); err == nil {
		t.Error("a deadline does not hold for WriteLent")
	}
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// TestCallbacks echoes on the loops of b, without goroutines of the server.
func TestCallbacks(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	l, err := x.b.Listen("tcp", addrB+":80")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(in LoopConn, ev Events) {
		p := in.Peek()
		for _, b := range p {
			if n, err := in.Write(b); n != len(b) || err != nil {
				t.Errorf("%d of %d bytes, %v", n, len(b), err)
			}
		}
		in.Discard(len(p[0]) + len(p[1]))
		if _, err := in.Read(make([]byte, 1)); err != nil {
			_ = in.Close()
		}
	}
	l.(*Listener).OnAccept(func(in LoopConn) { in.OnReady(serve) })
	within(t, 20*time.Second, "callbacks", func() {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				c, err := x.a.Dial("tcp", addrB+":80")
				if err != nil {
					t.Error(err)
					return
				}
				data := make([]byte, i*100)
				go func() {
					_, _ = c.Write(data)
					_ = c.(*TCPConn).CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if len(got) != len(data) || err != nil {
					t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
				}
				_ = c.Close()
			})
		}
		wg.Wait()
	})
	_ = l.Close()
	x.checkEmpty(t)
}

// TestDatagramCallbacks echoes from the loops.
func TestDatagramCallbacks(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	b := x.listenPacket(t, x.b, "udp", ":7", nil)
	if err := b.OnReady(func(in LoopUDPConn, ev Events) {
		for {
			l, ok := in.Lease()
			if !ok {
				return
			}
			var m Message
			l.Describe(&m)
			m.N, m.Buffers = 0, [][]byte{l.Payload()}
			if n, err := in.Write([]Message{m}); n != 1 || err != nil {
				t.Error(n, err)
			}
			l.Release()
		}
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			a, err := x.a.Dial("udp", addrB+":7")
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Close()
			_ = a.SetDeadline(time.Now().Add(10 * time.Second))
			msg := fmt.Sprint("message ", i)
			_, _ = a.Write([]byte(msg))
			buf := make([]byte, 100)
			if n, err := a.Read(buf); string(buf[:n]) != msg || err != nil {
				t.Errorf("%q, %v", buf[:n], err)
			}
		})
	}
	within(t, 15*time.Second, "echo", wg.Wait)
}

// TestCallbackAndPoller: a Poller reports what the callback of a socket leaves, as that of a connection.
func TestCallbackAndPoller(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	b := x.listenPacket(t, x.b, "udp", ":7", nil)
	p := x.b.NewPoller()
	if err := p.Add(b, Interest{Events: Readable, Edge: true}); err != nil {
		t.Fatal(err)
	}
	took := make(chan bool, 2)
	take := true // the first datagram alone; the loop guards it
	if err := b.OnReady(func(in LoopUDPConn, ev Events) {
		if ev&Readable == 0 {
			return
		}
		if take {
			l, _ := in.Lease()
			l.Release()
		}
		took <- take
		take = false
	}); err != nil {
		t.Fatal(err)
	}
	a, err := x.a.Dial("udp", addrB+":7")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var ev [1]Event
	for _, want := range []int{0, 1} {
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if taken := <-took; taken != (want == 0) {
			t.Errorf("taken: %v", taken)
		}
		if n, err := p.Wait(ev[:], 50*time.Millisecond); n != want || err != nil {
			t.Errorf("%d events, %v; want %d", n, err, want)
		}
	}
}
