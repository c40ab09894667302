package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/app/kernbench"
)

func smallReport() *kernbench.Report {
	fig := func(p string, pps float64) kernbench.Figure {
		return kernbench.Figure{Path: p, PacketsPerSecond: pps, BytesPerSecond: 64 * pps, Verified: 10}
	}
	return &kernbench.Report{
		Rows: []kernbench.Row{
			{Op: "header", Size: kernbench.Size64, MeanBytes: 64, Figures: []kernbench.Figure{fig(kernbench.PathOne, 10e6), fig(kernbench.PathAll, 150e6), fig(kernbench.PathRing, 40e6), fig(kernbench.PathHost, 300e6), fig(kernbench.PathResident, 4e9)}},
			{Op: "header", Size: kernbench.Size1408, MeanBytes: 1408, Figures: []kernbench.Figure{fig(kernbench.PathOne, 5e6), fig(kernbench.PathAll, 50e6), fig(kernbench.PathHost, 40e6), {Path: kernbench.PathRing, Error: "wrong result"}}},
			{Op: "parse", Size: kernbench.Size64, Error: "no memory"},
		},
		Latency: []kernbench.Latency{{Op: "header", Size: kernbench.Size64, Path: kernbench.PathRing, Batch: 32, Least: 3, P50: 4, P99: 9, N: 100, Verified: 3200}, {Op: "header", Size: kernbench.Size64, Path: kernbench.PathHost, Batch: 32, Error: "lost"}},
	}
}

func TestPlotsAreDrawnAndTheSameEachTime(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		if err := Draw(smallReport(), dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"header-rate.svg", "header-latency.svg", "header-crossover.svg"} {
		one, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		two, _ := os.ReadFile(filepath.Join(b, name))
		if string(one) != string(two) || !strings.Contains(string(one), "<svg") || !strings.Contains(string(one), "GPU ring") {
			t.Errorf("%s: %d bytes, %d bytes", name, len(one), len(two))
		}
	}
	if files, _ := os.ReadDir(a); len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
	if err := Draw(smallReport(), filepath.Join(a, "none")); err == nil {
		t.Error("a folder that is not there is drawn into")
	}
}
