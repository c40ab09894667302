package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/gateway/config"
)

// Names of the contestants of the second loop.
const (
	oneLoop   = "1 loop"
	twoLoops  = "2 loops"
	handLoops = "2 loops, hand-over"
	fourLoops = "4 loops on 2 CPUs, hand-over"
)

// loops asks what a second loop on a second CPU brings. Ports are in memory: a packet is made, parsed,
// handled and swallowed on the loop's own CPU, and with hand-over half of them on the other. Four loops share the two
// CPUs, so that at any time two of them do not run: three quarters of the packets are for another loop, and must wait.
func (b *l4Bench) loops() ([]harness.Measure, error) {
	m := harness.Measure{Name: "loops", Unit: "packet", Peer: oneLoop, Gates: []harness.Gate{gate(twoLoops, harness.MetricRate, oneLoop, ">=", 1.7)}}
	for _, c := range []struct {
		name  string
		loops int
		as    string
	}{{oneLoop, 1, "any"}, {twoLoops, 2, "own"}, {handLoops, 2, "any"}, {fourLoops, 4, "any"}} {
		m.Contestants = append(m.Contestants, b.loopsOf(c.name, c.loops, c.as))
	}
	return []harness.Measure{m}, nil
}

func (b *l4Bench) loopsOf(name string, n int, as string) harness.Contestant {
	c := million("afxdp")
	c.Queues, c.HalfOpen = n, c.Table
	file, err := c.write(b.dir, fmt.Sprintf("loops-%d-%s", n, as))
	if err == nil {
		_, err = config.Load(file)
	}
	if err != nil {
		return harness.Contestant{Name: name, Absent: err.Error()}
	}
	part := harness.Part{Name: "loops", CPU: 1}
	argv := []string{b.e.Self, "role", "loops", "-as", as, "-cpu", "1"}
	if n > 1 {
		argv[len(argv)-1], part.Also = "0", []int{0}
	}
	part.Argv = append(append(argv, memoryStream(1024, 1).Args()...), file)
	return harness.Contestant{Name: name, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
		w, err := harness.RunParts(ctx, t, part)
		if err != nil {
			return harness.Sample{}, err
		}
		s := w.Sample("loops", "packets")
		s.Own, s.Version = s.Parts["loops"], w.Version["loops"]
		end := w.Final["loops"].Counts
		for name, n := range end {
			if name != "packets" {
				s.Counts[name] = n
			}
		}
		if end["packets"]+end["lost"] != end["offered"] {
			return s, fmt.Errorf("%d packets came in, %d left and %d were dropped", end["offered"], end["packets"], end["lost"])
		}
		s.Counts["received"] = end["packets"]
		// At its end a loop takes back what another one that has no CPU has not taken over, and drops it.
		s.Counts["lost in window"] = w.Last["loops"].Counts["lost"] - w.First["loops"].Counts["lost"]
		return s, nil
	}}
}
