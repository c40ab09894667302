package main

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// Every contestant of packet-io delivers packets and its books balance. Speed is not looked at.
func TestPacketIODelivers(t *testing.T) {
	e := testEnv(t)
	b, err := openPacketIO(e)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plan := harness.Plan{Rounds: 1, Timing: harness.Timing{Warmup: 100 * time.Millisecond, Window: 100 * time.Millisecond}}
	for _, m := range b.Measures {
		if m.Name != "rx 64 B, live frames" && m.Name != "tx 64 B" && m.Name != "forward 64 B" {
			continue
		}
		for _, o := range delivered(t, e, m, plan) {
			checkBooks(t, m.Name, o)
		}
	}
}

func checkBooks(t *testing.T, measure string, o harness.Outcome) {
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
