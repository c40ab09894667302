package cc

import (
	"math"
	"time"

	"github.com/millrace/millrace/clock"
)

// The constants of draft-ietf-ccwg-bbr 2.4 to 2.7.
const (
	bbrStartupGain   = 2.77 // 4*ln(2): a queue of the least size while the rate doubles each round
	bbrDrainGain     = 0.5
	bbrDownGain      = 0.90
	bbrUpGain        = 1.25
	bbrCwndGain      = 2.0
	bbrUpCwndGain    = 2.25
	bbrProbeRTTGain  = 0.5
	bbrMargin        = 0.99 // of the bandwidth, so that queues drain
	bbrLossThresh    = 0.02
	bbrBeta          = 0.7
	bbrHeadroom      = 0.15
	bbrFullGrowth    = 1.25
	bbrFullRounds    = 3
	bbrMaxBaseline   = 0.05
	bbrStartupLosses = 6 // BBR.StartupFullLossCnt
	bbrMinPipe       = 4 // segments
	bbrProbeRTTTime  = 200 * time.Millisecond
	bbrProbeRTTEvery = 5 * time.Second
	bbrMinRTTFilter  = 10 * time.Second
	bbrExtraRounds   = 10
	bbrCoexist       = 63 // rounds between probes at most, so that Reno flows have their turn
	bbrECNGain       = 1.0 / 16
	bbrECNFactor     = 1.0 / 3
	bbrECNThresh     = 0.5
	bbrECNStartup    = 2 // rounds of much marking that end Startup
)

// phase is BBR.state: what the flow does to learn about the path.
type phase uint8

const (
	startup phase = iota
	drain
	down
	cruise
	refill
	up
	probeRTT
)

// ackPhase is BBR.ack_phase: which part of the probing cycle the arriving ACKs belong to.
type ackPhase uint8

const (
	acksInit ackPhase = iota
	acksRefilling
	acksStarting // of data sent before the probe
	acksFeedback // of the probe's data
	acksStopping
)

// bbr is model-based control (draft-ietf-ccwg-bbr): it measures the bandwidth and the least
// round-trip time of the path, paces at the one and keeps their product in flight. Losses
// and marks matter where they are more than bbrLossThresh and bbrECNThresh of what was
// sent.
//
// It departs from the draft where a path loses at random: see lossTooHigh and congested.
type bbr struct {
	mss, cwnd    uint32
	priorCwnd    uint32
	state        phase
	acks         ackPhase
	pacing       float64 // bytes per second
	pacingGain   float64
	cwndGain     float64
	seed         uint32
	initialized  bool
	idleRestart  bool
	afterTimeout bool

	// rounds
	rounds        uint64
	nextDelivered uint64
	roundStart    bool

	// the model
	maxBW          [2]float64 // of this and the last cycle
	latestBW       float64    // of this round
	shortTermBW    float64    // BBR.bw_shortterm
	bw             float64
	minRTT         time.Duration
	minRTTAt       clock.Time
	probeRTTMin    time.Duration // BBR.probe_rtt_min_delay
	probeRTTMinAt  clock.Time    // BBR.probe_rtt_min_stamp
	inflightLong   float64       // BBR.inflight_longterm
	inflightShort  float64       // BBR.inflight_shortterm
	latestInflight float64       // BBR.inflight_latest

	fullPipe          fullPipe
	cycle             cycle
	loss              lossRound
	baseline          baseline
	ecn               ecnRound
	extra             extraAcked
	probeRTTDoneAt    clock.Time // BBR.probe_rtt_done_stamp; 0: not begun
	probeRTTRoundDone bool
	probeRTTExpired   bool   // BBR.probe_rtt_expired
	delivered         uint64 // Sample.Total of this ACK
}

func newBBR(mss uint32) *bbr {
	b := &bbr{mss: mss, cwnd: Initial(mss)}
	b.shortTermBW, b.inflightShort, b.inflightLong = math.Inf(1), math.Inf(1), math.Inf(1)
	b.pacingGain, b.cwndGain = bbrStartupGain, bbrCwndGain
	return b
}

// Window implements Controller.
func (b *bbr) Window() uint32 { return b.cwnd }

// Threshold implements Controller: the model holds in recovery too.
func (b *bbr) Threshold() uint32 { return 0 }

// Pacing implements Controller.
func (b *bbr) Pacing() uint64 { return uint64(b.pacing) }

// SetMSS implements Controller.
func (b *bbr) SetMSS(mss uint32) {
	if b.cwnd == Initial(b.mss) {
		b.cwnd = Initial(mss)
	}
	b.mss = mss
	b.cwnd = max(b.cwnd, mss)
}

