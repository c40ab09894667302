package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
)

// freePort returns a port of loopback that nothing has.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// scraped reports whether metrics are served at an address.
func scraped(address string) error {
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "some" {
		return fmt.Errorf("%q, %w", text, err)
	}
	return nil
}

// While services finish what they have begun the node is alive and not ready; and after them it serves no metrics.
func TestANodeIsReadyUntilItDrains(t *testing.T) {
	w := new(wires)
	at := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	n, err := Open(Config{
		Loops: 1, OpenDevice: w.open, Devices: []Device{{Name: "m0"}}, Metrics: at,
		Exposition: func(*metrics.Registry) http.Handler { return http.NotFoundHandler() },
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, want string, code int) {
		t.Helper()
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); string(text) != want || resp.StatusCode != code {
			t.Errorf("%s: %d, %q, want %d, %q", path, resp.StatusCode, text, code, want)
		}
	}
	drains, finish := make(chan struct{}), make(chan struct{})
	if err := n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropNoRoute), Shutdown: func() { close(drains); <-finish }, ShutdownLimit: func() time.Duration { return time.Minute }}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	get("/readyz", "ready\n", 200)
	get("/healthz", "ok\n", 200)
	stop()
	<-drains
	get("/readyz", "draining\n", 503)
	get("/healthz", "ok\n", 200)
	close(finish)
	if err := errors.Join(<-done, n.Close()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("it is served after the end")
	}
}

// TestTheAddressOfTheMetricsChangesWhileTheNodeRuns adds one, moves it, also to one that holds the old one, and takes it away. Where
// the new one is taken, the old one stays.
func TestTheAddressOfTheMetricsChangesWhileTheNodeRuns(t *testing.T) {
	w := new(wires)
	n, err := Open(Config{
		Loops: 1, OpenDevice: w.open, Devices: []Device{{Name: "m0"}},
		Exposition: func(*metrics.Registry) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "some") })
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropNoRoute)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	one, two := freePort(t), freePort(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	served := ""
	for _, c := range []struct {
		address, at string // at is where it is served afterwards
		err         error
	}{
		{fmt.Sprintf("127.0.0.1:%d", one), "", nil},
		{taken.Addr().String(), fmt.Sprintf("127.0.0.1:%d", one), unix.EADDRINUSE},
		{fmt.Sprintf("0.0.0.0:%d", one), fmt.Sprintf("127.0.0.1:%d", one), nil},
		{fmt.Sprintf("0.0.0.0:%d", one), fmt.Sprintf("127.0.0.1:%d", one), nil}, // as it is
		{fmt.Sprintf("127.0.0.1:%d", two), "", nil},
		{"", "none", nil},
	} {
		if c.at == "" {
			c.at = c.address
		}
		if err := n.SetMetrics(c.address); !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.address) {
			t.Errorf("%s: %v, want %v", c.address, err, c.err)
		}
		if c.at == "none" {
			break
		}
		if err := scraped(c.at); err != nil {
			t.Errorf("%s: %v", c.address, err)
		}
		if served != "" && served != c.at && scraped(served) == nil {
			t.Errorf("%s: it is still served at %s", c.address, served)
		}
		served = c.at
	}
	if scraped(served) == nil {
		t.Error("it is served, and is to be nowhere")
	}
	if err := n.SetMetrics(fmt.Sprintf("127.0.0.1:%d", two)); err != nil {
		t.Error(err)
	}
	stop()
	if err := errors.Join(<-done, n.Close()); err != nil {
		t.Error(err)
	}
	if scraped(fmt.Sprintf("127.0.0.1:%d", two)) == nil {
		t.Error("it is served after the end")
	}
}
