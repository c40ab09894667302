package ring

import (
	"errors"
	"fmt"
	"math/bits"
)

// Ledger is a set of an arena's frames, a bit for each: what somebody holds, for a check or for giving
// it all back. A debug build keeps one of the free frames; pmd/afxdp has a form of its own, with bytes.
type Ledger struct {
	shift uint8
	words []uint64
	n     int
}

// NewLedger returns an empty set for the frames of a.
func NewLedger(a *Arena) *Ledger {
	return &Ledger{shift: a.Shift, words: make([]uint64, (a.Frames()+63)/64)}
}

// Add puts the frame with byte offset off into the set; false says that it was there already.
func (l *Ledger) Add(off uint32) bool {
	f := off >> l.shift
	w, bit := &l.words[f>>6], uint64(1)<<(f&63)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	l.n++
	return true
}

// Remove takes the frame with byte offset off out of the set; false says that it was not there or
// is not of this arena.
func (l *Ledger) Remove(off uint32) bool {
	f := off >> l.shift
	if int(f>>6) >= len(l.words) {
		return false
	}
	w, bit := &l.words[f>>6], uint64(1)<<(f&63)
	if *w&bit == 0 {
		return false
	}
	*w &^= bit
	l.n--
	return true
}

// Len returns the number of frames in the set.
func (l *Ledger) Len() int { return l.n }

// Holds implements Holder.
func (l *Ledger) Holds(visit func(off uint32)) {
	for i, w := range l.words {
		for ; w != 0; w &= w - 1 {
			visit(uint32(i<<6+bits.TrailingZeros64(w)) << l.shift)
		}
	}
}

// Holder is something that owns frames: a pool, a driver, a batch on its way.
type Holder interface {
	// Holds calls visit once for each frame owned, with any byte offset inside of the frame.
	Holds(visit func(off uint32))
}

// ErrAudit says that a frame is nowhere or in two places.
var ErrAudit = errors.New("frame audit")

// Audit checks that each of a's frames that was cut into pools is held exactly once among the
// holders, and no other. Everything that holds frames must be named and stand still.
func Audit(a *Arena, holders ...Holder) error {
	seen := make([]uint8, a.cut)
	var twice, outside int
	for _, h := range holders {
		h.Holds(func(off uint32) {
			f := int(off >> a.Shift)
			switch {
			case f >= a.cut:
				outside++
			case seen[f] != 0:
				twice++
			default:
				seen[f] = 1
			}
		})
	}
	missing := 0
	for _, s := range seen {
		if s == 0 {
			missing++
		}
	}
	if missing+twice+outside > 0 {
		return fmt.Errorf("%w: of %d frames %d are missing, %d held twice, %d outside of the pools",
			ErrAudit, a.cut, missing, twice, outside)
	}
	return nil
}
