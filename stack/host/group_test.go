package host

import (
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// newLoops returns loops of one device each that are not joined.
func newLoops(t *testing.T, n int) (loops []*stack.Loop) {
	t.Helper()
	a, err := ring.NewArena(ring.ArenaConfig{Frames: 64 * n, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	for range n {
		pa, _ := a.Cut(32)
		pb, _ := a.Cut(32)
		d, _, err := pmd.NewMemory(pmd.MemoryConfig{A: pa, B: pb})
		if err != nil {
			t.Fatal(err)
		}
		l, err := stack.NewLoop(stack.Config{Devices: []pmd.Driver{d}, Pool: pa, Engine: gpukern.NewCPU(gpukern.Config{})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		loops = append(loops, l)
	}
	return loops
}

// TestNewJoinsLoopsThatAreNotJoined gives New loops in every state of joining.
func TestNewJoinsLoopsThatAreNotJoined(t *testing.T) {
	one := newLoops(t, 1)
	if _, err := New(Config{Loops: one}); err != nil || one[0].Mesh() != nil {
		t.Errorf("one loop: %v, mesh %v", err, one[0].Mesh())
	}
	two := newLoops(t, 2)
	if _, err := New(Config{Loops: two}); err != nil || two[0].Mesh() == nil || two[0].Mesh() != two[1].Mesh() {
		t.Errorf("two loops: %v", err)
	}
	joined := newLoops(t, 2)
	m, err := stack.Join(joined...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Loops: joined}); err != nil || joined[0].Mesh() != m {
		t.Errorf("joined loops: %v", err)
	}
	for name, loops := range map[string][]*stack.Loop{
		"none": nil, "in another order": {joined[1], joined[0]}, "not all of the mesh": {joined[0]},
		"one joined, one not": {newLoops(t, 1)[0], joined[0]},
	} {
		if _, err := New(Config{Loops: loops}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestADispatchedHostIsNoHandler looks at whether a loop can poll after New.
func TestADispatchedHostIsNoHandler(t *testing.T) {
	for _, dispatched := range []bool{false, true} {
		l := newLoops(t, 1)[0]
		if _, err := New(Config{Loops: []*stack.Loop{l}, Dispatched: dispatched}); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if (recover() != nil) != dispatched {
					t.Errorf("dispatched %v: the loop has a handler: %v", dispatched, !dispatched)
				}
			}()
			l.Poll(clock.Time(1))
		}()
	}
}
