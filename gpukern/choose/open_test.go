package choose

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/internal/hostkern"
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
		o, err := NewOpener(OpenConfig{Kind: kind, Device: cuda.Options{Library: drv.Path, Management: drv.Path}})
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
		if i := e.Info(); i.Name != name || !strings.Contains(o.String(), "Fake GPU 0") || (len(i.Choices) > 0) != (kind == KindAuto) {
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
