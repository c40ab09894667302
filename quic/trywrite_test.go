package quic_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// TestTryWrite fills the peer's window without blocking, and goes on once the peer has read.
func TestTryWrite(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	goOn, got := make(chan struct{}), make(chan []byte, 1)
	serve(t, server, serverTLS(), &quic.Config{StreamWindow: 32 << 10, MaxStreamWindow: 32 << 10}, func(c *quic.Conn) {
		s, err := c.AcceptStream(timeout(t))
		if err != nil {
			return
		}
		<-goOn
		b, _ := io.ReadAll(s)
		got <- b
	})
	s, err := dial(t, client, server.LocalAddr(), clientTLS(), nil).TryOpenStream()
	if err != nil {
		t.Fatal(err)
	}
	piece, want := bytes.Repeat([]byte("x"), 10_000), 0
	for err = s.TryWrite(piece); err == nil; err = s.TryWrite(piece) {
		if want += len(piece); want > 32<<10 {
			t.Fatalf("%d bytes were taken", want)
		}
	}
	if !errors.Is(err, quic.ErrWouldBlock) || want != 30_000 {
		t.Fatalf("%v after %d bytes", err, want)
	}
	close(goOn)
	eventually(t, "room for more", func() bool { return s.TryWrite(piece) == nil })
	_ = s.Close()
	if b := <-got; len(b) != want+len(piece) {
		t.Errorf("%d bytes came, %d were written", len(b), want+len(piece))
	}
	if err := s.TryWrite(piece); !errors.Is(err, quic.ErrStreamClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestAfterEnd is called with the reason, unless it was stopped before.
func TestAfterEnd(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) {
		for {
			s, err := c.AcceptStream(timeout(t))
			if err != nil {
				return
			}
			s.CancelRead(7)
		}
	})
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	ends := make(chan error, 2)
	for _, stopped := range []bool{true, false} {
		s, err := c.TryOpenStream()
		if err != nil {
			t.Fatal(err)
		}
		if stop := s.AfterEnd(func(err error) { ends <- err }); stopped && !stop() {
			t.Error("it was called already")
		}
		_, _ = s.Write([]byte("x"))
	}
	var e *quic.StreamError
	if err := <-ends; !errors.As(err, &e) || e.Code != 7 || !e.Remote {
		t.Errorf("ended by %v", err)
	}
	select {
	case err := <-ends:
		t.Errorf("called twice: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}
