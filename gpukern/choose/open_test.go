package choose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

func TestKindsAreThree(t *testing.T) {
	for _, k := range Kinds {
		if got, err := ParseKind(string(k)); got != k || err != nil {
			t.Errorf("%s: %s, %v", k, got, err)
		}
	}
	if _, err := ParseKind("gpu"); !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), "cpu, cuda or auto") {
		t.Errorf("%v", err)
	}
}

var noDriver = cuda.Options{Library: "/nonexistent/libcuda.so.1"}

func TestWithoutAGPUOnlyCUDAFails(t *testing.T) {
	if _, err := NewOpener(OpenConfig{Kind: KindCUDA, Device: noDriver}); !errors.Is(err, ErrNoGPU) || !errors.Is(err, cuda.ErrNoDriver) {
		t.Errorf("%v", err)
	}
	for kind, text := range map[Kind]string{KindCPU: "cpu", KindAuto: "auto: the CPU alone; "} {
		o, err := NewOpener(OpenConfig{Kind: kind, Device: noDriver})
		if err != nil {
			t.Fatal(err)
		}
		e, err := o.Open(gpukern.Config{}, nil)
		if err != nil || e.Info().Name != "cpu" || !strings.HasPrefix(o.String(), text) || o.Device() != nil {
			t.Errorf("%s: %v, %s", kind, err, o)
		}
		if err := errors.Join(e.Close(), o.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestEnginesOnAGPUWork(t *testing.T) {
	for kind, name := range map[Kind]string{KindCUDA: "cuda", KindAuto: "auto"} {
		drv := hostkern.OpenDriver(t)
		o, err := NewOpener(OpenConfig{Kind: kind, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8})
		if err != nil {
			t.Fatal(err)
		}
		e, err := o.Open(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum}, arena)
		if err != nil {
			t.Fatal(err)
		}
		if i := e.Info(); i.Name != name || !strings.Contains(o.String(), "Fake GPU 0") || (len(i.Calibrations) > 0) != (kind == KindAuto) {
			t.Errorf("%s: %+v, %s", kind, i, o)
		}
		b := packet.NewBatch(arena.View(), 4)
		b.Append(scratchPacket(arena, 0, 64))
		b.Append(scratchPacket(arena, 1, 1408))
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
		for done := make([]*packet.Batch, 1); e.Poll(done) == 0; {
		}
		for i, d := range b.D {
			if d.L4 != 34 || !d.Flags.Has(packet.FlagIPChecksumOK|packet.FlagL4ChecksumOK) {
				t.Errorf("%s: packet %d: %+v", kind, i, d)
			}
		}
		if err := errors.Join(e.Close(), arena.Close(), o.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestAutoGoesOnWithoutAGPUThatDoesNotServe has every call fail in turn that opening an engine makes: only
// cuda is an error, auto is the CPU and says why, and nothing of the GPU is left.
func TestAutoGoesOnWithoutAGPUThatDoesNotServe(t *testing.T) {
	const outOfMemory = 2
	for _, name := range []string{"cuMemHostRegister_v2", "cuMemAlloc_v2", "cuStreamCreateWithPriority", "cuLaunchKernel"} {
		for _, kind := range []Kind{KindCUDA, KindAuto} {
			t.Run(name+" "+string(kind), func(t *testing.T) { openWithout(t, kind, name, outOfMemory) })
		}
	}
}

func openWithout(t *testing.T, kind Kind, name string, code int) {
	drv := hostkern.OpenDriver(t)
	var told []error
	o, err := NewOpener(OpenConfig{
		Kind: kind, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
		Without: func(err error) { told = append(told, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8})
	if err != nil {
		t.Fatal(err)
	}
	drv.Fail(name, 1, code)
	e, err := o.Open(gpukern.Config{Ops: gpukern.OpParse}, arena)
	drv.Fail("", 0, 0)
	switch kind {
	case KindCUDA:
		if !errors.Is(err, ErrNoGPU) || !errors.Is(err, cuda.ErrOutOfMemory) || len(told) != 0 {
			t.Errorf("%v, told %v", err, told)
		}
	case KindAuto:
		if err != nil || e.Info().Name != "cpu" {
			t.Fatalf("%v, %v", e, err)
		}
		if len(told) != 1 || !errors.Is(told[0], cuda.ErrOutOfMemory) {
			t.Errorf("told %v", told)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(arena.Close(), o.Close()); err != nil {
		t.Error(err)
	}
}

// TestAutoGoesOnWithoutAGPUThatFailsCalibration loses the device in the calibration's first launch.
func TestAutoGoesOnWithoutAGPUThatFailsCalibration(t *testing.T) {
	const outOfMemory = 2
	drv := hostkern.OpenDriver(t)
	told := 0
	o, err := NewOpener(OpenConfig{
		Kind: KindAuto, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}, Without: func(error) { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8})
	if err != nil {
		t.Fatal(err)
	}
	drv.Fail("cuMemHostRegister_v2", 3, outOfMemory) // the arena, the words, and then the arena of the calibration
	e, err := o.Open(gpukern.Config{Ops: gpukern.OpParse}, arena)
	if err != nil || e.Info().Name != "cpu" || told != 1 {
		t.Fatalf("%v, told %d, %v", e, told, err)
	}
	if err := errors.Join(e.Close(), arena.Close(), o.Close()); err != nil {
		t.Error(err)
	}
}

// TestOneLossInSeveralCallsIsReportedOnce: which call to the driver fails first differs between engines.
func TestOneLossInSeveralCallsIsReportedOnce(t *testing.T) {
	var lost []error
	o := &Opener{cfg: OpenConfig{Lost: func(err error) { lost = append(lost, err) }}}
	query := &cuda.Error{Op: "cuStreamQuery", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	launch := &cuda.Error{Op: "cuLaunchKernel", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	stuck, other := &cuda.Error{Op: "the kernel does not answer"}, &cuda.Error{Op: "a result is out of range"}
	for _, err := range []error{query, fmt.Errorf("launch gk_ring: %w", launch), stuck, other, query, stuck} {
		o.lost(err)
	}
	if !slices.Equal(lost, []error{query, stuck, other}) {
		t.Errorf("reported %v", lost)
	}
}

func TestALossIsToldOnceForAllEngines(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	lost := make(chan error, 8)
	o, err := NewOpener(OpenConfig{
		Kind: KindCUDA, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
		Lost: func(err error) { lost <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8})
	if err != nil {
		t.Fatal(err)
	}
	var engines []gpukern.Engine
	for range 3 {
		e, err := o.Open(gpukern.Config{Ops: gpukern.OpParse}, arena)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	drv.Lose(700)
	var reasons []string
	for _, e := range engines {
		for end := time.Now().Add(20 * time.Second); e.Info().Fault == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the loss is not noticed")
			}
		}
		reasons = append(reasons, e.Info().Fault)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-lost; !slices.Contains(reasons, err.Error()) {
		t.Errorf("told %q, engines say %q", err, reasons)
	}
	time.Sleep(20 * time.Millisecond)
	if len(lost) > 0 {
		t.Errorf("told again: %v", <-lost)
	}
	if err := errors.Join(arena.Close(), o.Close()); err != nil {
		t.Error(err)
	}
}
