package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
)

// slowBackend answers /slow when it may, and reports requests that end before.
func slowBackend(t *testing.T) (addr string, arrived, cancelled chan struct{}, goOn chan struct{}) {
	arrived, cancelled, goOn = make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})
	s := served(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			_, _ = io.Copy(io.Discard, req.Body)
			arrived <- struct{}{}
			select {
			case <-goOn:
			case <-req.Context().Done():
				cancelled <- struct{}{}
				return
			}
		}
		_, _ = fmt.Fprint(w, "ok")
	})
	return strings.TrimPrefix(s.URL, "http://"), arrived, cancelled, goOn
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// eventually waits until f is true on the loop.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		var ok bool
		if r.do(func() { ok = f() }); ok {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// A client that resets its request, or stops the response, ends the request to the backend.
func TestHTTP3ClientGivesUp(t *testing.T) {
	backend, arrived, cancelled, _ := slowBackend(t)
	r := http3Rig(t, backend, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := r.client3()
	short, stop := context.WithCancel(ctx)
	go func() {
		wait(t, "the request", arrived)
		stop()
	}()
	req, err := http.NewRequestWithContext(short, "GET", "https://"+r.secure+"/slow", nil)
	must(t, err)
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wait(t, "the end at the backend", cancelled)
	r.settled()

	// A connection that vanishes has the same effect.
	go func() { _, _ = r.client3().Get("https://" + r.secure + "/slow") }()
	wait(t, "the request", arrived)
	r.do(func() {
		for _, f := range r.worker.fronts3 {
			f.Close(http3.InternalError, "test", nil)
		}
	})
	wait(t, "the end at the backend", cancelled)
	r.settled()
	r.eventually("no connection", r.worker.Idle)
}

// A backend that resets its response has the client see it, before and after the header.
func TestHTTP3BackendGivesUp(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	var tries atomic.Int64
	s := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tries.Add(1)
		if req.URL.Path == "/late" {
			_, _ = w.Write(make([]byte, 100))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
		panic(http.ErrAbortHandler)
	})}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { _ = s.Close() })
	r := http3Rig(t, at.LocalAddr().String(), func(r *rig) { r.over3(roots) })
	c := r.client3()
	resp, err := c.Get("https://" + r.secure + "/")
	must(t, err)
	if resp.StatusCode != 502 || !strings.Contains(resp.Header.Get("Proxy-Status"), "http_response_incomplete") {
		t.Errorf("%v", resp)
	}
	resp, err = c.Get("https://" + r.secure + "/late")
	must(t, err)
	var reset *http3.StreamError
	if n, err := io.Copy(io.Discard, resp.Body); !errors.As(err, &reset) {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.settled()
}

// Requests that a backend refuses, because it shuts down, go to another connection.
func TestHTTP3BackendShutsDown(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	tr := quicSocket(t)
	serve := func() *http3.Server {
		s := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Handler: echoHandler(t)}
		go func() { _ = s.ServeTransport(tr) }()
		return s
	}
	s := serve()
	r := http3Rig(t, tr.LocalAddr().String(), func(r *rig) { r.over3(roots); r.rule.Attempts = 3 })
	c := r.client3()
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			resp, err := c.Get("https://" + r.secure + "/")
			if err == nil && resp.StatusCode != 200 {
				err = fmt.Errorf("%s %s", resp.Status, resp.Header.Get("Proxy-Status"))
			}
			if err != nil {
				failed <- err
				return
			}
			_ = resp.Body.Close()
		}
	}()
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		old := s
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		done := make(chan struct{})
		go func() { defer close(done); _ = old.Shutdown(ctx) }()
		time.Sleep(10 * time.Millisecond)
		s = serve()
		wait(t, "the end of the old server", done)
		cancel()
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	_ = s.Close()
}

// Backends that cannot be reached: nothing listens, the certificate is not trusted, another protocol.
func TestHTTP3BackendUnreachable(t *testing.T) {
	backend, _ := echoBackend3(t, nil)
	_, others := testcert.SelfSigned("other.test")
	for name, test := range map[string]struct {
		addr  string
		error string
	}{
		"no backend":  {noBackend(t), "connection_timeout"},
		"not trusted": {backend, "tls_protocol_error"},
	} {
		r := http3Rig(t, test.addr, func(r *rig) { r.over3(others); r.pool.Connect = 300 * time.Millisecond })
		resp, err := r.client3().Get("https://" + r.secure + "/")
		must(t, err)
		if got := resp.Header.Get("Proxy-Status"); !strings.Contains(got, test.error) || resp.StatusCode < 500 {
			t.Errorf("%s: %s %q", name, resp.Status, got)
		}
		r.settled()
	}
}

