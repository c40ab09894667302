package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Every contestant of packet-io delivers packets and its books balance. Speed is not looked at.
func TestPacketIODelivers(t *testing.T) {
	e := testEnv(t)
	b, err := openPacketIO(e)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plan := Plan{Rounds: 1, Timing: Timing{Warmup: 100 * time.Millisecond, Window: 100 * time.Millisecond}}
	for _, m := range b.Measures {
		if m.Name != "rx 64 B, live frames" && m.Name != "tx 64 B" && m.Name != "forward 64 B" {
			continue
		}
		res, err := runMeasure(context.Background(), m, plan, e.Log)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range res.Contestants {
			checkBooks(t, m.Name, o)
		}
	}
}

func checkBooks(t *testing.T, measure string, o Outcome) {
	t.Helper()
	for _, f := range o.Failures {
		t.Errorf("%s, %s: %s", measure, o.Name, f.Error)
	}
	if o.NotRun != "" {
		t.Logf("%s, %s: not run: %s", measure, o.Name, o.NotRun)
	}
	for _, s := range o.Samples {
		c := s.Counts
		if c["offered"] != c["received"]+c["lost"] || c["received"] == 0 || s.CPU <= 0 {
			t.Errorf("%s, %s: counts %v, %v CPU seconds", measure, o.Name, c, s.CPU)
		}
		if strings.HasPrefix(measure, "tx") && c["reordered"] != 0 {
			t.Errorf("%s, %s: %d packets out of order", measure, o.Name, c["reordered"])
		}
	}
}

func TestTheBooksOfARunAreChecked(t *testing.T) {
	run := func(sent, got, gaps, reordered uint64) error {
		counts := func(n uint64) Mark {
			return Mark{NS: int64(n), Counts: map[string]uint64{"packets": n, "gaps": gaps, "reordered": reordered}}
		}
		w := &Window{
			first: map[string]Mark{"to": counts(0)}, last: map[string]Mark{"to": counts(got)},
			final: map[string]Mark{"from": counts(sent), "to": counts(got)},
		}
		_, err := w.delivered("from", "own", "to")
		return err
	}
	for name, c := range map[string]struct {
		sent, got, gaps, reordered uint64
		want                       string
	}{
		"all arrived":                {10, 10, 0, 0, ""},
		"some lost, some at the end": {10, 6, 3, 0, ""},
		"more than were sent":        {10, 11, 0, 0, "only 10 sent"},
		"nothing arrived":            {10, 0, 0, 0, "nothing arrived"},
		"gaps beyond the losses":     {10, 9, 2, 0, "sequence numbers"},
		"gaps filled later":          {10, 9, 2, 1, ""},
	} {
		err := run(c.sent, c.got, c.gaps, c.reordered)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
