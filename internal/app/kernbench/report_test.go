package kernbench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func smallReport() *Report {
	fig := func(p string, pps float64) Figure {
		return Figure{Path: p, PacketsPerSecond: pps, BytesPerSecond: 64 * pps, Verified: 10}
	}
	return &Report{
		Rows: []Row{
			{Op: "header", Size: Size64, MeanBytes: 64, Figures: []Figure{fig(PathOne, 10e6), fig(PathAll, 150e6), fig(PathRing, 40e6), fig(PathHost, 300e6), fig(PathResident, 4e9)}},
			{Op: "header", Size: Size1408, MeanBytes: 1408, Figures: []Figure{fig(PathOne, 5e6), fig(PathAll, 50e6), fig(PathHost, 40e6), {Path: PathRing, Error: "wrong result"}}},
			{Op: "parse", Size: Size64, Error: "no memory"},
		},
		Latency: []Latency{{Op: "header", Size: Size64, Path: PathRing, Batch: 32, Least: 3, P50: 4, P99: 9, N: 100, Verified: 3200}, {Op: "header", Size: Size64, Path: PathHost, Batch: 32, Error: "lost"}},
	}
}

func TestTheTableSaysWhoIsFaster(t *testing.T) {
	var w strings.Builder
	smallReport().WriteText(&w)
	lines := strings.Split(w.String(), "\n")
	for i, want := range [][]string{
		{"operation", "one core, Mpps", "GPU ring, Mpps", "GPU/one", "GPU/all", "faster", "verified"},
		{"header", "64", "10.0", "0.64", "150", "9.60", "40.0", "300", "19.2", "4000", "256", "30.0x", "2.00x", "cuda", "50"},
		{"header", "1408", "5.00", "50.0", "40.0", "8.00x", "0.80x", "cpu", "30"},
		{"parse", "no memory"},
		{""},
		{"batch of", "p99 us"},
		{"32", "header, 64", "GPU ring", "3.00", "4.00", "9.00", "100", "3200"},
	} {
		at := 0
		for _, word := range want {
			k := strings.Index(lines[i][at:], word)
			if k < 0 {
				t.Errorf("line %d has no %q in its place: %s", i, word, lines[i])
				break
			}
			at += k + len(word)
		}
	}
	if strings.Contains(w.String(), "lost") {
		t.Error("a latency that failed stands in the table")
	}
}

func TestFailuresAndCountsOfAReport(t *testing.T) {
	r := smallReport()
	want := "header, 1408, cuda-ring: wrong result|parse, 64: no memory|header, 64, cuda-host: lost"
	if got := strings.Join(r.Failed(), "|"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := r.Verified(); n != 80+3200 {
		t.Errorf("%d verified", n)
	}
	if r.Rows[1].Figure(PathRing) != nil || r.Rows[0].Ratio(PathHost, PathOne) != 30 || r.Rows[1].Ratio(PathRing, PathOne) != 0 {
		t.Error("a figure that failed counts")
	}
}

func TestTheBusTellsItsLink(t *testing.T) {
	was := pciRoot
	pciRoot = t.TempDir()
	defer func() { pciRoot = was }()
	dir := filepath.Join(pciRoot, "0000:1a:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"current_link_speed": "32.0 GT/s PCIe\n", "current_link_width": "16\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := busText("0000:1A:00.0"); got != "0000:1A:00.0, 32.0 GT/s PCIe x16" {
		t.Error(got)
	}
	if got := busText("0000:1b:00.0"); got != "0000:1b:00.0" {
		t.Error(got)
	}
}
