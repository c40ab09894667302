package quic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// TestNATRebinding changes the client's address under its feet: the server validates the new one and
// goes on there (RFC 9000 9.3).
func TestNATRebinding(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	accepted := make(chan *quic.Conn, 1)
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) {
		accepted <- c
		echo(c)
	})
	nat := newRelay(t, server.LocalAddr())
	c := dial(t, client, nat.addr(), clientTLS(), nil)
	ask(t, c, "before")
	s := <-accepted
	if got := s.RemoteAddr().String(); got != nat.backAddr() {
		t.Fatalf("the server's peer is %s, want %s", got, nat.backAddr())
	}
	for range 3 {
		nat.rebind(t)
		if got := ask(t, c, "after"); got != "after" {
			t.Errorf("after the rebinding: %q", got)
		}
		eventually(t, "the server sends to the new address", func() bool {
			ask(t, c, "x")
			return s.RemoteAddr().String() == nat.backAddr()
		})
	}
}

// TestMigration moves a connection to another socket of the client, and back.
func TestMigration(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	first, second := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	accepted := make(chan *quic.Conn, 1)
	serve(t, server, serverTLS(), nil, func(c *quic.Conn) {
		accepted <- c
		echo(c)
	})
	c := dial(t, first, server.LocalAddr(), clientTLS(), nil)
	ask(t, c, "before")
	s := <-accepted
	if _, err := s.AddPath(server); !errors.Is(err, quic.ErrMigration) {
		t.Errorf("AddPath at the server: %v", err)
	}
	p, err := c.AddPath(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Switch(); !errors.Is(err, quic.ErrPathNotValidated) {
		t.Errorf("Switch before Probe: %v", err)
	}
	if err := p.Probe(timeout(t)); err != nil {
		t.Fatal(err)
	}
	if got := s.RemoteAddr().String(); got != first.LocalAddr().String() {
		t.Errorf("a probe moved the connection to %s", got)
	}
	if err := p.Switch(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection has moved", func() bool {
		return ask(t, c, "moved") == "moved" && s.RemoteAddr().String() == second.LocalAddr().String()
	})
	if c.LocalAddr().String() != second.LocalAddr().String() {
		t.Errorf("local address %v", c.LocalAddr())
	}
}

// TestQUICGoAnswersNoChallengeOfThePathInUse: RFC 9000 8.2.2 demands a PATH_RESPONSE. quic-go v0.65 acknowledges the packet and,
// at a server, answers challenges of new paths only. When this fails, docs/quic.md lists one fault too many.
func TestQUICGoAnswersNoChallengeOfThePathInUse(t *testing.T) {
	server := transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	r := newRawClient(t, server.LocalAddr())
	r.handshake()
	before := r.spaces[application].largest
	for range 3 {
		r.send(application, append([]byte{0x1a}, "12345678"...))
		for r.receive(100 * time.Millisecond) {
		}
	}
	if r.spaces[application].largest == before || r.closed {
		t.Error("the challenges did not arrive")
	}
	if r.responses != 0 {
		t.Errorf("%d responses", r.responses)
	}
}

// TestPathThatLeadsNowhere: a probe without an answer leaves the connection where it is.
func TestPathThatLeadsNowhere(t *testing.T) {
	server, first := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	nowhere := transport(t, mute{udpConn(t)}, quic.TransportConfig{})
	c := dial(t, first, server.LocalAddr(), clientTLS(), nil)
	p, err := c.AddPath(nowhere)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := shortContext(t)
	defer cancel()
	if err := p.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Probe: %v", err)
	}
	if got := ask(t, c, "still here"); got != "still here" {
		t.Errorf("%q", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Switch(); !errors.Is(err, quic.ErrPathClosed) {
		t.Errorf("Switch after Close: %v", err)
	}
}
