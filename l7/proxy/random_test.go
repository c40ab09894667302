package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/h1side"
	"github.com/millrace/millrace/l7/h2side"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/side"
)

// soak is a gateway between random clients and backends that restart.
type soak struct {
	*rig
	backends map[string]*restarting
	fronts   [4][]*http.Client // HTTP/1.1, the same over TLS, HTTP/2 over TLS, HTTP/2 by prior knowledge
	urls     [4]string

	complete, failed, crossed, wrong atomic.Int64
}

func newSoak(t *testing.T, inspection *Inspection) *soak {
	s := &soak{backends: map[string]*restarting{}}
	cert, roots := testcert.SelfSigned("backend.test")
	for name, b := range map[string]*restarting{
		"h1": {}, "h2c": {h2: true}, "h2": {h2: true, tls: &ctls.Config{Certificates: []ctls.Certificate{cert}}},
	} {
		b.t, b.addr = t, "127.0.0.1:0"
		b.start()
		t.Cleanup(func() { b.server.Close() })
		s.backends[name] = b
	}
	s.rig = newRig(t, s.backends["h1"].addr, func(r *rig) {
		var rules []route.Rule
		r.tree.Pools, r.tree.Listeners[0].Rules = nil, nil
		for name, b := range s.backends {
			p, err := pool.New(pool.Options{Name: name}, []pool.BackendOptions{{Name: "b", Address: netip.MustParseAddrPort(b.addr)}}, 1)
			must(t, err)
			to := &Pool{Pool: p}
			if b.h2 {
				to.Protocol = HTTP2
			}
			if b.tls != nil {
				to.TLS = &ctls.Config{RootCAs: roots, ServerName: "backend.test", NextProtos: []string{"h2"}}
			}
			rules = append(rules, route.Rule{Name: name, Match: route.Match{Path: route.Path{Value: "/" + name}}})
			rule := &Rule{Name: name, Backends: []Weighted{{Pool: to, Weight: 1}}, Attempts: 1}
			r.tree.Pools, r.tree.Listeners[0].Rules = append(r.tree.Pools, to), append(r.tree.Listeners[0].Rules, rule)
		}
		table, err := route.New(rules)
		must(t, err)
		for _, l := range r.tree.Listeners {
			l.Table, l.Rules, l.Inspection = table, r.tree.Listeners[0].Rules, inspection
			l.Timeouts = side.Timeouts{
				Handshake: 30 * time.Second, Header: 30 * time.Second, Body: 60 * time.Second, Write: 60 * time.Second, Idle: 60 * time.Second,
			}
		}
	})
	s.urls = [4]string{"http://" + s.addr, "https://" + s.secure, "https://" + s.secure, "http://" + s.addr}
	for range 4 {
		h2c := &http.Transport{Protocols: new(http.Protocols)}
		h2c.Protocols.SetUnencryptedHTTP2(true)
		s.fronts[0] = append(s.fronts[0], &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, ExpectContinueTimeout: 20 * time.Second}})
		s.fronts[1] = append(s.fronts[1], s.client(false))
		s.fronts[2] = append(s.fronts[2], s.client(true))
		s.fronts[3] = append(s.fronts[3], &http.Client{Transport: h2c})
	}
	for _, clients := range s.fronts {
		for _, c := range clients {
			c.Timeout = 2 * time.Minute
			c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		}
	}
	return s
}

