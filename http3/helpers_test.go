package http3_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// certificate is made once, for the address of loopback and a name.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	return testcert.SelfSigned("test.example", net.IPv4(127, 0, 0, 1))
})

func serverTLS() *tls.Config {
	cert, _ := certificate()
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

func clientTLS() *tls.Config {
	_, pool := certificate()
	return &tls.Config{RootCAs: pool}
}

// serve runs a server on loopback and returns its URL.
func serve(t testing.TB, s *http3.Server) string {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if s.TLS == nil {
		s.TLS = serverTLS()
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(pc) }()
	t.Cleanup(func() {
		_ = s.Close()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the server does not end")
		}
	})
	return "https://" + pc.LocalAddr().String()
}

// transport returns a transport that trusts the servers of the tests.
func transport(t testing.TB, tr *http3.Transport) *http3.Transport {
	if tr.TLS == nil {
		tr.TLS = clientTLS()
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func client(t testing.TB) *http.Client {
	return &http.Client{Transport: transport(t, &http3.Transport{}), Timeout: patience}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func contextWithCancel(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(within(t))
}

func writeGzip(w http.ResponseWriter, text string) {
	z := gzip.NewWriter(w)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
}

type tlsConfig = tls.Config

// dialQUIC dials from a socket of its own.
func dialQUIC(ctx context.Context, t testing.TB, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	tr, err := quic.NewTransport(pc, quic.TransportConfig{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = tr.Close() })
	to, err := net.ResolveUDPAddr("udp4", addr)
	if err != nil {
		return nil, err
	}
	return tr.Dial(ctx, to, tc, qc)
}