// Drain has requests in progress answered, and connections end with GOAWAY; new ones find nobody.
func TestHTTP3Drain(t *testing.T) {
	backend, arrived, _, goOn := slowBackend(t)
	r := http3Rig(t, backend, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	idle := r.dial3(ctx, quicSocket(t), nil)
	r.eventually("the idle connection", func() bool { return len(r.worker.fronts3) == 1 })
	c := r.client3()
	got := make(chan error, 1)
	go func() {
		resp, err := c.Get("https://" + r.secure + "/slow")
		if err == nil {
			var b []byte
			if b, err = io.ReadAll(resp.Body); err == nil && string(b) != "ok" {
				err = fmt.Errorf("%s %q", resp.Status, b)
			}
		}
		got <- err
	}()
	wait(t, "the request", arrived)
	r.do(r.worker.Drain)
	select {
	case <-idle.Context().Done():
	case <-ctx.Done():
		t.Fatal("the idle connection stays")
	}
	var closed *quic.ApplicationError
	if err := context.Cause(idle.Context()); !errors.As(err, &closed) || http3.ErrorCode(closed.Code) != http3.NoError {
		t.Errorf("the idle connection ended with %v", err)
	}
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	addr, _ := net.ResolveUDPAddr("udp", r.secure)
	if _, err := quicSocket(t).Dial(short, addr, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"h3"}}, nil); err == nil {
		t.Error("a new connection after Drain")
	}
	close(goOn)
	if err := <-got; err != nil {
		t.Error(err)
	}
	r.eventually("no connection", r.worker.Idle)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // the socket is closed after the last
		if !over.taken(r.secure) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the socket stays open")
		}
	}
}

// A reload keeps connections and the socket, also of a client that moves to another address in the meantime (RFC 9000 9),
// and the new configuration is that of the next request.
func TestHTTP3MigrationAndReload(t *testing.T) {
	r := http3Rig(t, echoBackend(t, false), nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	first, second := quicSocket(t), quicSocket(t)
	var q *quic.Conn
	tr := &http3.Transport{
		TLS: &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"},
		Dial: func(ctx context.Context, _ string, tc *ctls.Config, c *quic.Config) (*quic.Conn, error) {
			addr, err := net.ResolveUDPAddr("udp", r.secure)
			if err != nil {
				return nil, err
			}
			q, err = first.Dial(ctx, addr, tc, c)
			return q, err
		},
	}
	t.Cleanup(func() { _ = tr.Close() })
	c := &http.Client{Transport: tr, Timeout: patience}
	post(t, c, "https://"+r.secure+"/", []byte("before"))
	reload := func(change func(l *Listener)) {
		tree := *r.tree
		for i, l := range tree.Listeners {
			next := *l
			if i == 1 {
				change(&next)
			}
			tree.Listeners = append(tree.Listeners[:i:i], append([]*Listener{&next}, tree.Listeners[i+1:]...)...)
		}
		must(t, r.apply(&tree))
	}
	reload(func(l *Listener) { l.AltSvc = "after" })
	p, err := q.AddPath(second)
	must(t, err)
	must(t, p.Probe(ctx))
	must(t, p.Switch())
	resp, err := c.Get("https://" + r.secure + "/")
	must(t, err)
	if resp.Header.Get("Alt-Svc") != "after" {
		t.Errorf("the reload has no effect: %v", resp.Header)
	}
	r.eventually("the new address", func() bool {
		for c := range r.worker.fronts3 {
			c.moved()
			if c.addr.String() == second.LocalAddr().String() {
				return true
			}
		}
		return false
	})
	if n := r.worker.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
	// A listener without HTTP/3 ends its connections, and takes them again with it.
	reload(func(l *Listener) { l.HTTP3 = nil })
	select {
	case <-q.Context().Done():
	case <-ctx.Done():
		t.Fatal("the connection stays")
	}
	reload(func(*Listener) {})
	post(t, r.client3(), "https://"+r.secure+"/", []byte("again"))
}

// Early data is taken for safe requests, which the backend is told of, and others are answered with 425 (RFC 8470).
func TestHTTP3EarlyData(t *testing.T) {
	backend := served(t, featureHandler(t))
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		r.tree.Listeners[1].HTTP3.QUIC = &quic.Config{ZeroRTT: true}
	})
	cache := ctls.NewLRUClientSessionCache(10)
	ask := func(method string) (status int, early string) {
		tr := &http3.Transport{TLS: &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", ClientSessionCache: cache}, QUIC: &quic.Config{ZeroRTT: true}}
		c := over.client3(t, tr)
		defer tr.Close()
		req, err := http.NewRequest(method, "https://"+r.secure+"/early", nil)
		must(t, err)
		resp, err := c.Do(req)
		must(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		time.Sleep(20 * time.Millisecond) // for the ticket
		return resp.StatusCode, resp.Header.Get("X-Early")
	}
	for i := 0; ; i++ {
		status, early := ask("GET")
		if status != 200 {
			t.Fatal(status)
		}
		if early == "1" {
			break
		}
		if i > 200 {
			t.Fatal("no request came as early data")
		}
	}
	if status, early := ask("POST"); status != 200 || early != "" { // our client waits for the handshake
		t.Errorf("POST: %d %q", status, early)
	}
	for i := 0; ; i++ {
		if r.earlyPost(cache) == 425 {
			break
		}
		if i > 200 {
			t.Fatal("no early POST was answered with 425")
		}
	}
	r.settled()
}

// earlyPost sends a POST as early data, which no client should, and returns the status.
func (r *rig) earlyPost(cache ctls.ClientSessionCache) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addr, err := net.ResolveUDPAddr("udp", r.secure)
	must(r.t, err)
	tc := &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"h3"}, ClientSessionCache: cache}
	q, err := quicSocket(r.t).Dial(ctx, addr, tc, &quic.Config{ZeroRTT: true})
	must(r.t, err)
	defer q.CloseWithError(uint64(http3.NoError), "")
	s, err := q.OpenStream(ctx)
	must(r.t, err)
	_, err = s.Write([]byte("\x01\x14\x00\x00\xd4\xd7\x51\x06/early\x50\x06a.test"))
	must(r.t, err)
	_ = s.Close()
	b, err := io.ReadAll(s)
	must(r.t, err)
	time.Sleep(20 * time.Millisecond) // for the ticket
	m := http3.NewMachine(http3.RoleClient, http3.MachineOptions{})
	st, err := m.Open(0)
	must(r.t, err)
	if _, _, err := m.Input(st, b, true); err != nil {
		r.t.Fatal(err)
	}
	return st.Message.Status
}

