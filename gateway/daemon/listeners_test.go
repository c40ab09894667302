package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/metrics"
)

// site is a gateway with listeners alone, on the kernel's sockets.
type site struct {
	t      *testing.T
	d      *Daemon
	admin  *admin.Client
	file   string
	addr   string
	stop   context.CancelFunc
	ended  chan error
	client *http.Client
}

// newSite starts a gateway. In the configuration LISTEN is an address that is free, and SOCKET the control socket's path.
func newSite(t *testing.T, src string) *site {
	t.Helper()
	return newLoggedSite(t, src, slog.New(slog.DiscardHandler))
}

// newLoggedSite is newSite with a log.
func newLoggedSite(t *testing.T, src string, log *slog.Logger) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, file: filepath.Join(dir, "gw.yaml"), addr: free(t), ended: make(chan error, 1)}
	s.write(src)
	var err error
	if s.d, err = Open(s.file, Options{Admin: true, Log: log}); err != nil {
		t.Fatal(err)
	}
	s.admin = admin.NewClient(filepath.Join(dir, "gw.sock"))
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 20 * time.Second}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { s.ended <- s.d.Run(ctx) }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.stop()
		if err := errors.Join(<-s.ended, s.d.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// write changes the configuration file.
func (s *site) write(src string) {
	s.t.Helper()
	src = strings.NewReplacer("LISTEN", s.addr, "SOCKET", filepath.Join(filepath.Dir(s.file), "gw.sock")).Replace(src)
	write(s.t, s.file, src)
}

// get returns the status and the body of a response.
func (s *site) get(path string) (int, string) {
	s.t.Helper()
	resp, err := s.client.Get("http://" + s.addr + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// reload reloads, which must work.
func (s *site) reload(src string) admin.Changes {
	s.t.Helper()
	s.write(src)
	changes, err := s.admin.Reload(s.t.Context(), false)
	if err != nil {
		s.t.Fatal(err)
	}
	return changes
}

// free returns an address of the loopback that is free for TCP and UDP.
func free(t *testing.T) string { return testport.Hold(t).String() }

// named is a backend that answers with its name.
func named(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name+" "+r.URL.Path) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

const siteConfig = `
admin: {socket: SOCKET}
loops: 2
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes:
- name: r
  rules:
  - matches: [{path: {value: /fixed}}]
    filters: [{type: FixedResponse, status_code: 418, body: short, add: [{name: content-type, value: text/plain}]}]
  - backend_refs: [{name: p}]
pools:
- {name: p, backends: [{name: a, address: "A"}, {name: b, address: "B"}]}
`

func TestListenersAloneServeRequestsAndReloadWhatChanges(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `"B"`, `"`+named(t, "b")+`"`).Replace(siteConfig)
	s := newSite(t, src)
	if code, body := s.get("/fixed"); code != 418 || body != "short" {
		t.Errorf("%d %q", code, body)
	}
	got := map[string]int{}
	for range 6 {
		_, body := s.get("/x")
		got[body]++
	}
	if got["a /x"] != 3 || got["b /x"] != 3 {
		t.Errorf("%v", got)
	}

	st, err := s.admin.Status(t.Context(), control.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	web := st.Listeners
	if web == nil || web.Loops != 2 || len(web.Listeners) != 1 || web.Listeners[0].Addresses[0] != netip.MustParseAddrPort(s.addr) {
		t.Fatalf("%+v", web)
	}
	if web.Counts.Requests != 7 || web.Counts.Responses["2xx"] != 6 || web.Counts.Responses["4xx"] != 1 {
		t.Errorf("%+v", web.Counts)
	}
	if b := web.Pools[0].Backends; len(b) != 2 || b[0].Name != "a" || b[0].Responses["2xx"] != 3 || b[1].Responses["2xx"] != 3 || !b[0].Healthy {
		t.Errorf("%+v", b)
	}

	changes := s.reload(strings.ReplaceAll(src, "/fixed", "/other"))
	if changes.Changed != 1 || changes.List[0].Route != "r" || changes.List[0].Key != "rules" {
		t.Errorf("%+v", changes)
	}
	if _, body := s.get("/fixed"); !strings.HasSuffix(body, " /fixed") {
		t.Errorf("%q", body)
	}
	c := named(t, "c")
	s.reload(strings.NewReplacer("/fixed", "/other", "{name: a, address", "{name: c, address: \""+c+"\"}, {name: a, state: inactive, address").Replace(src))
	st, err = s.admin.Status(t.Context(), control.Selection{Services: []string{"p"}})
	if err != nil {
		t.Fatal(err)
	}
	if b := st.Listeners.Pools[0].Backends; len(b) != 3 || b[0].Name != "c" || b[1].State != "inactive" || b[1].Responses["2xx"] < 3 {
		t.Errorf("what a backend has counted is lost: %+v", b)
	}
	clear(got)
	for range 4 {
		_, body := s.get("/x")
		got[body]++
	}
	if got["c /x"] != 2 || got["b /x"] != 2 {
		t.Errorf("%v", got)
	}
}

func TestAReloadThatCannotBeUsedChangesNothing(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for what, c := range map[string]struct {
		src  string
		code int
		part string
	}{
		"all errors of a file": {strings.NewReplacer("name: p}", "name: q}", "status_code: 418", "status_code: 99").Replace(src), 422, "status_code is 99"},
		"an address in use":    {strings.NewReplacer(`"LISTEN"`, `["LISTEN", "`+taken.Addr().String()+`"]`, "status_code: 418", "status_code: 419").Replace(src), 500, "listener web at " + taken.Addr().String() + ": address already in use"},
		"what needs a restart": {strings.Replace(src, "loops: 2", "loops: 3", 1), 409, "loops"},
		"no listeners":         {"admin: {socket: SOCKET}\ndevices: [{name: lo}]\nservices: [{name: s, address: 198.18.0.1:80, source: client, backends: [{address: 198.18.0.2:80}]}]", 409, "devices"},
	} {
		s.write(c.src)
		_, err := s.admin.Reload(t.Context(), false)
		var e *admin.Error
		if !errors.As(err, &e) || c.code != 0 && e.Code != c.code || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", what, err)
		}
		if n := strings.Count(err.Error(), "in use"); n > 1 {
			t.Errorf("%s: %d times, as for each loop: %v", what, n, err)
		}
		if code, body := s.get("/fixed"); code != 418 || body != "short" {
			t.Errorf("%s: %d %q", what, code, body)
		}
		if _, body := s.get("/x"); body != "a /x" {
			t.Errorf("%s: %q", what, body)
		}
	}
	st, err := s.admin.Status(t.Context(), control.Selection{})
	if err != nil || !st.Reload.Failed {
		t.Errorf("%+v, %v", st.Reload, err)
	}
}

func TestCommandsReachPools(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `"B"`, `"`+named(t, "b")+`"`).Replace(siteConfig)
	s := newSite(t, src)
	ctx := t.Context()
	names, err := s.admin.ServiceNames(ctx)
	if err != nil || !slices.Equal(names, []string{"p"}) {
		t.Errorf("%v, %v", names, err)
	}
	if names, err = s.admin.BackendNames(ctx, "p"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%v, %v", names, err)
	}
	only := func(name string) {
		t.Helper()
		for range 4 {
			if _, body := s.get("/x"); body != name+" /x" {
				t.Errorf("%q, not %s", body, name)
			}
		}
	}
	a := admin.Target{Service: "p", Backend: "a"}
	if err := s.admin.Drain(ctx, admin.Drain{Target: a}); err != nil {
		t.Fatal(err)
	}
	only("b")
	code := func(err error) int {
		if e := new(admin.Error); errors.As(err, &e) {
			return e.Code
		}
		return 0
	}
	if err := s.admin.Drain(ctx, admin.Drain{Target: admin.Target{Service: "p", Backend: "b"}}); code(err) != 409 {
		t.Errorf("the last backend: %v", err)
	}
	if err := s.admin.Drain(ctx, admin.Drain{Target: a, Deadline: admin.Duration(10 * time.Millisecond)}); err != nil {
		t.Errorf("a deadline: %v", err)
	}
	state := func(want string) {
		t.Helper()
		await(t, func() bool {
			st, err := s.admin.Status(ctx, control.Selection{})
			return err == nil && st.Listeners.Pools[0].Backends[0].State == want
		})
	}
	state("inactive") // once the deadline has passed
	if err := s.admin.Undrain(ctx, a); err != nil {
		t.Fatal(err)
	}
	state("active")
	if err := s.admin.Drain(ctx, admin.Drain{Target: a}); err != nil {
		t.Fatal(err)
	}
	state("draining")
	if err := s.admin.Undrain(ctx, a); err != nil {
		t.Fatal(err)
	}
	zero := 0
	if err := s.admin.SetWeight(ctx, admin.Weight{Target: admin.Target{Service: "p", Backend: "b"}, Weight: &zero}); err != nil {
		t.Fatal(err)
	}
	only("a")
	if err := s.admin.SetWeight(ctx, admin.Weight{Target: a, Weight: &zero}); code(err) != 409 {
		t.Errorf("the last backend: %v", err)
	}
	for _, err := range []error{
		s.admin.Drain(ctx, admin.Drain{Target: admin.Target{Service: "pp", Backend: "a"}}),
		s.admin.Undrain(ctx, admin.Target{Service: "p", Backend: "c"}),
		s.admin.SetWeight(ctx, admin.Weight{Target: admin.Target{Service: "q", Backend: "a"}}),
	} {
		if code(err) != 404 {
			t.Error(err)
		}
	}
	if _, err := s.admin.Status(ctx, control.Selection{Services: []string{"q"}}); code(err) != 404 {
		t.Error(err)
	}
	if st, err := s.admin.Status(ctx, control.Selection{}); err != nil || !st.Listeners.Pools[0].Backends[1].Operator {
		t.Errorf("%+v, %v", st.Listeners, err)
	}
}

// counted returns the value of a series.
func (s *site) counted(series string) (value string) {
	s.t.Helper()
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(s.d.writeMetrics)
	var b strings.Builder
	if err := r.WriteText(&b, metrics.Selection{}); err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

func TestWhatWasCountedAndOrderedOutlivesReloads(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `"B"`, `"`+named(t, "b")+`", weight: 0`).Replace(siteConfig)
	s := newSite(t, src)
	for range 4 {
		if _, body := s.get("/x"); body != "a /x" {
			t.Errorf("%q has weight 0", body)
		}
	}
	const series = `millrace_http_route_requests_total{route="r"}`
	if n := s.counted(series); n != "4" {
		t.Errorf("%s requests of the route", n)
	}
	b := admin.Target{Service: "p", Backend: "b"}
	const deadline = 300 * time.Millisecond
	if err := s.admin.Drain(t.Context(), admin.Drain{Target: b, Deadline: admin.Duration(deadline)}); err != nil {
		t.Fatal(err)
	}
	s.reload(strings.ReplaceAll(src, "/fixed", "/other"))
	if n := s.counted(series); n != "4" {
		t.Errorf("%s requests of the route after a reload", n)
	}
	state := func() string {
		t.Helper()
		st, err := s.admin.Status(t.Context(), control.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		return st.Listeners.Pools[0].Backends[1].State
	}
	await(t, func() bool { return state() == "inactive" })
	if err := s.admin.Drain(t.Context(), admin.Drain{Target: b, Deadline: admin.Duration(deadline)}); err != nil {
		t.Fatal(err)
	}
	s.reload(src)
	if err := s.admin.Undrain(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * deadline)
	if got := state(); got != "active" {
		t.Errorf("a drain that was taken back has ended: %s", got)
	}
}

func TestBackendsOfPoolsAreProbed(t *testing.T) {
	dead := free(t)
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `"B"`, `"`+dead+`"`, "{name: p,",
		"{name: p, health: {type: http, interval: 100ms, fall: 1, rise: 1},").Replace(siteConfig)
	s := newSite(t, src)
	await(t, func() bool {
		st, err := s.admin.Status(t.Context(), control.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		b := st.Listeners.Pools[0].Backends
		return b[0].Healthy && !b[1].Healthy && strings.Contains(b[1].Cause, "refused") && b[1].Since != nil
	})
	for range 4 {
		if _, body := s.get("/x"); body != "a /x" {
			t.Errorf("%q", body)
		}
	}
	l, err := net.Listen("tcp", dead)
	if err != nil {
		t.Fatal(err)
	}
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "b") }))
	back.Listener.Close()
	back.Listener = l
	back.Start()
	defer back.Close()
	await(t, func() bool { _, body := s.get("/x"); return body == "b" })
	s.reload(strings.Replace(src, "health: {type: http, interval: 100ms, fall: 1, rise: 1},", "", 1))
	if n := len(s.d.workers.Status(nil).Pools[0].Backends); n != 2 {
		t.Errorf("%d backends", n)
	}
}

