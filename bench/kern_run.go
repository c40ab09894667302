package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
	"github.com/millrace/millrace/gpukern/choose"
	_ "github.com/millrace/millrace/gpukern/cuda/loader" // GPUs
	"github.com/millrace/millrace/internal/app/kernbench"
)

// kernRun is one run of all operations, or the report of one on another machine.
type kernRun struct {
	e      *harness.Env
	gpu    string // why there is none; "" where there is
	once   sync.Once
	report *kernbench.Report
	err    error
}

func newKernRun(e *harness.Env) (*kernRun, error) {
	k := &kernRun{e: e}
	if e.Merge != "" {
		b, err := os.ReadFile(e.Merge)
		if err != nil {
			return nil, err
		}
		k.report = new(kernbench.Report)
		if err := json.Unmarshal(b, k.report); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Merge, err)
		}
		if k.report.Schema != kernbench.Schema {
			return nil, fmt.Errorf("%s: schema %d, this program reads %d", e.Merge, k.report.Schema, kernbench.Schema)
		}
		if k.report.Machine.GPU == "" {
			k.gpu = "no GPU on the machine of " + e.Merge
		}
		return k, nil
	}
	o, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindCUDA})
	if err != nil {
		k.gpu = strings.TrimPrefix(err.Error(), choose.ErrNoGPU.Error()+": ")
		return k, nil
	}
	return k, o.Close()
}

// get returns the report; the first caller waits for the run.
func (k *kernRun) get(ctx context.Context) (*kernbench.Report, error) {
	k.once.Do(func() {
		if k.report != nil {
			return
		}
		k.report, k.err = kernbench.Run(ctx, kernbench.Config{
			Captures: role.CaptureDir(k.e.Root), Version: harness.Commit(k.e.Root), Quick: k.e.Quick,
			Progress: func(at, of int, what string) { k.e.Log("kern %d/%d  %s", at+1, of, what) },
		})
		if k.err == nil {
			k.err = cmp.Or(ctx.Err(), failures(k.report))
		}
	})
	return k.report, k.err
}

// failures is an error of all that went wrong in a report.
func failures(r *kernbench.Report) error {
	if f := r.Failed(); len(f) > 0 {
		return errors.New(strings.Join(f, "; "))
	}
	return nil
}

// promise is what was promised about a path of a row, or about a batch.
type promise struct {
	op, size, path string
	batch          int // of a latency; 0 is a rate
	metric         harness.Metric
	op2            string
	bound          float64
}

// promises are those of the GPU and of one core.
var promises = []promise{
	{"header", "64", kernbench.PathOne, 0, harness.MetricRate, ">=", 10e6},
	{"fused", "64", kernbench.PathHost, 0, harness.MetricRate, ">=", 300e6},
	{"fused", "64", kernbench.PathResident, 0, harness.MetricRate, ">=", 4e9},
	{"literals-10k", "captures", kernbench.PathHost, 0, metricMB, ">=", 30_000},
	{"literals-10k", "adversarial", kernbench.PathHost, 0, metricMB, ">=", 30_000},
	{"literals-10k", "captures", kernbench.PathResident, 0, metricMB, ">=", 150_000},
	{"literals-10k", "adversarial", kernbench.PathResident, 0, metricMB, ">=", 150_000},
	{"null", "64", kernbench.PathRing, 32, metricP50, "<=", 6000},
	{"null", "64", kernbench.PathRing, 32, metricP99, "<=", 15000},
}

// Counts of the samples of a kernRun.
const (
	metricMB  harness.Metric = "MB/s"
	metricP50 harness.Metric = "p50 ns"
	metricP99 harness.Metric = "p99 ns"
)

// measures are one for each operation and size that something was promised about, with all paths.
func (k *kernRun) measures() []harness.Measure {
	var all []harness.Measure
	at := map[string]int{}
	for _, p := range promises {
		name := p.name()
		i, ok := at[name]
		if !ok {
			i = len(all)
			at[name] = i
			all = append(all, k.measure(p))
		}
		all[i].Gates = append(all[i].Gates, harness.Gate{Contestant: p.path, Metric: p.metric, Op: p.op2, Bound: p.bound})
	}
	return all
}

