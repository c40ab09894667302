package offload

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

func TestTheFirstReasonStays(t *testing.T) {
	var d Device
	if d.Usable() != nil || d.Lost() != nil {
		t.Error("there is a device, or it is lost")
	}
	first := errors.New("first")
	d.Lose(first)
	d.Lose(errors.New("second"))
	if !errors.Is(d.Lost(), first) {
		t.Errorf("lost: %v", d.Lost())
	}
}

// TestALossIsSharedByAllUsers: one that another engine finds is found by Usable.
func TestALossIsSharedByAllUsers(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	gpu, err := cuda.Open(cuda.Options{Library: drv.Path, Management: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Close()
	var one, two Device
	one.Use(gpu)
	two.Use(gpu)
	if one.Usable() != gpu || one.Lost() != nil {
		t.Fatalf("not usable: %v", one.Lost())
	}
	one.Lose(errors.New("of this engine alone"))
	if one.Usable() != nil || two.Usable() != gpu {
		t.Error("what one engine gives up is given up by another, or used on")
	}
	drv.Lose(700) // CUDA_ERROR_ILLEGAL_ADDRESS
	if _, err := gpu.Alloc(16); err == nil {
		t.Fatal("the device is not lost")
	}
	if two.Usable() != nil || two.Lost() == nil {
		t.Errorf("a lost device is used: %v", two.Lost())
	}
}

func TestPartsAreAllOfTheWork(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		done := make([]atomic.Int32, n)
		Parallel(n, 8, func(from, to int) {
			for i := from; i < to; i++ {
				done[i].Add(1)
			}
		})
		for i := range done {
			if done[i].Load() != 1 {
				t.Errorf("%d operations: operation %d was done %d times", n, i, done[i].Load())
			}
		}
	}
}
