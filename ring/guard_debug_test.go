//go:build debug

package ring

import "testing"

// mustPanic runs f and fails when it returns.
func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

func TestDebugBuildCatchesAWriteToAFreeFrame(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 4, Huge: HugeOff})
	p := cut(t, a, 0)
	off, _ := p.Get()
	p.Put(off)
	a.Mem[off+100] = 1
	mustPanic(t, func() { p.Get() })
}

func TestDebugBuildCatchesASecondPut(t *testing.T) {
	a := newArena(t, ArenaConfig{Frames: 4, Huge: HugeOff})
	p := cut(t, a, 0)
	one, _ := p.Get()
	p.Get()
	p.Put(one)
	mustPanic(t, func() { p.Put(one) })
}