// request returns the request of a plan, with the digest of its fields.
func (s *soak) request(ctx context.Context, p *plan, r *rand.Rand) (*http.Request, string) {
	var body io.Reader
	up := content(p.seed, p.up)
	if p.up > 0 {
		body = bytes.NewReader(up)
	}
	if p.chunked {
		body = io.MultiReader(bytes.NewReader(up)) // its length is not known
	}
	req, err := http.NewRequestWithContext(ctx, p.method, s.urls[p.front]+"/"+p.to+"?"+p.query(), body)
	must(s.t, err)
	if p.trailers {
		req.Trailer = http.Header{"X-Sum": {sum(up)}}
	}
	for range p.fields {
		req.Header.Add(fmt.Sprintf("X-F-%d", r.IntN(40)), strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(1<<r.IntN(9)))+"; é, \"x\"\t=1")
	}
	if p.fields > 20 {
		req.Header.Set("Cookie", "a=1; b=\"2 3\"; c="+strings.Repeat("x", r.IntN(300)))
	}
	req.Close = p.close && p.front < 2
	if p.expect {
		req.Header.Set("Expect", "100-continue")
	}
	return req, digest(req.Header)
}

var (
	errLeft     = errors.New("the client has left")
	errNoAnswer = errors.New("no answer")
	errCrossed  = errors.New("the backend ended its connection")
	errWrong    = errors.New("wrong")
)

func wrong(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errWrong}, a...)...)
}

// exchange makes one request and compares the response. The error is errWrong for what may never come, errLeft where the plan says
// so, and another if the exchange has failed.
func (s *soak) exchange(p *plan, r *rand.Rand) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.leaveAfter > 0 {
		defer time.AfterFunc(p.leaveAfter, cancel).Stop()
	}
	req, fields := s.request(ctx, p, r)
	resp, err := s.fronts[p.front][r.IntN(4)].Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return errLeft
		}
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer resp.Body.Close()
	if why := resp.Header.Get("Proxy-Status"); why != "" {
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode == 502 && strings.HasSuffix(why, "connection_terminated") {
			return errCrossed
		}
		return fmt.Errorf("%d %s", resp.StatusCode, why)
	}
	h := resp.Header
	upTrailer := ""
	if p.trailers {
		upTrailer = sum(content(p.seed, p.up))
	}
	switch {
	case h.Get("X-Seed") != fmt.Sprint(p.seed) || h.Get("X-Method") != p.method:
		return wrong("the response is that of another request: %v", h)
	case resp.StatusCode != p.status:
		return wrong("status %d", resp.StatusCode)
	case h.Get("X-Fields") != fields:
		return wrong("the fields of the request differ")
	case !p.early && h.Get("X-Up") != fmt.Sprintf("%d %s", p.up, sum(content(p.seed, p.up))):
		return wrong("the backend got %s", h.Get("X-Up"))
	case !p.early && h.Get("X-Up-Trailer") != upTrailer:
		return wrong("the backend got the trailer %q", h.Get("X-Up-Trailer"))
	}
	return s.body(p, resp, ctx, r)
}

