package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/bench/webpeer"
)

// A webRow is what the generator does in a measure, and who takes part.
type webRow struct {
	name, unit, count string // count is the generator's
	peer              string
	who               []string
	gates             []harness.Gate
	port              int
	tls, rsa          bool // rsa: the certificate has a key of RSA-2048, in place of P-256
	op                string
	conns, size, rate int
	warmup            time.Duration // at least
	web               role.WebOptions
	h3                bool
	idle              bool        // units are connections that do nothing
	loops, peers      int         // CPUs of the proxy, and of generators and backends each; 0 is one
	site              siteOptions // beside who has the addresses
	polled            bool        // threads of the kernel poll all devices, each on the CPU of whom it serves
	nginxBackend      bool        // in the place of ours
	// foreign is a generator of somebody else, in place of ours. The backend counts what it does then, and nothing validates it.
	foreign []string
}

func (w webRow) address() string { return fmt.Sprintf("%s:%d", serviceAddr, w.port) }

// client returns the role of the generator and its flags.
func (w webRow) client(dir string) []string {
	if w.foreign != nil {
		return append([]string{"run", "-any-end", "-ready", "", "--"}, w.foreign...)
	}
	o := w.web
	if w.tls {
		o.Cert = webConfig{dir: dir, rsa: w.rsa}.cert()
	}
	op := w.op
	if op == "" {
		op = webpeer.OpGet
	}
	name := "web-load"
	if w.h3 {
		name = "web-load3"
	}
	return append([]string{
		name, "-to", w.address(), "-op", op, "-conns", fmt.Sprint(w.conns / len(w.cpus().clients)), "-size", fmt.Sprint(w.size), "-rate", fmt.Sprint(w.rate),
	}, o.Args()...)
}

func (w webRow) timing(t harness.Timing) harness.Timing {
	t.Warmup = max(t.Warmup, w.warmup)
	return t
}

// sample turns a run into figures.
func (w webRow) sample(win *harness.Window) (harness.Sample, error) {
	counts := "client"
	if w.foreign != nil {
		counts = "backend"
	}
	s := win.Sample(counts, w.count)
	for i := 1; i < len(w.cpus().clients); i++ { // over a window of its own, some us longer or shorter
		other := win.Sample(nth(counts, i), w.count)
		s.Units += other.Rate() * s.Seconds
	}
	s.Own, s.Version = s.Parts["gateway"], win.Version["gateway"]
	if w.polled {
		s.Own += s.Parts[role.FrontDev] + s.Parts[role.BackDev]
	}
	last := win.Last
	if w.idle {
		s.Units = float64(w.conns)
		rss := last["gateway"].Counts
		s.Counts[harness.RSSPerConn] = (rss["rss"] - min(rss["rss"], rss[role.RSSAtStart])) / uint64(w.conns)
	}
	if s.Units == 0 {
		return s, errors.New("no request was answered")
	}
	for _, name := range []string{
		harness.P50, harness.P99, harness.P999, harness.SliceP99, harness.SliceP999, harness.Late, harness.CodedShare, "due",
	} {
		if n := last["client"].Counts[name]; n > 0 {
			s.Counts[name] = n
		}
	}
	for _, name := range []string{"rss", harness.StartMS} {
		if n := last["gateway"].Counts[name]; n > 0 {
			s.Counts[name] = n
		}
	}
	var conns, requests uint64
	for i := range w.cpus().backends {
		c := last[nth("backend", i)].Counts
		conns, requests = conns+c[harness.BackendConns], requests+c["requests"]
	}
	if conns > 0 {
		s.Counts[harness.BackendConns], s.Counts[harness.Reuse] = conns, requests/conns
	}
	if w.loops > 0 {
		s.Counts[harness.ProxyBusy] = uint64(math.Round(100 * s.Own / (s.Seconds * float64(len(w.cpus().proxy)))))
	}
	return s, nil
}

// The proxies of most rows.
var (
	allWeb = []string{ours, webNginx, webHAProxy, webGo, webCaddy}
)

// ownGate is a gate on the CPU time of the proxy per operation.
func ownGate(against string, bound float64) harness.Gate {
	return gate(ours, harness.MetricOwn, against, "<=", bound)
}

