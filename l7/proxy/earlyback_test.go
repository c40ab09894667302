package proxy

import (
	"context"
	ctls "crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// earlyBackend is a backend of HTTP/3 that takes early data, behind a wiretap.
type earlyBackend struct {
	*wiretap
	roots *x509.CertPool

	mu      sync.Mutex
	served  map[string]int // requests by method, with "early" before it where the handshake was not complete
	takes   func(*http.Request) bool
	refuses bool // handshakes
}

func newEarlyBackend(t *testing.T) *earlyBackend {
	cert, roots := testcert.SelfSigned("backend.test")
	b := &earlyBackend{roots: roots, served: map[string]int{}}
	at := quicSocket(t)
	verify := func(ctls.ConnectionState) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.refuses {
			return errors.New("refused")
		}
		return nil
	}
	s := &http3.Server{
		TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}, VerifyConnection: verify}, QUIC: &quic.Config{ZeroRTT: true},
		Handler: http.HandlerFunc(b.serve),
		EarlyData: func(r *http.Request) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.served["early "+r.Method]++
			return b.takes == nil || b.takes(r)
		},
	}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { _ = s.Close() })
	b.wiretap = newWiretap(t, at.LocalAddr().String())
	return b
}

// serve answers with 425 where the path asks for that.
func (b *earlyBackend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.served[r.Method]++
	b.mu.Unlock()
	if r.URL.Path == "/425" {
		w.WriteHeader(http.StatusTooEarly)
	}
	_, _ = io.Copy(w, r.Body)
}

func (b *earlyBackend) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.served[what]
}

// earlyBackRig is a gateway in front of such a backend, whose connections end after their first request.
func earlyBackRig(t *testing.T, b *earlyBackend, change func(r *rig)) *rig {
	return http3Rig(t, b.front.LocalAddr().String(), func(r *rig) {
		r.over3(b.roots)
		r.pool.TLS.ClientSessionCache = ctls.NewLRUClientSessionCache(10)
		r.pool.EarlyData, r.pool.Idle = true, time.Millisecond
		if change != nil {
			change(r)
		}
	})
}

// session has the gateway hold a session of the backend, and no connection to it.
func (r *rig) session(b *earlyBackend) {
	r.t.Helper()
	key := b.front.LocalAddr().String() + " backend.test"
	held := func() bool { cs, ok := r.pool.TLS.ClientSessionCache.Get(key); return ok && cs != nil }
	for end := time.Now().Add(patience); !held() && time.Now().Before(end); {
		if status := r.ask("PROPFIND", "/"); status != 200 { // it is not sent early, and counts as none of the test's
			r.t.Fatalf("status %d", status)
		}
	}
	r.eventually("no connection to the backend", r.unconnected)
	if !held() {
		r.t.Fatal("no session")
	}
}

// unconnected reports, on the loop, whether there is no connection to a backend.
func (r *rig) unconnected() bool {
	left := 0
	for k, bs := range r.worker.backs {
		left += len(bs.shared) + len(bs.opening) + k.backend.Connections()
	}
	return left == 0
}

