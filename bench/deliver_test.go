package main

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace/millrace/bench/harness"
)

// delivered runs a measure. A contestant that fails runs up to twice more, each time in a window ten times as long: on a busy machine a
// sender may not run at all in a short one.
func delivered(t *testing.T, e *harness.Env, m harness.Measure, plan harness.Plan) []harness.Outcome {
	t.Helper()
	all := outcomes(t, e, m, plan)
	for i, o := range all {
		again, longer := m, plan
		again.Contestants = slices.DeleteFunc(slices.Clone(m.Contestants), func(c harness.Contestant) bool { return c.Name != o.Name })
		again.Gates = nil // the others are not there
		for range 2 {
			if len(all[i].Failures) == 0 {
				break
			}
			longer.Timing.Window *= 10
			all[i] = outcomes(t, e, again, longer)[0]
		}
	}
	return all
}

func outcomes(t *testing.T, e *harness.Env, m harness.Measure, plan harness.Plan) []harness.Outcome {
	t.Helper()
	res, err := harness.RunMeasure(context.Background(), m, plan, e.Log)
	if err != nil {
		t.Fatal(err)
	}
	return res.Contestants
}
