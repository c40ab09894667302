package control

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/quic"
)

const sessionFile = `
listeners:
  - {name: secure, address: "SECURE", protocol: HTTPS, versions: ["3"], tls: {certificates: [{cert: "CERT"}]}, timeouts: {drain: 1s}}
routes:
  - name: r
    rules:
      - {name: wt, matches: [{path: {value: /wt}}], webtransport: {OPTIONS}, backend_refs: [{name: p}]}
      - {name: rest, backend_refs: [{name: p}]}
pools:
  - {name: p, protocol: H3, tls: {insecure: true}, backends: [{name: b, address: "BACKEND"}]}
`

// sessionGateway is a gateway with a rule for sessions before a backend of package http3.
type sessionGateway struct {
	*running
	address, text string
	roots         *x509.CertPool
	server        *http3.Server
}

// gatewayOfSessions returns one whose backend has each session served by each. It ends with it.
func gatewayOfSessions(t *testing.T, options string, o http3.MachineOptions, each func(s *http3.Session, r *http.Request)) *sessionGateway {
	t.Helper()
	return gatewayOfQUIC(t, options, &quic.Config{ResetAt: true}, o, each)
}

// gatewayOfQUIC is gatewayOfSessions with a backend of other limits of QUIC.
func gatewayOfQUIC(t *testing.T, options string, qc *quic.Config, o http3.MachineOptions, each func(s *http3.Session, r *http.Request)) *sessionGateway {
	t.Helper()
	g := &sessionGateway{}
	secure, file, roots := secureFile(t)
	cert, err := ctls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.server = &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Machine: o, QUIC: qc, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != "CONNECT" {
			_, _ = io.WriteString(w, "content")
			return
		}
		if s, err := http3.AcceptSession(w, req, &http3.AcceptOptions{CheckOrigin: func(r *http.Request) bool { return r.URL.Path != "/wt/no" }}); err == nil {
			each(s, req)
			<-s.Context().Done()
		}
	})}
	go func() { _ = g.server.Serve(pc) }()
	t.Cleanup(func() { _ = g.server.Close() })
	g.text = strings.NewReplacer("SECURE", secure, "CERT", file, "BACKEND", pc.LocalAddr().String(), "OPTIONS", options).Replace(sessionFile)
	g.running, g.address, g.roots = serve(t, g.text), secure, roots
	return g
}

// transport returns a client.
func (g *sessionGateway) transport(t *testing.T, o http3.MachineOptions) *http3.Transport {
	tr := &http3.Transport{
		TLS: &ctls.Config{RootCAs: g.roots, ServerName: "proxy.example"}, Machine: o, QUIC: &quic.Config{Datagrams: true, ResetAt: true},
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func (g *sessionGateway) url(path string) string {
	_, port, _ := net.SplitHostPort(g.address)
	return "https://proxy.example:" + port + path
}

// dial opens a session. The status is that of the response.
func (g *sessionGateway) dial(t *testing.T, tr *http3.Transport, path string) (s *http3.Session, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, resp, err := tr.DialSession(ctx, g.url(path), http.Header{"Origin": {"https://page.example"}, "X-Sent": {"yes"}})
	if resp == nil {
		t.Fatal(err)
	}
	return s, resp.StatusCode
}

// ending waits for the end of a session.
func ending(t *testing.T, s *http3.Session) error {
	t.Helper()
	select {
	case <-s.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the session does not end")
	}
	return context.Cause(s.Context())
}

// counted returns the value of a counter of sessions.
func (g *sessionGateway) counted(t *testing.T, name, label string) string {
	t.Helper()
	reg := metrics.NewRegistry(metrics.Build{})
	reg.Add(g.WriteMetrics)
	var b bytes.Buffer
	if err := reg.WriteText(&b, metrics.Selection{All: true}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "millrace_http_webtransport_"+name+"{") && strings.Contains(line, label) {
			return strings.TrimSpace(line[strings.IndexByte(line, '}')+1:])
		}
	}
	return ""
}

// sessionLog notes what one end of a session has seen.
type sessionLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *sessionLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *sessionLog) has(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.lines, "\n")+"\n", line+"\n")
}

