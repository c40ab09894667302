package node

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// withEngines is a daemon that has nothing but engines, on a driver that runs kernels
// on the CPU.
func withEngines(t *testing.T, kind string, loops int) (*Node, *hostkern.Driver, *testnet.Log) {
	t.Helper()
	drv, log := hostkern.OpenDriver(t), &testnet.Log{}
	n := &Node{log: slog.New(slog.NewTextHandler(log, nil)), cfg: Config{
		Engine: kind, Ops: gpukern.OpParse | gpukern.OpChecksum, GPU: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	}}
	if err := n.openEngine(); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 64}); err != nil {
		t.Fatal(err)
	}
	for range loops {
		if _, err := n.addEngine(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, e := range n.engines {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(n.arena.Close(), n.opener.Close()); err != nil {
			t.Error(err)
		}
	})
	return n, drv, log
}

// pass has an engine look at a batch of n packets.
func (n *Node) pass(t *testing.T, e gpukern.Engine, packets int) {
	t.Helper()
	b := packet.NewBatch(n.arena.View(), packets)
	for i := range packets {
		b.Append(packet.Desc{Off: uint32(i) << n.arena.Shift, Len: 60})
	}
	if err := e.Submit(b); err != nil {
		t.Fatal(err)
	}
	for done := make([]*packet.Batch, 1); e.Poll(done) == 0; {
	}
}

// scrape returns the series of the engines by name and labels.
func (n *Node) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(n.writeEngines)
	series, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, s := range series {
		id, _, _ := strings.Cut(s.String(), "} ")
		if id, ok := strings.CutPrefix(id, "millrace_engine_"); ok {
			all[id+"}"] = s.Value
		}
	}
	return all
}

func TestEnginesAreMeasured(t *testing.T) {
	n, drv, log := withEngines(t, "cuda", 2)
	n.pass(t, n.engines[1], 5)
	n.pass(t, n.engines[1], 7)
	got := n.scrape(t)
	for series, want := range map[string]float64{
		`info{device="Fake GPU 0",loop="1",name="cuda",ops="parse+checksum"}`: 1,
		`packets_total{backend="cuda",loop="1"}`:                              12,
		`packets_total{backend="cpu",loop="1"}`:                               0,
		`packets_total{backend="cuda",loop="0"}`:                              0,
		`batches_total{backend="cuda",loop="1"}`:                              2,
		`share{backend="cuda",loop="1"}`:                                      1,
		`share{backend="cpu",loop="1"}`:                                       0,
		`redone_packets_total{loop="1"}`:                                      0,
		`fault{loop="1"}`:                                                     0,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (%v), want %v", series, v, ok, want)
		}
	}
	drv.Lose(700)
	for end := time.Now().Add(20 * time.Second); n.engines[0].Info().Fault == "" || n.engines[1].Info().Fault == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the loss is not noticed")
		}
	}
	n.pass(t, n.engines[1], 3)
	got = n.scrape(t)
	for series, want := range map[string]float64{
		`packets_total{backend="cuda",loop="1"}`: 12, `packets_total{backend="cpu",loop="1"}`: 3,
		`fault{loop="0"}`: 1, `fault{loop="1"}`: 1, `share{backend="cpu",loop="1"}`: 1,
	} {
		if got[series] != want {
			t.Errorf("after the loss %s is %v, want %v", series, got[series], want)
		}
	}
	a := n.Engine()
	if !strings.Contains(a.Fault, "CUDA_ERROR_ILLEGAL_ADDRESS") || a.Backends[0].Packets != 3 || a.Backends[1].Packets != 12 {
		t.Errorf("%+v", a)
	}
	for end := time.Now().Add(5 * time.Second); !strings.Contains(log.String(), "level=ERROR") && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("the log has the loss not once:\n%s", text)
	}
}

// TestWaitsAreMetrics: of "auto", which measures them, and of no other engine.
func TestWaitsAreMetrics(t *testing.T) {
	for _, name := range []string{"auto", "cuda"} {
		r := metrics.NewRegistry(metrics.Build{})
		i := gpukern.Info{Name: name, Retreats: 3, Backends: []gpukern.BackendStats{
			{Name: "cpu", Packets: 1, Batches: 1, WaitNs: 2e9}, {Name: "cuda", Packets: 2, Batches: 2, WaitNs: 5e8, Late: 7},
		}}
		r.Add(func(w *metrics.Writer) { writeEngine(w, &i, metrics.Label{Name: "loop", Value: "1"}) })
		var b strings.Builder
		if err := r.WriteText(&b, metrics.Selection{}); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			`millrace_engine_wait_seconds_total{backend="cpu",loop="1"} 2`, `millrace_engine_wait_seconds_total{backend="cuda",loop="1"} 0.5`,
			`millrace_engine_late_batches_total{loop="1"} 7`, `millrace_engine_retreats_total{loop="1"} 3`,
		} {
			if strings.Contains(b.String(), line+"\n") != (name == "auto") {
				t.Errorf("%s: %s is not as it should be in:\n%s", name, line, &b)
			}
		}
	}
}

func TestVerdictsAreMetricsAndLogged(t *testing.T) {
	n, _, log := withEngines(t, "auto", 2)
	choices := n.engines[0].Info().Calibrations
	if len(choices) == 0 {
		t.Fatal("nothing was measured")
	}
	got, line := n.scrape(t), log.String()
	for _, c := range choices {
		of := fmt.Sprintf(`bytes="%d",ops="parse+checksum"}`, c.Bytes)
		for series, want := range map[string]float64{
			"gpu_from_packets{" + of:                   float64(c.BreakEven),
			"gpu_alone_from_packets{" + of:             float64(c.BreakEvenAlone),
			`batch_seconds{backend="cpu",` + of:        c.CPU.FixedNs / 1e9,
			`batch_seconds{backend="cuda",` + of:       c.GPU.FixedNs / 1e9,
			`batch_packet_seconds{backend="cpu",` + of: c.CPU.PacketNs / 1e9,
			`packet_seconds{backend="cuda",` + of:      c.GPU.PipelinedNs / 1e9,
			`share{backend="cuda",loop="1"}`:           1,
			`packets_total{backend="cuda",loop="1"}`:   0,
			`info{device="` + runtime.GOARCH + ` and Fake GPU 0",loop="0",name="auto",ops="parse+checksum"}`: 1,
		} {
			if v, ok := got[series]; !ok || v < want*0.999 || v > want*1.001 {
				t.Errorf("%s is %v (%v), want %v", series, v, ok, want)
			}
		}
		if strings.Count(line, c.String()) != 1 {
			t.Errorf("%q is not once in the log:\n%s", c.String(), line)
		}
	}
}
