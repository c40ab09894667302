package datapath

import "sync/atomic"

// unfinished counts the datagrams of the last fragmentLife of which fragments have passed and some are missing. A backend
// keeps what has come of each in a memory that all share: when that is full, Linux drops the fragments of every sender for
// 30 s. So a flood of first fragments would take fragmented datagrams from all. Beyond mostUnfinished a datagram is held
// until all of it has come (see held.go), and what never does reaches no backend. The same holds where few datagrams have
// many fragments: beyond manyPieces datagrams are held, and beyond mostPieces no fragment of one passes that was not.
type unfinished struct {
	n      int
	pieces int                       // later fragments of them that have passed, where the loop is that where they meet
	by     [unfinishedSteps][2]int32 // datagrams and pieces, by the time when the first fragment came
	step   uint32                    // the present one
	shown  *atomic.Int32             // pieces, for other loops
}

const (
	unfinishedShift = 6 // a step is 64 ticks, 1.07 s
	unfinishedSteps = 32

	// mostUnfinished is of all loops together: a tenth of what fills the 4 MiB that Linux has for fragments by default.
	mostUnfinished = 160

	// manyPieces and mostPieces are of all loops together: a third and two thirds of what fills those 4 MiB, at 2304 bytes for a
	// fragment of 1500.
	manyPieces, mostPieces = 600, 1200
)

// advance forgets the datagrams whose time is over.
func (u *unfinished) advance(now ticks) {
	to := uint32(now) >> unfinishedShift
	if to-u.step >= unfinishedSteps {
		*u = unfinished{step: to, shown: u.shown}
	}
	for u.step != to {
		u.step++
		at := &u.by[u.step%unfinishedSteps]
		u.n -= int(at[0])
		u.pieces -= int(at[1])
		*at = [2]int32{}
	}
	u.shown.Store(int32(u.pieces))
}

// add counts a datagram whose first fragment passes.
func (u *unfinished) add(now ticks) {
	u.advance(now)
	u.by[u.step%unfinishedSteps][0]++
	u.n++
}

// addPiece counts a fragment of a datagram.
func (u *unfinished) addPiece(e *datagram, now ticks) {
	u.advance(now)
	if step := e.step(); u.step-step < unfinishedSteps {
		u.by[step%unfinishedSteps][1]++
		u.pieces++
		e.pieces++
		u.shown.Store(int32(u.pieces))
	}
}

// step returns the step in which the first fragment of a datagram came.
func (e *datagram) step() uint32 { return uint32(e.until-ticksIn(fragmentLife)) >> unfinishedShift }

// finish counts it no longer.
func (u *unfinished) finish(e *datagram, now ticks) {
	u.advance(now)
	step := e.step()
	if at := &u.by[step%unfinishedSteps]; u.step-step < unfinishedSteps && at[0] > 0 {
		at[0]--
		u.n--
		at[1] -= int32(e.pieces)
		u.pieces -= int(e.pieces)
		u.shown.Store(int32(u.pieces))
	}
}
