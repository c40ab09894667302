package quic_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

var secret = []byte("sixteen bytes or more of a secret")

// listenAt opens a socket at an address that another has just left.
func listenAt(t *testing.T, addr net.Addr) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", addr.(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStatelessResetByAnotherInstance: an instance that takes over the address of one that has gone
// without a word ends its connections at once, by the shared secret.
func TestStatelessResetByAnotherInstance(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second []byte
		reset         bool
	}{
		{"one secret", secret, secret, true},
		{"two secrets", secret, []byte("another secret of enough bytes"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := udpConn(t)
			server := transport(t, conn, quic.TransportConfig{Secret: c.first})
			serve(t, server, serverTLS(), nil, echo)
			client := transport(t, nil, quic.TransportConfig{})
			k := dial(t, client, server.LocalAddr(), clientTLS(), nil)
			ask(t, k, "x")
			addr := server.LocalAddr()
			_ = conn.Close() // it crashes: no CONNECTION_CLOSE
			_ = server.Close()
			takeover := transport(t, listenAt(t, addr), quic.TransportConfig{Secret: c.second})
			serve(t, takeover, serverTLS(), nil, echo)

			s, err := k.OpenStream(timeout(t))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.Write(make([]byte, 1000))
			if !c.reset {
				_ = s.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
				if _, err := s.Read(make([]byte, 1)); errors.Is(err, quic.ErrStatelessReset) {
					t.Error("the wrong secret reset the connection")
				}
				return
			}
			<-k.Context().Done()
			if cause := context.Cause(k.Context()); !errors.Is(cause, quic.ErrStatelessReset) || !errors.Is(cause, net.ErrClosed) {
				t.Errorf("the connection ended by %v", cause)
			}
			eventually(t, "the counter", func() bool { return client.Stats().StatelessResets == 1 })
		})
	}
}

// TestRetryTokensOfAnotherInstance: a client gets a Retry from one instance and completes the
// handshake with another, as behind a load balancer.
func TestRetryTokensOfAnotherInstance(t *testing.T) {
	for _, c := range []struct {
		name string
		keys []byte
		ok   bool
	}{
		{"one secret", secret, true},
		{"two secrets", []byte("another secret of enough bytes"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			one := transport(t, nil, quic.TransportConfig{Secret: secret, RetryAbove: -1})
			two := transport(t, nil, quic.TransportConfig{Secret: c.keys, RetryAbove: -1})
			serve(t, one, serverTLS(), nil, echo)
			serve(t, two, serverTLS(), nil, echo)
			lb := newRelay(t, one.LocalAddr())
			lb.balance(func(b []byte) net.Addr {
				if firstInitial(b) {
					return one.LocalAddr()
				}
				return two.LocalAddr()
			})
			client := transport(t, nil, quic.TransportConfig{})
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			k, err := client.Dial(ctx, lb.addr(), clientTLS(), &quic.Config{HandshakeTimeout: time.Second})
			if (err == nil) != c.ok {
				t.Fatalf("dial: %v", err)
			}
			if c.ok && ask(t, k, "x") != "x" {
				t.Error("no echo")
			}
			if one.Stats().Retries == 0 {
				t.Error("no Retry")
			}
			if n := two.Stats().Retries; c.ok && n != 0 {
				t.Errorf("the other instance asked %d times more", n)
			}
		})
	}
}

// TestTokensSkipTheRetry: a client that has been there before proves its address by NEW_TOKEN, also to
// another instance.
func TestTokensSkipTheRetry(t *testing.T) {
	tokens := quic.NewTokenCache(4, 4)
	client := transport(t, nil, quic.TransportConfig{})
	for i := range 3 {
		server := transport(t, nil, quic.TransportConfig{Secret: secret, RetryAbove: -1})
		serve(t, server, serverTLS(), nil, echo)
		c := dial(t, client, server.LocalAddr(), clientTLS(), &quic.Config{Tokens: tokens})
		ask(t, c, "x") // NEW_TOKEN comes with the end of the handshake
		if n := server.Stats().Retries; (n > 0) != (i == 0) {
			t.Errorf("instance %d: %d Retries", i, n)
		}
		_ = c.CloseWithError(0, "")
	}
}

func TestSecrets(t *testing.T) {
	conn := udpConn(t)
	defer conn.Close()
	if _, err := quic.NewTransport(conn, quic.TransportConfig{Secret: []byte("short")}); !errors.Is(err, quic.ErrConfig) {
		t.Errorf("short secret: %v", err)
	}
	a, err := quic.SessionTicketKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := quic.SessionTicketKey(secret)
	other, _ := quic.SessionTicketKey(append(secret, 'x'))
	if a != b || a == other || a == [32]byte{} {
		t.Error("ticket keys do not follow from the secret")
	}
}

// firstInitial reports whether b starts with an Initial packet that has no token (RFC 9000 17.2.2).
func firstInitial(b []byte) bool {
	if len(b) < 7 || b[0]&0xf0 != 0xc0 {
		return false
	}
	at := 6 + int(b[5])
	at += 1 + int(b[at])
	return b[at] == 0
}
