package loss

// Saved is what is to be remembered of a board that has nothing in flight for long.
type Saved struct {
	estimates
	delivered, lost uint64
	reorder         reorder
	backoff         uint8
	uncertain       bool
}

// Idle reports whether Rest says all that there is to know: nothing is in flight, and no
// probe's fate is open.
func (b *Scoreboard) Idle() bool { return b.f == nil && !b.probe.out }

// Save returns what Resume needs of a quiet board.
func (b *Scoreboard) Save() Saved {
	return Saved{b.rtt.estimates, b.delivered, b.lost, b.reorder, b.rtt.backoff, b.rtt.uncertain}
}

// Restore makes the board what it was when it rested; seq is SND.NXT.
func (b *Scoreboard) Restore(p *Pool, seq uint32, o Options, r Saved) {
	b.Init(p, seq, o)
	b.rtt = estimator{r.estimates, r.backoff, r.uncertain}
	b.delivered, b.lost, b.reorder = r.delivered, r.lost, r.reorder
}
