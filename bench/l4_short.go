package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// Short connections: a second's worth of them, and the SNAT ports that serve them, which are all in use after some 3 s.
const (
	shortRate  = 20_000
	shortPorts = 65535 - 1024 + 1
	slowRate   = 2000 // with fewer than manyCPUs, where all parts share two
	manyCPUs   = 4
)

// short asks whether connections of one request open and close through one SNAT address, to one backend that closes
// them first, as fast as without NAT: each leaves its port in TIME-WAIT at the backend, so that from then on every SYN
// reuses one.
func (b *l4Bench) short() ([]harness.Measure, error) {
	rate := slowRate
	if runtime.NumCPU() >= manyCPUs {
		rate = shortRate
	}
	m := harness.Measure{
		Name: "short connections", Unit: "connection", Peer: routing,
		Gates: []harness.Gate{gate(ours, "failed", "", "<=", 0), gate(ours, harness.P99, routing, "<=", 3)},
	}
	c := usual("afxdp")
	c.Ports = fmt.Sprintf("1024-%d", 1023+shortPorts*rate/shortRate)
	for _, f := range []forwarder{b.gatewayOf(ours, c), b.netfilter(nftSNAT, snatRules, false), b.netfilter(routing, "", false)} {
		m.Contestants = append(m.Contestants, f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
			return b.runShort(ctx, t, s, f, rate)
		}))
	}
	return []harness.Measure{m}, nil
}

// runShort has the client on CPU 0, the gateway on CPU 1 and the server on CPU 2, or with the client.
func (b *l4Bench) runShort(ctx context.Context, t harness.Timing, s *site, f forwarder, rate int) (harness.Sample, error) {
	t = t.Opening() // all ports are in use before the window
	t.Warmup = max(t.Warmup, 4*time.Second)
	if err := s.client.Sysctl("net.ipv4.ip_local_port_range", "1024 65535"); err != nil {
		return harness.Sample{}, err
	}
	port, serverCPU := tcpPort, 0
	if f.to != "" {
		port = servePort
	}
	if runtime.NumCPU() >= manyCPUs {
		serverCPU = 2
	}
	argvOf := func(name string, more ...string) []string { return append([]string{b.e.Self, "role", name}, more...) }
	server := harness.Part{Name: "server", CPU: serverCPU, In: s.backend, Argv: argvOf("serve", "-to", fmt.Sprintf("%s:%d", backendAddr, servePort))}
	client := harness.Part{Name: "client", CPU: 0, In: s.client, Argv: argvOf("connect", "-server-first",
		"-to", fmt.Sprintf("%s:%d", cmp.Or(f.to, serviceAddr), port), "-rate", fmt.Sprint(rate))}
	w, err := harness.RunParts(ctx, t, append(append([]harness.Part{server}, f.part(s)...), client)...)
	if err != nil {
		return harness.Sample{}, err
	}
	sample, last := connectionSample(w), w.Last["client"].Counts
	for _, name := range []string{harness.P50, harness.P99} {
		if v, ok := last[name]; ok {
			sample.Counts[name] = v
		}
	}
	return sample, nil
}
