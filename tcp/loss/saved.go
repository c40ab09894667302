package loss

// Saved is the part of a scoreboard that outlasts a long idle time: estimates
// and counters, no lists.
type Saved struct {
	estimates
	delivered, lost uint64
	reordering
	backoff   uint8
	uncertain bool
}

// Idle reports whether Save loses nothing: nothing is in flight, and no probe's outcome is
// open.
func (b *Scoreboard) Idle() bool { return b.f == nil && !b.probe.out }

// Save returns what Restore needs of an idle scoreboard.
func (b *Scoreboard) Save() Saved {
	o := b.reorder.reordering
	o.inRound = false
	return Saved{b.rtt.estimates, b.delivered, b.lost, o, b.rtt.backoff, b.rtt.uncertain}
}

// Restore makes the scoreboard what it was at Save; seq is SND.NXT.
func (b *Scoreboard) Restore(p *Pool, seq uint32, o Options, r Saved) {
	b.Init(p, seq, o)
	b.rtt = estimator{r.estimates, r.backoff, r.uncertain}
	b.delivered, b.lost, b.reorder.reordering = r.delivered, r.lost, r.reordering
}