// await waits until f holds.
func await(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come about in 30 s")
		}
	}
}

func TestTheEndWaitsForRequestsAndAcceptsNoMore(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-release
		io.WriteString(w, "late")
	}))
	defer slow.Close()
	src := strings.NewReplacer(`"A"`, `"`+strings.TrimPrefix(slow.URL, "http://")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src)
	type result struct {
		body  string
		close bool
		err   error
	}
	done := make(chan result, 1)
	go func() {
		resp, err := s.client.Get("http://" + s.addr + "/x")
		if err != nil {
			done <- result{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		done <- result{string(body), resp.Close, err}
	}()
	<-begun
	s.stop()
	await(t, func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case r := <-done:
		t.Fatalf("the request has ended: %+v", r)
	default:
	}
	close(release)
	if r := <-done; r.err != nil || r.body != "late" || !r.close {
		t.Errorf("%+v", r)
	}
	select {
	case err := <-s.ended:
		s.ended <- err
	case <-time.After(30 * time.Second):
		t.Error("the gateway has not ended")
	}
}

func TestTheDrainTimeBoundsTheEnd(t *testing.T) {
	begun := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { close(begun); <-r.Context().Done() }))
	defer stuck.Close()
	src := strings.NewReplacer(`"A"`, `"`+strings.TrimPrefix(stuck.URL, "http://")+`"`, `, {name: b, address: "B"}`, "",
		"protocol: HTTP}", "protocol: HTTP, timeouts: {drain: 100ms}}").Replace(siteConfig)
	s := newSite(t, src)
	go s.client.Get("http://" + s.addr + "/x")
	<-begun
	s.stop()
	select {
	case err := <-s.ended:
		s.ended <- err
	case <-time.After(25 * time.Second): // without the bound: 30 s of the default
		t.Error("the gateway has not ended")
	}
}

