package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testdns"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/metrics"
)

// logged is a log that a test reads.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a set that serves.
type running struct {
	*Set
	addr netip.AddrPort
	log  *logged
	file func(text string) *config.Config
}

// serve runs the set of a configuration, in which ADDR is the address of the listener.
func serve(t *testing.T, text string) *running {
	t.Helper()
	r := &running{addr: testport.Hold(t), log: &logged{}}
	r.file = func(text string) *config.Config {
		cfg, err := config.Parse("f", []byte(strings.ReplaceAll(text, "ADDR", r.addr.String())))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	set, err := Open(r.file(text), Options{Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r.Set = set
	done := make(chan error, 1)
	go func() { done <- set.Run() }()
	t.Cleanup(func() {
		set.Shutdown()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// get returns status and content of a response, over a connection of its own.
func (r *running) get(t *testing.T) string {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + r.addr.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		return fmt.Sprint(resp.StatusCode)
	}
	return string(b)
}

// until waits until f returns what is wanted. It ends with the time of the test binary.
func until(t *testing.T, what, want string, f func() string) {
	t.Helper()
	for {
		if f() == want {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %s, want %s", what, f(), want)
		case <-time.After(time.Millisecond):
		}
	}
}

// named serves HTTP at a loopback address of its own, and answers with it.
func named(t *testing.T, addr string, port uint16) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, port))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, addr) })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func (r *running) backends() string {
	var names []string
	for _, b := range r.Status(nil).Pools[0].Backends {
		names = append(names, b.Name)
	}
	return strings.Join(names, " ")
}

func (r *running) nameState() string {
	n := r.Status(nil).Pools[0].Names
	if len(n) != 1 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s %d", n[0].State, n[0].Targets)
}

// text returns the metrics.
func (r *running) text() string {
	var b bytes.Buffer
	reg := &metrics.Registry{}
	reg.Add(r.WriteMetrics)
	if err := reg.WriteText(&b, metrics.Selection{}); err != nil {
		return err.Error()
	}
	return b.String()
}

// metric returns the first metric of a name with labels.
func (r *running) metric(name string) string {
	for line := range strings.Lines(r.text()) {
		if strings.HasPrefix(line, name+"{") {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return "none"
}

// TestBackendsFollowTheirName has a name server change its answers, and a client look where its requests go.
func TestBackendsFollowTheirName(t *testing.T) {
	dns := testdns.Start(t)
	port := named(t, "127.0.0.1", 0).Port()
	named(t, "127.0.0.2", port)
	text := fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: app}]}]}]
resolver: {servers: "%s", min_ttl: 10ms, timeout: 10s}
pools: [{name: app, backends: [{name: web, address: "app.example:%d"}]}]
`, dns.Addr, port)
	r := serve(t, text) // the name does not exist

	if got := r.get(t); got != "503" {
		t.Errorf("without an address: %s", got)
	}
	until(t, "state", "unresolved 0", r.nameState)
	if log := r.log.String(); !strings.Contains(log, "no such name") || !strings.Contains(log, "remedy=") || !strings.Contains(log, "app.example") {
		t.Errorf("log: %s", log)
	}
	if up, failed := r.metric("millrace_pool_name_up"), r.metric("millrace_pool_name_failed_lookups_total"); up != "0" || failed == "0" || failed == "none" {
		t.Errorf("metrics: up %s, failed %s", up, failed)
	}

	dns.SetA("app.example.", "127.0.0.1")
	until(t, "response", "127.0.0.1", func() string { return r.get(t) })
	until(t, "state", "resolved 1", r.nameState)
	first := fmt.Sprintf("web/127.0.0.1:%d", port)
	until(t, "backends", first, r.backends)

	dns.SetA("app.example.", "127.0.0.1", "127.0.0.2")
	until(t, "backends", first+" "+fmt.Sprintf("web/127.0.0.2:%d", port), r.backends)
	if a, b := r.get(t), r.get(t); a == b {
		t.Errorf("both responses are of %s", a)
	}

	dns.SetA("app.example.", "127.0.0.2")
	until(t, "backends", fmt.Sprintf("web/127.0.0.2:%d", port), r.backends)
	if got := r.get(t); got != "127.0.0.2" {
		t.Errorf("response of %s", got)
	}

	dns.Set("app.example.", dnsmessage.TypeA, testdns.Answer{Code: dnsmessage.RCodeServerFailure})
	until(t, "state", "stale 1", r.nameState)
	if got := r.get(t); got != "127.0.0.2" {
		t.Errorf("with a failing server: %s", got)
	}
	if up := r.metric("millrace_pool_name_up"); up != "0" {
		t.Errorf("up %s", up)
	}

	dns.SetA("other.example.", "127.0.0.1") // a reload has the answer before the first request goes by it
	if err := r.Reload(r.file(strings.Replace(text, "app.example", "other.example", 1))); err != nil {
		t.Fatal(err)
	}
	if got := r.get(t); got != "127.0.0.1" {
		t.Errorf("after the reload: %s", got)
	}
	if asked := dns.Asked("udp", "other.example."); asked == 0 {
		t.Error("the name was not asked for")
	}
}

// TestAGoneAddressDrains has a request in progress at an address that the name loses: it ends as it would have.
func TestAGoneAddressDrains(t *testing.T) {
	dns := testdns.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered, proceed := make(chan struct{}), make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-proceed
		fmt.Fprint(w, "slow")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	named(t, "127.0.0.2", uint16(port))
	dns.SetA("app.example.", "127.0.0.1")
	r := serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: app}]}]}]
resolver: {servers: "%s", min_ttl: 10ms, timeout: 10s}
pools: [{name: app, backends: [{address: "app.example:%d"}]}]
`, dns.Addr, port))
	answer := make(chan string, 1)
	go func() { answer <- r.get(t) }()
	<-entered
	dns.SetA("app.example.", "127.0.0.2")
	until(t, "backends", fmt.Sprintf("127.0.0.2:%d", port), r.backends)
	if got := r.get(t); got != "127.0.0.2" {
		t.Errorf("a new request: %s", got)
	}
	close(proceed)
	if got := <-answer; got != "slow" {
		t.Errorf("the request in progress: %s", got)
	}
}

