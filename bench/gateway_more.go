package main

import (
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/bench/webpeer"
)

// http3WebRows have quic-go's client, whose CPU time is above that of the proxies.
var http3WebRows = []webRow{
	{
		name: "HTTP/3, 128 B", unit: "request", count: "requests", peer: webQUICGo, who: []string{ours, webQUICGo, webCaddy}, port: tlsPort,
		tls: true, h3: true, conns: 4, size: 128, web: role.WebOptions{Streams: 16}, gates: []harness.Gate{ownGate(webQUICGo, 0.7)},
	},
	{
		name: "HTTP/3, 1 MiB", unit: "byte", count: "bytes", peer: webQUICGo, who: []string{ours, webQUICGo, webCaddy}, port: tlsPort,
		tls: true, h3: true, conns: 2, size: webpeer.MaxContent, web: role.WebOptions{Streams: 4}, warmup: time.Second,
		gates: []harness.Gate{ownGate(webQUICGo, 0.7)},
	},
}

// routes asks whether a request costs more where there are many routes. All routes have requests, in turn.
func (b *gatewayBench) routes() harness.Measure {
	few, many := ours+", 10", ours+", 10 000"
	m := harness.Measure{
		Name: "routes: 10 and 10 000", Unit: "request", Peer: few,
		Gates: []harness.Gate{gate(many, harness.MetricOwn, few, "<=", 1.2), gate(many, harness.StartMS, webNginx+", 10 000", "<=", 1)},
	}
	for _, name := range []string{ours, webNginx, webHAProxy} {
		for _, n := range []int{10, 10_000} {
			as := name + few[len(ours):]
			if n > 10 {
				as = name + many[len(ours):]
			}
			w := webRow{name: m.Name, count: "requests", port: webPort, conns: 32, size: 128, web: role.WebOptions{Paths: n}}
			m.Contestants = append(m.Contestants, b.contestant(as, name, webConfig{routes: n}, w))
		}
	}
	return m
}

// idleConns is how many connections do nothing after their first request.
const idleConns = 2000

// idle asks what they take. The unit is a connection: own is its CPU time in the window, while it does nothing.
func (b *gatewayBench) idle() (all []harness.Measure) {
	for _, tls := range []bool{false, true} {
		w := webRow{count: "requests", port: webPort, op: webpeer.OpIdle, conns: idleConns, size: 128, idle: true, tls: tls}
		m := harness.Measure{Name: "idle connections", Unit: "connection", Peer: webNginx}
		if tls {
			w.port, m.Name = tlsPort, "idle connections with TLS 1.3"
		}
		for _, name := range allWeb {
			m.Contestants = append(m.Contestants, b.contestant(name, name, webConfig{}, w))
		}
		all = append(all, m)
	}
	return all
}

// userspace is HTTP/1.1 over our stack and the kernel's, with all that the proxy's core does for it and nothing that it does for others:
// threads of the kernel poll the devices, those of the proxy on its core, as a core that serves a NIC would. own is the proxy and its threads.
func (b *gatewayBench) userspace() harness.Measure {
	const overXDP, overKernel = ours + ", AF_XDP", ours + ", kernel"
	w := webRow{
		name: "HTTP/1.1, 128 B, with the core's receive path", unit: "request", count: "requests", port: webPort, conns: 32, size: 128,
		site: siteOptions{sums: true, gro: true, ends: true}, polled: true,
	}
	return harness.Measure{
		Name: w.name, Unit: w.unit, Peer: webNginx,
		Contestants: []harness.Contestant{
			b.contestant(overXDP, ours, webConfig{afxdp: true}, w), b.contestant(overKernel, ours, webConfig{}, w),
			b.contestant(webOwnXDP, webOwnXDP, webConfig{}, w), b.contestant(webOwn, webOwn, webConfig{}, w), b.contestant(webNginx, webNginx, webConfig{}, w),
			b.contestant(webHAProxy, webHAProxy, webConfig{}, w),
		},
		Gates: []harness.Gate{gate(overXDP, harness.MetricOwn, webNginx, "<=", 0.85), gate(webOwnXDP, harness.MetricOwn, webNginx, "<=", 0.85)},
	}
}