// body reads and compares the content.
func (s *soak) body(p *plan, resp *http.Response, ctx context.Context, r *rand.Rand) error {
	want := content(p.seed+1, p.down)
	if p.bodiless() {
		want = nil
	}
	buf := make([]byte, 1+r.IntN(64<<10))
	naps := 200 // of a slow client: a small buffer needs many reads
	for at := 0; ; {
		n, err := resp.Body.Read(buf)
		if at+n > len(want) || !bytes.Equal(buf[:n], want[at:at+n]) {
			return wrong("the content differs between %d and %d", at, at+n)
		}
		at += n
		switch {
		case err == io.EOF && at != len(want):
			return wrong("the content ends after %d bytes of %d", at, len(want))
		case err == io.EOF:
			fits := p.front >= 2 || resp.ContentLength < 0 // HTTP/1.1 has no trailers behind a Content-Length
			if fits && p.downTrailers && !p.bodiless() && p.abort < 0 && resp.Trailer.Get("X-Sum") != sum(want) {
				return wrong("the trailers are %v", resp.Trailer)
			}
			return nil
		case err != nil && ctx.Err() != nil, err == nil && p.leave >= 0 && at >= p.leave:
			return errLeft
		case err != nil:
			return err
		}
		if p.slow && naps > 0 && r.IntN(4) == 0 {
			naps--
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
}

// one makes a random request. Only what was planned may fail, and what a restart has met; nothing may be wrong.
func (s *soak) one(r *rand.Rand) {
	p := randomPlan(r)
	b := s.backends[p.to]
	before := b.epoch.Load()
	began := time.Now()
	waits := time.AfterFunc(20*time.Second, func() { s.t.Logf("it waits: %+v", p); s.report(20 * time.Second) })
	err := s.exchange(&p, r)
	waits.Stop()
	// What the old server leaves behind, connections of HTTP/2 after GOAWAY above all, ends within a second (net/http).
	since := began.Sub(time.Unix(0, b.ended.Load()))
	restarted := before%2 == 1 || b.epoch.Load() != before || since < time.Second
	switch {
	case err == nil && p.abort >= 0 && !p.bodiless() && (p.downChunked || p.abort < p.down):
		err = wrong("the end of the response is not noticed")
	case err == nil:
		s.complete.Add(1)
		return
	case errors.Is(err, errWrong):
	case errors.Is(err, errLeft) || restarted || p.abort >= 0,
		p.early && p.up > 200_000: // the backend does not wait for so much
		s.failed.Add(1)
		return
	case p.front < 2 && errors.Is(err, errNoAnswer):
		s.crossed.Add(1) // the end of a connection, after an answer that came early, and the next request
		return
	// The same at the backend: content that has gone out is not there to be sent again, and no other method may be repeated.
	case (p.up > 0 || !rewrite.Idempotent(p.method)) && errors.Is(err, errCrossed):
		s.crossed.Add(1)
		return
	}
	s.wrong.Add(1)
	s.t.Errorf("after %v, %v after a restart: %v; %+v", time.Since(began).Round(time.Millisecond), since, err, p)
}

// run makes requests for a time, from many clients, while backends restart.
func (s *soak) run(d time.Duration, every time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	seed := rand.Uint64()
	s.t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for g := range 32 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for ctx.Err() == nil && s.wrong.Load() < 10 {
				s.one(r)
			}
		})
	}
	all.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1000))
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
			s.backends[[]string{"h1", "h2c", "h2"}[r.IntN(3)]].restart(r.IntN(2) == 0)
		}
	})
	all.Wait()
}

