package kernbench_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/app/kernbench"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// payloads returns those of the captures in $MILLRACE_PCAPS, or else of the repository's.
func payloads(t testing.TB) [][]byte {
	t.Helper()
	dir := os.Getenv(testpcaps.Corpus)
	if dir == "" {
		var err error
		if dir, err = testpcaps.Dir(); err != nil {
			t.Fatal(err)
		}
	}
	texts, err := kernbench.Payloads(dir)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// BenchmarkScan searches sets of 100, 1000 and 10000 patterns in three kinds of texts. The suite literals of
// bench/ compares the same with Hyperscan.
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
	var out []literal.Occurrence
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
}
