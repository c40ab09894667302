package datapath

import (
	"testing"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/packet"
)

// What makes room is of the sender of the newest datagram in the fullest bucket, where it is among the oldest there.
func TestVictimsAreOfTheSenderThatFloods(t *testing.T) {
	seed := random.Source(1)
	f := newHeldFragments(&seed)
	a := fragmentKey{src: addr4([]byte{198, 18, 0, 1})}
	b := a
	for b.src = addr4([]byte{198, 18, 0, 2}); f.sourceOf(&b) != f.sourceOf(&a); { // in one bucket
		b.src.lo++
	}
	push := func(k fragmentKey, n int) {
		for i := range n {
			k.id = uint32(i)
			f.push(-1, &fragmentHeader{key: k, at: 8, end: 16, more: true}, make([]packet.Desc, 1), 1, false)
		}
	}
	victims := func(n int) (ids []fragmentKey) {
		for range n {
			i := f.victim()
			e := f.take(f.listOf(i), i)
			f.release(e.oldest)
			ids = append(ids, e.key)
		}
		return ids
	}
	push(b, 20)
	push(a, 100)
	for i, k := range victims(50) {
		if k.src != a.src || k.id != uint32(i) {
			t.Fatalf("victim %d is of %v, %d", i, k.src, k.id)
		}
	}
	push(b, 1) // newer than those of a, but older ones are there
	if k := victims(1)[0]; k.src != b.src || k.id != 0 {
		t.Errorf("%+v", k)
	}
	for victims(1)[0].src == b.src {
	}
	push(b, 1) // the oldest of b is behind many of a
	if k := victims(1)[0]; k.src != b.src {
		t.Errorf("%+v", k)
	}
	for range f.frames {
		victims(1)
	}
	if f.frames != 0 || f.waiting.oldest >= 0 || f.waiting.newest >= 0 {
		t.Errorf("%d frames are left", f.frames)
	}
	push(a, heldFrames) // every slot is free again
}
