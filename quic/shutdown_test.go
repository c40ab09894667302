package quic_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// TestShutdownWaits: what is under way is finished, new connections are refused.
func TestShutdownWaits(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	l := serve(t, server, serverTLS(), nil, echo)
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	ask(t, c, "before")
	done := make(chan error, 1)
	go func() { done <- server.Shutdown(timeout(t)) }()
	eventually(t, "the listener closes", func() bool {
		_, err := l.Accept(timeout(t))
		return errors.Is(err, quic.ErrListenerClosed) && errors.Is(err, net.ErrClosed)
	})
	if got := ask(t, c, "during"); got != "during" {
		t.Errorf("%q", got)
	}
	ctx, cancel := shortContext(t)
	defer cancel()
	if _, err := client.Dial(ctx, server.LocalAddr(), clientTLS(), nil); err == nil {
		t.Error("a connection was accepted")
	}
	select {
	case err := <-done:
		t.Fatalf("Shutdown did not wait: %v", err)
	default:
	}
	_ = c.CloseWithError(0, "")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := server.Close(); !errors.Is(err, quic.ErrTransportClosed) {
		t.Errorf("Close after Shutdown: %v", err)
	}
	if _, err := server.Listen(serverTLS(), nil); !errors.Is(err, quic.ErrTransportClosed) {
		t.Errorf("Listen after Shutdown: %v", err)
	}
	if _, err := server.Dial(timeout(t), client.LocalAddr(), clientTLS(), nil); !errors.Is(err, quic.ErrTransportClosed) {
		t.Errorf("Dial after Shutdown: %v", err)
	}
}

// TestShutdownEnds: what is not finished in time is closed, and the peer learns it.
func TestShutdownEnds(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	ask(t, c, "x")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	<-c.Context().Done()
	if cause := context.Cause(c.Context()); !errors.Is(cause, &quic.ApplicationError{Remote: true}) {
		t.Errorf("the client's connection ended by %v", cause)
	}
}

// TestListenAgain: a transport listens again after its listener, and its connections outlive that.
func TestListenAgain(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	l := serve(t, server, serverTLS(), nil, echo)
	if _, err := server.Listen(serverTLS(), nil); !errors.Is(err, quic.ErrListening) {
		t.Errorf("second listener: %v", err)
	}
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	ask(t, c, "x")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	serve(t, server, serverTLS(), nil, echo)
	ask(t, dial(t, client, server.LocalAddr(), clientTLS(), nil), "x")
	ask(t, c, "x")
}

// TestConnFails: when the packet conn ends under a transport, its connections end.
func TestConnFails(t *testing.T) {
	conn := udpConn(t)
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, conn, quic.TransportConfig{})
	serve(t, server, serverTLS(), nil, echo)
	c := dial(t, client, server.LocalAddr(), clientTLS(), nil)
	_ = conn.Close()
	<-c.Context().Done()
	if cause := context.Cause(c.Context()); !errors.Is(cause, net.ErrClosed) {
		t.Errorf("the connection ended by %v", cause)
	}
	if _, err := client.Dial(timeout(t), server.LocalAddr(), clientTLS(), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial: %v", err)
	}
}
