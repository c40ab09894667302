package layers

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// measured lists the test files that may read how much wall time has passed, with the reason. A bound from above on wall
// time fails on a busy machine and passes on a fast one: wait for a condition, or count records, allocations, iterations
// or CPU time. Three kinds of reasons are good:
//
//   - at least: a wait must not end before its time, which load cannot break;
//   - rate: what is allowed grows with the time that has passed, so load allows more;
//   - clock: the reading drives a clock, or is a figure in a report, and no test fails by it.
const measured = `
cmd/millrace/scale_test.go                         : rate, the records that the log may have grow with the time
cmd/millrace/gatewayupgradedevices_test.go         : clock, it paces the load of the long form
cmd/millrace/halfload_test.go                      : clock, it paces the load of the long form
gpukern/cuda/pubkey/bench_test.go                  : clock, of benchmarks' figures
internal/app/kernbench/expressions_measure_test.go : clock, of figures that a run prints and stores
internal/app/kernbench/soak_test.go : clock, of figures that a run prints and stores
filter/ebpf/defence_test.go                        : rate, of token buckets in the kernel
internal/testkit/interop/programs/page_test.go     : clock, a column of the page that it writes
l4/control/flat_test.go                            : clock, of a benchmark's figure
l4/control/inspection_reload_test.go               : clock, figures in the log
l4/control/netns_verdicttime_test.go               : clock, figures in the log
l4/control/netns_inspection_test.go                : rate, of token buckets
`

// TestNoTestCountsWallTime finds time.Since, time.Now().Sub and testing.Benchmark in tests. They are free to benchmarks,
// to tests in a bubble of testing/synctest, whose time is virtual, and in messages of a test.
func TestNoTestCountsWallTime(t *testing.T) {
	reasons := table(measured)
	used := map[string]bool{}
	for _, f := range sources(t) {
		if !f.test {
			continue
		}
		for _, call := range wallTimes(f.ast) {
			used[f.path] = true
			if reasons[f.path] == nil {
				t.Errorf("%s calls %s: wait for a condition or count work (or add the file to measured, with its reason)", f.path, call)
			}
		}
	}
	for path, reason := range reasons {
		switch kind := strings.TrimSuffix(strings.Join(reason[:min(2, len(reason))], " "), ","); {
		case !used[path]:
			t.Errorf("measured has %s, which reads no wall time", path)
		case !strings.HasPrefix(kind, "at least") && reason[0] != "rate," && reason[0] != "clock,":
			t.Errorf("measured: %s: the reason %q is none of the three kinds", path, strings.Join(reason, " "))
		}
	}
}

// message matches calls that print.
var message = regexp.MustCompile(`\.(Log|Error|Fatal|Skip)f?$`)

// wallTimes returns the calls of a test file that read how much wall time has passed.
func wallTimes(f *ast.File) (calls []string) {
	visit := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !takesBenchmark(n.Type)
		case *ast.FuncLit:
			return !takesBenchmark(n.Type)
		case *ast.CallExpr:
			name := selector(n.Fun)
			if name == "synctest.Test" || message.MatchString(name) {
				return false
			}
		case *ast.SelectorExpr: // a value such as since := time.Since is found, too
			if name := selector(n); slices.Contains([]string{"time.Since", "time.Now().Sub", "testing.Benchmark"}, name) {
				calls = append(calls, name)
			}
		}
		return true
	}
	ast.Inspect(f, visit)
	return calls
}

// selector returns "a.b" for that expression, and "a.b().c" for a method of what a call returns.
func selector(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return selector(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return selector(e.Fun) + "()"
	}
	return ""
}

// takesBenchmark reports whether a function has a parameter of type *testing.B.
func takesBenchmark(f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		star, ok := p.Type.(*ast.StarExpr)
		return ok && selector(star.X) == "testing.B"
	})
}

func TestWallTimeIsFound(t *testing.T) {
	for code, want := range map[string]int{
		`func TestX(t *testing.T) { if time.Since(a) > b { t.Error() } }`:                             1,
		`func TestX(t *testing.T) { since := time.Since; t.Logf("%v", time.Since(a)) }`:               1,
		`func TestX(t *testing.T) { d := time.Now().Sub(a); r := testing.Benchmark(f) }`:              2,
		`func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { d := time.Since(a) }) }`:    0,
		`func BenchmarkX(b *testing.B) { d := time.Since(a) }`:                                        0,
		`func TestX(t *testing.T) { t.Run("", func(t *testing.T) { d := time.Since(a) }) }`:           1,
		`func help(b *testing.B) { d := time.Since(a) }; func other(n int) { d := time.Since(a) }`:    1,
		`func TestX(t *testing.T) { for d := time.Now().Add(p); time.Now().Before(d); { poll() } }`:   0,
		`func TestX(t *testing.T) { b.Run("", func(b *testing.B) { d := time.Since(a) }); f(a.Sub) }`: 0,
	} {
		if got := wallTimes(parse(t, "package p\n"+code)); len(got) != want {
			t.Errorf("%s: found %q, want %d", code, got, want)
		}
	}
}
