package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gateway/config"
)

// gatewaySuite compares our gateway at L7 with other proxies, between one generator and one backend.
var gatewaySuite = harness.Suite{
	Name:   "gateway",
	Title:  "The L7 gateway",
	Rounds: 3,
	About: []string{
		"Three network namespaces, client -- proxy -- backend, joined by veth pairs and made anew for every run. The proxy runs on " +
			"CPU 1 with one worker, thread or loop; the generator runs on CPU 0, and so does the backend where there are fewer than four " +
			"CPUs. Of hyperthreads, each has a core of its own. own is the CPU time of the proxy's process, user and system, per operation: the figure to compare. The rate is that " +
			"of the slowest of the three, which is often the generator's CPU. Proxies in Go have as many processors of the runtime " +
			"(GOMAXPROCS) as CPUs, which is Go's own choice.",
		"Generator and backend are the same for all (package webpeer). The generator compares length and content of every response; " +
			"a run with an error has no figure.",
	},
	Open: openGateway,
}

// Contestants of suite gateway beside ours.
const (
	webNginx   = "nginx"
	webHAProxy = "HAProxy"
	webCaddy   = "Caddy"
	webGo      = "ReverseProxy" // of net/http/httputil
	webQUICGo  = "quic-go + ReverseProxy"
	webOwn     = "millrace, package proxy" // without the program around it
	webOwnXDP  = webOwn + ", AF_XDP"
)

// webBackend is where the backend listens.
const webBackend = backendAddr + ":8080"

// gatewayBench is the opened suite.
type gatewayBench struct {
	e        *harness.Env
	dir      string
	millrace harness.Peer
}

func openGateway(e *harness.Env) (*harness.Bench, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("two CPUs are needed, one for the client and one for the proxy")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("network namespaces need root")
	}
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join((webConfig{dir: dir}).writeCert(), (webConfig{dir: dir, rsa: true}).writeCert(), (webConfig{dir: dir}).writeFiles()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b := &gatewayBench{e: e, dir: dir, millrace: e.BuildMillrace()}
	return &harness.Bench{Measures: b.measures(), Close: func() error { return os.RemoveAll(dir) }}, nil
}

// A webProxy is a proxy with a configuration.
type webProxy struct {
	name, absent, version string
	ready                 string // words that it says when it is ready; empty is none
	argv                  []string
	afxdp                 bool // it has the addresses, not the kernel
}

// proxy returns a contestant with its configuration.
func (b *gatewayBench) proxy(name string, c webConfig) webProxy {
	c.dir = b.dir
	p := webProxy{name: name}
	switch name {
	case webNginx:
		b.foreign(&p, c, "nginx", c.nginx(), "-v")
		p.argv = append([]string{"nginx", "-e", c.dir + "/nginx-web.log", "-c"}, p.argv...)
	case webHAProxy:
		b.foreign(&p, c, "haproxy", c.haproxy(), "-v")
		p.argv = append([]string{"haproxy", "-db", "-f"}, p.argv...)
	case webCaddy:
		b.foreign(&p, c, "caddy", c.caddy(), "version")
		p.argv = append([]string{"env", fmt.Sprintf("GOMAXPROCS=%d", c.workers()), "caddy", "run", "--adapter", "caddyfile", "--config"}, p.argv...)
	case ours:
		b.ours(&p, c)
	case webOwnXDP:
		p.afxdp = true
	}
	return p
}

// foreign fills in a program of somebody else: its argv is its configuration.
func (b *gatewayBench) foreign(p *webProxy, c webConfig, program, text, version string) {
	p.absent = missing(program)
	if p.absent != "" && program == "caddy" {
		p.absent = "caddy is not in PATH: go install github.com/caddyserver/caddy/v2/cmd/caddy@latest"
	}
	p.version = strings.TrimPrefix(firstLine(program, version), "nginx version: ")
	file, err := c.write(program, text)
	if err != nil {
		p.absent = err.Error()
	}
	p.argv = []string{file}
}

