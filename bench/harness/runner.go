package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Plan says how a suite is run.
type Plan struct {
	Rounds int
	Timing Timing
	Repeat int      // how often a run that others disturbed is repeated
	Only   []string // run only measures and contestants whose "measure/contestant" contains one of them; none is all
}

func (p Plan) wants(m Measure, c Contestant) bool {
	has := func(text string) bool { return strings.Contains(m.Name+"/"+c.Name, text) }
	return len(p.Only) == 0 || slices.ContainsFunc(p.Only, has)
}

// calm is the share of the CPUs' time that others may take before a run is repeated. The judgement
// looks at others only, never at the figure, so repeating does not choose among results.
const calm = 0.05

// RunMeasure runs every contestant once in each round, in an order that rotates, so that none
// always follows the same other and slow drift of the machine meets all alike. A contestant that
// fails loses the round, not the run. The error is the context's.
func RunMeasure(ctx context.Context, m Measure, p Plan, log func(string, ...any)) (MeasureResult, error) {
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
			r, err := runQuiet(ctx, here[i], p)
			if ctx.Err() != nil {
				return res, ctx.Err()
			}
			r.Round = round
			res.Contestants[i].add(r, err)
			log("%s  round %d/%d  %-16s %s", m.Name, round+1, p.Rounds, here[i].Name, r.brief(m.Unit, err))
		}
	}
	res.summarize(m.Gates)
	return res, nil
}

// runQuiet runs a contestant until nothing else disturbs it, at most 1+p.Repeat times, and returns
// the least disturbed run.
func runQuiet(ctx context.Context, c Contestant, p Plan) (best Round, err error) {
	for attempt := 1; attempt <= 1+p.Repeat; attempt++ {
		s, err := c.Run(ctx, p.Timing)
		if err != nil {
			return best, err
		}
		if d := s.Others(); attempt == 1 || d < best.Disturbed {
			best.Sample, best.Disturbed = s, d
		}
		best.Attempts = attempt
		if best.Disturbed <= calm {
			break
		}
	}
	return best, nil
}

func (o *Outcome) add(r Round, err error) {
	if err != nil {
		o.Failures = append(o.Failures, Crash{r.Round, err.Error()})
		return
	}
	o.Samples = append(o.Samples, r)
}

func (r Round) brief(unit string, err error) string {
	if err != nil {
		return "failed: " + err.Error()
	}
	s := fmt.Sprintf("%8s M %ss/s  %7s CPU ns/%s, %6s of them its own",
		short(r.Rate()/1e6, 3), unit, short(r.Cost(), 1), unit, short(r.OwnCost(), 1))
	if r.Disturbed > calm {
		s += fmt.Sprintf(", disturbed %.0f %%", r.Disturbed*100)
	}
	return s
}

// Run opens a suite, runs it and closes it, also when ctx ends.
func Run(ctx context.Context, s Suite, e *Env, p Plan) (res *Result, err error) {
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
		mr, err := RunMeasure(ctx, m, p, e.Log)
		if err != nil {
			return nil, err
		}
		if len(mr.Contestants) > 0 {
			res.Measures = append(res.Measures, mr)
		}
	}
	if b.Pages != nil {
		res.Pages = b.Pages()
	}
	res.Machine.after()
	return res, nil
}