// ask sends a request of HTTP/1.1, and returns the status of the response.
func (r *rig) ask(method, path string, fields ...string) int {
	r.t.Helper()
	body := io.Reader(nil)
	if len(fields) > 0 && fields[0] == "content" {
		body, fields = strings.NewReader("content"), fields[1:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+r.secure+path, body)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := r.client(false).Do(req)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// asked is ask in a goroutine.
func (r *rig) asked(method, path string, fields ...string) chan int {
	got := make(chan int, 1)
	go func() { got <- r.ask(method, path, fields...) }()
	return got
}

// waits waits until so many exchanges wait for a connection that is being opened.
func (r *rig) waits(n int) {
	r.t.Helper()
	r.eventually("requests that wait", func() (all bool) {
		for _, bs := range r.worker.backs {
			for _, s := range bs.opening {
				all = len(s.waiting) == n
			}
		}
		return all
	})
}

// A safe request leaves with the first packets of a connection, and is executed before the end of the handshake. What must not be
// repeated waits for that, on the same connection, and so does what came as early data itself.
func TestEarlyDataToBackends(t *testing.T) {
	b := newEarlyBackend(t)
	r := earlyBackRig(t, b, nil)
	r.session(b)
	opened := r.worker.Stats().BackOpened
	b.silence(true)
	get := r.asked("GET", "/early")
	r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
	post := r.asked("POST", "/late", "content")
	r.waits(1)
	var opening *link.Link
	r.do(func() {
		for _, bs := range r.worker.backs {
			opening = bs.opening[0].link
		}
	})
	replayed := r.asked("GET", "/replayed", "Early-Data", "1")
	r.waits(2)
	head := r.asked("HEAD", "/early too")
	r.eventually("another early request", func() bool { return r.worker.Stats().EarlySent == 2 })
	r.eventually("an early request is executed", func() bool { return b.count("early GET") == 1 && b.count("GET") == 1 && b.count("early HEAD") == 1 })
	if n := b.count("POST"); n != 0 {
		t.Errorf("%d POST before the end of the handshake", n)
	}
	b.silence(false)
	for what, status := range map[string]int{"GET": <-get, "POST": <-post, "a GET of early data": <-replayed, "HEAD": <-head} {
		if status != 200 {
			t.Errorf("%s: %d", what, status)
		}
	}
	r.do(func() {
		if !opening.Closed() {
			t.Error("the time to connect goes on")
		}
	})
	if b.count("early POST") != 0 || b.count("early GET") != 1 || b.count("POST") != 1 || b.count("GET") != 2 || b.count("HEAD") != 1 {
		t.Errorf("served: %v", b.served)
	}
	if s := r.worker.Stats(); s.EarlySent != 2 || s.EarlyAgain != 0 || s.BackOpened != opened+1 || s.BackFailed != 0 || s.Retries != 0 {
		t.Errorf("%+v", s)
	}
	r.settled()
}

// What may go early: nothing with content, no method that may change something, nothing where the pool has no early data.
func TestWhichRequestsGoEarlyToBackends(t *testing.T) {
	b := newEarlyBackend(t)
	for _, on := range []bool{true, false} {
		r := earlyBackRig(t, b, func(r *rig) { r.pool.EarlyData = on })
		for _, c := range []struct {
			method string
			fields []string
			early  bool
		}{
			{"GET", nil, true},
			{"HEAD", nil, true},
			{"OPTIONS", nil, true},
			{"GET", []string{"content"}, false},
			{"POST", nil, false},
			{"PUT", nil, false},
			{"DELETE", nil, false},
			{"PATCH", nil, false},
			{"PROPFIND", nil, false}, // what is not of RFC 9110 is not known to be safe
			{"GET", []string{"Early-Data", "1"}, false},
			{"GET", []string{"Early-Data", "0"}, false},
		} {
			if on {
				r.session(b)
			} else {
				r.eventually("no connection to the backend", r.unconnected)
			}
			before := r.worker.Stats().EarlySent
			b.silence(true) // quic-go has a data race between early streams and the parameters of the server
			got := r.asked(c.method, "/", c.fields...)
			if c.early && on {
				r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent > before })
			} else {
				r.waits(1)
			}
			b.silence(false)
			if status := <-got; status != 200 {
				t.Errorf("%s %v: %d", c.method, c.fields, status)
			}
			if early := r.worker.Stats().EarlySent > before; early != (c.early && on) {
				t.Errorf("early_data %v: %s %v went early: %v", on, c.method, c.fields, early)
			}
		}
		r.settled()
	}
}