// TestServicesOfDNS has ports and weights come from SRV.
func TestServicesOfDNS(t *testing.T) {
	dns := testdns.Start(t)
	one, two := named(t, "127.0.0.1", 0), named(t, "127.0.0.2", 0)
	dns.SetA("a.example.", "127.0.0.1")
	dns.SetA("b.example.", "127.0.0.2")
	dns.Set("_http._tcp.example.", dnsmessage.TypeSRV, testdns.Answer{TTL: 60, Records: []dnsmessage.ResourceBody{
		testdns.SRV(1, 3, one.Port(), "a.example."), testdns.SRV(1, 1, two.Port(), "b.example."),
	}})
	r := serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: app}]}]}]
resolver: {servers: "%s", timeout: 10s}
pools: [{name: app, backends: [{address: "srv:_http._tcp.example"}]}]
`, dns.Addr))
	got := map[string]int{}
	for range 8 {
		got[r.get(t)]++
	}
	if got["127.0.0.1"] != 6 || got["127.0.0.2"] != 2 {
		t.Errorf("%v", got)
	}
}

// TestBackendsAtSockets has HTTP and health checks go to a socket of this machine, which appears later than the gateway.
func TestBackendsAtSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	r := serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP}]
routes: [{name: r, rules: [{filters: [{type: ResponseHeaderModifier, set: [{name: x-backend, value: "${backend_address}"}]}], backend_refs: [{name: app}]}]}]
pools: [{name: app, health: {type: http, interval: 100ms, timeout: 100ms}, backends: [{address: "unix:%s"}]}]
`, path))
	if got := r.get(t); got != "502" && got != "503" {
		t.Errorf("without a server: %s", got)
	}
	until(t, "health", "false", func() string { return fmt.Sprint(r.Status(nil).Pools[0].Backends[0].Healthy) })
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB, which no buffer holds
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if b, err := io.ReadAll(q.Body); err == nil && len(b) > 0 {
			_, _ = w.Write(b)
			return
		}
		_, _ = io.WriteString(w, large)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	until(t, "health", "true", func() string { return fmt.Sprint(r.Status(nil).Pools[0].Backends[0].Healthy) })
	for range 2 { // the second has the connection of the first
		resp, err := http.Post("http://"+r.addr.String()+"/", "text/plain", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(b) != large || resp.Header.Get("X-Backend") != "unix:"+path {
			t.Errorf("%d bytes, %v, %v", len(b), err, resp.Header)
		}
	}
	if got := r.get(t); got != large {
		t.Errorf("a response of %d bytes", len(got))
	}
	b := r.Status(nil).Pools[0].Backends[0]
	if b.Path != path || b.Address.IsValid() || b.Responses["2xx"] != 3 {
		t.Errorf("%+v", b)
	}
}

// TestMembersOfABackend has names and weights that an entry stands for.
func TestMembersOfABackend(t *testing.T) {
	dns := testdns.Start(t)
	dns.SetA("a.example.", "192.0.2.1", "192.0.2.2")
	dns.SetA("b.example.", "192.0.2.2", "192.0.2.3")
	dns.Set("_s.example.", dnsmessage.TypeSRV, testdns.Answer{Records: []dnsmessage.ResourceBody{testdns.SRV(0, 60000, 1, "a.example."), testdns.SRV(0, 30000, 2, "a.example."), testdns.SRV(0, 0, 3, "a.example.")}})
	r := serve(t, fmt.Sprintf(`
listeners: [{name: web, address: "ADDR", protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: app}, {name: srv}]}]}]
resolver: {servers: "%s", timeout: 10s, family: ipv4, attempts: 3, max_ttl: 1m}
pools:
- {name: app, backends: [{address: "192.0.2.1:80", weight: 5}, {address: "a.example:80", weight: 7, state: draining}, {name: n, address: "b.example:80", weight: 0}]}
- {name: srv, backends: [{address: "srv:_s.example", weight: 1000}]}
`, dns.Addr))
	var got []string
	for _, p := range r.Status(nil).Pools {
		for _, b := range p.Backends {
			got = append(got, fmt.Sprintf("%s %d %s", b.Name, b.Weight, b.State))
		}
	}
	want := "192.0.2.1:80 5 active,192.0.2.2:80 7 draining,n/192.0.2.3:80 0 active," +
		"192.0.2.1:1 1000000 active,192.0.2.1:2 500000 active,192.0.2.1:3 16 active,192.0.2.2:1 1000000 active,192.0.2.2:2 500000 active,192.0.2.2:3 16 active"
	if s := strings.Join(got, ","); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.names.Wait(ctx, r.cfg.Names()) // returns
}
