package harness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Metric names a figure of a sample.
type Metric string

// The metrics that every sample has. Any other name is one of its Counts.
const (
	MetricRate   Metric = "rate"   // units per second
	MetricPerCPU Metric = "perCPU" // units per CPU second
	MetricCost   Metric = "cost"   // CPU nanoseconds per unit
	MetricOwn    Metric = "own"    // CPU nanoseconds per unit in the contestant's own process
)

// Counts of roles that have columns of their own.
const (
	P50         = "p50 us" // of durations in the window
	P99         = "p99 us"
	P999        = "p99.9 us"
	Longest     = "longest us"
	SliceP99    = "p99 us of 100 ms"   // median of the quantiles of parts of the window
	SliceP999   = "p99.9 us of 100 ms" // the same
	Late        = "generator late us"  // the longest time that a request of a schedule waited for the generator itself
	HeapPerConn = "B/conn"             // Go heap, one end
	RSSPerConn  = "rss/conn"
	GapMS       = "gap ms"   // without an answer, the longest
	StartMS     = "start ms" // until a program accepts connections
	// BackendConns is the number of connections that a backend has accepted, Reuse how many requests came on each.
	BackendConns = "backend connections"
	Reuse        = "requests/backend connection"
	// CodedShare is the length of content as it was sent, of 1 000 bytes.
	CodedShare = "coded/1000"
	// ProxyBusy is the share of its CPUs' time that a proxy used.
	ProxyBusy = "proxy busy %"
	GCPause   = "GC pause p99 ns"
	GCStop    = "GC stop p99 ns" // the part of a pause until all goroutines have stopped
)

// Of returns the figure of s; false means that s has no such count.
func (m Metric) Of(s Sample) (float64, bool) {
	switch m {
	case MetricRate:
		return s.Rate(), true
	case MetricPerCPU:
		return s.PerCPU(), true
	case MetricCost:
		return s.Cost(), true
	case MetricOwn:
		return s.OwnCost(), true
	}
	v, ok := s.Counts[string(m)]
	return float64(v), ok
}

// A Gate is a promise about a contestant: the median of a metric, or of its ratios against another
// contestant round by round, compared with a bound.
type Gate struct {
	Contestant string
	Metric     Metric
	Against    string // the other contestant; empty for an absolute bound
	Op         string // ">=", ">" or "<="
	Bound      float64
}

// A Verdict is what became of a gate. A gate whose contestants did not run is not judged.
type Verdict struct {
	Gate   string  `json:"gate"`
	Judged bool    `json:"judged"`
	Met    bool    `json:"met"`
	Figure float64 `json:"figure"`
	Unit   string  `json:"unit,omitempty"` // of the figure; ratios have none
}

// unit returns what the gate's figure is counted in.
func (g Gate) unit() string {
	switch {
	case g.Against != "":
		return ""
	case g.Metric == MetricRate || g.Metric == MetricPerCPU:
		return "/s"
	case g.Metric == MetricCost || g.Metric == MetricOwn:
		return " ns"
	case strings.HasSuffix(string(g.Metric), " us"):
		return " us"
	case slices.Contains(sizes, string(g.Metric)):
		return "B"
	}
	return ""
}

// withUnit renders a figure, in millions where there are some.
func withUnit(x float64, unit string, digits int) string {
	if x >= 1e6 {
		x, unit = x/1e6, " M"+unit
	}
	return strconv.FormatFloat(x, 'g', digits, 64) + unit
}

// String names the gate, such as "afxdp: rate >= 0.95x of C".
func (g Gate) String() string {
	if g.Against != "" {
		return fmt.Sprintf("%s: %s %s %sx of %s", g.Contestant, g.Metric, g.Op, withUnit(g.Bound, "", -1), g.Against)
	}
	return fmt.Sprintf("%s: %s %s %s", g.Contestant, g.Metric, g.Op, withUnit(g.Bound, g.unit(), -1))
}

// Judge compares the gate with the outcomes of its measure.
func (g Gate) Judge(m MeasureResult) Verdict {
	v := Verdict{Gate: g.String(), Unit: g.unit()}
	var figures []float64
	if g.Against == "" {
		figures = m.values(g.Contestant, g.Metric)
	} else {
		figures = m.ratios(g.Contestant, g.Against, g.Metric)
	}
	if len(figures) == 0 {
		return v
	}
	v.Judged, v.Figure = true, Summarize(figures).Median
	v.Met = g.holds(v.Figure)
	return v
}

func (g Gate) holds(x float64) bool {
	switch g.Op {
	case ">=":
		return x >= g.Bound
	case ">":
		return x > g.Bound
	case "<=":
		return x <= g.Bound
	}
	panic("bench: gate " + g.String() + " has an unknown operator")
}
