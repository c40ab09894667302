package transport

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"
)

// echo sends back what it reads.
type echo struct {
	buf  []byte
	held []byte
	end  bool
}

func (e *echo) Ready(c Conn, _ Events) {
	for {
		for len(e.held) > 0 {
			n, err := c.Write(e.held)
			if e.held = e.held[n:]; err != nil || n == 0 {
				if err != nil && err != ErrAgain {
					c.Close()
				}
				return
			}
		}
		if e.end {
			c.Close()
			return
		}
		n, err := c.Read(e.buf)
		switch {
		case err == ErrAgain:
			return
		case err == io.EOF:
			e.end = true
		case err != nil:
			c.Close()
			return
		}
		e.held = e.buf[:n]
	}
}

func TestEcho(t *testing.T) {
	l, err := NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	li, err := l.Listen(netip.MustParseAddrPort("127.0.0.1:0"), func(Conn) Handler { return &echo{buf: make([]byte, 4096)} })
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	sent := false
	if _, err := l.Dial(li.Addr(), handlerFunc(func(c Conn, ev Events) {
		if ev&Writable != 0 && !sent {
			sent = true
			_, _ = c.Write([]byte("hello"))
			_ = c.CloseWrite()
		}
		b := make([]byte, 100)
		n, err := c.Read(b)
		if n > 0 {
			got <- string(b[:n])
		}
		if errors.Is(err, io.EOF) {
			c.Close()
			close(got)
		}
	})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	if s := <-got; s != "hello" {
		t.Errorf("got %q", s)
	}
	if _, more := <-got; more {
		t.Error("more than was sent")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if l.Do(func() {}) {
		t.Error("Do accepts a function after the end")
	}
}

type handlerFunc func(c Conn, ev Events)

func (f handlerFunc) Ready(c Conn, ev Events) { f(c, ev) }
