package main

import (
	"context"
	"fmt"
	"strings"
)

// Plan says how a suite is run.
type Plan struct {
	Rounds int
	Timing Timing
	Only   string // run only measures and contestants whose "measure/contestant" contains it
}

func (p Plan) wants(m Measure, c Contestant) bool {
	return strings.Contains(m.Name+"/"+c.Name, p.Only)
}

// runMeasure runs every contestant once in each round, in an order that rotates, so that none
// always follows the same other and slow drift of the machine meets all alike. A contestant that
// fails loses the round, not the run. The error is the context's.
func runMeasure(ctx context.Context, m Measure, p Plan, log func(string, ...any)) (MeasureResult, error) {
	res := MeasureResult{Name: m.Name, Unit: m.Unit, Peer: m.Peer}
	var here []Contestant
	for _, c := range m.Contestants {
		if p.wants(m, c) {
			here = append(here, c)
			res.Contestants = append(res.Contestants, Outcome{Name: c.Name, NotRun: c.Absent})
		}
	}
	for round := range p.Rounds {
		for _, i := range rotated(len(here), round) {
			if here[i].Absent != "" {
				continue
			}
			s, err := here[i].Run(ctx, p.Timing)
			if ctx.Err() != nil {
				return res, ctx.Err()
			}
			res.Contestants[i].add(round, s, err)
			log("%s  round %d/%d  %-16s %s", m.Name, round+1, p.Rounds, here[i].Name, brief(s, m.Unit, err))
		}
	}
	res.summarize(m.Gates)
	return res, nil
}

func (o *Outcome) add(round int, s Sample, err error) {
	if err != nil {
		o.Failures = append(o.Failures, Crash{round, err.Error()})
		return
	}
	o.Samples = append(o.Samples, Round{round, s})
}

func brief(s Sample, unit string, err error) string {
	if err != nil {
		return "failed: " + err.Error()
	}
	return fmt.Sprintf("%8.3f M %ss/s  %7.1f CPU ns/%s, %6.1f of them its own", s.Rate()/1e6, unit, s.Cost(), unit, s.OwnCost())
}

// runSuite opens a suite, runs it and closes it, also when ctx ends.
func runSuite(ctx context.Context, s Suite, e *Env, p Plan) (res *Result, err error) {
	res = &Result{
		Schema: Schema, Suite: s.Name, Title: s.Title, About: s.About,
		Rounds: p.Rounds, WindowS: p.Timing.Window.Seconds(), Machine: describeMachine(e.Root),
	}
	b, err := s.Open(e)
	if err != nil {
		return nil, fmt.Errorf("open suite %s: %w", s.Name, err)
	}
	defer func() {
		if cerr := b.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close suite %s: %w", s.Name, cerr)
		}
	}()
	res.Notes = b.Notes
	for _, m := range b.Measures {
		mr, err := runMeasure(ctx, m, p, e.Log)
		if err != nil {
			return nil, err
		}
		if len(mr.Contestants) > 0 {
			res.Measures = append(res.Measures, mr)
		}
	}
	res.Machine.after()
	return res, nil
}
