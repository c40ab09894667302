package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake returns a contestant that notes its runs in order and gives the rate.
func fake(name string, order *[]string, rate float64) Contestant {
	return Contestant{Name: name, Run: func(context.Context, Timing) (Sample, error) {
		*order = append(*order, name)
		return Sample{Units: rate, Seconds: 1, CPU: 1}, nil
	}}
}

func quiet(string, ...any) {}

func TestContestantsTakeTurns(t *testing.T) {
	var order []string
	m := Measure{Name: "m", Unit: "unit", Peer: "b", Contestants: []Contestant{
		fake("a", &order, 3), fake("b", &order, 2), fake("c", &order, 1),
	}}
	if _, err := RunMeasure(context.Background(), m, Plan{Rounds: 3}, quiet); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(order), "[a b c b c a c a b]"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestACrashLosesTheRoundAndAnAbsentPeerIsNamed(t *testing.T) {
	var order []string
	runs := 0
	crashes := Contestant{Name: "crashes", Run: func(context.Context, Timing) (Sample, error) {
		if runs++; runs == 2 {
			return Sample{}, errors.New("segmentation fault")
		}
		return Sample{Units: 4, Seconds: 1, CPU: 1}, nil
	}}
	absent := Contestant{Name: "absent", Absent: "not installed", Run: func(context.Context, Timing) (Sample, error) {
		t.Error("an absent contestant was run")
		return Sample{}, nil
	}}
	m := Measure{
		Name: "m", Unit: "unit", Peer: "crashes",
		Contestants: []Contestant{fake("ours", &order, 2), crashes, absent},
		Gates:       []Gate{{"ours", MetricRate, "crashes", ">=", 0.5}, {"ours", MetricRate, "absent", ">=", 1}},
	}
	res, err := RunMeasure(context.Background(), m, Plan{Rounds: 3}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ours, crashed, gone := res.Contestants[0], res.Contestants[1], res.Contestants[2]
	if diff := cmp.Diff([]Crash{{1, "segmentation fault"}}, crashed.Failures); diff != "" {
		t.Error(diff)
	}
	if ours.Rate.N != 3 || crashed.Rate.N != 2 || ours.RateRatio != (Summary{N: 2, Median: 0.5, Min: 0.5, Max: 0.5}) {
		t.Errorf("rounds %d and %d, ratio %+v", ours.Rate.N, crashed.Rate.N, ours.RateRatio)
	}
	if gone.NotRun != "not installed" || len(gone.Samples) != 0 {
		t.Errorf("absent contestant: %+v", gone)
	}
	if g := res.Gates; !g[0].Met || g[1].Judged {
		t.Errorf("gates: %+v", g)
	}
}

func TestADisturbedRunIsRepeatedAndTheQuietestKept(t *testing.T) {
	busy := []float64{1.5, 1.2, 1.4} // of which 1 is its own
	runs := 0
	c := Contestant{Name: "c", Run: func(context.Context, Timing) (Sample, error) {
		runs++
		return Sample{Units: float64(runs), Seconds: 1, CPU: 1, Busy: busy[runs-1], CPUs: 1}, nil
	}}
	r, err := runQuiet(context.Background(), c, Plan{Repeat: 2})
	if err != nil || r.Attempts != 3 || r.Units != 2 {
		t.Errorf("kept run %v after %d attempts, error %v; want the second of 3", r.Units, r.Attempts, err)
	}
	busy[0], runs = 1.01, 0
	if r, err = runQuiet(context.Background(), c, Plan{Repeat: 2}); err != nil || r.Attempts != 1 {
		t.Errorf("a calm run was repeated: %d attempts, error %v", r.Attempts, err)
	}
}

func TestOnlyChoosesByMeasureAndContestant(t *testing.T) {
	var order []string
	m := Measure{Name: "rx 64 B", Peer: "C", Contestants: []Contestant{fake("ours", &order, 1), fake("C", &order, 1)}}
	for _, c := range []struct{ only, want []string }{
		{nil, []string{"ours", "C"}},
		{[]string{"rx"}, []string{"ours", "C"}},
		{[]string{"B/ours"}, []string{"ours"}},
		{[]string{"tx"}, nil},
		{[]string{"tx", "/C"}, []string{"C"}},
	} {
		order = nil
		if _, err := RunMeasure(context.Background(), m, Plan{Rounds: 1, Only: c.only}, quiet); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(order, c.want) {
			t.Errorf("-only %q ran %v, want %v", c.only, order, c.want)
		}
	}
}

func TestASuiteIsClosedWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	closed := false
	s := Suite{Name: "s", Open: func(*Env) (*Bench, error) {
		return &Bench{
			Measures: []Measure{{Name: "m", Contestants: []Contestant{{Name: "c", Run: func(context.Context, Timing) (Sample, error) {
				cancel()
				return Sample{}, ctx.Err()
			}}}}},
			Close: func() error { closed = true; return nil },
		}, nil
	}}
	_, err := Run(ctx, s, &Env{Log: quiet}, Plan{Rounds: 2})
	if !errors.Is(err, context.Canceled) || !closed {
		t.Errorf("runSuite = %v, closed %v", err, closed)
	}
}
