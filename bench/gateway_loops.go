package main

import (
	"fmt"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// In measures of loops there are several generators and backends, so that they are not what decides.
const (
	manyLoops = 8
	loopPeers = 4  // a request costs the proxy about as much as generator and backend together
	loopConns = 64 // connections at a time, for each loop
)

// loops asks what several loops do that one does, and how they share connections to the backend. own at several loops, beside that
// at one, is the speed-up of a proxy whose CPUs are never idle, also where the generators cannot keep them busy.
func (b *gatewayBench) loops() []harness.Measure {
	one, two, eight := ours+", 1", ours+", 2", fmt.Sprintf("%s, %d", ours, manyLoops)
	scaling := []harness.Gate{gate(two, harness.MetricOwn, one, "<=", 1.11), gate(eight, harness.MetricOwn, one, "<=", 1.33)}
	if len(harness.CPUs()) >= 2*manyLoops {
		scaling = append(scaling, gate(two, harness.MetricRate, one, ">=", 1.8), gate(eight, harness.MetricRate, one, ">=", 6))
	}
	var reuse []harness.Gate
	for _, n := range []string{", 1", ", 2", fmt.Sprintf(", %d", manyLoops)} {
		reuse = append(reuse, gate(ours+n, harness.Reuse, webNginx+n, ">=", 1))
	}
	return []harness.Measure{
		b.ofLoops("loops: connections stay open", 0, scaling), b.ofLoops("loops: ten requests on each connection", 10, reuse),
	}
}

// ofLoops is a measure of proxies with several loops, workers or threads.
func (b *gatewayBench) ofLoops(name string, perConn int, gates []harness.Gate) harness.Measure {
	m := harness.Measure{Name: name, Unit: "request", Peer: webNginx + ", 1", Gates: gates}
	for _, proxy := range []string{ours, webNginx, webHAProxy} {
		for _, n := range []int{1, 2, manyLoops} {
			w := webRow{
				name: name, count: "requests", port: webPort, conns: n * loopConns, size: 128, web: role.WebOptions{PerConn: perConn},
				loops: n, peers: loopPeers,
			}
			m.Contestants = append(m.Contestants, b.contestant(fmt.Sprintf("%s, %d", proxy, n), proxy, webConfig{loops: n}, w))
		}
	}
	return m
}

// webCPUs are the CPUs of a run. Generators and backends have one each.
type webCPUs struct{ clients, proxy, backends []int }

// cpus returns those of a row.
func (w webRow) cpus() webCPUs { return place(harness.CPUs(), max(w.loops, 1), max(w.peers, 1)) }

// place shares CPUs out, which are in the order of harness.CPUs. With one generator all parts have cores of their own. With several the
// proxy has at most the first half of the CPUs and the peers are where they are with any number of loops, so that these compare.
func place(cpus []int, loops, peers int) webCPUs {
	half, quarter := len(cpus)/2, len(cpus)/4
	switch {
	case len(cpus) < manyCPUs:
		others := append(append([]int(nil), cpus[1:]...), cpus[0])
		return webCPUs{cpus[:1], others[:min(loops, len(others))], cpus[:1]}
	case peers == 1:
		others := append([]int{cpus[1]}, cpus[3:]...)
		return webCPUs{cpus[:1], others[:min(loops, len(others))], cpus[2:3]}
	}
	peers = min(peers, quarter)
	return webCPUs{cpus[half : half+peers], cpus[:min(loops, half)], cpus[half+quarter : half+quarter+peers]}
}

// each is a part on each of the CPUs.
func each(p harness.Part, cpus []int) (parts []harness.Part) {
	name := p.Name
	for i, cpu := range cpus {
		p.Name, p.CPU = nth(name, i), cpu
		parts = append(parts, p)
	}
	return parts
}

// nth names part i of several.
func nth(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s %d", name, i+1)
}
