package gpukern_test

import (
	"testing"

	. "github.com/millrace/millrace/gpukern"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/packet"
)

func TestAnAccountAddsEnginesUp(t *testing.T) {
	choices := []Choice{{
		Ops: OpParse | OpHash, Bytes: 64, From: 12, FromAlone: 34,
		CPU: Line{1, 2, 3}, GPU: Line{4, 5, 6},
	}}
	var a Account
	a.Add(Info{Name: "cpu", Device: "amd64", Ops: OpParse | OpHash, Work: []Work{{"cpu", 0, 0, 0.375}}}) // one that does without
	for i, fault := range []string{"", "lost", "also lost", ""} {
		n := uint64(i)
		a.Add(Info{
			Name: "auto", Device: "amd64 and GPU", Ops: OpParse | OpHash, Redone: n, Fault: fault, Choices: choices,
			Work: []Work{{"cpu", 10 + n, 1, 0.25 * float64(i)}, {"cuda", 100 * n, n, 1 - 0.25*float64(i)}},
		})
	}
	want := Account{
		Name: "auto", Device: "amd64 and GPU", Ops: "parse+hash", Redone: 6, Fault: "lost",
		Backends: []Done{{Name: "cpu", Packets: 46, Batches: 4, Share: 0.375}, {Name: "cuda", Packets: 600, Batches: 6, Share: 0.625}},
		Verdicts: []Verdict{{"parse+hash", 64, 12, 34, Figures{1, 2, 3}, Figures{4, 5, 6}, choices[0].String()}},
	}
	if diff := cmp.Diff(want, a, cmpopts.IgnoreUnexported(Account{}, Done{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
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
	if diff := cmp.Diff([]Work{{"cpu", 3, 1, 1}}, c.Info().Work); diff != "" {
		t.Error(diff)
	}
}
