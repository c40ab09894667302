package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// ecmpSite has two gateways that announce one address to a router, which spreads flows over them:
//
//	                                    gw1 198.18.11.1 ---- front .2 gate1 back 198.18.21.1 ---- eth1 .2
//	client eth0 198.18.0.2 ---- lan .1 router                                                             backend
//	                                    gw2 198.18.12.1 ---- front .2 gate2 back 198.18.22.1 ---- eth2 .2
type ecmpSite struct {
	t               testing.TB
	program, dir    string
	client, backend *testnet.Namespace
	router          *frr // nil: the test has started another one in routerNS
	routerNS        *testnet.Namespace
	gates           [2]*ecmpGate
}

// ecmpGate is a gateway, with a backend that it alone has.
type ecmpGate struct {
	s         *ecmpSite
	ns        *testnet.Namespace
	n         int
	file, log string
	cmd       *exec.Cmd
	requests  atomic.Int64 // that have come to the backend
	server    *http.Server // nil: the backend is down
}

const ecmpVIP = "198.18.1.1"

// buildMillrace builds the program in a folder.
func buildMillrace(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "millrace")
	cmd := exec.Command("go", "-C", "../../../cmd", "build", "-o", path, "./millrace")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func newECMPSite(t testing.TB, prefix, router string) *ecmpSite {
	t.Helper()
	if router != "" {
		needRouter(t, frrPrograms+"bgpd")
	} else {
		needRouter(t, "bird")
	}
	n := testnet.For(t, prefix)
	dir := shortDir(t)
	s := &ecmpSite{t: t, program: buildMillrace(t, dir), dir: dir, client: n.Namespace("client"), backend: n.Namespace("backend")}
	ns := n.Namespace("router")
	s.routerNS = ns
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	must(n.Link(s.client, "eth0", ns, "lan"), s.client.Up("eth0", "198.18.0.2/24"), ns.Up("lan", "198.18.0.1/24"), s.client.Route("198.18.0.0/16", "198.18.0.1"),
		ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv4.fib_multipath_hash_policy", "1"))
	for i := range s.gates {
		g := &ecmpGate{s: s, n: i + 1, ns: n.Namespace(fmt.Sprintf("gate%d", i+1))}
		s.gates[i] = g
		down, up, dev := fmt.Sprintf("gw%d", g.n), fmt.Sprintf("eth%d", g.n), fmt.Sprintf("198.18.1%d", g.n)
		must(n.Link(ns, down, g.ns, "front"), n.Link(g.ns, "back", s.backend, up),
			ns.Up(down, dev+".1/24", fmt.Sprintf("2001:db8:1%d::1/64", g.n)), g.ns.Up("front", dev+".2/24", fmt.Sprintf("2001:db8:1%d::2/64", g.n)),
			g.ns.Up("back", fmt.Sprintf("198.18.2%d.1/24", g.n)), s.backend.Up(up, fmt.Sprintf("198.18.2%d.2/24", g.n)), g.ns.Route("198.18.0.0/24", dev+".1"))
		for _, off := range []struct {
			ns   *testnet.Namespace
			name string
		}{{ns, down}, {g.ns, "front"}, {g.ns, "back"}, {s.backend, up}} {
			must(off.ns.NoOffload(off.name))
		}
		g.serve()
	}
	if router != "" {
		s.router = startFRR(t, ns, router)
	}
	return s
}

// serve starts the backend of a gateway.
func (g *ecmpGate) serve() {
	var l net.Listener
	err := g.s.backend.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("198.18.2%d.2:8080", g.n))
		return err
	})
	if err != nil {
		panic(err)
	}
	g.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.requests.Add(1)
		fmt.Fprintf(w, "gate%d", g.n)
	})}
	go g.server.Serve(l) //nolint:errcheck // it ends with Close
}

// fail ends the backend.
func (g *ecmpGate) fail() { _ = g.server.Close() }

const ecmpConfig = `
devices: [{name: front}, {name: back}]
snat: 198.18.2N.100
admin: {socket: DIR/gateN.sock}
bgp:
  as: 64512
  router_id: 198.18.1N.2
  med: 50
  communities: ["64512:1N", "64512:1:N"]
  EXTRA
  peers: [{address: 198.18.1N.1, as: 65000, connect_retry: 1s, next_hop: "2001:db8:1N::2"}]
services:
  - name: web
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    source: SOURCE
    announce: {}
    backends: [{name: b, address: 198.18.2N.2:8080}, {name: b6, address: "[2001:db8:2N::2]:8080", state: inactive}]
    health: {type: tcp, interval: 100ms, timeout: 50ms, rise: 1, fall: 2}
`

