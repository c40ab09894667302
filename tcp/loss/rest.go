package loss

// Rest is what is to be remembered of a board that has nothing in flight for long.
type Rest struct {
	estimates
	delivered, lost uint64
	reorder         reorder
	backoff         uint8
	uncertain       bool
}

// Quiet reports whether Rest says all that there is to know: nothing is in flight, and no probe's fate
// is open.
func (b *Board) Quiet() bool { return b.f == nil && !b.probe.out }

// Rest returns what Resume needs of a quiet board.
func (b *Board) Rest() Rest {
	return Rest{b.rtt.estimates, b.delivered, b.lost, b.reorder, b.rtt.backoff, b.rtt.uncertain}
}

// Resume makes the board what it was when it rested; seq is SND.NXT.
func (b *Board) Resume(p *Pool, seq uint32, o Options, r Rest) {
	b.Init(p, seq, o)
	b.rtt = estimator{r.estimates, r.backoff, r.uncertain}
	b.delivered, b.lost, b.reorder = r.delivered, r.lost, r.reorder
}
