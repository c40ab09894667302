package choose

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

func TestFitFindsTheLine(t *testing.T) {
	for _, want := range [][2]float64{{5000, 3}, {0, 40}, {100, 0}} {
		var s []sample
		for _, n := range counts {
			s = append(s, sample{n, want[0] + want[1]*float64(n)})
		}
		t0, t1 := fit(s)
		if math.Abs(t0-want[0]) > 1e-6*(1+want[0]) || math.Abs(t1-want[1]) > 1e-6*(1+want[1]) {
			t.Errorf("%v: %v + n*%v", want, t0, t1)
		}
	}
}

// TestTheSmallestBatchCountsAsMuch: three batches that are on no line; the error of each is a part of its
// own time.
func TestTheSmallestBatchCountsAsMuch(t *testing.T) {
	s := []sample{{32, 1000}, {128, 2000}, {256, 9000}}
	t0, t1 := fit(s)
	for _, x := range s {
		if off := (t0 + t1*float64(x.n)) / x.ns; off < 0.3 || off > 1.75 {
			t.Errorf("at %d: %.2f of the time measured", x.n, off)
		}
	}
}

func TestNoTermOfALineIsNegative(t *testing.T) {
	for _, s := range [][]sample{
		{{32, 100}, {128, 4000}, {256, 9000}}, // falls below 0 at the left
		{{32, 5000}, {128, 4000}, {256, 3000}},
		{{32, 7}},
	} {
		t0, t1 := fit(s)
		if t0 < 0 || t1 < 0 || t0+t1 == 0 || math.IsNaN(t0+t1) {
			t.Errorf("%v: %v + n*%v", s, t0, t1)
		}
	}
}

func TestVerdicts(t *testing.T) {
	line := func(t0, t1, each float64) gpukern.CostModel {
		return gpukern.CostModel{FixedNs: t0, PacketNs: t1, PipelinedNs: each}
	}
	for _, tc := range []struct {
		cpu, gpu    gpukern.CostModel
		from, alone int
	}{
		{line(0, 40, 40), line(5000, 1, 2), 13, 129},    // 2*256/40 = 12.8; 5000/39 = 128.2
		{line(0, 40, 40), line(5000, 100, 50), 0, 0},    // never
		{line(0, 40, 40), line(5000, 60, 20), 129, 0},   // the rate alone pays
		{line(0, 40, 40), line(0, 0.5, 41), 0, 1},       // a lone batch pays, the rate does not
		{line(1000, 2, 2), line(3000, 1, 1.5), 0, 2001}, // 1.5*n < 1000+2n is true from some n on
	} {
		c := gpukern.Calibration{CPU: tc.cpu, GPU: tc.gpu}
		breakEven(&c)
		if tc.cpu.FixedNs > 0 {
			tc.from = 1 // 384 ns a trip against 1000
		}
		if c.BreakEven != tc.from || c.BreakEvenAlone != tc.alone {
			t.Errorf("%v against %v: from %d, alone %d; want %d, %d", tc.gpu, tc.cpu, c.BreakEven, c.BreakEvenAlone, tc.from, tc.alone)
		}
	}
}

// slow is an engine that takes time for each batch: in a bubble of synctest Poll has it pass.
type slow struct {
	*gpukern.CPU
	extra time.Duration
	ready []time.Time
}

func (s *slow) Submit(b *packet.Batch) error {
	s.ready = append(s.ready, time.Now().Add(s.extra))
	return s.CPU.Submit(b)
}

func (s *slow) Poll(done []*packet.Batch) int {
	if len(s.ready) == 0 {
		return 0
	}
	time.Sleep(time.Until(s.ready[0]))
	s.ready = s.ready[1:]
	return s.CPU.Poll(done[:1])
}

// backend is one whose batches take so much longer than the CPU's, with operations of its own.
func backend(name string, extra time.Duration, light bool) Backend {
	mem := make([]byte, 256<<11)
	return Backend{
		Name: name,
		Open: func(ops gpukern.Ops) (gpukern.Engine, error) {
			if light {
				ops = gpukern.OpParse
			}
			return &slow{CPU: gpukern.NewCPU(gpukern.Config{Ops: ops, Depth: 8}), extra: extra}, nil
		},
		Batch: func(n, size int) (*packet.Batch, error) {
			b := packet.NewBatch(&packet.Arena{Mem: mem, Shift: 11}, n)
			for i := range n {
				b.Append(packet.Desc{Off: uint32(i) << 11, Len: uint16(size)})
			}
			return b, nil
		},
	}
}

// In virtual time a batch takes what its engine waits, and the rest of the code nothing.
func TestCalibrationSaysNeverOfASlowGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const onCPU, delay, limit = 10 * time.Microsecond, 3 * time.Millisecond, 60 * time.Millisecond
		begin := time.Now()
		all, err := Calibrate(t.Context(), backend("cpu", onCPU, false), backend("cuda", delay, false),
			Plan{Ops: []gpukern.Ops{gpukern.OpsHeader}, Sizes: []int{64}, Time: limit})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 1 || !all[0].Never() || all[0].BreakEvenAlone != 0 {
			t.Errorf("%v", &all[0])
		}
		if c, g := all[0].CPU, all[0].GPU; math.Abs(g.FixedNs-float64(delay)) > 1 || math.Abs(c.FixedNs-float64(onCPU)) > 1 {
			t.Errorf("fixed parts %v and %v, want %v and %v", c, g, onCPU, delay)
		}
		if took := time.Since(begin); took < limit/2 || took > 2*limit { // each measurement ends with the batch that is under way
			t.Errorf("took %v of %v", took, limit)
		}
	})
}

func TestCalibrationMeasuresEverySetAndSize(t *testing.T) {
	plan := Plan{Ops: []gpukern.Ops{gpukern.OpParse, gpukern.OpsHeader}, Time: 50 * time.Millisecond}
	all, err := Calibrate(context.Background(), backend("cpu", 0, false), backend("cuda", 0, true), plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*len(DefaultSizes) {
		t.Fatalf("%d verdicts", len(all))
	}
	for i, c := range all {
		if c.Ops != plan.Ops[i/len(DefaultSizes)] || c.Bytes != DefaultSizes[i%len(DefaultSizes)] {
			t.Errorf("verdict %d is about %v, %d B", i, c.Ops, c.Bytes)
		}
		for _, l := range []gpukern.CostModel{c.CPU, c.GPU} {
			if l.FixedNs+l.PacketNs <= 0 || !(l.PipelinedNs > 0) {
				t.Errorf("%v", &c)
			}
		}
	}
}

func TestCalibrationEndsWithItsContextAndWithErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := backend("cpu", 0, false)
	if _, err := Calibrate(ctx, b, b, Plan{Ops: []gpukern.Ops{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	broken := b
	broken.Open = func(gpukern.Ops) (gpukern.Engine, error) { return nil, gpukern.ErrClosed }
	if _, err := Calibrate(context.Background(), b, broken, Plan{Ops: []gpukern.Ops{1}, Time: time.Millisecond}); !errors.Is(err, gpukern.ErrClosed) {
		t.Errorf("%v", err)
	}
}
