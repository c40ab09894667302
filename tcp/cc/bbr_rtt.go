package cc

import (
	"time"

	"github.com/millrace/millrace/clock"
)

// updateMinRTT is BBRUpdateMinRTT (draft-ietf-ccwg-bbr 5.5.7): one filter of five seconds
// decides when to probe, one of ten is the estimate.
func (b *bbr) updateMinRTT(s *Sample) {
	if s.RTT > 0 && (b.probeRTTMin == 0 || s.RTT < b.probeRTTMin || b.probeRTTDue(s.Now)) {
		b.probeRTTExpired = b.probeRTTDue(s.Now)
		b.probeRTTMin, b.probeRTTMinAt = s.RTT, s.Now
	} else {
		b.probeRTTExpired = b.probeRTTDue(s.Now)
	}
	if b.probeRTTMin > 0 && (b.minRTT == 0 || b.probeRTTMin < b.minRTT || s.Now.Sub(b.minRTTAt) > bbrMinRTTFilter) {
		b.minRTT, b.minRTTAt = b.probeRTTMin, b.probeRTTMinAt
	}
}

// probeRTTDue reports whether no low round-trip time was seen for so long that the flow
// must drain its queue to see one.
func (b *bbr) probeRTTDue(now clock.Time) bool { return now.Sub(b.probeRTTMinAt) > bbrProbeRTTEvery }

// checkProbeRTT enters ProbeRTT when that is due, and leaves it (section 5.3.4.3). A flow
// that restarts after idling has just had an empty pipe.
func (b *bbr) checkProbeRTT(s *Sample) {
	if b.state != probeRTT && b.probeRTTExpired && !b.idleRestart {
		b.priorCwnd = b.cwnd
		b.probeRTTDoneAt = 0
		b.acks = acksStopping
		b.startPhase(probeRTT, 1, bbrProbeRTTGain)
	}
	if b.state == probeRTT {
		b.handleProbeRTT(s)
	}
	if s.Delivered > 0 {
		b.idleRestart = false
	}
}

// handleProbeRTT waits until the flight has come down, and then for a round and 200 ms.
func (b *bbr) handleProbeRTT(s *Sample) {
	switch {
	case b.probeRTTDoneAt == 0 && float64(s.Flight) <= b.probeRTTWindow():
		b.probeRTTDoneAt = s.Now.Add(bbrProbeRTTTime)
		b.probeRTTRoundDone = false
		b.nextDelivered = s.Total
	case b.probeRTTDoneAt != 0:
		b.probeRTTRoundDone = b.probeRTTRoundDone || b.roundStart
		if b.probeRTTRoundDone {
			b.checkProbeRTTDone(s.Now)
		}
	}
}

// checkProbeRTTDone is BBRCheckProbeRTTDone and BBRExitProbeRTT.
func (b *bbr) checkProbeRTTDone(now clock.Time) {
	if b.probeRTTDoneAt == 0 || now <= b.probeRTTDoneAt {
		return
	}
	b.probeRTTMinAt = now
	b.cwnd = max(b.cwnd, b.priorCwnd)
	b.resetShortTerm()
	if !b.fullPipe.reached {
		b.state, b.pacingGain, b.cwndGain = startup, bbrStartupGain, bbrCwndGain
		return
	}
	b.startDown(now)
	b.state, b.pacingGain, b.cwndGain = cruise, 1, bbrCwndGain
}

// probeRTTWindow is BBRProbeRTTCwnd: half of what fills the path.
func (b *bbr) probeRTTWindow() float64 {
	return max(b.bdp(bbrProbeRTTGain), bbrMinPipe*float64(b.mss))
}

// extraAcked is the amount by which an aggregate of ACKs exceeds the bandwidth
// (section 5.5.9): the maximum of the last ten rounds, in two halves. Without that much
// more window, a flow behind Wi-Fi would idle between aggregates.
type extraAcked struct {
	since  clock.Time
	bytes  float64
	halves [2]float64
	round  uint64
}

func (e *extraAcked) max() float64 { return max(e.halves[0], e.halves[1]) }

// update is BBRUpdateACKAggregation.
func (e *extraAcked) update(b *bbr, s *Sample) {
	expected := b.bw * max(s.Now.Sub(e.since), time.Duration(0)).Seconds()
	if e.bytes <= expected {
		e.bytes, e.since, expected = 0, s.Now, 0
	}
	e.bytes += float64(s.Delivered)
	extra := min(e.bytes-expected, float64(b.cwnd))
	window := uint64(bbrExtraRounds / 2)
	if !b.fullPipe.reached {
		window = 1
	}
	if b.rounds >= e.round+window {
		e.halves[1], e.halves[0], e.round = e.halves[0], 0, b.rounds
	}
	e.halves[0] = max(e.halves[0], extra)
}
