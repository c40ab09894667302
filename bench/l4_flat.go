package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gateway/config"
)

// Sizes of the flatness measures.
const (
	million1    = 1_000_000
	manyService = 10_000
	listFlows   = 1 << 16
)

// flatPair is one question of flatness: the cost of a packet with little and with much of something.
type flatPair struct {
	what         string
	little, much flatCase
}

type flatCase struct {
	name            string
	config          gatewayConfig
	flows, services uint
}

// flat asks whether a packet costs the same whatever the gateway has to know: over veth, by the CPU
// time of the gateway's process, and in memory, by that of engine and handler alone.
func (b *l4Bench) flat() ([]harness.Measure, error) {
	deny, err := writePrefixes(b.dir, million1)
	if err != nil {
		return nil, err
	}
	one, services, listed := usual("afxdp"), usual("afxdp"), million("afxdp")
	services.Services, listed.Deny = manyService, deny
	pairs := []flatPair{
		{"flows", flatCase{"1 flow", million("afxdp"), 1, 1}, flatCase{"1 M flows", million("afxdp"), million1, 1}},
		{"services", flatCase{"1 service, 10 000 flows", one, manyService, 1}, flatCase{"10 000 services, 1 flow each", services, 1, manyService}},
		{"prefixes", flatCase{"no prefixes", million("afxdp"), listFlows, 1}, flatCase{"1 M prefixes", listed, listFlows, 1}},
	}
	var all []harness.Measure
	for _, p := range pairs {
		all = append(all, b.flatOverVeth(p))
	}
	for _, p := range pairs {
		all = append(all, b.flatInMemory(p, "known"))
	}
	return append(all, b.flatInMemory(flatPair{"prefixes, new connections", pairs[2].little, pairs[2].much}, "new")), nil
}

func (b *l4Bench) flatOverVeth(p flatPair) harness.Measure {
	m := harness.Measure{
		Name: "flat over veth: " + p.what, Unit: "packet", Peer: p.little.name,
		Gates: []harness.Gate{gate(p.much.name, harness.MetricOwn, p.little.name, "<=", 1.3)},
	}
	for _, c := range []flatCase{p.little, p.much} {
		c.config.HalfOpen = c.config.Table
		f := b.gatewayOf("flat "+p.what+" "+c.name, c.config)
		f.name = c.name
		m.Contestants = append(m.Contestants, f.contestant(func(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
			w, err := harness.RunParts(ctx, t.Opening(), append(append([]harness.Part{b.sinkPart(s)}, f.part(s)...), b.liveFrames(s, s.streamTo(f, c.flows, c.services)))...)
			if err != nil {
				return harness.Sample{}, err
			}
			return w.Delivered("source", "gateway", "sink")
		}))
	}
	return m
}

// flatInMemory has no gate: it is printed beside those over veth, which have the kernel's part in them.
func (b *l4Bench) flatInMemory(p flatPair, as string) harness.Measure {
	m := harness.Measure{Name: "flat in memory: " + p.what, Unit: "packet", Peer: p.little.name}
	for _, c := range []flatCase{p.little, p.much} {
		if as == "new" {
			c.flows = 1 << 31
		}
		m.Contestants = append(m.Contestants, b.inMemory(c, as))
	}
	return m
}

// inMemory is a contestant without a network.
func (b *l4Bench) inMemory(c flatCase, as string) harness.Contestant {
	if as != "new" {
		c.config.HalfOpen = c.config.Table // nothing answers: all stay half-open
	}
	file, err := c.config.write(b.dir, "memory-"+as+"-"+fileName(c.name))
	if err == nil {
		_, err = config.Load(file)
	}
	out := harness.Contestant{Name: c.name}
	if err != nil {
		out.Absent = err.Error()
		return out
	}
	argv := append([]string{b.e.Self, "role", "handler", "-as", as}, memoryStream(c.flows, c.services).Args()...)
	out.Run = func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		w, err := harness.RunParts(ctx, t, harness.Part{Name: "handler", Argv: append(argv, file), CPU: 1})
		if err != nil {
			return harness.Sample{}, err
		}
		s, end := w.Sample("handler", "packets"), w.Final["handler"].Counts
		s.Own, s.Version = float64(w.Last["handler"].Counts[role.OwnNanos]-w.First["handler"].Counts[role.OwnNanos])/1e9, w.Version["handler"]
		for _, name := range []string{"refused", "rss", "heap"} {
			if n, ok := end[name]; ok {
				s.Counts[name] = n
			}
		}
		if n := s.Counts["refused"]; n > 0 && as == "known" {
			return s, fmt.Errorf("%d packets of open connections were not forwarded", n)
		}
		return s, nil
	}
	return out
}

// memoryStream is the stream that reaches our gateway from clients.
func memoryStream(flows, services uint) role.Stream {
	return role.Stream{MAC: role.MemoryMAC, From: manyClients + ":1024", To: fmt.Sprintf("%s:%d", serviceAddr, udpPort), Flows: flows, Services: services}
}

func fileName(s string) string { return filepath.Base(fmt.Sprintf("%x", s)) }

// memory is what a million connections take.
func (b *l4Bench) memory() ([]harness.Measure, error) {
	c := million("afxdp")
	c.Table = million1
	run := b.inMemory(flatCase{name: "a million connections", config: c, flows: million1, services: 1}, "known")
	return []harness.Measure{{
		Name: "memory", Unit: "packet", Peer: run.Name, Contestants: []harness.Contestant{run},
		Gates: []harness.Gate{gate(run.Name, "rss", "", "<=", 128e6)},
	}}, nil
}
