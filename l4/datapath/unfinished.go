package datapath

// unfinished counts the datagrams of the last fragmentLife of which fragments have passed and some are missing. A backend
// keeps what has come of each in a memory that all share: when that is full, Linux drops the fragments of every sender for
// 30 s. So a flood of first fragments would take fragmented datagrams from all. Beyond mostUnfinished a datagram is held
// until all of it has come (see held.go), and what never does reaches no backend.
type unfinished struct {
	n    int
	by   [unfinishedSteps]int32 // by the time when the first fragment came
	step uint32                 // the present one
}

const (
	unfinishedShift = 6 // a step is 64 ticks, 1.07 s
	unfinishedSteps = 32

	// mostUnfinished is of all loops together: a tenth of what fills the 4 MiB that Linux has for fragments by default.
	mostUnfinished = 160
)

// advance forgets the datagrams whose time is over.
func (u *unfinished) advance(now ticks) {
	to := uint32(now) >> unfinishedShift
	if to-u.step >= unfinishedSteps {
		*u = unfinished{step: to}
	}
	for u.step != to {
		u.step++
		at := &u.by[u.step%unfinishedSteps]
		u.n -= int(*at)
		*at = 0
	}
}

// add counts a datagram whose first fragment passes.
func (u *unfinished) add(now ticks) {
	u.advance(now)
	u.by[u.step%unfinishedSteps]++
	u.n++
}

// finish counts it no longer.
func (u *unfinished) finish(e *datagram, now ticks) {
	u.advance(now)
	step := uint32(e.until-ticksIn(fragmentLife)) >> unfinishedShift
	if at := &u.by[step%unfinishedSteps]; u.step-step < unfinishedSteps && *at > 0 {
		*at--
		u.n--
	}
}
