package host

import (
	"net/netip"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
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

// TestSettleBeforeTheLoopsRun configures more than a queue of commands holds, and asks the second loop for the last of it.
func TestSettleBeforeTheLoopsRun(t *testing.T) {
	g, err := New(Config{Loops: newLoops(t, 2)})
	if err != nil {
		t.Fatal(err)
	}
	var last netip.Addr
	for i := range 300 {
		if last.IsValid() {
			if err := g.DelAddr(0, wire.AddrFrom(last)); err != nil {
				t.Fatal(err)
			}
		}
		last = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		if err := g.AddAddr(0, netip.PrefixFrom(last, 15), ip.Static, true); err != nil {
			t.Fatal(err)
		}
	}
	usable := func() (ok bool) {
		_ = g.Hosts[1].locked(func(_ clock.Time, h *Host) error { ok = h.IP.Usable(wire.AddrFrom(last)); return nil })
		return ok
	}
	if usable() {
		t.Error("the second loop knows an address before Settle")
	}
	if g.Settle(); !usable() {
		t.Error("the second loop does not know an address after Settle")
	}
}
