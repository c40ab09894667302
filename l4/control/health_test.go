package control

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// checked is a gateway's file with n backends and a health check.
func checked(check string, hosts ...int) string {
	return withBackends("keep", hosts...) + "    health: " + check + "\n"
}

func (w *world) reload(src string) {
	w.t.Helper()
	if err := w.g.Reload(parse(w.t, src)); err != nil {
		w.t.Fatal(err)
	}
}

func TestProbesFollowTheConfiguration(t *testing.T) {
	w := newWorld(t, checked("{interval: 1h}", 11, 12), withBackends("keep", 13))
	want := func(what string, n int) {
		t.Helper()
		if got := w.g.checks.Targets(); got != n {
			t.Errorf("%s: %d probes, want %d", what, got, n)
		}
	}
	want("two backends", 2)
	w.reload(checked("{interval: 1h}", 11, 13))
	want("another second", 2)
	w.setHealth("b13", false)
	w.reload(checked("{interval: 1h, port: 99}", 11, 13))
	want("another port", 2)
	if !w.g.down[2] {
		t.Error("a backend that is down counts as healthy by a change of its check")
	}
	w.reload(withBackends("keep", 13))
	want("none", 0)
	if len(w.g.down) != 0 {
		t.Error("without health checks, backends are down")
	}
	w.connect(host) // b13 is usable at once
}

// The kernel is the oracle: a listener that is closed and opened again, as seen by two services.
func TestAClosedListenerTakesItsBackendsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, strings.Replace(checked("{interval: 20ms, timeout: 20ms}", 11, 12), "198.18.2.12:80", "198.18.2.12:81", 1))
	w.g.checks.Close()
	w.g.opt.Dialer = elsewhere{l.Addr().String()}
	w.g.checks = w.g.newChecker()
	w.g.startChecks()
	status := func(healthy bool) BackendStatus {
		for {
			for _, b := range w.g.Status().Services[0].Backends {
				if b.Name == "b11" && b.Healthy == healthy {
					return b
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.Close()
	st := status(false)
	if len(st.Down) != 1 || st.Down[0].By != "check" || st.Down[0].Cause != "connect: connection refused" || st.Down[0].Since.IsZero() {
		t.Errorf("%+v", st.Down)
	}
	if l, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st = status(true); len(st.Down) != 0 || st.Check == nil || st.Check.Cause != "" {
		t.Errorf("%+v", st)
	}
}

// elsewhere is a Dialer that connects to one address instead of any other.
type elsewhere struct{ address string }

func (e elsewhere) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, e.address)
}