func (p promise) name() string {
	if p.batch > 0 {
		return fmt.Sprintf("%s, %s, a batch of %d", p.op, p.size, p.batch)
	}
	return p.op + ", " + p.size
}

func (k *kernRun) measure(p promise) harness.Measure {
	m := harness.Measure{Name: p.name(), Unit: "packet", Peer: kernbench.PathOne}
	for _, path := range kernbench.Paths() {
		if !p.goes(path) {
			continue
		}
		absent := ""
		if strings.HasPrefix(path, "cuda") {
			absent = k.gpu
		}
		m.Contestants = append(m.Contestants, harness.Contestant{Name: path, Absent: absent, Run: func(ctx context.Context, _ harness.Timing) (harness.Sample, error) {
			r, err := k.get(ctx)
			if r == nil {
				return harness.Sample{}, err
			}
			return sampleOf(r, p, path)
		}})
	}
	return m
}

// goes reports whether a path does what was promised about at all: payloads are searched by launches, and
// single batches are neither spread over cores nor resident.
func (p promise) goes(path string) bool {
	if p.batch > 0 {
		return path != kernbench.PathAll && path != kernbench.PathResident
	}
	return path != kernbench.PathRing || !strings.HasPrefix(p.op, "literals")
}

// sampleOf takes a figure out of a report.
func sampleOf(r *kernbench.Report, p promise, path string) (harness.Sample, error) {
	for _, l := range r.Latency {
		if p.batch > 0 && l.Op == p.op && l.Size == p.size && l.Path == path && l.Batch == p.batch && l.N > 0 {
			return harness.Sample{
				Units: float64(l.Batch), Seconds: l.P50 / 1e6,
				Counts: map[string]uint64{string(metricP50): uint64(l.P50 * 1e3), string(metricP99): uint64(l.P99 * 1e3), "verified": l.Verified},
			}, nil
		}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		f := row.Figure(path)
		if p.batch > 0 || row.Op != p.op || row.Size != p.size || f == nil {
			continue
		}
		cpu := f.PacketsPerSecond * f.ThreadSeconds / float64(max(f.Packets, 1))
		if path == kernbench.PathAll { // the thread that waits for the others says nothing
			cpu = 0
		}
		return harness.Sample{
			Units: f.PacketsPerSecond, Seconds: 1, CPU: cpu, Own: cpu,
			Counts: map[string]uint64{string(metricMB): uint64(f.BytesPerSecond / 1e6), "verified": f.Verified},
		}, nil
	}
	return harness.Sample{}, errors.New("no figure: " + cmp.Or(reason(r, p, path), "it was not measured"))
}

// reason returns why a path has no figure.
func reason(r *kernbench.Report, p promise, path string) string {
	for i := range r.Rows {
		for _, f := range r.Rows[i].Figures {
			if r.Rows[i].Op == p.op && r.Rows[i].Size == p.size && f.Path == path {
				return cmp.Or(f.Error, f.NotRun)
			}
		}
	}
	return ""
}

// pages is the table of all operations, once they were measured.
func (k *kernRun) pages() []string {
	if k.report == nil {
		return nil
	}
	var w strings.Builder
	m := &k.report.Machine
	fmt.Fprintf(&w, "## All operations\n\n- %s, %d cores used, Linux %s, %s, %s, %s\n", m.CPU, m.Cores, m.Kernel, m.Go, k.report.Version, m.Date)
	if m.GPU != "" {
		fmt.Fprintf(&w, "- GPU: %s at %s, driver for CUDA %s\n", m.GPU, m.GPUBus, m.Driver)
	}
	for _, n := range k.report.Notes {
		fmt.Fprintf(&w, "- %s\n", n)
	}
	fmt.Fprintf(&w, "- %d results were compared\n\n```\n", k.report.Verified())
	k.report.WriteText(&w)
	w.WriteString("```\n")
	return []string{w.String()}
}
