package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/cmd/prom"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/daemon"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// cpuOf returns the processor time that f takes in this process, in milliseconds: what else the machine does counts little.
func cpuOf(f func()) float64 {
	used := func() float64 {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
	}
	before := used()
	f()
	return used() - before
}

// manyPools is a configuration with pools of backends, each with some.
func manyPools(pools, backends int, metrics, socket, listen, page string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "admin: {socket: %s, listen: %q}\nmetrics: {listen: %q}\nlisteners: [{name: l, address: %q, protocol: HTTP}]\nroutes:\n", socket, page, metrics, listen)
	for i := range pools {
		fmt.Fprintf(&s, "- {name: r%d, rules: [{matches: [{path: {value: /%[1]d}}], backend_refs: [{name: p%[1]d}]}]}\n", i)
	}
	s.WriteString("pools:\n")
	for i := range pools {
		fmt.Fprintf(&s, "- name: p%d\n  backends:\n", i)
		for k := range backends {
			fmt.Fprintf(&s, "  - {name: b%d, address: '127.0.%d.%d:1'}\n", k, k>>8, k&255)
		}
	}
	return s.String()
}

// A scrape, the status as text and the dashboard of a gateway with 10 000 backends stay small, whichever way they are divided over
// pools.
func TestAScrapeOfManyBackendsIsSmall(t *testing.T) {
	for _, c := range []struct{ pools, backends int }{{3, 3334}, {100, 100}, {1000, 10}} {
		t.Run(fmt.Sprintf("%d pools", c.pools), func(t *testing.T) {
			dir := t.TempDir()
			var ports []string
			for range 3 {
				ports = append(ports, testport.Hold(t).String())
			}
			file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
			runDaemon(t, file, manyPools(c.pools, c.backends, ports[0], socket, ports[1], ports[2]), daemon.Options{Admin: true})
			scrape := func(url string) (text []byte) {
				resp, err := http.Get("http://" + url)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if text, err = io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%d, %v", resp.StatusCode, err)
				}
				return text
			}
			var text []byte
			took := cpuOf(func() { text = scrape(ports[0] + "/metrics") })
			t.Logf("a scrape: %d bytes, %.0f ms of processor time", len(text), took)
			if len(text) > 1_000_000 || !bytes.Contains(text, []byte("millrace_pool_backend_up{")) {
				t.Errorf("a scrape has %d bytes", len(text))
			}
			var code int
			var out, errs string
			took = cpuOf(func() { code, out, errs = run("gateway", "status", "--socket", socket) })
			lines := strings.Count(out, "\n")
			t.Logf("status: %d lines, %d bytes, %.0f ms of processor time", lines, len(out), took)
			if code != exitOK || lines > 50 || len(out) > 5_000 {
				t.Errorf("status: code %d, %d lines, %d bytes, %s", code, lines, len(out), errs)
			}
			took = cpuOf(func() { code, out, errs = run("gateway", "status", "--socket", socket, "--json") })
			t.Logf("status --json: %d bytes, %.0f ms of processor time", len(out), took)
			if code != exitOK || len(out) > 2_000_000 || strings.Count(out, "\n") != 1 {
				t.Errorf("status --json: code %d, %d bytes in %d lines, %s", code, len(out), strings.Count(out, "\n"), errs)
			}
			var st admin.Status
			decode(t, out, &st)
			if n := len(st.Listeners.Pools); n != c.pools || len(st.Listeners.Pools[n-1].Backends) != c.backends {
				t.Errorf("status --json has %d pools", n)
			}
			if code, out, errs = run("gateway", "status", "--socket", socket, "--json", "--schema", "1"); code != exitOK || len(out) > 3_000_000 || strings.Count(out, `"ejected":false`) != c.pools*c.backends {
				t.Errorf("status --json --schema 1: code %d, %d bytes, %s", code, len(out), errs)
			}
			took = cpuOf(func() { code, out, errs = run("gateway", "status", "--socket", socket, "--json", "--summary") })
			t.Logf("status --json --summary: %d bytes, %.0f ms of processor time", len(out), took)
			st = admin.Status{}
			decode(t, out, &st)
			if last := st.Listeners.Pools[c.pools-1]; len(out) > 500_000 || len(last.Backends) != 0 || last.Summary == nil || last.Summary.Backends != c.backends || last.Summary.Up != c.backends {
				t.Errorf("status --json --summary: %d bytes, %+v", len(out), last)
			}
			if code, out, errs = run("gateway", "status", "--socket", socket, "--summary"); code != exitOK || !strings.Contains(out, fmt.Sprintf("%d/%[1]d", c.backends)) {
				t.Errorf("status --summary: code %d, %s%.300s", code, errs, out)
			}
			took = cpuOf(func() { text = scrape(ports[2] + "/data.json") })
			t.Logf("the dashboard: %d bytes, %.0f ms of processor time", len(text), took)
			if len(text) > 200_000 {
				t.Errorf("the dashboard's data has %d bytes", len(text))
			}
			all := scrape(ports[0] + "/metrics?all=1")
			if n := bytes.Count(all, []byte("millrace_pool_backend_up{")); n != c.pools*c.backends {
				t.Errorf("all=1 lists %d backends", n)
			}
		})
	}
}

// runDaemon runs a gateway with a file, until the end of the test.
func runDaemon(t *testing.T, file, src string, o daemon.Options) {
	t.Helper()
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Log, o.Metrics = slog.New(slog.DiscardHandler), prom.Handler
	d, err := daemon.Open(file, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = d.Close()
	})
}
