package main

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/webpeer"
)

// Every kind of row gives figures without errors. Speed is not looked at.
func TestGatewayRowsRun(t *testing.T) {
	e := testEnv(t)
	b, err := openGateway(e)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plan := harness.Plan{Rounds: 1, Timing: harness.Timing{Warmup: 50 * time.Millisecond, Window: 400 * time.Millisecond}}
	wanted := map[string][]string{
		"HTTP/1.1, 128 B":                                           {ours, webNginx},
		"a TLS 1.3 handshake for each request":                      {ours},
		"a TLS 1.3 handshake with RSA-2048 for each request":        {ours},
		"HTTP/2 over TLS 1.3, 128 B":                                {ours},
		"HTTP/2 over TLS 1.3, 128 B, by h2load":                     {webGo},
		"WebSocket echo of 64 B":                                    {ours},
		"gRPC, unary":                                               {webGo},
		"HTTP/3, 128 B":                                             {ours},
		"loops: connections stay open":                              {ours + ", 8"},
		"loops: ten requests on each connection":                    {webNginx + ", 8"},
		"idle connections":                                          {ours},
		"HTTP/1.1, 128 B, with the core's receive path":             {webOwnXDP},
		"static file of 4 KiB":                                      {ours, webNginx},
		"cache hit of 4 KiB":                                        {ours, webNginx},
		"gzip of 64 KiB of text":                                    {ours, webNginx + ", level 4"},
		"zstd of 64 KiB of text":                                    {ours},
		"br of 64 KiB of text":                                      {ours},
		"HTTP/1.1, 128 B, with everything configured, nothing used": {ours},
		"HTTP/1.1, 128 B, with an access log":                       {ours, webNginx},
		"inspection of requests, responses of 128 B":                {ours + ", 2000 rules"},
	}
	for _, m := range b.Measures {
		m.Contestants = slices.DeleteFunc(m.Contestants, func(c harness.Contestant) bool { return !slices.Contains(wanted[m.Name], c.Name) })
		delete(wanted, m.Name)
		for _, o := range delivered(t, e, m, plan) {
			for _, f := range o.Failures {
				t.Errorf("%s, %s: %s", m.Name, o.Name, f.Error)
			}
			if o.NotRun != "" {
				t.Logf("%s, %s: not run: %s", m.Name, o.Name, o.NotRun)
			}
			for _, s := range o.Samples {
				alone := strings.HasPrefix(m.Name, "static file")
				if s.Units == 0 || s.Own <= 0 && m.Name != "idle connections" || (s.Counts[harness.BackendConns] == 0) != alone {
					t.Errorf("%s, %s: %v units, %v CPU seconds, counts %v", m.Name, o.Name, s.Units, s.Own, s.Counts)
				}
			}
		}
	}
	for name := range wanted {
		t.Errorf("no row %q", name)
	}
}

// Parts share a CPU only where there are too few, and the peers of a proxy with several loops are where they are with one.
func TestPartsHaveCPUsOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		cpus, loops, peers int
		want               webCPUs
	}{
		{2, 1, 1, webCPUs{[]int{0}, []int{1}, []int{0}}},
		{2, 8, 4, webCPUs{[]int{0}, []int{1, 0}, []int{0}}},
		{4, 1, 1, webCPUs{[]int{0}, []int{1}, []int{2}}},
		{4, 8, 4, webCPUs{[]int{2}, []int{0, 1}, []int{3}}},
		{16, 1, 4, webCPUs{[]int{8, 9, 10, 11}, []int{0}, []int{12, 13, 14, 15}}},
		{16, 8, 4, webCPUs{[]int{8, 9, 10, 11}, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{12, 13, 14, 15}}},
	} {
		cpus := make([]int, c.cpus)
		for i := range cpus {
			cpus[i] = i
		}
		if got := place(cpus, c.loops, c.peers); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d CPUs, %d loops, %d peers: %v, want %v", c.cpus, c.loops, c.peers, got, c.want)
		}
	}
}

// A run whose requests are answered wrongly has no figure: the generator speaks gRPC without HTTP/2.
func TestAGatewayRunWithErrorsFails(t *testing.T) {
	b := &gatewayBench{e: testEnv(t), dir: t.TempDir()}
	w := webRow{name: "wrong", count: "requests", port: webPort, conns: 1, size: 128, op: webpeer.OpGRPC}
	_, err := b.run(context.Background(), harness.Timing{Window: 50 * time.Millisecond}, webProxy{name: webGo}, w)
	if err == nil || !strings.Contains(err.Error(), "the first: status ") {
		t.Errorf("error %v, want that of the generator", err)
	}
}
