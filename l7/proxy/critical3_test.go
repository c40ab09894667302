package proxy

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// A client that stops the gateway's control stream ends the connection, though nothing is to be written to it (RFC 9114 6.2.1).
func TestCriticalStreamsOfHTTP3ThatAreStopped(t *testing.T) {
	r := http3Rig(t, "127.0.0.1:1", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := r.dial3(ctx, quicSocket(t), nil)
	s, err := conn.AcceptUniStream(ctx)
	must(t, err)
	first := make([]byte, 1)
	if _, err := s.Read(first); err != nil || first[0] != 0 {
		t.Fatalf("the first stream has type %d, %v", first[0], err)
	}
	s.CancelRead(uint64(http3.NoError))
	select {
	case <-conn.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection goes on")
	}
	var e *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &e) || e.Code != uint64(http3.ClosedCriticalStream) {
		t.Error(err)
	}
}

// A client that closes its connection has not stopped the control stream: nothing is wrong with its input.
func TestClientsOfHTTP3ThatCloseAreNotRefused(t *testing.T) {
	r := http3Rig(t, "127.0.0.1:1", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	from := quicSocket(t)
	for range 20 {
		conn := r.dial3(ctx, from, nil)
		s, err := conn.AcceptUniStream(ctx)
		must(t, err)
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWithError(uint64(http3.NoError), "")
		r.eventually("the end of the connection", func() bool { return len(r.worker.fronts3) == 0 })
	}
	r.do(func() {
		if n := r.worker.Stats().Refused; n != 0 {
			t.Errorf("%d connections of 20 have had malformed input", n)
		}
	})
}
