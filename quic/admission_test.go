package quic_test

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/quic"
)

func TestRefusal(t *testing.T) {
	var validated atomic.Bool
	for _, c := range []struct {
		name   string
		server quic.TransportConfig
		conns  int // that succeed
	}{
		{"Refuse", quic.TransportConfig{Refuse: func(net.Addr, bool) bool { return true }}, 0},
		{"MaxConns", quic.TransportConfig{MaxConns: 2}, 2},
		{"Refuse after Retry", quic.TransportConfig{RetryAbove: -1, Refuse: func(_ net.Addr, v bool) bool {
			validated.Store(v)
			return true
		}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := transport(t, nil, c.server), transport(t, nil, quic.TransportConfig{})
			serve(t, server, serverTLS(), nil, echo)
			var last *quic.Conn
			for range c.conns {
				last = dial(t, client, server.LocalAddr(), clientTLS(), nil)
				ask(t, last, "x")
			}
			_, err := client.Dial(timeout(t), server.LocalAddr(), clientTLS(), nil)
			if !errors.Is(err, &quic.TransportError{Code: quic.ConnectionRefused, Remote: true}) {
				t.Errorf("one more: %v", err)
			}
			if s := server.Stats(); s.Refused == 0 || s.Conns != c.conns {
				t.Errorf("%+v", s)
			}
			eventually(t, "no handshake is under way", func() bool { return server.Stats().Handshakes == 0 })
			if last == nil {
				return
			}
			_ = last.CloseWithError(0, "")
			eventually(t, "room for another", func() bool {
				c, err := client.Dial(timeout(t), server.LocalAddr(), clientTLS(), nil)
				return err == nil && ask(t, c, "x") == "x"
			})
		})
	}
	if !validated.Load() {
		t.Error("Refuse was not given the proof of the address")
	}
}

// A handshake that a client begins and does not complete is reported with its address and cause, once, and one that is refused or
// complete is not.
func TestFailedHandshakesAreReported(t *testing.T) {
	type failure struct {
		remote string
		cause  error
	}
	failures := make(chan failure, 10)
	server := transport(t, nil, quic.TransportConfig{HandshakeFailed: func(remote net.Addr, cause error) {
		failures <- failure{remote.String(), cause}
	}})
	serve(t, server, serverTLS(), nil, echo)
	for _, c := range []struct {
		name   string
		tls    *tls.Config
		code   uint64 // of the error, CRYPTO_ERROR with the alert (RFC 9001 4.8); 0 is none
		remote bool
	}{
		{"complete", clientTLS(), 0, false},
		{"another protocol", &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"other"}}, 0x100 + 120, false},
		{"an unknown authority", &tls.Config{ServerName: "test", NextProtos: []string{alpn}}, 0x100 + 42, true},
	} {
		client := transport(t, nil, quic.TransportConfig{})
		conn, err := client.Dial(timeout(t), server.LocalAddr(), c.tls, nil)
		if (err == nil) != (c.code == 0) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err == nil {
			ask(t, conn, "x")
			_ = conn.CloseWithError(0, "")
			continue
		}
		select {
		case got := <-failures:
			if want := (&quic.TransportError{Code: quic.ErrorCode(c.code), Remote: c.remote}); got.remote != client.LocalAddr().String() || !errors.Is(got.cause, want) {
				t.Errorf("%s: %s, %v; want %s, %v", c.name, got.remote, got.cause, client.LocalAddr(), want)
			}
		case <-timeout(t).Done():
			t.Errorf("%s: no report", c.name)
		}
	}
	eventually(t, "no connection is left", func() bool { s := server.Stats(); return s.Conns == 0 && s.Handshakes == 0 })
	if n := len(failures); n > 0 {
		t.Errorf("%d further reports", n)
	}
}