// Early data that the backend rejects was not read: its requests, and those that wait, are sent again on another connection, at no
// cost to the rule's number of attempts, and each is executed once.
func TestRejectedEarlyDataToBackendsIsSentAgain(t *testing.T) {
	b := newEarlyBackend(t)
	r := earlyBackRig(t, b, nil)
	r.session(b)
	key := b.front.LocalAddr().String() + " backend.test"
	state, _ := r.pool.TLS.ClientSessionCache.Get(key)
	used := ctls.NewLRUClientSessionCache(1) // the backend takes the early data of a ticket once
	used.Put("backend.test", state)
	addr, err := net.ResolveUDPAddr("udp4", b.back.RemoteAddr().String())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tc := &ctls.Config{RootCAs: b.roots, ServerName: "backend.test", NextProtos: []string{http3.NextProto}, ClientSessionCache: used}
	q, err := quicSocket(t).Dial(ctx, addr, tc, &quic.Config{ZeroRTT: true})
	must(t, err)
	if <-q.HandshakeComplete(); !q.State().Used0RTT {
		t.Fatal("the ticket is of no use")
	}
	_ = q.CloseWithError(uint64(http3.NoError), "")

	b.silence(true)
	gets := []chan int{r.asked("GET", "/1")}
	r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
	gets = append(gets, r.asked("GET", "/2"))
	r.eventually("another early request", func() bool { return r.worker.Stats().EarlySent == 2 })
	post := r.asked("POST", "/late")
	r.waits(1)
	b.silence(false)
	for _, got := range append(gets, post) {
		if status := <-got; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if b.count("early GET") != 0 || b.count("GET") != 2 || b.count("POST") != 1 {
		t.Errorf("served: %v", b.served)
	}
	if s := r.worker.Stats(); s.EarlySent != 2 || s.EarlyAgain != 2 || s.RefusedBy[side.RefusedProtocol] != 0 {
		t.Errorf("%+v", s)
	}
	r.settled()
}

// A request that the backend answers with 425 was not executed, and is sent again after the handshake (RFC 8470 5.2). Where it was not
// sent early the answer is the client's.
func TestBackendsThatAnswerTooEarly(t *testing.T) {
	b := newEarlyBackend(t)
	b.takes = func(*http.Request) bool { return false }
	r := earlyBackRig(t, b, nil)
	r.session(b)
	opened := r.worker.Stats().BackOpened
	b.silence(true)
	get := r.asked("GET", "/")
	r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
	r.eventually("it is refused", func() bool { return b.count("early GET") == 1 })
	b.silence(false)
	if status := <-get; status != 200 {
		t.Errorf("status %d", status)
	}
	if s := r.worker.Stats(); b.count("GET") != 1 || s.EarlyAgain != 1 || s.BackOpened != opened+1 {
		t.Errorf("served %v, %+v", b.served, s)
	}
	if status := r.ask("GET", "/425", "Early-Data", "1"); status != 425 {
		t.Errorf("a request that was not sent early: %d, want 425", status)
	}
	r.settled()
}

// A backend that falls silent, or refuses the handshake, after early data was sent fails all requests of it, in time.
func TestBackendsThatEndWithEarlyData(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		b := newEarlyBackend(t)
		r := earlyBackRig(t, b, func(r *rig) {
			if !refuses {
				r.pool.Connect = 300 * time.Millisecond
			}
		})
		r.session(b)
		b.mu.Lock()
		b.refuses = refuses
		b.mu.Unlock()
		b.silence(true)
		get := r.asked("GET", "/")
		r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
		second := r.asked("GET", "/second")
		r.eventually("another early request", func() bool { return r.worker.Stats().EarlySent == 2 })
		retries := r.worker.Stats().Retries
		post := r.asked("POST", "/")
		r.waits(1)
		var opened *backConn
		r.do(func() {
			for _, bs := range r.worker.backs {
				opened = bs.opening[0]
			}
		})
		want := 504
		if refuses {
			want = 502
			b.silence(false)
		}
		if status := <-post; status != want {
			t.Errorf("refuses %v: the request that waited: %d, want %d", refuses, status, want)
		}
		r.do(func() {
			if opened.conn.Reusable() || !opened.link.Closed() {
				t.Errorf("refuses %v: the connection goes on, or its time", refuses)
			}
		})
		for _, early := range []chan int{get, second} { // the connection has never been idle: that it ends is no accident
			if status := <-early; status != 502 {
				t.Errorf("refuses %v: an early request: %d, want 502", refuses, status)
			}
		}
		if n := r.worker.Stats().Retries - retries; n != 0 {
			t.Errorf("refuses %v: %d retries", refuses, n)
		}
		r.settled()
		r.eventually("no connection to the backend", r.unconnected)
	}
}

