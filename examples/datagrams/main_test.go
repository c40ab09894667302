package main

import (
	"testing"

	"github.com/millrace/millrace/quic/fec"
)

// TestRepairBringsBackWhatTheLinkLoses compares what does not arrive: the sliding window recovers at least two of three.
func TestRepairBringsBackWhatTheLinkLoses(t *testing.T) {
	const count = 600
	plain, err := measure(fec.None, 0.05, count)
	if err != nil {
		t.Fatal(err)
	}
	if plain.arrived == count || plain.recovered != 0 {
		t.Errorf("without repair: %+v of %d", plain, count)
	}
	// A receiver without a CPU loses datagrams beside those of the link, many in a row: no repair brings these back.
	var repaired result
	for range 5 {
		if repaired, err = measure(fec.RLC, 0.05, count); err != nil {
			t.Fatal(err)
		}
		if lost, was := count-repaired.arrived, count-plain.arrived; repaired.recovered > 0 && 3*lost <= was {
			return
		}
	}
	t.Errorf("with repair %+v of %d, without %+v", repaired, count, plain)
}
