package literal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/kernbench"
)

// payloads returns those of the sample captures, or none where there are no captures.
func payloads(t testing.TB) [][]byte {
	t.Helper()
	dir := os.Getenv("MILLRACE_PCAPS")
	if dir == "" {
		dir = "../../../shared/pcaps"
	}
	texts, err := kernbench.Payloads(dir)
	if err != nil {
		t.Log(err)
	}
	return texts
}

// BenchmarkScan searches sets of 100, 1000 and 10000 patterns in three kinds of texts. Where
// bin/bench-hyperscan was built from bench/peers/hyperscan.c, it does the same in the same run, must find
// as many matches, and the ratio of the speeds is told.
func BenchmarkScan(b *testing.B) {
	captured := payloads(b)
	for _, n := range []int{100, 1000, 10000} {
		patterns := kernbench.Literals(1, n, captured)
		for _, in := range []struct {
			name  string
			texts [][]byte
		}{
			{"captures", captured},
			{"near-misses", kernbench.NearMisses(1, patterns, 1400, 4<<20)},
			{"noise", kernbench.Noise(1, 1400, 4<<20)},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, in.name), func(b *testing.B) { benchScan(b, patterns, in.texts) })
		}
	}
}

func benchScan(b *testing.B, patterns []literal.Pattern, texts [][]byte) {
	s, err := literal.Compile(patterns)
	if err != nil {
		b.Fatal(err)
	}
	var total, matches int
	for _, t := range texts {
		total += len(t)
	}
	if total == 0 {
		b.Skip("no texts")
	}
	var out []literal.Match
	best := time.Hour
	b.SetBytes(int64(total))
	for b.Loop() {
		start := time.Now()
		matches = 0
		for _, t := range texts {
			out = s.Scan(nil, t, 0, out[:0])
			matches += len(out)
		}
		best = min(best, time.Since(start))
	}
	b.StopTimer()
	ours := float64(total) / 1e6 / best.Seconds()
	b.ReportMetric(ours, "best-MB/s")
	b.ReportMetric(float64(matches)/float64(total)*1e6, "matches/MB")
	if peer := "../../bin/bench-hyperscan"; exists(peer) {
		theirs := hyperscan(b, peer, patterns, texts, matches)
		b.ReportMetric(theirs, "hyperscan-MB/s")
		b.ReportMetric(ours/theirs, "ratio")
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// hyperscan runs the peer and returns its MB/s.
func hyperscan(b *testing.B, peer string, patterns []literal.Pattern, texts [][]byte, matches int) float64 {
	dir := b.TempDir()
	p, t := filepath.Join(dir, "patterns"), filepath.Join(dir, "texts")
	if err := kernbench.WriteLiterals(p, t, patterns, texts); err != nil {
		b.Fatal(err)
	}
	said, err := exec.Command(peer, p, t, "0.5").Output()
	if err != nil {
		b.Fatal(err)
	}
	var r struct {
		Bytes, Matches int
		Seconds        float64
	}
	if err := json.Unmarshal(said, &r); err != nil {
		b.Fatal(err)
	}
	if r.Matches != matches {
		b.Fatalf("hyperscan finds %d matches, we %d", r.Matches, matches)
	}
	return float64(r.Bytes) / 1e6 / r.Seconds
}