// OnAck implements Controller: BBRUpdateOnACK (5.2.3).
func (b *bbr) OnAck(s Sample) {
	b.delivered = s.Total
	if !b.initialized {
		b.initialize(&s)
	}
	rate := s.rate()
	b.latestSignals(&s, rate)
	b.congestionSignals(&s, rate)
	b.extra.update(b, &s)
	b.checkFull(&s)
	b.checkStartup(&s)
	if b.state == drain && float64(s.Flight) <= b.inflight(1) {
		b.startDown(s.Now)
	}
	b.updateCycle(&s, rate)
	b.updateMinRTT(&s)
	b.checkProbeRTT(&s)
	if b.loss.start {
		b.latestBW, b.latestInflight = rate, float64(s.RateBytes)
		b.loss.begin(&s)
	}
	b.bw = min(b.bandwidth(), b.shortTermBW)
	b.setPacing(b.pacingGain)
	b.setWindow(&s)
}

// rate is the delivery rate, bytes per second; 0 without a sample.
func (s *Sample) rate() float64 {
	if s.RateInterval <= 0 {
		return 0
	}
	return float64(s.RateBytes) / s.RateInterval.Seconds()
}

// initialize begins with the first sample, which has a time.
func (b *bbr) initialize(s *Sample) {
	b.initialized = true
	b.seed = uint32(s.Now>>10) ^ s.Next | 1
	b.minRTTAt, b.probeRTTMinAt, b.extra.since = s.Now, s.Now, s.Now
	b.cycle.stamp = s.Now
	rtt := s.SRTT
	if rtt <= 0 {
		rtt = time.Millisecond
	}
	b.pacing = bbrStartupGain * float64(b.cwnd) / rtt.Seconds()
}

// random returns a number of [0, 1) (xorshift): flows must not probe at the same time.
func (b *bbr) random() float64 {
	b.seed ^= b.seed << 13
	b.seed ^= b.seed >> 17
	b.seed ^= b.seed << 5
	return float64(b.seed) / (1 << 32)
}

// bandwidth is BBR.max_bw: the largest delivery rate of two probing cycles, bytes per
// second.
func (b *bbr) bandwidth() float64 { return max(b.maxBW[0], b.maxBW[1]) }

// latestSignals is BBRUpdateLatestDeliverySignals, with the counting of rounds (sections
// 5.5.1 and 5.5.10.3).
func (b *bbr) latestSignals(s *Sample, rate float64) {
	b.latestBW = max(b.latestBW, rate)
	b.latestInflight = max(b.latestInflight, float64(s.RateBytes))
	b.loss.start = s.Prior >= b.loss.delivered
	b.roundStart = s.Prior >= b.nextDelivered
	if b.roundStart {
		b.startRound(s.Total)
		b.rounds++
		b.cycle.rounds++
	}
}

// startRound begins a round trip: it lasts until data sent from now on is acknowledged.
func (b *bbr) startRound(delivered uint64) { b.nextDelivered = delivered }

// congestionSignals is BBRUpdateCongestionSignals (section 5.5.10.3). Samples that the
// application limited can only raise the bandwidth.
func (b *bbr) congestionSignals(s *Sample, rate float64) {
	if rate > 0 && (rate >= b.bandwidth() || !s.AppLimited) {
		b.maxBW[0] = max(b.maxBW[0], rate)
	}
	b.loss.note(s)
	b.ecn.note(s)
	if !b.loss.start {
		return
	}
	b.ecn.close()
	b.noteBaseline()
	if b.state != refill && b.state != up && b.state != startup && b.state != drain {
		b.adaptShortTerm()
	}
}

// lossTooHigh reports whether the lost bytes of so many sent show a loss rate above
// bbrLossThresh. The draft compares the numbers as they are. Here losses count only above
// the baseline, which a lower rate would not avoid. And on a path that loses one percent at
// random, a few hundred segments exceed two percent now and then, and each time would cost a
// part of the rate. So two standard deviations more than the expectation are required.
func (b *bbr) lossTooHigh(lost, sent float64) bool {
	expected := (bbrLossThresh + b.baseline.ratio(float64(b.mss))) * sent / float64(b.mss)
	return lost/float64(b.mss) > expected+2*math.Sqrt(expected)
}

// congested reports whether a round has lost too much. The draft lets any loss lower the
// short-term bounds; at a steady random loss that would lower the rate by the pacing margin
// in each round until the next probe.
func (b *bbr) congested() bool {
	return b.loss.lost > 0 && b.lossTooHigh(float64(b.loss.lost), float64(b.loss.lost+b.loss.arrived))
}

// adaptShortTerm is BBRAdaptLowerBoundsFromCongestion, with the reaction to ECN of Linux's
// BBRv3.
func (b *bbr) adaptShortTerm() {
	marked := b.ecn.ratio > 0
	if !b.congested() && !marked {
		return
	}
	if math.IsInf(b.inflightShort, 1) {
		b.inflightShort = float64(b.cwnd)
	}
	if marked {
		b.inflightShort *= 1 - b.ecn.alpha*bbrECNFactor
	}
	if !b.congested() {
		return
	}
	if math.IsInf(b.shortTermBW, 1) {
		b.shortTermBW = b.bandwidth()
	}
	b.shortTermBW = max(b.latestBW, bbrBeta*b.shortTermBW)
	b.inflightShort = max(b.latestInflight, bbrBeta*b.inflightShort)
}

