package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
)

// scriptedGateway answers the n-th status request, from 0, with what status returns. Other requests get an empty object,
// but the first refused of them the status 409.
func scriptedGateway(t *testing.T, refused int32, status func(n int) admin.Status) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "gw.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var asked, posted atomic.Int32
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/connections": // of a backend whose connections are closing
			for _, state := range []string{"time_wait", "reset", map[bool]string{true: "half_closed", false: "time_wait"}[asked.Load() < 3]} {
				_ = json.NewEncoder(w).Encode(l4control.Connection{Service: "web", Backend: "b1", State: state})
			}
		case r.Method == http.MethodGet:
			st := status(int(asked.Add(1)) - 1)
			if r.URL.Query().Has("summary") {
				for i := range st.Gateway.Services {
					st.Gateway.Services[i].Summarize()
				}
			}
			_ = json.NewEncoder(w).Encode(st)
		case posted.Add(1) <= refused:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error": "it is the last backend"}`))
		default:
			_, _ = w.Write([]byte("{}"))
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return socket
}

// statusWith is a service web with the backend b1 in a state, with connections over two addresses.
func statusWith(state config.State, connections uint64) admin.Status {
	st := admin.Status{}
	st.Gateway.Services = []l4control.ServiceStatus{
		{Name: "dns", Backends: []l4control.BackendStatus{{Name: "b1", State: config.StateActive, Connections: 9}}},
		{Name: "web", Backends: []l4control.BackendStatus{
			{Name: "b1", State: state, Connections: connections},
			{Name: "b2", State: config.StateActive, Connections: 77},
			{Name: "b1", State: state, Connections: connections},
		}},
	}
	// a gateway leaves out what is not asked for
	st.Gateway.Services = st.Gateway.Services[1:]
	return st
}

func TestDrainWaitsForTheLastConnection(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status func(n int) admin.Status
		flags  []string
		code   int
		out    string // of standard output or, with an error, the error output
		least  int    // requests
	}{
		{"until it has none", func(n int) admin.Status {
			if n < 2 {
				return statusWith(config.StateDraining, 4)
			}
			return statusWith(config.StateInactive, 0)
		}, []string{"--wait"}, exitOK, "b1 of web is drained\n", 3},
		{
			"until the timeout", func(int) admin.Status { return statusWith(config.StateDraining, 1500) },
			[]string{"--wait", "--timeout", "300ms"},
			exitTimeout, "b1 of web still has 3,000 connections after 300ms; it drains on", 1,
		},
		{"until it takes connections again", func(n int) admin.Status {
			if n == 0 {
				return statusWith(config.StateDraining, 4)
			}
			return statusWith(config.StateFilling, 4)
		}, []string{"--wait"}, exitFailure, "b1 of web does not drain any more: it is filling", 2},
		{"not without --wait", func(int) admin.Status { return statusWith(config.StateDraining, 4) }, nil, exitOK, "b1 of web drains\n", 0},
		{"until none is open: those that are closed are remembered for minutes", func(n int) admin.Status {
			st := statusWith(config.StateDraining, 3)
			for i := range st.Gateway.Services[0].Backends {
				st.Gateway.Services[0].Backends[i].Closing = uint64(min(n+2, 3))
			}
			return st
		}, []string{"--wait"}, exitOK, "b1 of web is drained\n", 3},
		{"as JSON", func(int) admin.Status { return statusWith(config.StateInactive, 0) }, []string{"--wait", "--json"}, exitOK, "{\"schema\":1}\n", 1},
		{"with flags that make sense", nil, []string{"--timeout", "1s"}, exitUsage, "--timeout is for --wait", 0},
		{"with a time", nil, []string{"--wait", "--timeout", "-1s"}, exitUsage, "--timeout -1s is negative", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			socket := scriptedGateway(t, 0, func(n int) admin.Status { asked = n + 1; return tc.status(n) })
			code, out, stderr := run(append([]string{"gateway", "drain", "web", "b1", "--socket", socket}, tc.flags...)...)
			if code != tc.code || code == exitOK && out != tc.out || code != exitOK && !strings.Contains(stderr, tc.out) || asked < tc.least {
				t.Errorf("code %d, want %d; %q and %q, want %q; %d requests", code, tc.code, out, stderr, tc.out, asked)
			}
			if progress := "b1 of web: "; strings.Contains(stderr, progress) != (asked > 0 && !strings.Contains(tc.name, "JSON")) {
				t.Errorf("progress on standard error: %q", stderr)
			}
		})
	}
}

func TestAWaitEndsWithTheCommand(t *testing.T) {
	socket := scriptedGateway(t, 0, func(int) admin.Status { return statusWith(config.StateDraining, 4) })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out, stderr bytes.Buffer
	code := execute(ctx, []string{"gateway", "drain", "web", "b1", "--wait", "--socket", socket}, &console{out: &out, err: &stderr})
	if code != exitFailure || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("code %d, %q", code, stderr.String())
	}
}

