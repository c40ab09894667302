package cc

import (
	"math"
	"time"

	"github.com/millrace/millrace/clock"
)

// cycle is the state of bandwidth probing (draft-ietf-ccwg-bbr 5.3.3): down, cruise,
// refill, up. A flow spends most time in cruise, and probes every two to three seconds
// whether there is more bandwidth.
type cycle struct {
	stamp    clock.Time    // when the phase began
	wait     time.Duration // BBR.bw_probe_wait
	rounds   uint64        // BBR.rounds_since_bw_probe
	probing  bool          // BBR.bw_probe_samples: ACKs belong to a probe
	upRounds uint          // BBR.bw_probe_up_rounds
	upAcks   float64       // BBR.bw_probe_up_acks, segments
	upCount  float64       // BBR.probe_up_cnt, segments for each by which the bound grows
}

// inProbeBW reports whether the flow is in one of the four phases of the cycle.
func (b *bbr) inProbeBW() bool { return b.state >= down && b.state <= up }

// updateCycle is BBRUpdateProbeBWCyclePhase (section 5.3.3.6).
func (b *bbr) updateCycle(s *Sample, rate float64) {
	if !b.fullPipe.reached {
		return
	}
	b.adaptLongTerm(s)
	switch b.state {
	case down:
		if !b.timeToProbe(s.Now) && float64(s.Flight) <= min(b.headroom(), b.inflightAt(b.bandwidth(), 1)) {
			b.state, b.pacingGain, b.cwndGain = cruise, 1, bbrCwndGain
		}
	case cruise:
		b.timeToProbe(s.Now)
	case refill:
		if b.roundStart {
			b.cycle.probing = true
			b.startUp(s, rate)
		}
	case up:
		if b.timeToGoDown(s, rate) {
			b.startDown(s.Now)
		}
	}
}

// inflightAt is inflight at another bandwidth.
func (b *bbr) inflightAt(bw, gain float64) float64 {
	return b.quantized(gain * bw * b.minRTT.Seconds())
}

// timeToProbe is BBRIsTimeToProbeBW: after some seconds, or after as many rounds as a Reno
// flow would need to recover from one loss, so that the two share a bottleneck fairly.
func (b *bbr) timeToProbe(now clock.Time) bool {
	reno := min(b.target()/float64(b.mss), bbrCoexist)
	if now.Sub(b.cycle.stamp) <= b.cycle.wait && float64(b.cycle.rounds) < reno {
		return false
	}
	b.resetShortTerm()
	b.cycle.upRounds, b.cycle.upAcks = 0, 0
	b.acks = acksRefilling
	b.startPhase(refill, 1, bbrCwndGain)
	return true
}

// startPhase begins a phase, and a round.
func (b *bbr) startPhase(p phase, pacing, cwnd float64) {
	b.state, b.pacingGain, b.cwndGain = p, pacing, cwnd
	b.nextDelivered = b.delivered
}

// startDown begins ProbeBW_DOWN: the queue that a probe has built drains. The time to the
// next probe is random, or flows would probe in step.
func (b *bbr) startDown(now clock.Time) {
	b.resetSignals()
	b.cycle.upCount = math.Inf(1)
	b.cycle.rounds = uint64(2 * b.random())
	b.cycle.wait = 2*time.Second + time.Duration(b.random()*float64(time.Second))
	b.cycle.stamp = now
	b.acks = acksStopping
	b.startPhase(down, bbrDownGain, bbrCwndGain)
}

// startUp begins ProbeBW_UP: the flow sends faster than the bandwidth it knows.
func (b *bbr) startUp(s *Sample, rate float64) {
	b.acks = acksStarting
	b.fullPipe.reset()
	b.fullPipe.bw = rate
	b.cycle.stamp = s.Now
	b.startPhase(up, bbrUpGain, bbrUpCwndGain)
	b.raiseSlope()
}

// timeToGoDown is BBRIsTimeToGoDown: the probe has found no more bandwidth, and was not
// held back by the window itself.
func (b *bbr) timeToGoDown(s *Sample, rate float64) bool {
	if s.WindowLimited && float64(b.cwnd) >= b.inflightLong {
		b.fullPipe.reset()
		b.fullPipe.bw = rate
		return false
	}
	return b.fullPipe.now
}

// adaptLongTerm is BBRAdaptLongTermModel: it adapts what the path holds by what a probe has
// met.
func (b *bbr) adaptLongTerm(s *Sample) {
	if b.acks == acksStarting && b.roundStart {
		b.acks = acksFeedback
	}
	if b.acks == acksStopping && b.roundStart {
		b.acks = acksInit
		b.cycle.probing = false
		if b.inProbeBW() && !s.AppLimited {
			b.maxBW[1], b.maxBW[0] = b.maxBW[0], 0 // BBRAdvanceMaxBwFilter
		}
	}
	if b.tooHigh(s) {
		if b.cycle.probing {
			b.handleTooHigh(s)
		}
		return
	}
	if math.IsInf(b.inflightLong, 1) {
		return
	}
	b.inflightLong = max(b.inflightLong, float64(s.SentFlight))
	if b.state == up {
		b.probeUpward(s)
	}
}

// tooHigh is BBRIsInflightTooHigh: of what was in flight with the newest delivered segment,
// more than the threshold was lost, or marked.
func (b *bbr) tooHigh(s *Sample) bool {
	if s.SentFlight == 0 {
		return false
	}
	lost := float64(s.TotalLost) - float64(s.PriorLost)
	return b.lossTooHigh(lost, float64(s.SentFlight)) || b.loss.start && b.ecn.ratio > bbrECNThresh
}

// handleTooHigh is BBRHandleInflightTooHigh: what was in flight becomes the long-term
// bound, and a probe ends.
func (b *bbr) handleTooHigh(s *Sample) {
	b.cycle.probing = false
	if !s.AppLimited {
		b.inflightLong = max(float64(s.SentFlight), b.target()*bbrBeta)
	}
	if b.state == up {
		b.startDown(s.Now)
	}
}

// probeUpward is BBRProbeInflightLongtermUpward: the bound grows, each round twice as fast
// as before.
func (b *bbr) probeUpward(s *Sample) {
	c := &b.cycle
	if s.WindowLimited && float64(b.cwnd) >= b.inflightLong {
		c.upAcks += float64(s.Delivered) / float64(b.mss)
		if c.upAcks >= c.upCount {
			n := math.Floor(c.upAcks / c.upCount)
			c.upAcks -= n * c.upCount
			b.inflightLong += n * float64(b.mss)
		}
	}
	if b.roundStart {
		b.raiseSlope()
	}
}

// raiseSlope is BBRRaiseInflightLongtermSlope: half as many ACKs for each segment of
// growth.
func (b *bbr) raiseSlope() {
	c := &b.cycle
	c.upCount = max(float64(b.cwnd)/float64(b.mss)/float64(uint64(1)<<c.upRounds), 1)
	c.upRounds = min(c.upRounds+1, 30)
}
