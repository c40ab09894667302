package quic_test

import (
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
