package quicconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/quic"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) { return testcert.SelfSigned("test") })

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func quicTransport(t testing.TB) *quic.Transport {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := quic.NewTransport(pc, quic.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// runLoop returns a loop that runs until the test ends.
func runLoop(t testing.TB) *transport.EpollLoop {
	t.Helper()
	loop, err := transport.NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = loop.Run(context.Background())
	}()
	t.Cleanup(func() {
		_ = loop.Close()
		<-done
	})
	return loop
}

// serve has a hub drive all connections of a new listener.
func serve(t testing.TB, h *Hub, alpn string, c *quic.Config, o Options, made func(*Conn) Handler) net.Addr {
	t.Helper()
	cert, _ := certificate()
	tr := quicTransport(t)
	l, err := tr.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}, c)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			q, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			h.Serve(q, o, 1, made)
		}
	}()
	return tr.LocalAddr()
}

func dial(t testing.TB, addr net.Addr, alpn string, c *quic.Config) *quic.Conn {
	t.Helper()
	_, roots := certificate()
	q, err := quicTransport(t).Dial(timeout(t), addr, &tls.Config{RootCAs: roots, ServerName: "test", NextProtos: []string{alpn}}, c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// on runs f on the loop and waits for it.
func on(t testing.TB, l transport.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Do(func() { f(); close(done) }) {
		t.Fatal("the loop has ended")
	}
	<-done
}