func TestTheLastBackendIsNotDrainedWithoutForce(t *testing.T) {
	socket := scriptedGateway(t, 2, nil)
	for _, args := range [][]string{{"drain", "web", "b1"}, {"weight", "web", "b1", "0"}} {
		if _, out, problem := tell(socket, exitFailure, args...); problem != "" || !strings.Contains(out, "it is the last backend (--force does it)") {
			t.Errorf("%s %q", problem, out)
		}
	}
}

func TestTheSummaryHasALineForEachService(t *testing.T) {
	backend := func(n uint64, change func(*l4control.BackendStatus)) l4control.BackendStatus {
		b := l4control.BackendStatus{Healthy: true, State: config.StateActive, Weight: 1, Connections: n, Opened: 2 * n, ToPackets: 3 * n, FromPackets: 4 * n}
		if change != nil {
			change(&b)
		}
		return b
	}
	var st admin.Status
	st.Gateway.Services = []l4control.ServiceStatus{
		{Name: "web", Protocol: "tcp", Dropped: map[string]uint64{"a": 1, "b": 2}, Backends: []l4control.BackendStatus{
			backend(100, nil),
			backend(1000, func(b *l4control.BackendStatus) { b.Healthy = false }),
			backend(1, func(b *l4control.BackendStatus) { b.Ejected = true }),
			backend(1, func(b *l4control.BackendStatus) { b.State = config.StateDraining }),
			backend(1, func(b *l4control.BackendStatus) { b.Weight = 0 }),
			backend(1, func(b *l4control.BackendStatus) { b.State = config.StateFilling }),
			backend(1, func(b *l4control.BackendStatus) { b.Removed = true }),
		}},
		{Name: "dns", Protocol: "udp", Backends: []l4control.BackendStatus{backend(5, nil)}},
	}
	socket := scriptedGateway(t, 0, func(int) admin.Status { return st })
	code, out, stderr := run("gateway", "status", "--summary", "--socket", socket)
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"service protocol address up conns opened to backends from backends dropped",
		"web tcp 2/6 1,105 2,210 3,315 4,420 3",
		"dns udp 1/1 5 10 15 20 0",
		"total 2 services 3/7 1,110 2,220 3,330 4,440 3",
	}
	if code != exitOK || stderr != "" || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("code %d, %s\n%s", code, stderr, out)
	}
}

// watched runs status --watch until n requests came, and returns what it printed.
func watched(t *testing.T, c *console, n int, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := scriptedGateway(t, 0, func(i int) admin.Status {
		if i == n {
			cancel()
		}
		return statusWith(config.StateActive, uint64(1000+i))
	})
	var out, stderr bytes.Buffer
	c.out, c.err = &out, &stderr
	if code := execute(ctx, append([]string{"gateway", "status", "--watch=100ms", "--socket", socket}, flags...), c); code != exitOK || stderr.Len() > 0 {
		t.Errorf("code %d, %q", code, stderr.String())
	}
	return out.String()
}

func TestWatchRepeatsTheStatusUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	plain := watched(t, &console{}, 3, "--summary")
	if blocks := strings.Split(plain, "\n\n"); len(blocks) != 3 || strings.Contains(plain, "\x1b") || !strings.Contains(blocks[2], "2,081") {
		t.Errorf("%d blocks: %q", len(blocks), plain)
	}
	screen := watched(t, &console{width: 80, height: 24}, 3, "--summary")
	if strings.Count(screen, "\x1b[2J") != 1 || strings.Count(screen, "\x1b[H") != 3 || strings.Count(screen, "\x1b[J") != 3 || strings.Contains(strings.ReplaceAll(screen, "\x1b[K\n", ""), "\n") {
		t.Errorf("%q", screen)
	}
	for line := range strings.Lines(watched(t, &console{width: 80}, 2, "--json")) {
		var st admin.Status
		decode(t, line, &st)
	}
	if low := watched(t, &console{width: 80, height: 4}, 1); strings.Count(low, "\n") != 3 || !strings.Contains(low, " more lines") {
		t.Errorf("%d lines on a terminal of 4: %q", strings.Count(low, "\n"), low)
	}
}

func TestWatchRefusesIntervalsThatItCannotKeep(t *testing.T) {
	socket := scriptedGateway(t, 0, func(int) admin.Status { return statusWith(config.StateActive, 1) })
	for args, want := range map[string]string{
		"--watch 5s": "an interval follows with an equals sign: --watch=5s", "--watch=1ms": "say 100ms or more", "--watch=-1s": "say 100ms or more",
	} {
		if code, _, stderr := run(append([]string{"gateway", "status", "--socket", socket}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %q", args, code, stderr)
		}
	}
}
