// Package harness measures: it runs the contestants of a suite in turn, each as processes pinned to
// CPUs, takes the time and CPU time of a window, and writes results as tables and JSON. What is
// measured is up to the suites.
package harness

import (
	"context"
	"time"
)

// A Suite is a set of measures that are run, judged and written together. A new suite is one file
// with a function that returns one, and a line in the table in suites.go.
type Suite struct {
	Name   string // as in -suite; the results are bench/results/Name.{json,md}
	Title  string
	Rounds int      // runs of each contestant unless -rounds says otherwise; 0 is defaultRounds
	About  []string // paragraphs above the tables: what is measured, and how to read it
	Open   func(*Env) (*Bench, error)
}

// A Bench is an opened suite: its networks are up and its peers are built.
type Bench struct {
	Measures []Measure
	Notes    []string        // what only an opened suite knows, such as the captures that were found
	Pages    func() []string // Markdown that stands behind the tables, asked for when all has run; nil is none
	Close    func() error
}

// Env is what a suite may use.
type Env struct {
	Root string // the repository
	Self string // this program, for roles in processes of their own
	Log  func(format string, args ...any)

	Merge string // file of `millrace bench kern --json`, of another machine
	Quick bool   // suite kern: fewer sizes and packets, and less time
}

// Timing is how one run of a contestant is timed.
type Timing struct {
	Warmup, Window time.Duration
}

// Opening returns a timing with time to open many connections, or to fill tables, before the window.
func (t Timing) Opening() Timing {
	t.Warmup = max(t.Warmup, 3*t.Window)
	return t
}

// A Measure is one question that all of its contestants answer in turn: a table of the report.
type Measure struct {
	Name        string
	Unit        string // what is counted, singular: "packet", "request"
	Peer        string // the contestant that ratios are taken against
	Contestants []Contestant
	Gates       []Gate
}

// A Contestant is one program in one configuration.
type Contestant struct {
	Name   string
	Absent string // why it cannot run here; empty when it can
	Run    func(ctx context.Context, t Timing) (Sample, error)
}

// A Sample is what one run of one contestant gave. CPU is the figure to trust on a shared machine:
// the rate moves with other load, the cost of a unit hardly.
type Sample struct {
	Units   float64            `json:"units"`             // counted in the window, where they arrive
	Seconds float64            `json:"seconds"`           // length of the window
	CPU     float64            `json:"cpu_seconds"`       // of all parts and of ksoftirqd on their CPUs
	Own     float64            `json:"own_cpu_seconds"`   // of the contestant's own process, without its source or sink
	Busy    float64            `json:"cpu_busy_seconds"`  // of these CPUs, whoever used them
	CPUs    int                `json:"cpus"`              // how many these are
	Parts   map[string]float64 `json:"parts,omitempty"`   // CPU seconds of each part
	Counts  map[string]uint64  `json:"counts,omitempty"`  // of the whole run, such as offered, received, lost
	Version string             `json:"version,omitempty"` // of the contestant, as it tells itself
}

// Rate returns units per second.
func (s Sample) Rate() float64 { return over(s.Units, s.Seconds) }

// PerCPU returns units per CPU second.
func (s Sample) PerCPU() float64 { return over(s.Units, s.CPU) }

// Cost returns CPU nanoseconds per unit.
func (s Sample) Cost() float64 { return over(s.CPU*1e9, s.Units) }

// OwnCost returns CPU nanoseconds per unit in the contestant's own process.
func (s Sample) OwnCost() float64 { return over(s.Own*1e9, s.Units) }

// Others returns the share of the CPUs' time in the window that processes outside of the run took.
// It is 0 where the CPUs are not known.
func (s Sample) Others() float64 {
	if s.CPUs == 0 {
		return 0
	}
	return max(0, over(s.Busy-s.CPU, s.Seconds*float64(s.CPUs)))
}

func over(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}
