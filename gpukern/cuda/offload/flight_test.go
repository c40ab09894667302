package offload

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
)

// refusal is the result of a call that fails, and does not end the context.
const refusal = 802

func openFlight(t *testing.T) (*Flight, *hostkern.Driver) {
	t.Helper()
	drv := hostkern.OpenDriver(t)
	gpu, err := cuda.Open(cuda.Options{Library: drv.Path, Management: drv.Path})
	if err != nil {
		t.Fatal(err)
	}
	f := new(Flight)
	if err := f.Open(gpu, 4096, 8192); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), gpu.Close()); err != nil {
			t.Error(err)
		}
	})
	return f, drv
}

// TestALaunchLands: its time begins with Begin, and one that takes longer has lost its device.
func TestALaunchLands(t *testing.T) {
	f, _ := openFlight(t)
	if f.Flying() || len(f.Host.Mem) < 4096 || f.Dev.Size < 8192 {
		t.Errorf("flying %v, %d and %d bytes", f.Flying(), len(f.Host.Mem), f.Dev.Size)
	}
	f.Begin()
	err := errors.Join(f.Stream.Fill(f.Dev.Ptr, 3, 16), f.Stream.CopyOut(f.Host, 0, f.Dev.Ptr, 16), f.Sent())
	if err != nil || !f.Flying() {
		t.Fatalf("flying %v, %v", f.Flying(), err)
	}
	if err := f.Land(1, time.Minute); err != nil || f.Flying() || f.Host.Mem[15] != 3 {
		t.Errorf("flying %v, %d, %v", f.Flying(), f.Host.Mem[15], err)
	}
}

// TestAFlightThatDoesNotOpenLeavesNothing has each call of the driver fail in turn.
func TestAFlightThatDoesNotOpenLeavesNothing(t *testing.T) {
	for n := 1; ; n++ {
		first, drv := openFlight(t)
		drv.Fail("", n, refusal)
		var f Flight
		err := f.Open(first.GPU, 4096, 8192)
		drv.Fail("", 0, 0)
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if n < 4 {
				t.Errorf("%d calls", n)
			}
			return
		}
		if f.Host != nil || f.Dev != nil || f.Stream != nil {
			t.Errorf("call %d fails: %+v is left", n, f)
		}
	}
}

// TestAFailureIsWiped where the device has refused a call, and not where it is lost or does not end.
func TestAFailureIsWiped(t *testing.T) {
	f, drv := openFlight(t)
	wiped := 0
	wipe := func() error { wiped++; return nil }
	f.Begin()
	if f.Fail(errors.New("refused"), wipe); wiped != 1 || f.Flying() {
		t.Errorf("wiped %d times, flying %v", wiped, f.Flying())
	}
	f.Begin()
	if f.Fail(cuda.ErrLost, wipe); wiped != 1 || f.Flying() {
		t.Errorf("wiped %d times after the device was late, flying %v", wiped, f.Flying())
	}
	drv.Lose(700) // CUDA_ERROR_ILLEGAL_ADDRESS
	f.Begin()
	err := f.Land(1, time.Minute)
	if err == nil || !f.Flying() {
		t.Errorf("flying %v on a lost device, %v", f.Flying(), err)
	}
	if f.Fail(errors.New("whatever it was"), wipe); wiped != 1 {
		t.Errorf("wiped %d times on a lost device", wiped)
	}
}
