package harness

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// fakeResult is a run of two contestants over three rounds, one that crashed in one of them, one
// that crashed in all and one that is absent.
func fakeResult() *Result {
	round := func(n int, units, cpu float64) Round {
		return Round{Round: n, Attempts: 1, Sample: Sample{
			Units: units, Seconds: 1, CPU: cpu, Own: cpu / 2, Busy: cpu, CPUs: 2, Version: "1.0",
			Counts: map[string]uint64{"offered": uint64(units) + 1, "received": uint64(units), "lost": 1, "reordered": 0},
		}}
	}
	m := MeasureResult{
		Name: "rx", Unit: "packet", Peer: "C",
		Contestants: []Outcome{
			{Name: "ours", Samples: []Round{round(0, 4e6, 1), round(1, 2e6, 1), round(2, 6e6, 1)}},
			{Name: "C", Samples: []Round{round(0, 4e6, 0.5), round(2, 5e6, 1)}, Failures: []Crash{{1, "it fell"}}},
			{Name: "broken", Failures: []Crash{{0, "no"}, {1, "no"}, {2, "no"}}},
			{Name: "missing", NotRun: "no compiler"},
		},
	}
	m.summarize([]Gate{
		{"ours", MetricRate, "C", ">=", 0.95},
		{"ours", MetricPerCPU, "C", ">", 1},
		{"ours", MetricRate, "", ">=", 3e6},
		{"ours", "lost", "", "<=", 0},
		{"ours", MetricRate, "missing", ">=", 1.3},
	})
	return &Result{
		Schema: Schema, Suite: "fake", Title: "A fake", About: []string{"Nothing was measured."},
		Notes: []string{"a note"}, Rounds: 3, WindowS: 1, Measures: []MeasureResult{m},
		Machine: Machine{
			Date: "2026-01-02T03:04:05Z", Commit: "0123456789ab", CPU: "a CPU", Cores: 2, Kernel: "6.0",
			Go: "go1.26", Memory: "1 kB", HugePages: "none", Mitigations: []string{"meltdown: Mitigation: PTI"},
			LoadBefore: "0 0 0", LoadAfter: "1 0 0",
		},
	}
}

func TestGatesAreJudgedByTheMedianOfTheRatios(t *testing.T) {
	got := fakeResult().Measures[0].Gates
	want := []Verdict{
		{"ours: rate >= 0.95x of C", true, true, 1.1, ""},      // rounds 0 and 2: 1.0 and 1.2
		{"ours: perCPU > 1x of C", true, false, 0.85, ""},      // 0.5 and 1.2
		{"ours: rate >= 3 M/s", true, true, 4e6, "/s"},         // the median of all three rounds
		{"ours: lost <= 0", true, false, 1, ""},                // a count
		{"ours: rate >= 1.3x of missing", false, false, 0, ""}, // nothing to compare with
	}
	if diff := cmp.Diff(want, got, approx); diff != "" {
		t.Error(diff)
	}
	if gates, failures := fakeResult().Unmet(); gates != 2 || failures != 4 {
		t.Errorf("Unmet() = %d, %d, want 2 gates and 4 failures: a gate that is not judged is not unmet", gates, failures)
	}
}

func TestABoundIsMetWhereTheOperatorSaysSo(t *testing.T) {
	for _, c := range []struct {
		op                  string
		below, equal, above bool
	}{{">=", false, true, true}, {">", false, false, true}, {"<=", true, true, false}} {
		g := Gate{Op: c.op, Bound: 2}
		if got := []bool{g.holds(1), g.holds(2), g.holds(3)}; !cmp.Equal(got, []bool{c.below, c.equal, c.above}) {
			t.Errorf("1, 2, 3 %s 2: %v", c.op, got)
		}
	}
}

func TestAResultSurvivesItsFile(t *testing.T) {
	dir := t.TempDir()
	want := fakeResult()
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "fake.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeResult(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "fake.md")); err != nil || string(text) != got.Markdown() {
		t.Errorf("the Markdown beside it differs from that of the decoded result (%v)", err)
	}
}

func TestAResultOfAnotherSchemaIsRefused(t *testing.T) {
	for _, in := range []string{`{"schema":99}`, `{}`, `[`} {
		if _, err := DecodeResult([]byte(in)); err == nil {
			t.Errorf("DecodeResult(%s) succeeded", in)
		}
	}
}

func TestMarkdownLooksAsItDid(t *testing.T) {
	golden := filepath.Join("testdata", "fake.md")
	got := fakeResult().Markdown()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("run with -update if that is meant:\n%s", diff)
	}
}

func TestFiguresKeepThreeDigits(t *testing.T) {
	for _, c := range []struct {
		x        float64
		decimals int
		want     string
	}{{1.2345, 3, "1.234"}, {0, 3, "0.000"}, {123.456, 1, "123.5"}, {0.00201, 3, "0.00201"}, {0.2345, 1, "0.234"}, {1.25, 1, "1.25"}, {0.1234, 3, "0.123"}} {
		if got := short(c.x, c.decimals); got != c.want {
			t.Errorf("short(%v, %d) = %s, want %s", c.x, c.decimals, got, c.want)
		}
	}
}

func TestSizesAndTimesAreNotSummed(t *testing.T) {
	round := func(rss, lost uint64) Round {
		return Round{Sample: Sample{Counts: map[string]uint64{"rss": rss, "lost": lost, "p99 ns": 10 * rss}}}
	}
	o := Outcome{Samples: []Round{round(100, 1), round(120, 2), round(110, 3)}}
	if p99, none := o.count("p99 ns"), o.count("p50 ns"); p99 != "1100" || none != "" {
		t.Errorf("p99 %s and no p50 %q, want the median, 1100, and nothing", p99, none)
	}
	if rss, lost := o.count("rss"), o.count("lost"); rss != "120" || lost != "6" {
		t.Errorf("rss %s and lost %s, want the largest, 120, and the sum, 6", rss, lost)
	}
}

func TestABoundHasTheUnitOfItsMetric(t *testing.T) {
	for want, g := range map[string]Gate{
		"a: own <= 1000 ns":   {"a", MetricOwn, "", "<=", 1000},
		"a: own <= 1.3x of b": {"a", MetricOwn, "b", "<=", 1.3},
		"a: rss <= 128 MB":    {"a", "rss", "", "<=", 128e6},
		"a: rate >= 10 M/s":   {"a", MetricRate, "", ">=", 10e6},
		"a: allocs <= 0":      {"a", "allocs", "", "<=", 0},
	} {
		if got := g.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