// writePair writes a certificate of its own authority and its key to a file with the name, and returns the authority.
func writePair(t *testing.T, dir, name string) *x509.CertPool {
	t.Helper()
	cert, roots := testcert.SelfSigned(name, net.IPv4(127, 0, 0, 1))
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return roots
}

func TestCertificatesAreServedByNameAndReplacedByAReload(t *testing.T) {
	dir := t.TempDir()
	pair := func(name string) *x509.CertPool { return writePair(t, dir, name) }
	roots := map[string]*x509.CertPool{"a.test": pair("a.test"), "b.test": pair("b.test")}
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "", "protocol: HTTP}",
		fmt.Sprintf("protocol: HTTPS, tls: {min_version: \"1.3\", certificates: [{cert: %s/a.test}, {cert: %s/b.test}]}}", dir, dir)).Replace(siteConfig)
	s := newSite(t, src)
	ask := func(name, proto string, most uint16) (*tls.ConnectionState, error) {
		c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: roots[name], ServerName: name, NextProtos: []string{proto}, MaxVersion: most})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		st := c.ConnectionState()
		return &st, nil
	}
	for _, name := range []string{"a.test", "b.test"} {
		for _, proto := range []string{"h2", "http/1.1"} {
			if st, err := ask(name, proto, 0); err != nil || st.NegotiatedProtocol != proto {
				t.Errorf("%s %s: %+v, %v", name, proto, st, err)
			}
		}
	}
	if _, err := ask("a.test", "h2", tls.VersionTLS12); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
	old := roots["a.test"]
	roots["a.test"] = pair("a.test")
	s.reload(src)
	if _, err := ask("a.test", "h2", 0); err != nil {
		t.Errorf("the new certificate is not used: %v", err)
	}
	roots["a.test"] = old
	if _, err := ask("a.test", "h2", 0); err == nil {
		t.Error("the old certificate is still used")
	}
}

