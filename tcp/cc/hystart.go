package cc

import "time"

// The constants of RFC 9406 4.3.
const (
	minRTTThresh  = 4 * time.Millisecond
	maxRTTThresh  = 16 * time.Millisecond
	minRTTDivisor = 8
	rttSamples    = 8 // N_RTT_SAMPLE
	cssGrowth     = 4 // CSS_GROWTH_DIVISOR
	cssRounds     = 5 // CSS_ROUNDS
)

// hystart is HyStart++ (RFC 9406): rising round-trip times mean that a queue builds up, so
// slow start slows down, and ends unless the times fall again. Waiting for a loss instead
// would overshoot by up to a whole window. Times are in microseconds; 0 stands for
// infinity.
type hystart struct {
	end            uint32 // windowEnd, with begun
	last, current  uint32 // lastRoundMinRTT, currentRoundMinRTT
	baseline       uint32 // cssBaselineMinRtt; 0: not in conservative slow start
	samples, round uint8  // rttSampleCount, rounds of conservative slow start
	begun          bool
}

// allow handles an ACK in slow start, and returns by how much of n the window may grow.
func (h *hystart) allow(s *Sample, n uint32) uint32 {
	if !h.begun || int32(s.Una-h.end) >= 0 {
		h.startRound(s.Next)
	}
	if s.RTT > 0 {
		us := uint32(max(s.RTT/time.Microsecond, 1))
		if h.current == 0 || us < h.current {
			h.current = us
		}
		h.samples = min(h.samples+1, rttSamples)
	}
	if h.samples >= rttSamples {
		h.evaluate()
	}
	if h.baseline != 0 {
		return n / cssGrowth
	}
	return n
}

// startRound begins a round trip (RFC 9406 4.2).
func (h *hystart) startRound(next uint32) {
	if h.begun && h.baseline != 0 {
		h.round++
	}
	h.begun, h.end = true, next
	h.last, h.current, h.samples = h.current, 0, 0
}

// evaluate enters conservative slow start when the round-trip time has risen by more than
// the threshold, and leaves it for slow start when it falls below what it was then (RFC
// 9406 4.2): the rise was jitter.
func (h *hystart) evaluate() {
	if h.baseline != 0 {
		if h.current < h.baseline {
			h.baseline, h.round = 0, 0
		}
		return
	}
	if h.last == 0 {
		return
	}
	thresh := min(max(h.last/minRTTDivisor, uint32(minRTTThresh/time.Microsecond)), uint32(maxRTTThresh/time.Microsecond))
	if h.current >= h.last+thresh {
		h.baseline, h.round = h.current, 0
	}
}

// done reports whether conservative slow start has lasted its rounds.
func (h *hystart) done() bool { return h.baseline != 0 && h.round >= cssRounds }