// resetShortTerm is BBRResetShortTermModel.
func (b *bbr) resetShortTerm() { b.shortTermBW, b.inflightShort = math.Inf(1), math.Inf(1) }

// bdp is the product of bandwidth and least round-trip time, times gain, bytes; the initial
// window while none was measured.
func (b *bbr) bdp(gain float64) float64 {
	if b.minRTT == 0 || b.bw == 0 {
		return gain * float64(Initial(b.mss))
	}
	return gain * b.bw * b.minRTT.Seconds()
}

// inflight is BBRInflight (section 5.6.4.2): with room for what is sent in one burst, and
// for delayed ACKs.
func (b *bbr) inflight(gain float64) float64 { return b.quantized(b.bdp(gain)) }

// quantized is BBRQuantizationBudget: a window below three bursts, or four segments, would
// stop and go.
func (b *bbr) quantized(n float64) float64 {
	n = max(n, 3*b.quantum(), bbrMinPipe*float64(b.mss))
	if b.state == up {
		n += 2 * float64(b.mss)
	}
	return n
}

// quantum is BBR.send_quantum: what is sent in a millisecond, at most 64 KiB (section
// 5.6.3).
func (b *bbr) quantum() float64 {
	floor := 2 * b.mss
	if b.pacing < 1.2e6/8 {
		floor = b.mss
	}
	return min(max(b.pacing/1000, float64(floor)), 1<<16)
}

// headroom is BBRInflightWithHeadroom: less than the path holds, so that other flows can
// enter.
func (b *bbr) headroom() float64 {
	if math.IsInf(b.inflightLong, 1) {
		return b.inflightLong
	}
	return max(b.inflightLong-max(float64(b.mss), bbrHeadroom*b.inflightLong), bbrMinPipe*float64(b.mss))
}

// target is BBRTargetInflight.
func (b *bbr) target() float64 { return min(b.bdp(1), float64(b.cwnd)) }

// setPacing is BBRSetPacingRateWithGain. Until the pipe is full the rate
// only grows: early samples are low.
func (b *bbr) setPacing(gain float64) {
	rate := gain * b.bw * bbrMargin
	if rate > 0 && (b.fullPipe.reached || rate > b.pacing) {
		b.pacing = rate
	}
}

// setWindow is BBRSetCwnd (5.6.4.6).
func (b *bbr) setWindow(s *Sample) {
	most := b.quantized(b.bdp(b.cwndGain) + b.extra.max())
	w := float64(b.cwnd)
	switch {
	case b.fullPipe.reached:
		w = min(w+float64(s.Delivered), most)
	case w < most || s.Total < uint64(Initial(b.mss)):
		w += float64(s.Delivered)
	}
	least := bbrMinPipe * float64(b.mss)
	w = max(w, least)
	if b.state == probeRTT {
		w = min(w, b.probeRTTWindow())
	}
	w = min(w, max(b.bound(), least), maxWindow)
	b.cwnd = uint32(w)
}

// bound is BBRBoundCwndForModel: what the path holds, by the model.
func (b *bbr) bound() float64 {
	most := math.Inf(1)
	switch b.state {
	case down, refill, up:
		most = b.inflightLong
	case cruise, probeRTT:
		most = b.headroom()
	}
	return min(most, b.inflightShort)
}

// OnEvent implements Controller. Losses act through the model, so the beginning of recovery
// changes nothing; a timeout does for as long as it lasts (section 5.6.4.4).
func (b *bbr) OnEvent(now clock.Time, e Event, flight uint32) {
	switch e {
	case Timeout:
		if !b.afterTimeout {
			b.priorCwnd, b.afterTimeout = b.cwnd, true
		}
		b.cwnd = b.mss
	case Backoff:
		b.cwnd = b.mss
	case Recovered, Undo:
		if b.afterTimeout {
			b.cwnd, b.afterTimeout = max(b.cwnd, b.priorCwnd), false
		}
		if e == Undo {
			b.resetShortTerm()
		}
	case Restart:
		b.restart(now)
	case Lost, Congestion, ProbeLost:
	}
}

// restart is BBRHandleRestartFromIdle (section 5.4.2): no burst, but at once the bandwidth
// that was known.
func (b *bbr) restart(now clock.Time) {
	b.idleRestart = true
	b.extra.since, b.extra.bytes = now, 0
	switch b.state {
	case down, cruise, refill, up:
		b.setPacing(1)
	case probeRTT:
		b.checkProbeRTTDone(now)
	}
}
