package gpukern_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

func TestEngineStatsAddEnginesUp(t *testing.T) {
	choices := []Calibration{{
		Ops: OpParse | OpHash, Bytes: 64, BreakEven: 12, BreakEvenAlone: 34,
		CPU: CostModel{1, 2, 3}, GPU: CostModel{4, 5, 6},
	}}
	var a EngineStats
	a.Add(Info{Name: "cpu", Device: "amd64", Ops: OpParse | OpHash, Backends: []BackendStats{{Name: "cpu", Share: 0.375}}}) // one that does without
	for i, fault := range []string{"", "lost", "also lost", ""} {
		n := uint64(i)
		a.Add(Info{
			Name: "auto", Device: "amd64 and GPU", Ops: OpParse | OpHash, Redone: n, Retreats: 2 * n, Fault: fault, Calibrations: choices,
			Backends: []BackendStats{
				{Name: "cpu", Packets: 10 + n, Batches: 1, WaitNs: n, Share: 0.25 * float64(i)},
				{Name: "cuda", Packets: 100 * n, Batches: n, WaitNs: 1000 * n, Late: n, Share: 1 - 0.25*float64(i)},
			},
		})
	}
	want := EngineStats{
		Name: "auto", Device: "amd64 and GPU", Ops: "parse+hash", Redone: 6, Retreats: 12, Fault: "lost",
		Backends: []BackendStats{
			{Name: "cpu", Packets: 46, Batches: 4, WaitNs: 6, Share: 0.375},
			{Name: "cuda", Packets: 600, Batches: 6, WaitNs: 6000, Late: 6, Share: 0.625},
		},
		Calibrations: []CalibrationReport{{"parse+hash", 64, 12, 34, CostReport{1, 2, 3}, CostReport{4, 5, 6}, choices[0].String()}},
	}
	if diff := cmp.Diff(want, a, cmpopts.IgnoreUnexported(EngineStats{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

func TestTheCPUCountsWhatItHasDone(t *testing.T) {
	c := NewCPU(Config{Ops: OpParse, Depth: 1})
	b := packet.NewBatch(&packet.Arena{Mem: make([]byte, 1<<11), Shift: 11}, 3)
	for range 3 {
		b.Append(packet.Desc{Len: 64})
	}
	for range 2 { // the second finds no room
		_ = c.Submit(b)
	}
	if diff := cmp.Diff([]BackendStats{{Name: "cpu", Packets: 3, Batches: 1, Share: 1}}, c.Info().Backends); diff != "" {
		t.Error(diff)
	}
}
