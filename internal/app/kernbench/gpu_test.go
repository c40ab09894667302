package kernbench

import (
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// fewRounds has paths of the GPU run a few times, which verifies as many different packets as a hundred times, until the test ends.
func fewRounds(t *testing.T) {
	n, l, h := launches, leastBatches, hostLaps
	launches, leastBatches, hostLaps = 2, 4, 2
	t.Cleanup(func() { launches, leastBatches, hostLaps = n, l, h })
}

// TestEveryPathOfTheGPUIsMeasuredAndVerified runs the kernels on the CPU, by a driver that is not one.
func TestEveryPathOfTheGPUIsMeasuredAndVerified(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	fewRounds(t)
	rep, err := Run(t.Context(), Config{
		Ops: []string{"null", "header", "flow-1k", "literals-100"}, Sizes: []string{SizeIMIX, SizeHostile}, Packets: 128,
		Time: time.Millisecond, Batches: []int{32, 100}, Engine: "cuda", Cores: 2,
		Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Failed() {
		t.Error(s)
	}
	for _, row := range rep.Rows {
		for _, f := range row.Figures {
			if f.NotRun != "" {
				t.Logf("%s, %s, %s: not run: %s", row.Op, row.Size, f.Path, f.NotRun)
				continue
			}
			if f.Verified == 0 || f.Verified%128 != 0 || f.PacketsPerSecond <= 0 {
				t.Errorf("%s, %s, %s: %+v", row.Op, row.Size, f.Path, f)
			}
		}
	}
	if rep.Machine.GPU != "Fake GPU 0" {
		t.Errorf("%+v", rep.Machine)
	}
	if len(rep.Latency) != 2*3 {
		t.Errorf("%d latencies", len(rep.Latency))
	}
}

// TestPacketsOfCapturesAreVerifiedOnTheGPU is about packets that are cut, damaged or long, as captures have them.
func TestPacketsOfCapturesAreVerifiedOnTheGPU(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	fewRounds(t)
	odd := oddPackets()
	rep, err := Run(t.Context(), Config{
		Ops: []string{"checksum", "header"}, Sizes: []string{SizeCapture}, Packets: 2 * len(odd), Captures: capturesOf(t, odd...),
		Time: time.Millisecond, Engine: "cuda", Cores: 1, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	})
	if err != nil || len(rep.Rows) != 2 {
		t.Fatal(err)
	}
	for _, s := range rep.Failed() {
		t.Error(s)
	}
}
