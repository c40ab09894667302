package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern"
)

func TestEngineSharesAndCalibrationsAreShown(t *testing.T) {
	a := gpukern.EngineStats{Name: "cpu", Device: "amd64", Ops: "parse", Backends: []gpukern.BackendStats{{Name: "cpu", Packets: 1234, Batches: 5, Share: 1}}}
	check := func(want string) {
		t.Helper()
		var out bytes.Buffer
		c := &console{out: &out}
		showEngine(c, &a)
		showCalibrations(c, a.Calibrations)
		if out.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", &out, want)
		}
	}
	check("engine     cpu (amd64), parse\n")
	a.Name, a.Device = "auto", "amd64 and GPU"
	a.Backends = append(a.Backends, gpukern.BackendStats{Name: "cuda", Packets: 7, Batches: 1, Share: 0.25})
	a.Backends[0].Share = 0.75
	a.Calibrations = gpukern.CalibrationReports([]gpukern.Calibration{{Ops: gpukern.OpParse, Bytes: 64, CPU: gpukern.CostModel{FixedNs: 100, PacketNs: 10, PipelinedNs: 10}, GPU: gpukern.CostModel{FixedNs: 5000, PacketNs: 1, PipelinedNs: 20}}})
	const both = "engine     auto (amd64 and GPU), parse\n" +
		"           cpu 1,234 packets in 5 batches, share 75 %; cuda 7 packets in 1 batches, share 25 %\n"
	const verdict = "calibrated parse, 64 B: never on the GPU here; CPU 0.10 us + n*10.0 ns, 100.0 Mpps; GPU 5.00 us + n*1.0 ns, 50.0 Mpps\n"
	check(both + verdict)
	a.Backends[1].WaitNs, a.Retreats = 12_340, 2
	check(strings.Replace(both, "1 batches,", "1 batches of 12.3 us,", 1) +
		"           the GPU was too slow 2 times, and the CPU did its work for a while: does another program use it?\n" + verdict)
	a.Backends[1].WaitNs, a.Retreats = 0, 0
	a.Fault, a.Redone = "gone", 1000
	check(both + "           the GPU has failed, the CPU does its work: gone; 1,000 packets were processed again\n" + verdict)
}