// webRows are the measures that differ in what the generator does alone.
var webRows = []webRow{
	{
		name: "HTTP/1.1, 128 B", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort, conns: 32, size: 128,
		gates: []harness.Gate{ownGate(webNginx, 1.1)},
	},
	{
		name: "HTTP/1.1 over TLS 1.3, 128 B", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: tlsPort, tls: true,
		conns: 32, size: 128, gates: []harness.Gate{ownGate(webNginx, 1.1)},
	},
	{
		name: "a TCP connection for each request", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort,
		conns: 32, size: 128, web: role.WebOptions{PerConn: 1}, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "a TLS 1.3 handshake for each request", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: tlsPort,
		tls: true, conns: 32, size: 128, web: role.WebOptions{PerConn: 1}, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "a TLS 1.3 handshake with RSA-2048 for each request", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: tlsPort,
		tls: true, rsa: true, conns: 32, size: 128, web: role.WebOptions{PerConn: 1}, gates: []harness.Gate{ownGate(webNginx, 0.6)},
	},
	{
		name: "HTTP/2 over TLS 1.3, 128 B", unit: "request", count: "requests", peer: webHAProxy, who: allWeb, port: tlsPort, tls: true,
		conns: 4, size: 128, web: role.WebOptions{HTTP2: true, Streams: 32}, gates: []harness.Gate{ownGate(webHAProxy, 1.3)},
	},
	{
		name: "HTTP/2 without TLS, 128 B", unit: "request", count: "requests", peer: webHAProxy, who: allWeb, port: h2cPort,
		conns: 4, size: 128, web: role.WebOptions{HTTP2: true, Streams: 32}, gates: []harness.Gate{ownGate(webHAProxy, 1.3)},
	},
	{
		name: "HTTP/1.1, 1 MiB", unit: "byte", count: "bytes", peer: webNginx, who: allWeb, port: webPort, conns: 8, size: webpeer.MaxContent,
		gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "HTTP/1.1 over TLS 1.3, 1 MiB", unit: "byte", count: "bytes", peer: webNginx, who: allWeb, port: tlsPort, tls: true,
		conns: 8, size: webpeer.MaxContent, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "HTTP/2 over TLS 1.3, 1 MiB", unit: "byte", count: "bytes", peer: webNginx, who: allWeb, port: tlsPort, tls: true,
		conns: 2, size: webpeer.MaxContent, web: role.WebOptions{HTTP2: true, Streams: 4}, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "WebSocket echo of 64 B", unit: "message", count: "requests", peer: webNginx, who: allWeb, port: webPort, op: webpeer.OpWebSocket,
		conns: 32, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "gRPC, unary", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: h2cPort, op: webpeer.OpGRPC,
		conns: 4, web: role.WebOptions{HTTP2: true, Streams: 32}, gates: []harness.Gate{ownGate(webNginx, 1)},
	},
	{
		name: "latency at half of the highest rate", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort,
		conns: 64, size: 128, rate: 50, web: role.WebOptions{Saturate: time.Second}, warmup: 500 * time.Millisecond,
		gates: []harness.Gate{
			gate(ours, harness.P50, webNginx, "<=", 1.2), gate(ours, harness.P99, webNginx, "<=", 1), gate(ours, harness.P999, webNginx, "<=", 1.2),
			gate(ours, harness.SliceP99, webNginx, "<=", 1.2), gate(ours, harness.SliceP999, webNginx, "<=", 1.2),
		},
	},
	{
		name: "latency with TLS 1.3 handshakes at half of the highest rate", unit: "request", count: "requests", peer: webNginx, who: allWeb,
		port: tlsPort, tls: true, conns: 64, size: 128, rate: 50, web: role.WebOptions{PerConn: 1, Saturate: time.Second},
		warmup: 500 * time.Millisecond, gates: []harness.Gate{gate(ours, harness.P99, webNginx, "<=", 1)},
	},
	{
		name: "latency with TLS 1.3 handshakes with RSA-2048 at half of the highest rate", unit: "request", count: "requests", peer: webNginx,
		who: allWeb, port: tlsPort, tls: true, rsa: true, conns: 64, size: 128, rate: 50,
		web: role.WebOptions{PerConn: 1, Saturate: time.Second}, warmup: 500 * time.Millisecond,
		gates: []harness.Gate{gate(ours, harness.P99, webNginx, "<=", 1)},
	},
	{
		name: "latency at 20 000 requests a second", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort, conns: 64,
		size: 128, rate: 20_000, warmup: 500 * time.Millisecond, gates: []harness.Gate{
			gate(ours, harness.P50, webNginx, "<=", 1.2), gate(ours, harness.SliceP99, webNginx, "<=", 1.2),
			gate(ours, harness.SliceP999, webNginx, "<=", 1.2),
		},
	},
	{
		name: "HTTP/1.1, 128 B, by wrk", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort,
		foreign: []string{"wrk", "-t1", "-c32", "-d1h", "http://" + serviceAddr + webpeer.BytesPath(128)},
		gates:   []harness.Gate{ownGate(webNginx, 1.1)},
	},
	{
		name: "HTTP/1.1, 128 B, nginx as the backend", unit: "request", count: "requests", peer: webNginx, who: allWeb, port: webPort, conns: 32,
		size: 128, nginxBackend: true, gates: []harness.Gate{ownGate(webNginx, 1.1)},
	},
	{
		name: "HTTP/2 over TLS 1.3, 128 B, by h2load", unit: "request", count: "requests", peer: webHAProxy, who: allWeb, tls: true, port: tlsPort,
		foreign: []string{"h2load", "-t1", "-c4", "-m32", "-D3600", "https://" + serviceAddr + webpeer.BytesPath(128)},
		gates:   []harness.Gate{ownGate(webHAProxy, 1.3)},
	},
}

// measures are all rows.
func (b *gatewayBench) measures() (all []harness.Measure) {
	for _, w := range append(webRows, http3WebRows...) {
		m := harness.Measure{Name: w.name, Unit: w.unit, Peer: w.peer, Gates: w.gates}
		for _, name := range w.who {
			m.Contestants = append(m.Contestants, b.contestant(name, name, webConfig{http3: w.h3, rsa: w.rsa}, w))
		}
		all = append(all, m)
	}
	all = append(all, b.loops()...)
	all = append(all, b.routes())
	all = append(all, b.inspection()...)
	all = append(all, b.idle()...)
	all = append(all, b.product()...)
	return append(all, b.userspace())
}

// contestant is a proxy at a row, by the name as which the table has it.
func (b *gatewayBench) contestant(as, name string, c webConfig, w webRow) harness.Contestant {
	p := b.proxy(name, c)
	if w.foreign != nil && p.absent == "" {
		p.absent = missing(w.foreign[0])
	}
	if w.nginxBackend && p.absent == "" {
		p.absent = missing("nginx")
	}
	return harness.Contestant{Name: as, Absent: p.absent, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		return b.run(ctx, t, p, w)
	}}
}
