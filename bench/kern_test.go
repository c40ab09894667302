package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/app/kernbench"
)

// gpuReport is of a machine with a GPU that keeps one promise of each kind and breaks another.
func gpuReport() *kernbench.Report {
	fig := func(path string, pps, bps float64) kernbench.Figure {
		return kernbench.Figure{Path: path, PacketsPerSecond: pps, BytesPerSecond: bps, Packets: 100, Verified: 100}
	}
	return &kernbench.Report{
		Schema: kernbench.Schema, Machine: kernbench.Machine{GPU: "NVIDIA H200", GPUBus: "0000:17:00.0", CPU: "a CPU"},
		Rows: []kernbench.Row{
			{Op: "fused", Size: "64", Figures: []kernbench.Figure{
				fig(kernbench.PathOne, 5e6, 1e9), fig(kernbench.PathHost, 310e6, 2e10), fig(kernbench.PathResident, 3e9, 2e11),
			}},
			{Op: "literals-10k", Size: "captures", Figures: []kernbench.Figure{fig(kernbench.PathHost, 1e6, 29e9), {Path: kernbench.PathResident, Error: "wrong result"}}},
		},
		Latency: []kernbench.Latency{{Op: "null", Size: "64", Path: kernbench.PathRing, Batch: 32, P50: 5.5, P99: 15.5, N: 100}},
	}
}

func TestAReportOfAnotherMachineIsJudged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpu.json")
	b, err := json.Marshal(gpuReport())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	k, err := newKernRun(&harness.Env{Merge: file})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range k.measures() {
		res, err := harness.RunMeasure(context.Background(), m, harness.Plan{Rounds: 1}, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range res.Gates {
			got[m.Name+"/"+v.Gate] = v.Word()
		}
	}
	for gate, want := range map[string]string{
		"fused, 64/cuda-host: rate >= 300 M/s":                 "met",
		"fused, 64/cuda-resident: rate >= 4000 M/s":            "**not met**",
		"literals-10k, captures/cuda-host: MB/s >= 30000":      "**not met**",
		"literals-10k, captures/cuda-resident: MB/s >= 150000": "not judged",
		"literals-10k, adversarial/cuda-host: MB/s >= 30000":   "not judged",
		"null, 64, a batch of 32/cuda-ring: p50 ns <= 6000":    "met",
		"null, 64, a batch of 32/cuda-ring: p99 ns <= 15000":   "**not met**",
		"header, 64/cpu-one: rate >= 10 M/s":                   "not judged",
	} {
		if got[gate] != want {
			t.Errorf("%s: %q, want %s; there are %v", gate, got[gate], want, got)
		}
	}
	if page := strings.Join(k.pages(), ""); !strings.Contains(page, "NVIDIA H200 at 0000:17:00.0") || !strings.Contains(page, "fused") {
		t.Errorf("page:\n%s", page)
	}
}

func TestAReportThatCannotBeMergedIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpu.json")
	for _, text := range []string{"", "{", `{"schema": 2}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := newKernRun(&harness.Env{Merge: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := newKernRun(&harness.Env{Merge: file + "x"}); err == nil {
		t.Error("a file that is not there is merged")
	}
}

// TestStoredKernHasNoRowsOfTables: the suite tables has rules and routes, in newer rows. MILLRACE_UPDATE=1 drops those of the suite
// kern, and writes its page.
func TestStoredKernHasNoRowsOfTables(t *testing.T) {
	stored := map[string]*harness.Result{}
	for _, suite := range []string{kern.Name, tables.Name} {
		b, err := os.ReadFile(filepath.Join("results", suite+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if stored[suite], err = harness.DecodeResult(b); err != nil {
			t.Fatal(err)
		}
	}
	r := stored[kern.Name]
	twice := func(m harness.MeasureResult) bool {
		return slices.ContainsFunc(stored[tables.Name].Measures, func(o harness.MeasureResult) bool { return o.Name == m.Name })
	}
	if os.Getenv("MILLRACE_UPDATE") != "" {
		r.About, r.Measures = kern.About, slices.DeleteFunc(r.Measures, twice)
		if err := r.Write("results"); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range r.Measures {
		if twice(m) {
			t.Errorf("%s is in kern.json and in tables.json", m.Name)
		}
	}
	page, err := os.ReadFile("results/kern.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != r.Markdown() || !slices.Equal(r.About, kern.About) {
		t.Error("kern.md does not show kern.json: MILLRACE_UPDATE=1 go -C bench test -run TestStoredKern .")
	}
}
