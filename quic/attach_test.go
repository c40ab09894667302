package quic_test

import (
	"context"
	"crypto/tls"
	"testing"

	"github.com/millrace/millrace/quic"
)

// What GetConfigForClient attaches is found at the connection that the hello has opened, and at no other.
func TestAttach(t *testing.T) {
	server, client := transport(t, nil, quic.TransportConfig{}), transport(t, nil, quic.TransportConfig{})
	tc := serverTLS()
	tc.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) > 1 && !quic.Attach(hello.Context(), hello.SupportedProtos[0]) {
			t.Error("nothing is attached")
		}
		return nil, nil
	}
	accepted := make(chan *quic.Conn, 3)
	serve(t, server, tc, nil, func(c *quic.Conn) { accepted <- c })
	for _, first := range []string{"a", "b", ""} {
		c := clientTLS()
		want := any(nil)
		if first != "" {
			c.NextProtos, want = append([]string{first}, c.NextProtos...), any(first)
		}
		dialed := dial(t, client, server.LocalAddr(), c, nil)
		if got := (<-accepted).Attached(); got != want {
			t.Errorf("%v is attached, want %v", got, want)
		}
		if dialed.Attached() != nil {
			t.Error("a connection that was dialed has something")
		}
	}
	if quic.Attach(context.Background(), 1) {
		t.Error("a value is attached to no connection")
	}
}
