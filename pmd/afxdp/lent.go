package afxdp

import "github.com/millrace/millrace/ring"

// lent is the set of frames that the kernel holds for one purpose, a byte for each frame of the
// arena. A bit for each would be smaller, but bytes of neighbouring frames do not wait for each
// other as bits of one word do, and loops count for themselves.
type lent struct {
	held  []bool
	shift uint8 // of the frame size
	n     int   // frames held
}

func newLent(a *ring.Arena) lent { return lent{held: make([]bool, a.Frames()), shift: a.Shift} }

// add puts the frame of an address into the set; false says that it was there or that there is no
// such frame. The caller adds to n.
func (l *lent) add(addr uint64) bool {
	f := addr >> l.shift
	if f >= uint64(len(l.held)) || l.held[f] {
		return false
	}
	l.held[f] = true
	return true
}

// remove takes the frame of an address out of the set; false says that it was not there. The
// caller subtracts from n.
func (l *lent) remove(addr uint64) bool {
	f := addr >> l.shift
	if f >= uint64(len(l.held)) || !l.held[f] {
		return false
	}
	l.held[f] = false
	return true
}

// Holds implements ring.Holder.
func (l *lent) Holds(visit func(off uint32)) {
	for f, held := range l.held {
		if held {
			visit(uint32(f) << l.shift)
		}
	}
}
