package harness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Markdown renders the result as the page bench/results/SUITE.md.
func (r *Result) Markdown() string {
	w := new(strings.Builder)
	fmt.Fprintf(w, "# %s\n\n", r.Title)
	fmt.Fprintf(w, "Written by `go -C bench run . -suite %s`; do not edit. Raw rounds: %s.json.\n\n", r.Suite, r.Suite)
	for _, p := range r.About {
		fmt.Fprintf(w, "%s\n\n", p)
	}
	r.gates(w)
	for _, m := range r.Measures {
		m.markdown(w)
	}
	for _, p := range r.Pages {
		fmt.Fprintf(w, "%s\n", p)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "- %s\n", n)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	r.machine(w)
	return w.String()
}

func (r *Result) gates(w *strings.Builder) {
	var rows []string
	for _, m := range r.Measures {
		for _, v := range m.Gates {
			rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", m.Name, v.Gate, v.figure(), v.Word()))
		}
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "| measure | gate | figure | |\n|---|---|---:|---|\n%s\n", strings.Join(rows, ""))
	}
}

func (v Verdict) Word() string {
	switch {
	case !v.Judged:
		return "not judged"
	case v.Met:
		return "met"
	}
	return "**not met**"
}

func (v Verdict) figure() string {
	if !v.Judged {
		return "-"
	}
	return withUnit(v.Figure, v.Unit, 3)
}