func TestHTTP3IsAnnouncedAndServed(t *testing.T) {
	dir := t.TempDir()
	roots := writePair(t, dir, "shop.test")
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "", "protocol: HTTP}",
		fmt.Sprintf(`protocol: HTTPS, versions: ["1.1", "2", "3"], tls: {certificates: [{cert: %s/shop.test}]}}`, dir)).Replace(siteConfig)
	s := newSite(t, src)
	conf := &tls.Config{RootCAs: roots, ServerName: "shop.test"}
	ask := func(rt http.RoundTripper) *http.Response {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "https://"+s.addr+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "shop.test"
		resp, err := (&http.Client{Transport: rt, Timeout: 20 * time.Second}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "a /x" {
			t.Errorf("%q, %v", body, err)
		}
		return resp
	}
	tcp := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	defer tcp.CloseIdleConnections()
	port := s.addr[strings.LastIndexByte(s.addr, ':')+1:]
	if resp := ask(tcp); resp.ProtoMajor != 2 || resp.Header.Get("Alt-Svc") != `h3=":`+port+`"; ma=86400` {
		t.Errorf("%s %q", resp.Proto, resp.Header.Get("Alt-Svc"))
	}
	udp := &http3.Transport{TLS: conf}
	defer udp.Close()
	if resp := ask(udp); resp.ProtoMajor != 3 {
		t.Errorf("%s", resp.Proto)
	}
	req, err := http.NewRequest(http.MethodGet, "https://"+s.addr+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "other.test" // for which the certificate of the connection is not
	resp, err := tcp.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("%+v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	s.reload(strings.Replace(src, `"1.1", "2", "3"`, `"1.1", "2"`, 1))
	if resp := ask(tcp); resp.Header.Get("Alt-Svc") != "" {
		t.Errorf("%q", resp.Header.Get("Alt-Svc"))
	}
}

func TestMetricsOfListenersHaveBoundedLabels(t *testing.T) {
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src)
	text := func() string {
		r := metrics.NewRegistry(metrics.Build{})
		r.Add(s.d.writeMetrics)
		var b strings.Builder
		if err := r.WriteText(&b, metrics.Selection{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	s.get("/x")
	series := strings.Count(text(), "\n")
	for i := range 20 {
		s.get(fmt.Sprintf("/secret/%d?q=%d", i, i))
	}
	after := text()
	if n := strings.Count(after, "\n"); n != series || strings.Contains(after, "secret") {
		t.Errorf("%d series became %d", series, n)
	}
	if !strings.Contains(after, "millrace_http_requests_total") || !strings.Contains(after, "millrace_pool_backend_up") {
		t.Error("metrics are missing")
	}
}

// echoBytes serves connections with what they send, and returns its address.
func echoBytes(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestConnectionsArePassedThrough(t *testing.T) {
	plain, secure := free(t), free(t)
	echo := echoBytes(t)
	cert, roots := testcert.SelfSigned("mail.test")
	mail := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "mail") }))
	mail.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	mail.StartTLS()
	defer mail.Close()
	s := newSite(t, fmt.Sprintf(`
admin: {socket: SOCKET}
loops: 1
listeners:
- {name: plain, address: "%s", protocol: TCP}
- {name: secure, address: "%s", protocol: TLS}
tcp_routes: [{name: echo, backend_refs: [{name: echo}]}]
tls_routes: [{name: mail, hostnames: "*.test", backend_refs: [{name: mail}]}]
pools:
- {name: echo, protocol: TCP, backends: [{address: "%s"}]}
- {name: mail, protocol: TCP, backends: [{address: "%s"}]}
`, plain, secure, echo, mail.Listener.Addr()))
	c, err := net.Dial("tcp", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	dial := func(name string) error {
		c, err := tls.Dial("tcp", secure, &tls.Config{RootCAs: roots, ServerName: name})
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial("mail.test"); err != nil {
		t.Error(err)
	}
	if err := dial("mail.example"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Error(err)
	}
	st, err := s.admin.Status(t.Context(), control.Selection{})
	if err != nil || st.Listeners.Counts.Streams.Passed != 3 || st.Listeners.Counts.Streams.Unrouted != 1 {
		t.Errorf("%+v, %v", st.Listeners, err)
	}
}

func TestTheAccessLogHasALineForEachRequestAndIsOpenedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src+"access_log: {file: "+file+"}\n")
	lines := func(name string, n int) (list []map[string]any) {
		t.Helper()
		await(t, func() bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Count(string(text), "\n") >= n
		})
		text, _ := os.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			list = append(list, m)
		}
		return list
	}
	s.get("/x?a=%22b")
	s.get("/fixed")
	l := lines(file, 2)
	for key, want := range map[string]any{
		"listener": "web", "method": "GET", "host": s.addr, "path": "/x?a=%22b", "route": "r", "rule": "r/2", "pool": "p", "backend": "a",
		"status": 200.0, "attempts": 1.0, "bytes_in": 0.0, "bytes_out": 4.0, "protocol": "HTTP/1.1",
	} {
		if l[0][key] != want {
			t.Errorf("%s is %v, not %v", key, l[0][key], want)
		}
	}
	if l[1]["status"] != 418.0 || l[1]["pool"] != nil {
		t.Errorf("%v", l[1])
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	s.reload(src + "access_log: {file: " + file + "}\n")
	s.get("/x")
	lines(file, 1)
	if err := os.Rename(file, file+".2"); err != nil {
		t.Fatal(err)
	}
	if err := s.d.ReopenLogs(); err != nil {
		t.Fatal(err)
	}
	s.get("/x")
	last := lines(file, 1)[0]["time"].(string)
	if first := l[0]["time"].(string); last <= first { // lines were written between them, which waits for more
		t.Errorf("the time of the first line is %s, that of the last %s", first, last)
	}
	s.reload(src)
	s.get("/x")
	if n := len(lines(file, 1)); n != 1 || len(lines(file+".1", 2)) != 2 || len(lines(file+".2", 1)) != 1 {
		t.Errorf("%d lines", n)
	}
}

