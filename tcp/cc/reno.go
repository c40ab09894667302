package cc

import "github.com/millrace/millrace/clock"

// reno is the congestion control of RFC 5681 and RFC 6582: the window halves at a loss and
// grows by a segment per round trip.
type reno struct {
	window
	priorWindow, priorThreshold uint32 // before the last reduction
}

func newReno(mss uint32) *reno { return &reno{window: newWindow(mss)} }

// OnAck implements Controller.
func (r *reno) OnAck(s Sample) {
	r.setSRTT(s.SRTT)
	if s.FastRecovery || !s.WindowLimited {
		return
	}
	if r.slowStart() {
		r.increase(s.Acked)
		return
	}
	r.increaseLinearly(s.Acked)
}

// OnEvent implements Controller.
func (r *reno) OnEvent(_ clock.Time, e Event, flight uint32) {
	switch e {
	case Lost, Congestion, ProbeLost:
		r.save()
		r.reduce(r.reductionBase(flight) / 2)
	case Timeout:
		r.save()
		if flight > onlySYN {
			r.reduce(r.reductionBase(flight) / 2)
		}
		r.collapse()
	case Backoff:
		r.collapse()
	case Undo:
		r.cwnd, r.ssthresh = max(r.cwnd, r.priorWindow), max(r.ssthresh, r.priorThreshold)
	case Recovered:
	case Restart:
		r.restart()
	}
}

// save keeps what an Undo restores.
func (r *reno) save() { r.priorWindow, r.priorThreshold = r.cwnd, r.ssthresh }