// What is too large or too many is refused: header, body, requests of a connection, connections.
func TestHTTP3Limits(t *testing.T) {
	backend := served(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) }) // it may be reset in between
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		l := r.tree.Listeners[1]
		l.HTTP3.Machine.MaxFieldSection = 4096
		l.Limits = Limits{Body: 1000, Requests: 3}
	})
	c := r.client3()
	req, _ := http.NewRequest("GET", "https://"+r.secure+"/", nil)
	req.Header.Set("X-Large", strings.Repeat("x", 5000))
	if resp, err := c.Do(req); err == nil && resp.StatusCode != 431 { // or our client keeps to the server's limit
		t.Errorf("header: %v", resp.Status)
	}
	for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", 1001)), io.MultiReader(strings.NewReader(strings.Repeat("x", 1001)))} {
		resp, err := c.Post("https://"+r.secure+"/", "", body)
		must(t, err)
		if resp.StatusCode != 413 {
			t.Errorf("body: %v", resp.Status)
		}
	}
	for range 10 { // three on each connection, and what the client sends before it has read GOAWAY
		post(t, c, "https://"+r.secure+"/", []byte("fits"))
	}
	if n := r.worker.Stats().Connections; n < 2 || n > 6 {
		t.Errorf("%d connections", n)
	}
	r.settled()
	_ = c.Transport.(*http3.Transport).Close()
	r.eventually("no connection", r.worker.Idle)
	r.do(func() { r.tree.Listeners[1].Limits.Connections = 2 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range 2 {
		q := r.dial3(ctx, quicSocket(t), nil)
		defer q.CloseWithError(0, "")
	}
	r.eventually("two connections", func() bool { return len(r.worker.fronts3) == 2 })
	q := r.dial3(ctx, quicSocket(t), nil)
	<-q.Context().Done()
	var closed *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &closed) || http3.ErrorCode(closed.Code) != http3.ExcessiveLoad {
		t.Errorf("a connection too many ended with %v", err)
	}
}

