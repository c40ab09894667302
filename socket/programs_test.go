package socket

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// Programs over package net run on the stack unchanged.

// certificate returns a TLS configuration of a server named "b", and one of clients that trust it.
func certificate(t *testing.T, protos ...string) (server, client *tls.Config) {
	t.Helper()
	cert, roots := testcert.SelfSigned("b")
	return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos}, &tls.Config{RootCAs: roots, ServerName: "b", NextProtos: protos}
}

func TestTLS(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	server, client := certificate(t)
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	within(t, 20*time.Second, "TLS", func() {
		c, s := x.pair(t)
		go func() {
			s := tls.Server(s, server)
			_, _ = io.Copy(s, s)
			_ = s.Close()
		}()
		c2 := tls.Client(c, client)
		go func() {
			_, _ = c2.Write(data)
			_ = c2.CloseWrite()
		}()
		got, err := io.ReadAll(c2)
		if !bytes.Equal(got, data) || err != nil {
			t.Errorf("%d bytes came back of %d, %v", len(got), len(data), err)
		}
		_ = c2.Close()
	})
}

// echo answers with the hash of what it was sent, and, to GET, with as many bytes as the query says.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
		_, _ = io.CopyN(w, repeat('x'), int64(n))
		return
	}
	h := sha256.New()
	_, _ = io.Copy(h, r.Body)
	_, _ = fmt.Fprintf(w, "%s %x", r.Proto, h.Sum(nil))
}

// repeat is a Reader of one byte without end.
type repeat byte

func (r repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(r)
	}
	return len(b), nil
}

func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		name, scheme, proto string
		h2                  bool
	}{
		{"1.1", "http", "HTTP/1.1", false},
		{"2 with TLS", "https", "HTTP/2.0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTestbed(t, testbedConfig{loops: 2})
			within(t, 30*time.Second, "HTTP", func() { x.http(t, c.scheme, c.proto, c.h2) })
		})
	}
}

func (x *testbed) http(t *testing.T, scheme, proto string, h2 bool) {
	l, err := x.b.Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(echo), ReadTimeout: 20 * time.Second, IdleTimeout: 20 * time.Second}
	tr := &http.Transport{DialContext: x.a.DialContext, ForceAttemptHTTP2: h2, MaxIdleConnsPerHost: 8}
	if h2 {
		srv.TLSConfig, tr.TLSClientConfig = certificate(t, "h2")
		l = tls.NewListener(l, srv.TLSConfig)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}

	body := make([]byte, 300_000)
	_, _ = rand.Read(body)
	want := fmt.Sprintf("%s %x", proto, sha256.Sum256(body))
	url := scheme + "://" + addrB + ":8080/"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				if got, err := post(client, url, body); got != want || err != nil {
					t.Errorf("POST: %q, %v", got, err)
				}
				if n, err := get(client, url+"?n=500000"); n != 500_000 || err != nil {
					t.Errorf("GET: %d bytes, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client.CloseIdleConnections()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func post(c *http.Client, url string, body []byte) (string, error) {
	r, err := c.Post(url, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

func get(c *http.Client, url string) (int64, error) {
	r, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	return io.Copy(io.Discard, r.Body)
}

var _ net.Listener = (*Listener)(nil)

// TestNetConn runs the conformance tests of golang.org/x/net on connections of every kind. Those of
// connected UDP sockets have no end of file, which it waits for.
func TestNetConn(t *testing.T) {
	pair := func(t *testing.T) (client, server *Stack) {
		a, b, err := Pair(netip.MustParsePrefix(addrA+"/24"), netip.MustParsePrefix(addrB+"/24"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		return a, b
	}
	two := func(t *testing.T) (client, server *Stack) {
		x := newTestbed(t, testbedConfig{loops: 2})
		return x.a, x.b
	}
	own := func(t *testing.T) (client, server *Stack) {
		x := newTestbed(t, testbedConfig{loops: 2})
		return x.b, x.b
	}
	share := &ListenConfig{TCPOptions: func(o *TCPOptions) { o.Share = true }}
	dial := func(s *Stack, network, addr string) (net.Conn, error) { return s.Dial(network, addr) }
	for _, c := range []struct {
		name, network, addr string
		stacks              func(t *testing.T) (client, server *Stack)
		cfg                 *ListenConfig
		dial                func(s *Stack, network, addr string) (net.Conn, error)
	}{
		{"IPv4", "tcp4", addrB, two, &ListenConfig{}, dial},
		{"IPv6", "tcp6", addrB6, two, &ListenConfig{}, dial},
		{"to itself", "tcp", addrB, own, &ListenConfig{}, dial},
		{"pair", "tcp", addrB, pair, &ListenConfig{}, dial},
		{"shared port", "tcp", addrB, two, share, dial},
		{"without waiting", "tcp", addrB, two, &ListenConfig{}, func(s *Stack, _, addr string) (net.Conn, error) {
			return s.StartDial(&Dialer{}, netip.MustParseAddrPort(addr))
		}},
		{"by name", "tcp", addrB, two, &ListenConfig{}, func(s *Stack, network, addr string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(addr)
			s = Attach(s.group, AttachConfig{Resolver: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr(addrB6), netip.MustParseAddr(addrB)}, nil
			}})
			return s.Dial(network, net.JoinHostPort("b.test", port))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := c.stacks(t)
			l, err := server.ListenWith(t.Context(), c.cfg, c.network, net.JoinHostPort(c.addr, "0"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				if c1, err = c.dial(client, c.network, l.Addr().String()); err != nil {
					return nil, nil, nil, err
				}
				if c2, err = l.Accept(); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() { _, _ = c1.Close(), c2.Close() }, nil
			})
		})
	}
}