// serveEchoes greets on streams of both kinds, and returns what comes on streams and in datagrams. Streams whose first byte is R or S are
// reset or stopped with that code.
func serveEchoes(s *http3.Session, log *sessionLog) {
	ctx := s.Context()
	go func() {
		if st, err := s.OpenStream(ctx); err == nil {
			_, _ = st.Write([]byte("greeting"))
			_ = st.Close()
			b, err := io.ReadAll(st)
			log.add("answer %s %v", b, err)
		}
	}()
	go func() {
		for {
			st, err := s.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			b, err := io.ReadAll(st)
			if err != nil {
				log.add("uni %d %v", len(b), err)
				continue
			}
			if out, err := s.OpenUniStream(ctx); err == nil {
				_, _ = out.Write(bytes.ToUpper(b))
				_ = out.Close()
			}
		}
	}()
	go func() {
		for {
			p, err := s.ReceiveDatagram(ctx)
			if err != nil {
				return
			}
			_ = s.SendDatagram(append([]byte("again "), p...))
		}
	}()
	for {
		st, err := s.AcceptStream(ctx)
		if err != nil {
			return
		}
		go func() {
			first := make([]byte, 1)
			if _, err := io.ReadFull(st, first); err != nil {
				st.CancelWrite(1)
				return
			}
			switch first[0] {
			case 'R':
				st.CancelWrite('R')
				_, err := io.ReadAll(st)
				log.add("reset %v", err)
			case 'S':
				st.CancelRead('S')
				_, _ = st.Write([]byte("stopped"))
				_ = st.Close()
			default:
				_, _ = st.Write(first)
				_, _ = io.Copy(st, st)
				_ = st.Close()
			}
		}()
	}
}

func echoed(t *testing.T, s *http3.Session, content []byte) {
	t.Helper()
	st, err := s.OpenStream(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	go func() {
		_, _ = st.Write(content)
		_ = st.Close()
	}()
	if got, err := io.ReadAll(st); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), err)
	}
}

// resetCode returns the code of an application with which a stream has ended.
func resetCode(err error) int {
	var e *http3.SessionError
	if errors.As(err, &e) && e.Remote {
		return int(e.Code)
	}
	return -1
}

// Sessions pass as a whole with each form of flow control at either hop: both ends have some, of one window and another, or none.
func TestSessionsPassThroughTheGateway(t *testing.T) {
	small := http3.SessionLimits{Streams: 2, UniStreams: 1, Data: 20_000}
	for name, o := range map[string][2]http3.MachineOptions{
		"none":      {{WebTransport: 1}, {WebTransport: 1}},
		"client's":  {{WebTransport: 2, Session: small}, {WebTransport: 1}},
		"backend's": {{WebTransport: 1}, {WebTransport: 2, Session: small}},
		"both":      {{WebTransport: 2}, {WebTransport: 2, Session: small}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log sessionLog
			ends := make(chan error, 1)
			g := gatewayOfSessions(t, "", o[1], func(s *http3.Session, r *http.Request) {
				log.add("%s %s %s %s %v", r.URL.Path, strings.Split(r.Host, ":")[0], r.Header.Get("Origin"), r.Header.Get("X-Sent"), r.Header.Get("Via") != "")
				go func() { <-s.Context().Done(); ends <- context.Cause(s.Context()) }()
				serveEchoes(s, &log)
			})
			s, status := g.dial(t, g.transport(t, o[0]), "/wt/a%20b?q=1")
			if s == nil {
				t.Fatal(status)
			}
			passThrough(t, s, &log)
			if err := s.CloseWithError(77, "bye"); err != nil {
				t.Error(err)
			}
			if err := <-ends; resetCode(err) != 77 || err.(*http3.SessionError).Text != "bye" {
				t.Errorf("the backend's end: %v", err)
			}
			if !log.has("/wt/a b proxy.example https://page.example yes false") {
				t.Errorf("%v", log.lines)
			}
			eventually(t, "the session is counted out", func() bool { return g.counted(t, "sessions", "r/wt") == "0" })
			for label, least := range map[string]string{`from="client"`: "37", `from="backend"`: "2"} {
				if got := g.counted(t, "streams_total", label); got != least {
					t.Errorf("streams %s: %s, want %s", label, got, least)
				}
			}
		})
	}
}

