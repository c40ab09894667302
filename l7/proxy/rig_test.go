package proxy

import (
	"bytes"
	ctls "crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/transport"
)

// rig is a worker on a loop of the network of the test, in front of backends.
type rig struct {
	t      *testing.T
	loop   transport.Loop
	worker *Worker
	roots  *x509.CertPool
	tree   *Tree
	rule   *Rule
	pool   *Pool
	addr   string // of the plain listener
	secure string // of that with TLS

	endpoints Endpoints
}

// newRig starts a worker with a plain listener and one with TLS. change may change the tree first.
func newRig(t *testing.T, backend string, change func(r *rig)) *rig {
	t.Helper()
	loop, hold, run := over.loop(t)
	cert, roots := testcert.SelfSigned("gateway.test", net.IPv4(127, 0, 0, 1))
	r := &rig{t: t, loop: loop, roots: roots, endpoints: Endpoints{Open: over.opener()}}
	p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(backend)}}, 1)
	must(t, err)
	r.pool = &Pool{Pool: p}
	r.rule = &Rule{Name: "all", Backends: []Weighted{{Pool: r.pool, Weight: 1}}, Attempts: 1}
	table, err := route.New([]route.Rule{{Name: "all"}})
	must(t, err)
	times := side.Timeouts{Handshake: 5 * time.Second, Header: 5 * time.Second, Body: 5 * time.Second, Write: 5 * time.Second, Idle: 30 * time.Second}
	plain := &Listener{
		Name: "plain", Address: over.free(t), HTTP1: &http1.Options{}, HTTP2: &http2.Options{ExtendedConnect: true},
		Table: table, Rules: []*Rule{r.rule}, Timeouts: times,
	}
	secure := *plain
	secure.Name, secure.Address = "secure", over.free(t)
	secure.TLS = &ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
	r.tree = &Tree{Listeners: []*Listener{plain, &secure}, Pools: []*Pool{r.pool}}
	r.addr, r.secure = plain.Address.String(), secure.Address.String()
	if change != nil {
		change(r)
	}
	if wrapLoop != nil {
		loop = wrapLoop(loop)
	}
	hold(func() { r.worker = NewWorker(loop, 0) })
	r.worker.Share(&r.endpoints)
	t.Cleanup(func() { _ = r.endpoints.Close() })
	release, err := r.endpoints.Reserve(r.tree)
	must(t, err)
	hold(func() { err = r.worker.Apply(r.tree) })
	must(t, err)
	release()
	run()
	return r
}

// free returns an address of the gateway that was free a moment ago.
func free(t *testing.T) netip.AddrPort { return over.free(t) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client returns a client of net/http: over TLS with HTTP/2 or HTTP/1.1.
func (r *rig) client(h2 bool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"}, MaxIdleConnsPerHost: 64, DialContext: over.dial}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetHTTP2(h2)
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// do runs f on the loop.
func (r *rig) do(f func()) {
	r.t.Helper()
	done := make(chan struct{})
	if !r.loop.Do(func() { f(); close(done) }) {
		r.t.Fatal("the loop has ended")
	}
	<-done
}

// apply gives the worker another tree.
func (r *rig) apply(tree *Tree) error {
	r.t.Helper()
	release, err := r.endpoints.Reserve(tree)
	if err != nil {
		return err
	}
	defer release()
	r.do(func() { err = r.worker.Apply(tree) })
	return err
}

// settled waits until no exchange is in progress.
func (r *rig) settled() {
	r.t.Helper()
	var active int64
	for range 200 {
		var misfits int
		r.do(func() { active, misfits = r.worker.Stats().Active, r.worker.misfits })
		if misfits != 0 {
			r.t.Fatalf("%d events did not fit the phase of their exchange", misfits)
		}
		if active == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Errorf("%d exchanges are left", active)
}

// echoBackend answers with the body of the request, after a line about it.
func echoBackend(t *testing.T, h2 bool) string {
	t.Helper()
	s := unstarted(t, echoHandler(t))
	if h2 {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.Protocols.SetHTTP1(true)
	}
	s.Start()
	return strings.TrimPrefix(s.URL, "http://")
}

// echoHandler is what an echoBackend answers.
func echoHandler(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Path", req.URL.RequestURI())
		w.Header().Set("X-For", req.Header.Get("X-Forwarded-For"))
		w.Header().Set("X-Host", req.Host)
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		if req.URL.Path == "/trailers" {
			w.Header().Set("Trailer", "X-Sum")
			w.Write(body)
			w.(http.Flusher).Flush()
			w.Header().Set("X-Sum", "7")
			return
		}
		w.Write(body)
	}
}

// post sends a body and expects it back.
func post(t *testing.T, c *http.Client, url string, body []byte) {
	t.Helper()
	resp, err := c.Post(url, "text/plain", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || !bytes.Equal(got, body) {
		t.Errorf("%s: status %d, %d bytes for %d, %v, %v", url, resp.StatusCode, len(got), len(body), resp.Header, err)
	}
}

// wrapLoop changes the loops of rigs.
var wrapLoop func(transport.Loop) transport.Loop