// start starts a gateway, and waits until it serves.
func (g *ecmpGate) start(t testing.TB, extra string) {
	t.Helper()
	// The IPv6 address has no backend, and so it is never announced.
	text := strings.NewReplacer("N.", fmt.Sprint(g.n)+".", "DIR", g.s.dir, "N\"", fmt.Sprint(g.n)+"\"", "N:", fmt.Sprint(g.n)+":", "gateN", fmt.Sprintf("gate%d", g.n),
		"EXTRA", extra, "SOURCE", "gateway").Replace(ecmpConfig)
	text = strings.Replace(text, "snat: 198.18.2", "snat: [\"2001:db8:2::64\", 198.18.2", 1)
	text = strings.Replace(text, ".100\n", ".100]\n", 1)
	g.file, g.log = filepath.Join(g.s.dir, fmt.Sprintf("gate%d.yaml", g.n)), filepath.Join(g.s.dir, fmt.Sprintf("gate%d.log", g.n))
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if g.cmd == nil {
		t.Cleanup(func() { // of the process that an upgrade has started, which is no child of the test
			_ = exec.Command(g.s.program, "gateway", "stop", "--socket", filepath.Join(g.s.dir, fmt.Sprintf("gate%d.sock", g.n))).Run()
		})
	}
	g.cmd = startProgram(t, g.ns, g.log, g.s.program, "gateway", "-c", g.file)
}

// run runs a command of the gateway.
func (g *ecmpGate) run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(g.s.program, append(append([]string{"gateway"}, args...), "--socket", filepath.Join(g.s.dir, fmt.Sprintf("gate%d.sock", g.n)))...).CombinedOutput()
	if err != nil {
		t.Fatalf("gateway %v: %v: %s", args, err, out)
	}
	return string(out)
}

// status returns the status of the gateway.
func (g *ecmpGate) status(t testing.TB) (st admin.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(g.run(t, "status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// ask sends a request from the client on a connection of its own, and returns which gateway has answered.
func (s *ecmpSite) ask() (string, error) {
	var d net.Dialer
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = s.client.Do(func() error { c, err = d.DialContext(ctx, network, addr); return err })
		return c, err
	}}
	defer tr.CloseIdleConnections()
	c := http.Client{Transport: tr, Timeout: 5 * time.Second}
	r, err := c.Get("http://" + ecmpVIP + "/")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b := make([]byte, 16)
	n, _ := r.Body.Read(b)
	return string(b[:n]), nil
}

// wantGates asks until just the wanted gateways answer, for a number of requests without a failure.
func (s *ecmpSite) wantGates(t testing.TB, want ...string) {
	t.Helper()
	var got map[string]int
	var failed error
	for range 20 {
		got, failed = map[string]int{}, nil
		for range 24 {
			name, err := s.ask()
			if err != nil {
				failed = err
				break
			}
			got[name]++
		}
		ok := failed == nil && len(got) == len(want)
		for _, w := range want {
			ok = ok && got[w] > 0
		}
		if ok {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("answers %v, %v; want %v", got, failed, want)
}

// nextHops returns the next hops of the address in the router's kernel.
func (s *ecmpSite) nextHops() string {
	out, _ := s.routerNS.Run("ip", "route", "show", ecmpVIP)
	return out
}

// routeMonitor is `ip monitor route` in the router, whose lines are kept with the time at which they came.
type routeMonitor struct{ lines chan routeLine }

type routeLine struct {
	at   time.Time
	text string
}

// watchRoutes starts a monitor.
func (s *ecmpSite) watchRoutes(t testing.TB) *routeMonitor {
	t.Helper()
	cmd := exec.Command("ip", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = s.routerNS.Start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &routeMonitor{lines: make(chan routeLine, 4096)}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.lines <- routeLine{time.Now(), lines.Text()}
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return m
}

// gone returns how many milliseconds after a time the route led to a next hop no more: FRR replaces the route of several next hops by
// one of the others, and reports that as a line that has the other alone.
func (m *routeMonitor) gone(t testing.TB, since time.Time, hop string) float64 {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case l := <-m.lines:
			if l.at.After(since) && strings.HasPrefix(l.text, ecmpVIP) && strings.Contains(l.text, "via") && !strings.Contains(l.text, hop) {
				return float64(l.at.Sub(since).Microseconds()) / 1000
			}
		case <-limit:
			t.Fatalf("the route leads to %s still", hop)
		}
	}
}