// ours fills in our gateway.
func (b *gatewayBench) ours(p *webProxy, c webConfig) {
	p.absent = b.millrace.Absent
	file, err := c.write("millrace", c.millrace())
	if err == nil && p.absent == "" {
		_, err = config.Load(file)
	}
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		p.absent = "the configuration is refused: " + line
	}
	p.argv = append(processorsAsCPUs(), b.millrace.Path, "gateway", "-c", file)
	if p.afxdp = c.afxdp; c.afxdp {
		p.ready = "msg=gateway"
	}
}

// processorsAsCPUs is the beginning of a command in Go which has as many processors of the runtime as CPUs, by Go's own choice, and not the two
// of other parts. With more than it has CPUs a thread that the kernel has taken off holds up each collection (docs/design/010).
func processorsAsCPUs() []string { return []string{"env", "-u", "GOMAXPROCS"} }

// libraries are the proxies that role web-proxy plays, by its -as.
var libraries = map[string]string{webGo: "net/http", webQUICGo: "quic-go", webOwn: "millrace", webOwnXDP: "millrace"}

// part is the proxy as a process of a run.
func (b *gatewayBench) part(p webProxy, w webRow, cpus []int, s *site) harness.Part {
	part := harness.Part{Name: "gateway", CPU: cpus[0], Also: cpus[1:], In: s.gateway}
	argv := p.argv
	if len(cpus) > 1 { // the part is bound to the first: its program is bound to all
		argv = append([]string{"taskset", "-c", strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")}, argv...)
	}
	if as := libraries[p.name]; as != "" {
		o := role.WebOptions{Backend: webBackend}
		if p.afxdp {
			o.Front, o.Back = serviceAddr+"/24", backAddr+"/24"
		}
		if w.tls {
			c := webConfig{dir: b.dir, rsa: w.rsa}
			o.Cert, o.Key = c.cert(), c.key()
		}
		part.Argv = append(append(processorsAsCPUs(), b.e.Self, "role", "web-proxy", "-as", as, "-to", w.address()), o.Args()...)
		return part
	}
	ready := []string{"-at", fmt.Sprintf("%s:%d", serviceAddr, webPort)}
	if p.ready != "" { // it accepts no connection from its own namespace
		ready = []string{"-ready", p.ready}
	}
	runner := append([]string{b.e.Self, "role", "run", "-version", p.version}, ready...)
	part.Argv = append(append(runner, "--"), argv...)
	return part
}

// run measures a proxy at a row once.
func (b *gatewayBench) run(ctx context.Context, t harness.Timing, p webProxy, w webRow) (harness.Sample, error) {
	o := w.site
	o.local = !p.afxdp
	return onSite(o, func(s *site) (harness.Sample, error) {
		if err := s.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65535"); err != nil {
			return harness.Sample{}, err
		}
		at := w.cpus()
		backend := harness.Part{Name: "backend", In: s.backend, Argv: []string{b.e.Self, "role", "web-serve", "-to", webBackend}}
		client := harness.Part{Name: "client", In: s.client, Argv: append([]string{b.e.Self, "role"}, w.client(b.dir)...)}
		if w.nginxBackend {
			file, err := webConfig{dir: b.dir}.nginxBackend()
			if err != nil {
				return harness.Sample{}, err
			}
			backend.Argv = []string{b.e.Self, "role", "run", "-at", webBackend, "--", "nginx", "-e", b.dir + "/nginx-backend.log", "-c", file}
		}
		parts := each(backend, at.backends)
		if w.polled {
			for _, p := range []harness.Part{
				{Name: role.FrontDev, CPU: at.proxy[0], In: s.gateway},
				{Name: role.BackDev, CPU: at.proxy[0], In: s.gateway},
				{Name: "client's device", CPU: at.clients[0], In: s.client},
				{Name: "backend's device", CPU: at.backends[0], In: s.backend},
			} {
				dev := devName
				if p.In == s.gateway {
					dev = p.Name
				}
				p.Argv = []string{b.e.Self, "role", "napi", "-dev", dev}
				parts = append(parts, p)
			}
		}
		parts = append(append(parts, b.part(p, w, at.proxy, s)), each(client, at.clients)...)
		win, err := harness.RunParts(ctx, w.timing(t), parts...)
		if err != nil {
			return harness.Sample{}, err
		}
		return w.sample(win)
	})
}