// Content keeps a request from going early, whether it has come already or has still to come.
func TestContentDoesNotGoEarlyToBackends(t *testing.T) {
	b := newEarlyBackend(t)
	r := earlyBackRig(t, b, nil)
	r.session(b)
	b.silence(true)
	get := r.asked("GET", "/")
	r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
	for i, parts := range [][]string{{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\ncontent", ""}, {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n0\r\n\r\n"}} {
		c, err := over.dial(t.Context(), "tcp", r.addr)
		must(t, err)
		defer c.Close()
		_, err = io.WriteString(c, parts[0])
		must(t, err)
		r.waits(i + 1)
		_, err = io.WriteString(c, parts[1])
		must(t, err)
	}
	b.silence(false)
	if status := <-get; status != 200 {
		t.Errorf("status %d", status)
	}
	r.settled()
	if s := r.worker.Stats(); s.EarlySent != 1 || b.count("GET") != 3 {
		t.Errorf("%+v, served %v", s, b.served)
	}
	x := &exchange{pooled: &Pool{EarlyData: true}, outgoing: semantics.Message{Method: "GET"}}
	for _, content := range []struct {
		up    relay
		early bool
	}{{relay{message: allArrived}, true}, {relay{}, false}, {relay{message: allArrived, bytes: 1}, false}, {relay{message: allArrived, trailers: []semantics.Field{{}}}, false}} {
		if x.up = content.up; mayGoEarly(x) != content.early {
			t.Errorf("%+v", content)
		}
	}
}

// A session resumes one connection, of the backend that it is of.
func TestSessionsAreOfOneBackendAndOneUse(t *testing.T) {
	all := ctls.NewLRUClientSessionCache(10)
	a, b := backendSessions{all, "198.18.0.1:443"}, backendSessions{all, "198.18.0.2:443"}
	a.Put("backend.test", &ctls.ClientSessionState{})
	if _, ok := b.Get("backend.test"); ok {
		t.Error("another backend has the session")
	}
	for _, want := range []bool{true, false} {
		if state, ok := a.Get("backend.test"); ok != want || (state != nil) != want {
			t.Errorf("a session: %v, want %v", ok, want)
		}
	}
}

// What the backend sends on streams confirms the handshake, also where that is quicker than the report of its end.
func TestEventsConfirmEarlyConnections(t *testing.T) {
	b := newEarlyBackend(t)
	r := earlyBackRig(t, b, nil)
	r.session(b)
	b.silence(true)
	get := r.asked("GET", "/")
	r.eventually("an early request", func() bool { return r.worker.Stats().EarlySent == 1 })
	r.do(func() {
		for _, bs := range r.worker.backs {
			s := bs.opening[0]
			s.Handle(&side.Event{Kind: side.Settings})
			if len(bs.opening) != 0 || len(bs.shared) != 1 || s.state != inUse || s.early != notEarly {
				t.Errorf("%d connections are being opened, %d are open: state %d", len(bs.opening), len(bs.shared), s.state)
			}
		}
	})
	b.silence(false)
	if status := <-get; status != 200 {
		t.Errorf("status %d", status)
	}
	r.settled()
}
