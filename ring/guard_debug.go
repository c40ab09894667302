//go:build debug

package ring

import "fmt"

// poison fills a freed frame, so that a reader of a stale descriptor finds no packet in it.
const poison = 0xDB

// guard checks ownership in a debug build (-tags debug): a frame is put once for each time it was got,
// and is not written while it is free. The stale owner is found where it wrote and not where the damage
// shows.
type guard struct {
	arena *Arena
	free  []bool // by frame index
}

func newGuard(a *Arena) guard { return guard{a, make([]bool, a.Frames())} }

func (g guard) frame(off uint32) []byte { return g.arena.Mem[off:][:g.arena.FrameSize()] }

// got checks that the frame still holds the poison that put left in it.
func (g guard) got(off uint32) {
	g.free[g.arena.Frame(off)] = false
	for i, v := range g.frame(off) {
		if v != poison {
			panic(fmt.Sprintf("ring: frame %#x was written at byte %d while it was free", off, i))
		}
	}
}

func (g guard) gotBatch(offs []uint32) {
	for _, off := range offs {
		g.got(off)
	}
}

// put checks that the frame is not free already and poisons it.
func (g guard) put(off uint32) {
	if g.free[g.arena.Frame(off)] {
		panic(fmt.Sprintf("ring: frame %#x put twice", off))
	}
	g.free[g.arena.Frame(off)] = true
	Poison(g.frame(off))
}

// Poison overwrites b in a debug build, so that a reader of memory that has another owner by now finds no packet in it.
func Poison(b []byte) {
	for i := range b {
		b[i] = poison
	}
}