// A client that begins a request and goes on with neither header nor body is not waited for.
func TestHTTP3Timeouts(t *testing.T) {
	backend := served(t, func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) })
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		r.tree.Listeners[1].Timeouts = side.Timeouts{Header: 200 * time.Millisecond, Body: 200 * time.Millisecond, Idle: 400 * time.Millisecond}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := r.dial3(ctx, quicSocket(t), &quic.Config{KeepAlive: 50 * time.Millisecond})
	half, err := q.OpenStream(ctx)
	must(t, err)
	_, _ = half.Write(getRequest()[:5])
	body, err := q.OpenStream(ctx)
	must(t, err)
	_, _ = body.Write([]byte("\x01\x0f\x00\x00\xd4\xd7\xc1\x50\x08a.test:1"))
	var reset *quic.StreamError
	if _, err := half.Read(make([]byte, 1)); !errors.As(err, &reset) || http3.ErrorCode(reset.Code) != http3.RequestIncomplete {
		t.Errorf("half a header: %v", err)
	}
	answer, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(answer), "408 Request Timeout") {
		t.Errorf("no body: %q, %v", answer, err)
	}
	<-q.Context().Done() // idle in spite of its PINGs
	var closed *quic.ApplicationError
	if err := context.Cause(q.Context()); !errors.As(err, &closed) || http3.ErrorCode(closed.Code) != http3.NoError {
		t.Errorf("the idle connection ended with %v", err)
	}
	r.eventually("no connection", r.worker.Idle)
}

// After the second GOAWAY, which names the first request that is not served, further ones are rejected (RFC 9114 5.2).
func TestHTTP3RejectsAfterGoAway(t *testing.T) {
	backend, arrived, _, goOn := slowBackend(t)
	r := http3Rig(t, backend, nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := r.dial3(ctx, quicSocket(t), nil)
	ask := func(request string) *quic.Stream {
		s, err := q.OpenStream(ctx)
		must(t, err)
		_ = s.SetReadDeadline(time.Now().Add(patience))
		_, _ = s.Write([]byte(request))
		_ = s.Close()
		return s
	}
	served := ask("\x01\x13\x00\x00\xd1\xd7\x51\x05/slow\x50\x06a.test")
	wait(t, "the request", arrived)
	r.do(r.worker.Drain)
	r.eventually("the second GOAWAY", func() bool {
		for _, f := range r.worker.fronts3 {
			return f.State == side.Refusing
		}
		return false
	})
	var reset *quic.StreamError
	if _, err := io.ReadAll(ask(string(getRequest()))); !errors.As(err, &reset) || http3.ErrorCode(reset.Code) != http3.RequestRejected {
		t.Errorf("a request after GOAWAY: %v", err)
	}
	close(goOn)
	if b, err := io.ReadAll(served); err != nil || !strings.HasSuffix(string(b), "ok") {
		t.Errorf("the request before it: %q, %v", b, err)
	}
}

// A request that a backend rejects was not processed: it is sent again with its content, whatever its method (RFC 9114 4.1.1).
func TestHTTP3RejectedRequestIsSentAgain(t *testing.T) {
	cert, roots := testcert.SelfSigned("backend.test")
	l, err := quicSocket(t).Listen(&ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{http3.NextProto}}, nil)
	must(t, err)
	var requests atomic.Int64
	content := strings.Repeat("c", 5000)
	go func() {
		for {
			q, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				for {
					s, err := q.AcceptStream(context.Background())
					if err != nil {
						return
					}
					if requests.Add(1) == 1 {
						_, _ = io.CopyN(io.Discard, s, int64(len(content))) // it has come
						s.CancelRead(uint64(http3.RequestRejected))
						s.CancelWrite(uint64(http3.RequestRejected))
						continue
					}
					got, _ := io.ReadAll(s)
					if bytes.Count(got, []byte("c")) < len(content) { // in one DATA frame or more
						t.Errorf("%d bytes of a request with %d of content", len(got), len(content))
					}
					_, _ = s.Write([]byte("\x01\x03\x00\x00\xd9")) // 200
					_ = s.Close()
				}
			}()
		}
	}()
	r := http3Rig(t, l.Addr().String(), func(r *rig) { r.over3(roots) })
	resp, err := r.client3().Post("https://"+r.secure+"/", "", strings.NewReader(content))
	must(t, err)
	if n := requests.Load(); resp.StatusCode != 200 || n != 2 {
		t.Errorf("%s %s after %d requests", resp.Status, resp.Header.Get("Proxy-Status"), n)
	}
}
