package netpeer

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What TCP costs in memory against gVisor's: CPU time of both ends on one core, per unit. The bounds are
// the gates of suite tcp, with a margin for a machine that does other things too.
const margin = 1.25

var ratios = []struct {
	name, op string
	unit     func(client, server *Counters) uint64
	gate     float64
}{
	{"bulk", "send", func(_, s *Counters) uint64 { return s.Bytes() }, 0.5},
	{"round trip", "echo", func(c, _ *Counters) uint64 { return c.Ops() }, 0.5},
	{"connect, round trip, close", "connect-echo", func(c, _ *Counters) uint64 { return c.Ops() }, 0.4},
}

func TestTCPInMemoryCostsLessThanGVisor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, r := range ratios {
		t.Run(r.name, func(t *testing.T) {
			var got []float64
			for range 5 {
				ours := cost(t, "millrace", r.op, r.unit)
				got = append(got, ours/cost(t, "gvisor", r.op, r.unit))
			}
			slices.Sort(got)
			t.Logf("CPU time per unit over gVisor's: %.3f", got)
			if m := got[len(got)/2]; m > r.gate*margin {
				t.Errorf("%.2f of gVisor's CPU time, want at most %.2f", m, r.gate)
			}
		})
	}
}

// spend returns when the process has had some CPU time: on a busy machine that takes longer than on an idle one.
func spend(d time.Duration) {
	for end := cpuNanos() + int64(d); cpuNanos() < end; time.Sleep(time.Millisecond) {
	}
}

// cost returns the CPU nanoseconds of a unit.
func cost(t *testing.T, stack, op string, unit func(client, server *Counters) uint64) float64 {
	t.Helper()
	p, err := OpenPair(stack, 1500, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var client, server Counters
	if err := Serve(ctx, p.Server, &server); err != nil {
		t.Fatal(err)
	}
	wait, err := Drive(ctx, p.Client, Load{Op: op, To: p.ServerAddr}, &client)
	if err != nil {
		t.Fatal(err)
	}
	spend(50 * time.Millisecond) // windows open
	units, cpu := unit(&client, &server), cpuNanos()
	spend(150 * time.Millisecond)
	units, cpu = unit(&client, &server)-units, cpuNanos()-cpu
	cancel()
	wait()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if units == 0 || client.Failed() > 0 {
		t.Fatalf("%s, %s: %d units, %d failures", stack, op, units, client.Failed())
	}
	return float64(cpu) / float64(units)
}

func cpuNanos() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return ts.Nano()
}

// A connection of MillraceLoopback has both ends on one loop, and every loop has connections, by goroutines,
// callbacks and pollers alike. Each loop counts for itself.
func TestLoopbackKeepsAConnectionOnOneLoop(t *testing.T) {
	const loops = 2
	for _, way := range []string{"", Callbacks, Polled} {
		p, err := MillraceLoopback(loops)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var client, server Counters
		if way == "" {
			if err = Serve(ctx, p.Server, &server); err == nil {
				_, err = Drive(ctx, p.Client, Load{Op: "echo", Conns: 16, To: p.ServerAddr}, &client)
			}
		} else {
			err = EchoPair(ctx, p, way, loops, 16, &server, &client)
		}
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); (client.loop[0].Ops.Load() < 100 || client.loop[1].Ops.Load() < 100) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		for i := range loops {
			if client.loop[i].Ops.Load() < 100 || server.loop[i].Ops.Load() < 100 {
				t.Errorf("%q: loop %d: %d operations of the client, %d of the server", way, i, client.loop[i].Ops.Load(), server.loop[i].Ops.Load())
			}
		}
		for i, l := range p.Server.(*millrace).Loops() {
			if n := l.Stats().HandedOver; n > 0 {
				t.Errorf("%q: loop %d handed %d packets over", way, i, n)
			}
		}
		cancel()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
