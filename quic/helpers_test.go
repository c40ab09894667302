package quic_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
)

const (
	alpn = "test"
	// patience is how long a test waits for what must happen.
	patience = 30 * time.Second
)

// certificate is made once: that costs more than a handshake.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	return testcert.SelfSigned("test")
})

func serverTLS() *tls.Config {
	cert, _ := certificate()
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}
}

func clientTLS() *tls.Config {
	_, pool := certificate()
	return &tls.Config{RootCAs: pool, ServerName: "test", NextProtos: []string{alpn}}
}

// timeout returns a context that ends with the test or after patience.
func timeout(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func udpConn(t testing.TB) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// transport opens a transport on a conn, or on a socket of loopback if that is nil.
func transport(t testing.TB, conn net.PacketConn, c quic.TransportConfig) *quic.Transport {
	t.Helper()
	if conn == nil {
		conn = udpConn(t)
	}
	tr, err := quic.NewTransport(conn, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// serve listens and runs f for each connection.
func serve(t testing.TB, tr *quic.Transport, tc *tls.Config, c *quic.Config, f func(*quic.Conn)) *quic.Listener {
	t.Helper()
	l, err := tr.Listen(tc, c)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go f(conn)
		}
	}()
	return l
}

// echo returns what comes on each stream.
func echo(c *quic.Conn) {
	for {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(s, s)
			_ = s.Close()
		}()
	}
}

func dial(t testing.TB, tr *quic.Transport, to net.Addr, tc *tls.Config, c *quic.Config) *quic.Conn {
	t.Helper()
	conn, err := tr.Dial(timeout(t), to, tc, c)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask sends data on a new stream and returns the answer.
func ask(t testing.TB, c *quic.Conn, data string) string {
	t.Helper()
	s, err := c.OpenStream(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SetDeadline(time.Now().Add(patience))
	go func() { // more than the windows hold must be read while it is written
		if _, err := io.WriteString(s, data); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	}()
	got, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// shortContext is for what must not succeed.
func shortContext(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(context.Background(), 300*time.Millisecond)
}

// mute is a packet conn that sends nothing. It has all methods of the conn that it wraps, by which an
// engine that looks for them would send.
type mute struct{ *net.UDPConn }

func (mute) WriteTo(b []byte, _ net.Addr) (int, error) { return len(b), nil }

// largeCertificate serves with a chain that needs more than three datagrams.
func largeCertificate(t testing.TB) *tls.Config {
	t.Helper()
	tc := serverTLS()
	chain := tc.Certificates[0]
	for range 20 {
		chain.Certificate = append(chain.Certificate[:len(chain.Certificate):len(chain.Certificate)], chain.Certificate[0])
	}
	tc.Certificates = []tls.Certificate{chain}
	return tc
}