func (m MeasureResult) markdown(w *strings.Builder) {
	fmt.Fprintf(w, "## %s\n\n", m.Name)
	fmt.Fprintf(w, "| contestant | M %ss/s | min - max | spread | CPU ns/%s | min - max | own | disturbed | rate to %s | per CPU to %s |%s\n",
		m.Unit, m.Unit, m.Peer, m.Peer, strings.Join(prefixed(" ", m.countNames(), " |"), ""))
	fmt.Fprintf(w, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|%s\n", strings.Repeat("---:|", len(m.countNames())))
	for _, o := range m.Contestants {
		o.row(w, m.countNames())
	}
	fmt.Fprintln(w)
	for _, o := range m.Contestants {
		for _, c := range o.Failures {
			fmt.Fprintf(w, "%s failed in round %d: %s\n\n", o.Name, c.Round+1, c.Error)
		}
	}
}

func prefixed(before string, words []string, after string) []string {
	out := make([]string, len(words))
	for i, s := range words {
		out[i] = before + s + after
	}
	return out
}

func (o Outcome) row(w *strings.Builder, counts []string) {
	switch {
	case o.NotRun != "":
		fmt.Fprintf(w, "| %s | not run: %s |\n", o.Name, o.NotRun)
		return
	case len(o.Samples) == 0:
		fmt.Fprintf(w, "| %s | failed |\n", o.Name)
		return
	}
	fmt.Fprintf(w, "| %s | %s | %s - %s | %.0f %% | %s | %s - %s | %s | %.0f %% | %.2fx | %.2fx |",
		o.Name, short(o.Rate.Median/1e6, 3), short(o.Rate.Min/1e6, 3), short(o.Rate.Max/1e6, 3), o.Rate.Spread*100,
		short(o.Cost.Median, 1), short(o.Cost.Min, 1), short(o.Cost.Max, 1), short(o.Own.Median, 1),
		o.disturbed()*100, o.RateRatio.Median, o.CPURatio.Median)
	for _, c := range counts {
		fmt.Fprintf(w, " %s |", o.count(c))
	}
	fmt.Fprintln(w)
}

// short renders a figure with so many decimals, and one that they would leave nothing of with three
// digits.
func short(x float64, decimals int) string {
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	if digits := strings.TrimLeft(strings.Replace(s, ".", "", 1), "0"); x != 0 && len(digits) < 3 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return s
}

// disturbed returns the median share of the CPUs' time that others took.
func (o Outcome) disturbed() float64 {
	var d []float64
	for _, s := range o.Samples {
		d = append(d, s.Disturbed)
	}
	return Summarize(d).Median
}

// count sums a count over all rounds; of a size and of allocations it returns the largest, of a time the median.
func (o Outcome) count(name string) string {
	if slices.Contains(times, name) {
		var all []float64
		for _, s := range o.Samples {
			if n, ok := s.Counts[name]; ok {
				all = append(all, float64(n))
			}
		}
		if len(all) == 0 {
			return ""
		}
		return strconv.FormatFloat(Summarize(all).Median, 'f', 0, 64)
	}
	if slices.Contains(sizes, name) || name == "allocs" {
		var most uint64
		for _, s := range o.Samples {
			most = max(most, s.Counts[name])
		}
		return fmt.Sprint(most)
	}
	var sum uint64
	known := false
	for _, s := range o.Samples {
		n, ok := s.Counts[name]
		sum, known = sum+n, known || ok
	}
	if !known {
		return ""
	}
	return fmt.Sprint(sum)
}

// countNames returns the names of the counts of all contestants, in the order of countOrder.
func (m MeasureResult) countNames() []string {
	var names []string
	for _, want := range countOrder {
		has := func(s Round) bool { _, ok := s.Counts[want]; return ok }
		if slices.ContainsFunc(m.Contestants, func(o Outcome) bool { return slices.ContainsFunc(o.Samples, has) }) {
			names = append(names, want)
		}
	}
	return names
}

// sizes are the counts that say how large something is.
var sizes = []string{"rss", "heap", HeapPerConn}

// times are the counts that are figures of a round, such as quantiles of its durations, of which the tables show the median.
var times = []string{"mean us", P50, P99, P999, Longest, SliceP99, SliceP999, Late, GapMS, StartMS, BackendConns, Reuse, ProxyBusy, CodedShare, "due", RSSPerConn, "p50 ns", "p99 ns", GCPause, GCStop}

// countOrder names the counts that the tables show; others are in the JSON only.
var countOrder = []string{
	"offered", "received", "lost", "reordered", "failed", "mean us", "due", P50, P99, P999, Longest, SliceP99, SliceP999, Late, "flood",
	"refused", "rss", "heap", "allocs", "errors", "p50 ns", "p99 ns", HeapPerConn, RSSPerConn, BackendConns, Reuse, ProxyBusy, CodedShare, GapMS, StartMS, GCPause, GCStop,
}

func (r *Result) machine(w *strings.Builder) {
	m := r.Machine
	fmt.Fprintf(w, "## Machine\n\n")
	virtual := ""
	if m.Virtual {
		virtual = ", virtual"
	}
	if m.Physical > 0 {
		virtual += fmt.Sprintf(", hyperthreads of %d", m.Physical)
	}
	fmt.Fprintf(w, "- %s, %d cores%s, %s memory, huge pages: %s\n", m.CPU, m.Cores, virtual, m.Memory, m.HugePages)
	fmt.Fprintf(w, "- Linux %s, %s, commit %s, %s\n", m.Kernel, m.Go, m.Commit, m.Date)
	fmt.Fprintf(w, "- load average before %s, after %s\n", m.LoadBefore, m.LoadAfter)
	fmt.Fprintf(w, "- %d rounds, window %.3g s, contestants in turn, first place rotating\n", r.Rounds, r.WindowS)
	for _, s := range r.versions() {
		fmt.Fprintf(w, "- %s\n", s)
	}
	for _, s := range m.Mitigations {
		fmt.Fprintf(w, "- mitigation: %s\n", s)
	}
}

// versions returns "contestant: version" for all that told one, once each.
func (r *Result) versions() []string {
	var all []string
	for _, m := range r.Measures {
		for _, o := range m.Contestants {
			if len(o.Samples) == 0 || o.Samples[0].Version == "" {
				continue
			}
			s := o.Name + ": " + o.Samples[0].Version
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