// passThrough uses all that a session has.
func passThrough(t *testing.T, s *http3.Session, log *sessionLog) {
	st, err := s.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(st); err != nil || string(b) != "greeting" {
		t.Errorf("%q, %v", b, err)
	}
	_, _ = st.Write([]byte("hello"))
	_ = st.Close()
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() { echoed(t, s, bytes.Repeat([]byte{byte('a' + i)}, 100_000)) })
	}
	all.Wait()
	out, err := s.OpenUniStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = out.Write([]byte("shout"))
	_ = out.Close()
	if in, err := s.AcceptUniStream(t.Context()); err != nil {
		t.Error(err)
	} else if b, err := io.ReadAll(in); err != nil || string(b) != "SHOUT" {
		t.Errorf("%q, %v", b, err)
	}
	for tries := 0; ; tries++ { // datagrams may be lost
		_ = s.SendDatagram([]byte("ping"))
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		p, err := s.ReceiveDatagram(short)
		if cancel(); err == nil && string(p) == "again ping" {
			break
		} else if tries == 50 {
			t.Fatalf("%q, %v", p, err)
		}
	}
	for i := range 10 { // more than either end may have open: credit comes back whatever way a stream ends
		endByCode(t, s, i)
	}
	eventually(t, "codes of resets, and the answer", func() bool {
		return log.has("uni 0 http3: WebTransport session closed with code 4 \"stream reset\"") && log.has("answer hello <nil>") &&
			log.has("reset http3: WebTransport session closed with code 9 \"stream reset\"")
	})
	echoed(t, s, []byte("still there"))
}

// endByCode ends streams by resets and stops of either end.
func endByCode(t *testing.T, s *http3.Session, i int) {
	t.Helper()
	st, err := s.OpenStream(t.Context())
	if err != nil {
		t.Fatal(i, err)
	}
	switch i % 3 {
	case 0: // reset by the backend
		_, _ = st.Write([]byte("R"))
		if _, err := io.ReadAll(st); resetCode(err) != 'R' {
			t.Errorf("a reset: %v", err)
		}
		st.CancelWrite(9)
	case 1: // stopped by the backend
		_, _ = st.Write([]byte("S"))
		if b, err := io.ReadAll(st); err != nil || string(b) != "stopped" {
			t.Errorf("%q, %v", b, err)
		}
		var failed error
		for range 1000 {
			if _, failed = st.Write([]byte("x")); failed != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if resetCode(failed) != 'S' {
			t.Errorf("a stop: %v", failed)
		}
	default: // at once, before anything but the beginning of the stream was sent
		st.CancelWrite(3)
		st.CancelRead(3)
	}
	uni, err := s.OpenUniStream(t.Context())
	if err != nil {
		t.Fatal(i, err)
	}
	uni.CancelWrite(4)
	st2, err := s.OpenStream(t.Context())
	if err != nil {
		t.Fatal(i, err)
	}
	st2.CancelWrite(5)
	if _, err := io.ReadAll(st2); err == nil {
		t.Error("a stream that was reset ends well")
	}
}

// The close of a backend reaches the client, and so does a drain that it asks for.
func TestBackendsCloseSessions(t *testing.T) {
	closing := make(chan struct{})
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) {
		_ = s.Drain()
		<-closing
		_ = s.CloseWithError(5, "enough")
	})
	s, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 1}), "/wt")
	if s == nil {
		t.Fatal(status)
	}
	select {
	case <-s.Draining():
	case <-time.After(20 * time.Second):
		t.Error("no drain")
	}
	close(closing)
	if err := ending(t, s); resetCode(err) != 5 || err.(*http3.SessionError).Text != "enough" {
		t.Error(err)
	}
}

