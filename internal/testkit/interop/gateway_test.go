package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
	sockets "github.com/millrace/millrace/l7/transport"
)

// testGateway is the gateway between a foreign client and a foreign backend: one worker over the kernel's sockets.
type testGateway struct {
	t      testing.TB
	loop   *sockets.EpollLoop
	worker *proxy.Worker
	roots  *x509.CertPool
	cert   tls.Certificate
	pool   *proxy.Pool
	rule   *proxy.Rule
	plain  *proxy.Listener // HTTP/1.1, and HTTP/2 by prior knowledge
	secure *proxy.Listener // the same over TLS

	endpoints proxy.Endpoints
}

// newTestGateway starts a worker in front of a backend with HTTP/1.1. change may change the configuration first.
func newTestGateway(t testing.TB, backend string, change func(g *testGateway)) *testGateway {
	t.Helper()
	g := &testGateway{t: t}
	g.cert, g.roots = testcert.SelfSigned("gateway.test", net.IPv4(127, 0, 0, 1))
	addr, err := netip.ParseAddrPort(backend)
	g.must(err)
	p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: addr}}, 1)
	g.must(err)
	g.pool = &proxy.Pool{Pool: p}
	g.rule = &proxy.Rule{Name: "all", Backends: []proxy.Weighted{{Pool: g.pool, Weight: 1}}, Attempts: 1}
	table, err := route.New([]route.Rule{{Name: "all"}})
	g.must(err)
	g.plain = &proxy.Listener{
		Name: "plain", Address: testport.Hold(t), HTTP1: &http1.Options{}, HTTP2: &http2.Options{ExtendedConnect: true},
		Table: table, Rules: []*proxy.Rule{g.rule},
		Timeouts: proxy.Timeouts{
			Handshake: 20 * time.Second, Header: 20 * time.Second, Body: 30 * time.Second, Write: 30 * time.Second,
			Idle: 60 * time.Second, Tunnel: 60 * time.Second,
		},
	}
	secure := *g.plain
	g.secure = &secure
	secure.Name, secure.Address = "secure", testport.Hold(t)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{g.cert}, NextProtos: []string{"h2", "http/1.1"}}
	if change != nil {
		change(g)
	}
	g.loop, err = sockets.NewEpollLoop()
	g.must(err)
	g.worker = proxy.NewWorker(g.loop, 0)
	g.worker.Share(&g.endpoints)
	t.Cleanup(func() { _ = g.endpoints.Close() })
	tree := &proxy.Tree{Listeners: []*proxy.Listener{g.plain, g.secure}, Pools: []*proxy.Pool{g.pool}}
	release, err := g.endpoints.Reserve(tree)
	g.must(err)
	g.must(g.worker.Apply(tree))
	release()
	done := make(chan error, 1)
	go func() { done <- g.loop.Run(context.Background()) }()
	t.Cleanup(func() {
		g.loop.Close() //nolint:errcheck // Run returns it
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *testGateway) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// client returns the settings of TLS of a client.
func (g *testGateway) client() *tls.Config {
	return &tls.Config{RootCAs: g.roots, ServerName: "gateway.test"}
}

// stats returns the counters of the worker.
func (g *testGateway) stats() (s proxy.Stats) {
	g.t.Helper()
	done := make(chan struct{})
	if !g.loop.Do(func() { s = g.worker.Stats(); close(done) }) {
		g.t.Fatal("the loop has ended")
	}
	<-done
	return s
}

// settled waits until no exchange is in progress.
func (g *testGateway) settled() {
	g.t.Helper()
	for range 1000 {
		if g.stats().Active == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	g.t.Errorf("exchanges are left: %+v", g.stats())
}

// serveH2C serves a handler by HTTP/2 without TLS, and by HTTP/1.1, until the test ends.
func serveH2C(t testing.TB, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go s.Serve(l) //nolint:errcheck // it ends with Close
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}
