package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Schema is the version of the layout of Result. Readers refuse others.
const Schema = 1

// Result is a whole run: what bench/results/SUITE.json holds.
type Result struct {
	Schema   int             `json:"schema"`
	Suite    string          `json:"suite"`
	Title    string          `json:"title"`
	About    []string        `json:"about,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Rounds   int             `json:"rounds"`
	WindowS  float64         `json:"window_seconds"`
	Machine  Machine         `json:"machine"`
	Measures []MeasureResult `json:"measures"`
	Pages    []string        `json:"pages,omitempty"` // Markdown behind the tables
}

// MeasureResult is one table.
type MeasureResult struct {
	Name        string    `json:"name"`
	Unit        string    `json:"unit"`
	Peer        string    `json:"peer"`
	Contestants []Outcome `json:"contestants"`
	Gates       []Verdict `json:"gates,omitempty"`
}

// Outcome is what one contestant did in all rounds.
type Outcome struct {
	Name      string  `json:"name"`
	NotRun    string  `json:"not_run,omitempty"`  // why it is absent
	Failures  []Crash `json:"failures,omitempty"` // rounds that gave no sample
	Samples   []Round `json:"samples,omitempty"`
	Rate      Summary `json:"rate"`         // units per second
	Cost      Summary `json:"cpu_ns"`       // CPU nanoseconds per unit
	Own       Summary `json:"own_cpu_ns"`   // the part of it in the contestant's own process
	RateRatio Summary `json:"rate_ratio"`   // rate over the peer's, round by round
	CPURatio  Summary `json:"percpu_ratio"` // units per CPU second over the peer's, round by round
}

// Round is the sample of one round: the least disturbed of its attempts.
type Round struct {
	Round     int     `json:"round"`
	Attempts  int     `json:"attempts"`
	Disturbed float64 `json:"disturbed"` // share of the CPUs' time that went to other processes
	Sample
}

// Crash is a round that failed.
type Crash struct {
	Round int    `json:"round"`
	Error string `json:"error"`
}

// summarize fills the summaries and judges the gates.
func (m *MeasureResult) summarize(gates []Gate) {
	for i := range m.Contestants {
		o := &m.Contestants[i]
		var cost, own []float64
		for _, s := range o.Samples {
			cost, own = append(cost, s.Cost()), append(own, s.OwnCost())
		}
		o.Rate = Summarize(m.values(o.Name, MetricRate))
		o.Cost, o.Own = Summarize(cost), Summarize(own)
		o.RateRatio = Summarize(m.ratios(o.Name, m.Peer, MetricRate))
		o.CPURatio = Summarize(m.ratios(o.Name, m.Peer, MetricPerCPU))
	}
	for _, g := range gates {
		m.Gates = append(m.Gates, g.Judge(*m))
	}
}

// byRound returns a metric of a contestant for each round that has it.
func (m MeasureResult) byRound(name string, metric Metric) map[int]float64 {
	v := map[int]float64{}
	for _, o := range m.Contestants {
		if o.Name != name {
			continue
		}
		for _, s := range o.Samples {
			if x, ok := metric.Of(s.Sample); ok {
				v[s.Round] = x
			}
		}
	}
	return v
}

func (m MeasureResult) values(name string, metric Metric) []float64 {
	var v []float64
	for _, x := range m.byRound(name, metric) {
		v = append(v, x)
	}
	return v
}

// Ratio summarizes the ratios of a metric of two contestants, round by round.
func (m MeasureResult) Ratio(name, against string, metric Metric) Summary {
	return Summarize(m.ratios(name, against, metric))
}

func (m MeasureResult) ratios(name, against string, metric Metric) []float64 {
	return pairwise(m.byRound(name, metric), m.byRound(against, metric))
}

// Unmet counts the gates that were judged and not met, and the contestants that failed in a round.
func (r *Result) Unmet() (gates, failures int) {
	for _, m := range r.Measures {
		for _, v := range m.Gates {
			if v.Judged && !v.Met {
				gates++
			}
		}
		for _, o := range m.Contestants {
			failures += len(o.Failures)
		}
	}
	return gates, failures
}

// Encode returns the result as indented JSON.
func (r *Result) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// DecodeResult reads what Encode wrote.
func DecodeResult(b []byte) (*Result, error) {
	r := new(Result)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("result: schema %d, this program reads %d", r.Schema, Schema)
	}
	return r, nil
}

// Write stores the result below dir as SUITE.json and SUITE.md.
func (r *Result) Write(dir string) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Suite+".json"), b, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Suite+".md"), []byte(r.Markdown()), 0o644)
}