// closeAll ends all connections, and expects nothing to be left.
func (s *soak) closeAll() {
	s.settled()
	for _, clients := range s.fronts {
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	}
	for _, b := range s.backends {
		b.server.Close()
	}
	var left string
	for range 500 {
		s.do(func() {
			w := s.worker
			backs := 0
			for _, bs := range w.backs {
				backs += len(bs.idle) + len(bs.shared) + len(bs.opening)
			}
			left = fmt.Sprintf("%d fronts, %d timers, %d connections to backends", len(w.fronts), len(w.Timers)-len(w.FreeTimers), backs)
		})
		if left == "0 fronts, 0 timers, 0 connections to backends" {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Errorf("left: %s", left)
	s.report(0)
}

// report logs the state of exchanges that are older than age, and of their connections.
func (s *soak) report(age time.Duration) {
	s.do(func() {
		for _, one := range s.worker.Timers {
			switch one := one.(type) {
			case *exchange:
				if old := s.worker.Now.Sub(one.began); old >= age {
					s.t.Logf("exchange: %v old, %v without progress, status %d, attempts %d, to %s, phase %v, waits for %T, up %s, down %s",
						old, s.worker.Now.Sub(one.progress), one.status, one.attempts, one.backendName, one.phase, one.waits, one.up.state(), one.down.state())
					s.t.Logf("its sides: %s; %s", sideOf(one.front), sideOf(one.back))
				}
			case *link.Link:
				if age == 0 {
					s.t.Log("connection: ", stateOf(one))
				}
			}
		}
	})
}

func (r *relay) state() string {
	return fmt.Sprintf("(%d bytes, %d held, message %v, paused %v)", r.bytes, len(r.held), r.message, r.paused)
}

func stateOf(l *link.Link) string {
	return fmt.Sprintf("%T, client %v, TLS %v, stage %v, demand %v, blocked %v, full %v, input %v, %d in, %d raw, %d to send, bypass %v",
		l.Session, l.OnClosed != nil, l.Engine != nil, l.Stage, l.Demand, l.Blocked, l.Full, l.Input, len(l.In), len(l.Raw), l.Unsent(), l.Bypass != nil)
}

// sideOf describes one side of an exchange.
func sideOf(s side.Stream) string {
	switch s := s.(type) {
	case *h1side.Front:
		return fmt.Sprintf("%s, its exchange %v, request %d", stateOf(s.L), s.User != nil, s.Request)
	case *h1side.Back:
		return fmt.Sprintf("%s, its exchange %v, broken %v", stateOf(s.L), s.User != nil, s.Broken)
	case *h2side.Stream:
		return stateOf(s.C.L)
	}
	return fmt.Sprintf("%T", s)
}

// Random requests of net/http by all versions are answered as net/http answers them, byte for byte, through clients that leave or
// read slowly and backends that end their responses or restart. All exchanges end, and nothing is left of them. MILLRACE_SOAK is how
// long it runs, and has the heap compared.
func TestRandomRequests(t *testing.T) { randomRequests(t, newSoak(t, nil)) }

// TestRandomRequestsThatAreInspected is TestRandomRequests with rules on content of both directions, none of which ends anything.
func TestRandomRequestsThatAreInspected(t *testing.T) {
	s := newSoak(t, &Inspection{Policy: 1, Hold: 20 << 10})
	const rules = `drop http any any -> any any (http.request_body; content:"no such content"; sid:1;)
drop http any any -> any any (http.response_body; content:"no such content"; sid:2;)
alert http any any -> any any (http.uri; content:"h1"; sid:3;)
`
	alerts := 0
	e := inspect.New(compiledRules(t, rules, nil), inspect.Config{Inline: true, Refuse: true}, func(*inspect.Alert) { alerts++ })
	s.do(func() {
		s.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return e, inspect.Prevent })
	})
	randomRequests(t, s)
	s.do(func() {
		if _, used := e.Flows(); used != 0 || alerts == 0 || s.worker.Stats().InspectionEnded+s.worker.Stats().InspectionFull > 0 {
			t.Errorf("the engine holds %d bytes after %d alerts: %+v", used, alerts, s.worker.Stats())
		}
	})
}

func randomRequests(t *testing.T, s *soak) {
	t.Helper()
	d, every := 2*time.Second, 300*time.Millisecond
	long, err := time.ParseDuration(os.Getenv("MILLRACE_SOAK"))
	if err == nil {
		d, every = long, 3*time.Second
	}
	if err == nil {
		s.heaps(d)
	}
	s.run(d, every)
	s.closeAll()
	t.Logf("%d complete, %d failed as planned, %d crossed the end of a connection, %d wrong; %+v",
		s.complete.Load(), s.failed.Load(), s.crossed.Load(), s.wrong.Load(), s.worker.Stats())
	if s.complete.Load() < 50 || s.crossed.Load() > 3+s.complete.Load()/1000 {
		t.Error("too few requests are complete")
	}
}

// heaps logs how large the heap is as the test runs, after a collection.
func (s *soak) heaps(d time.Duration) {
	stop := make(chan struct{})
	s.t.Cleanup(func() { close(stop) })
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(d / 20):
			}
			var m runtime.MemStats
			s.report(20 * time.Second)
			runtime.GC()
			runtime.ReadMemStats(&m)
			fds, _ := os.ReadDir("/proc/self/fd")
			s.t.Logf("%d: heap %d KiB in %d objects, %d descriptors, %d goroutines, %d complete", i, m.HeapAlloc>>10, m.HeapObjects, len(fds), runtime.NumGoroutine(), s.complete.Load())
		}
	}()
}