// A request for a session is answered where none can be: without a rule, above the limits, and by a backend that refuses it. Other requests
// of the rule pass.
func TestSessionsThatAreRefused(t *testing.T) {
	g := gatewayOfSessions(t, "sessions: 2", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	tr := g.transport(t, http3.MachineOptions{WebTransport: 4})
	if _, status := g.dial(t, tr, "/other"); status != 405 {
		t.Errorf("without a rule: %d", status)
	}
	if _, status := g.dial(t, tr, "/wt/no"); status != 403 {
		t.Errorf("refused by the backend: %d", status)
	}
	one, status := g.dial(t, tr, "/wt")
	if status != 200 {
		t.Fatal(status)
	}
	if _, status = g.dial(t, tr, "/wt"); status != 200 {
		t.Errorf("a second session of the connection: %d", status)
	}
	if _, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 4}), "/wt"); status != 503 {
		t.Errorf("above sessions: %d", status)
	}
	_ = one.CloseWithError(0, "")
	eventually(t, "a place", func() bool { return g.counted(t, "sessions", "r/wt") == "1" })
	if _, status = g.dial(t, tr, "/wt"); status != 200 {
		t.Errorf("in place of one that has ended: %d", status)
	}
	if got := [2]string{g.counted(t, "sessions_total", "refused"), g.counted(t, "sessions_total", "full")}; got != [2]string{"1", "1"} {
		t.Errorf("refused and full %v", got)
	}
	req, _ := http.NewRequest("GET", g.url("/wt"), nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "content" {
		t.Errorf("%q", b)
	}
}

// A client without flow control has one session on a connection.
func TestSessionsWithoutCreditAreAlone(t *testing.T) {
	g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
	tr := g.transport(t, http3.MachineOptions{WebTransport: 1})
	if _, status := g.dial(t, tr, "/wt"); status != 200 {
		t.Fatal(status)
	}
	if _, status := g.dial(t, tr, "/wt"); status != 429 {
		t.Errorf("a second session: %d", status)
	}
}

// A backend without WebTransport gets the client 502.
func TestBackendsWithoutSessions(t *testing.T) {
	g := gatewayOfSessions(t, "", http3.MachineOptions{ExtendedConnect: true, Datagrams: true}, func(*http3.Session, *http.Request) {})
	if _, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 1}), "/wt"); status != 502 {
		t.Errorf("%d", status)
	}
}

// Sessions end with their idle time and with the process by a close of the gateway at both ends; a listener that goes, and a backend that
// is going away, ask the other end for it before.
func TestTheGatewayEndsSessions(t *testing.T) {
	for name, c := range map[string]struct {
		options, text string
		end           func(g *sessionGateway)
	}{
		"idle": {"idle: 1s", "idle", func(*sessionGateway) {}},
		"stop": {"", "gateway_stopping", func(g *sessionGateway) { go g.Shutdown() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := make(chan error, 1)
			g := gatewayOfSessions(t, c.options, http3.MachineOptions{WebTransport: 4}, func(s *http3.Session, _ *http.Request) {
				<-s.Context().Done()
				ends <- context.Cause(s.Context())
			})
			s, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 1}), "/wt")
			if s == nil {
				t.Fatal(status)
			}
			c.end(g)
			for _, err := range []error{ending(t, s), <-ends} {
				if resetCode(err) != 0 || err.(*http3.SessionError).Text != c.text {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// A backend, and a listener, that are going away have the session's other end asked for its end.
func TestSessionsAreAskedToEnd(t *testing.T) {
	const otherListener = "listeners:\n  - {name: other, address: \"ADDR\", protocol: HTTP}\n"
	for name, end := range map[string]func(g *sessionGateway){
		"backend": func(g *sessionGateway) { go func() { _ = g.server.Shutdown(context.Background()) }() },
		"listener": func(g *sessionGateway) {
			_, rest, _ := strings.Cut(strings.TrimPrefix(g.text, "\nlisteners:\n"), "\n")
			if err := g.Reload(g.file(otherListener + strings.Replace(rest, "webtransport: {}, ", "", 1))); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewayOfSessions(t, "", http3.MachineOptions{WebTransport: 4}, func(*http3.Session, *http.Request) {})
			s, status := g.dial(t, g.transport(t, http3.MachineOptions{WebTransport: 1}), "/wt")
			if s == nil {
				t.Fatal(status)
			}
			end(g)
			select {
			case <-s.Draining():
			case <-time.After(20 * time.Second):
				t.Error("no drain")
			}
			_ = s.CloseWithError(0, "")
		})
	}
}
