package role

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	quicgo "github.com/quic-go/quic-go"
	quicgoh3 "github.com/quic-go/quic-go/http3"

	"github.com/millrace/millrace/bench/netpeer"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// h3Kind is an implementation of HTTP/3, whose server and client take the conns that they are given.
type h3Kind struct {
	serve func(net.PacketConn, http.Handler, *tls.Config) (stop func(), err error)
	dial  func(net.PacketConn, *tls.Config) (rt http.RoundTripper, hangUp func(), err error)
}

var h3Kinds = map[string]h3Kind{
	"millrace": {serveMillraceHTTP3, dialMillraceHTTP3},
	"quic-go":  {serveQUICGoHTTP3, dialQUICGoHTTP3},
}

func serveMillraceHTTP3(pc net.PacketConn, h http.Handler, tc *tls.Config) (func(), error) {
	t, err := netpeer.QUICTransport(pc, true)
	if err != nil {
		return nil, err
	}
	s := &http3.Server{Handler: h, TLS: tc}
	go func() { _ = s.ServeTransport(t) }()
	return func() { _ = s.Close(); _ = t.Close() }, nil
}

func dialMillraceHTTP3(pc net.PacketConn, tc *tls.Config) (http.RoundTripper, func(), error) {
	t, err := netpeer.QUICTransport(pc, true)
	if err != nil {
		return nil, nil, err
	}
	rt := &http3.Transport{
		TLS: tc, DisableCompression: true,
		Dial: func(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
			to, err := net.ResolveUDPAddr("udp", addr)
			if err != nil {
				return nil, err
			}
			return t.Dial(ctx, to, tc, qc)
		},
	}
	return rt, func() { _ = rt.Close(); _ = t.Close() }, nil
}

func serveQUICGoHTTP3(pc net.PacketConn, h http.Handler, tc *tls.Config) (func(), error) {
	s := &quicgoh3.Server{Handler: h, TLSConfig: tc}
	go func() { _ = s.Serve(pc) }()
	return func() { _ = s.Close(); _ = pc.Close() }, nil
}

func dialQUICGoHTTP3(pc net.PacketConn, tc *tls.Config) (http.RoundTripper, func(), error) {
	t := &quicgo.Transport{Conn: pc}
	rt := &quicgoh3.Transport{
		TLSClientConfig: tc, DisableCompression: true, QUICConfig: &quicgo.Config{},
		Dial: func(ctx context.Context, addr string, tc *tls.Config, qc *quicgo.Config) (*quicgo.Conn, error) {
			to, err := net.ResolveUDPAddr("udp", addr)
			if err != nil {
				return nil, err
			}
			return t.DialEarly(ctx, to, tc, qc)
		},
	}
	return rt, func() { _ = rt.Close(); _ = t.Close(); _ = pc.Close() }, nil
}
