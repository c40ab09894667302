package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// Contestants of the row on HTTP.
const (
	httpRulesCPU  = "rules on HTTP"
	httpRulesCUDA = "rules on HTTP, cuda"
)

// syntheticRules is the number of rules that stand for ET-open's where it is not there: about as many as of it load.
const syntheticRules = 15_000

// inspectedHTTP asks what the rules of a folder cost a gateway that forwards connections of HTTP: MILLRACE_RULES names it, and the row
// in the tables is of ET-open. Without, rules of the same shape stand for them.
func (b *l4Bench) inspectedHTTP() (harness.Measure, error) {
	rules, n, err := b.httpRules()
	if err != nil {
		return harness.Measure{}, err
	}
	m := harness.Measure{
		Name: fmt.Sprintf("HTTP in wire-sized packets, 32 connections, responses of 16 KiB, %s", n), Unit: "byte", Peer: notInspected,
		Gates: []harness.Gate{gate(httpRulesCUDA, harness.MetricOwn, httpRulesCPU, "<=", 0.8)},
	}
	none, cpu, cuda := usual("afxdp"), usual("afxdp"), usual("afxdp")
	none.Apart = true
	cpu.Rules, cuda.Rules, cpu.Home, cuda.Home, cuda.Engine = rules, rules, true, true, "cuda"
	contestants := []forwarder{b.gatewayOf(notInspected, none), b.gatewayOf(httpRulesCPU, cpu), b.gatewayOf(httpRulesCUDA, cuda)}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		contestants[2].absent = "no GPU"
	}
	for _, f := range contestants {
		f.options = siteOptions{wire: true}
		m.Contestants = append(m.Contestants, f.contestant(b.runHTTP))
	}
	return m, nil
}

// httpRules returns a file of rules, and what they are.
func (b *l4Bench) httpRules() (path, what string, err error) {
	path = filepath.Join(b.dir, "http.rules")
	if folder := os.Getenv("MILLRACE_RULES"); folder != "" {
		n, err := role.CollectRules(path, folder, false)
		if err == nil && n == 0 {
			err = errors.New("the folder MILLRACE_RULES has no rule that loads")
		}
		return path, fmt.Sprintf("%d rules of MILLRACE_RULES", n), err
	}
	text := strings.ReplaceAll(requestRules(syntheticRules), "drop http", "alert http")
	return path, fmt.Sprintf("%d synthetic rules", syntheticRules), os.WriteFile(path, []byte(text), 0o600)
}

// runHTTP has the client on CPU 0, and the backend with the gateway on CPU 1.
func (b *l4Bench) runHTTP(ctx context.Context, t harness.Timing, s *site, f forwarder) (harness.Sample, error) {
	t.Warmup = max(t.Warmup, t.Window/2) // windows have opened
	backend := harness.Part{
		Name: "backend", CPU: 1, In: s.backend, Argv: []string{b.e.Self, "role", "web-serve", "-to", backendAddr + ":8080"},
	}
	client := harness.Part{Name: "client", CPU: 0, In: s.client, Argv: append([]string{
		b.e.Self, "role", "web-load", "-to", serviceAddr + ":80", "-op", "get", "-conns", "32", "-size", fmt.Sprint(16 << 10),
	}, role.WebOptions{Streams: 1}.Args()...)}
	w, err := harness.RunParts(ctx, t, append(append([]harness.Part{backend}, f.part(s)...), client)...)
	if err != nil {
		return harness.Sample{}, err
	}
	sample := w.Sample("client", "bytes")
	sample.Own, sample.Version = sample.Parts["gateway"], w.Version["gateway"]
	if sample.Units == 0 {
		return sample, errors.New("no byte came back")
	}
	return sample, nil
}
