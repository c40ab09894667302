package ring

import (
	"testing"

	"github.com/millrace/millrace/packet"
)

// TestBatchCallsEqualSingleCalls runs a pool in batches beside one that goes one by one.
func TestBatchCallsEqualSingleCalls(t *testing.T) {
	pools := [2]*Pool{}
	var arena *Arena
	for i := range pools {
		a, err := NewArena(ArenaConfig{Frames: 16, Huge: HugeOff})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if pools[i], err = a.Cut(16); err != nil {
			t.Fatal(err)
		}
		arena = a
	}
	batched, single := pools[0], pools[1]
	for _, n := range []int{0, 1, 5, 16, 20} {
		b := packet.NewBatch(arena.View(), 20)
		got := append([]uint32(nil), batched.GetBatch(n)...)
		want := map[uint32]bool{}
		for range n {
			if off, ok := single.Get(); ok {
				want[off] = true
			}
		}
		for _, off := range got {
			if !want[off] {
				t.Errorf("GetBatch(%d) gave %#x, which Get does not", n, off)
			}
			delete(want, off)
			b.Append(packet.Desc{Off: off + 100})
		}
		if len(want) != 0 || batched.Free() != single.Free() {
			t.Errorf("GetBatch(%d) gave %d frames, Get %d more", n, len(got), len(want))
		}
		for _, off := range got {
			single.Put(off)
		}
		if batched.PutBatch(b); batched.Free() != 16 || b.Len() != 0 {
			t.Errorf("%d frames are back of 16", batched.Free())
		}
		seen := frameSet{a: arena, held: map[uint32]bool{}}
		batched.Holds(func(off uint32) {
			if off&2047 != 0 || !seen.add(off) {
				t.Errorf("frame %#x is in the pool twice or not by its start", off)
			}
		})
	}
}

func TestPutBatchIntoAFullPoolPanics(t *testing.T) {
	a, err := NewArena(ArenaConfig{Frames: 4, Huge: HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p, err := a.Cut(4)
	if err != nil {
		t.Fatal(err)
	}
	b := packet.NewBatch(a.View(), 4)
	b.Append(packet.Desc{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	p.PutBatch(b)
}
