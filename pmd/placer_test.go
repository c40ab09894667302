package pmd

import (
	"testing"

	"github.com/millrace/millrace/ring"
)

// placerOf is a driver that can place payload.
type placerOf struct {
	Driver
	placer Placer
}

func (d *placerOf) Info() Info {
	i := d.Driver.Info()
	i.Placer, i.Caps = &d.placer, i.Caps|CapExternal
	return i
}

// A wrapper that holds packets must have all their bytes in frames.
func TestImpairDoesNotPassThePlacerOn(t *testing.T) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	a, _ := arena.Cut(32)
	b, _ := arena.Cut(32)
	da, _, err := NewMemory(MemoryConfig{A: a, B: b})
	if err != nil {
		t.Fatal(err)
	}
	bad, err := NewImpair(&placerOf{Driver: da}, ImpairConfig{Pool: a})
	if err != nil {
		t.Fatal(err)
	}
	if i := bad.Info(); i.Placer != nil || i.Caps&CapExternal != 0 {
		t.Error("the placer is passed on, or packets without their payload are taken")
	}
}
