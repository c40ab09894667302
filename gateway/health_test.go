package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is a Dialer whose n-th call answers what the string says: '+' connects, '-' is refused,
// '.' hangs until the timeout.
type script struct {
	mu    sync.Mutex
	calls string
	at    []time.Time
}

func (s *script) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	what := byte('+')
	if len(s.calls) > 0 {
		what, s.calls = s.calls[0], s.calls[1:]
	}
	s.mu.Unlock()
	switch what {
	case '-':
		return nil, errors.New("refused")
	case '.':
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a, b := net.Pipe()
	b.Close()
	return a, nil
}

func TestHealthRisesAndFalls(t *testing.T) {
	for _, c := range []struct{ name, calls, want string }{
		{"all is well", "++++++++", ""},
		{"two failures are not three", "--+--+--+", ""},
		{"three in a row", "+---", "D"},
		{"hanging counts as failing", "+...", "D"},
		{"back after two", "---++", "DU"},
		{"one success is not enough", "---+-+-+-", "D"},
		{"down, up and down", "---++---", "DUD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				dial, got := &script{calls: c.calls}, ""
				p := &probe{
					health: *newHealth(), dial: dial, healthy: true,
					changed: func(_ context.Context, healthy bool, cause error) {
						got += map[bool]string{true: "U", false: "D"}[healthy]
						if healthy == (cause != nil) {
							t.Errorf("healthy %v because of %v", healthy, cause)
						}
					},
				}
				go p.loop(ctx)
				for n := 0; n < len(c.calls); {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
					dial.mu.Lock()
					n = len(dial.at)
					dial.mu.Unlock()
				}
				time.Sleep(1200 * time.Millisecond) // the last one may hang
				synctest.Wait()
				if got != c.want {
					t.Errorf("changes %q, want %q", got, c.want)
				}
				stop()
				synctest.Wait()
			})
		})
	}
}

func TestProbesKeepTheirIntervalWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		dial := &script{calls: "...................."}
		p := &probe{health: *newHealth(), dial: dial, healthy: true, changed: func(context.Context, bool, error) {}}
		go p.loop(ctx)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		differ := false
		for i := 1; i < len(dial.at); i++ {
			d := dial.at[i].Sub(dial.at[i-1])
			if d < 1800*time.Millisecond || d > 2200*time.Millisecond {
				t.Errorf("%v between two probes, want 2 s +- 10 %%", d)
			}
			differ = differ || d != 2*time.Second
		}
		if !differ || len(dial.at) < 25 {
			t.Errorf("%d probes, no two of them differ: %v", len(dial.at), !differ)
		}
	})
}

// The kernel is the oracle: a listener that is closed and opened again.
func TestAClosedListenerIsUnhealthyUntilItIsBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan bool, 10)
	p := &probe{
		health: Health{Interval: 10 * time.Millisecond, Timeout: time.Second, Rise: 2, Fall: 3},
		target: l.Addr().String(), dial: newDialer("lo"), healthy: true,
		changed: func(_ context.Context, healthy bool, _ error) { changes <- healthy },
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go p.loop(ctx)
	l.Close()
	if <-changes {
		t.Error("healthy without a listener")
	}
	if l, err = net.Listen("tcp", p.target); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !<-changes {
		t.Error("unhealthy with a listener")
	}
}

// A probe that a reload replaced must not be heard any more.
func TestAReplacedProbeIsNotHeard(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11)+"    health: {interval: 1h}\n")
	g := w.g
	h := g.cfg.Services[0].Health
	for b := range g.configured(g.cfg) {
		p := g.probe(0, b, h)
		ctx, stop := context.WithCancel(context.Background())
		p.changed(ctx, false, nil)
		if !g.down[0] {
			t.Error("not heard")
		}
		stop()
		p.changed(ctx, true, nil)
		if !g.down[0] {
			t.Error("heard after its end")
		}
	}
}

func TestProbesFollowTheConfiguration(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12)+"    health: {interval: 1h}\n", withBackends("keep", 13))
	was := w.g.checks.running[0]
	if len(w.g.checks.running) != 2 || was.target != "198.18.2.11:80" {
		t.Fatalf("%d probes", len(w.g.checks.running))
	}
	reload := func(src string) {
		t.Helper()
		if err := w.g.Reload(parse(t, src)); err != nil {
			t.Fatal(err)
		}
	}
	reload(withBackends("keep", 11, 13) + "    health: {interval: 1h}\n")
	if w.g.checks.running[0] != was || len(w.g.checks.running) != 2 {
		t.Error("an unchanged probe was replaced, or a removed one runs on")
	}
	w.setHealth("b13", false)
	reload(withBackends("keep", 11, 13) + "    health: {interval: 1h, port: 99}\n")
	if r := w.g.checks.running[0]; r == was || r.target != "198.18.2.11:99" {
		t.Errorf("a changed probe runs on: %v", r.target)
	}
	was = w.g.checks.running[0]
	reload(withBackends("keep", 11, 13) + "    health: {interval: 30m, port: 99}\n")
	if w.g.checks.running[0] == was {
		t.Error("a probe with another interval runs on")
	}
	reload(withBackends("keep", 13))
	if len(w.g.checks.running) != 0 || len(w.g.down) != 0 {
		t.Error("without health checks, probes run or backends are down")
	}
}