// Lines have the chosen fields of a request over TLS, and those of the sample their weight.
func TestTheAccessLogHasChosenFields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	src := strings.NewReplacer(`"A"`, `"`+named(t, "a")+`"`, `, {name: b, address: "B"}`, "").Replace(siteConfig)
	s := newSite(t, src+"access_log: {file: "+file+", format: text, template: '${user_agent}|${header.x-tenant}|${wait_seconds}|${backend_seconds}|${response_seconds}|${ja4}|${status}'}\n")
	req, err := http.NewRequest(http.MethodGet, "http://"+s.addr+"/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", `a "b"`)
	req.Header.Set("X-Tenant", "seven")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	text := ""
	await(t, func() bool { b, _ := os.ReadFile(file); text = string(b); return strings.HasSuffix(text, "\n") })
	if !regexp.MustCompile(`^a \\x22b\\x22\|seven\|0\.\d{6}\|\d+\.\d{6}\|0\.\d{6}\|-\|200\n$`).MatchString(text) {
		t.Errorf("the line is %q", text)
	}
	s.reload(src + "access_log: {file: " + file + ", sample: {one_in: 1_000_000}}\n")
	s.get("/x")
	s.get("/fixed")
	st, err := s.admin.Status(t.Context(), control.Selection{})
	if err != nil || st.Listeners.Counts.LogSkipped != 2 {
		t.Errorf("%+v, %v", st.Listeners.Counts, err)
	}
}

// TestListenersHaveAFloorOfTheHeap: a gateway of short connections is not in collections for percents of its time, unless the user has
// chosen when they begin.
func TestListenersHaveAFloorOfTheHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	s := newSite(t, strings.NewReplacer(`"A"`, `"127.0.0.1:9"`, `"B"`, `"127.0.0.1:10"`).Replace(siteConfig))
	if s.d.floor.Size() == 0 {
		t.Error("a gateway with listeners has no floor")
	}
	if err := s.d.closeWorkers(); err != nil || s.d.floor.Size() != 0 {
		t.Errorf("a floor of %d bytes is left: %v", s.d.floor.Size(), err)
	}
	if d, _, _ := controlled(t); d.floor != nil {
		t.Error("a gateway without listeners has a floor")
	}
}
