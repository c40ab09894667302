package cc

import "time"

// fullPipe is the search for the end of growth (draft-ietf-ccwg-bbr 5.3.1.2).
type fullPipe struct {
	bw      float64
	count   int
	now     bool // BBR.full_bw_now
	reached bool // BBR.full_bw_reached
}

func (f *fullPipe) reset() { f.bw, f.count, f.now = 0, 0, false }

// checkFull is BBRCheckFullBWReached: the bandwidth has not grown by a quarter in three
// rounds. It compares the best sample of each round, not the one that begins it, which is
// noise on a path that loses.
func (b *bbr) checkFull(s *Sample) {
	f := &b.fullPipe
	if f.now || !b.roundStart || s.AppLimited {
		return
	}
	if b.latestBW >= f.bw*bbrFullGrowth {
		f.reset()
		f.bw = b.latestBW
		return
	}
	f.count++
	f.now = f.count >= bbrFullRounds
	f.reached = f.reached || f.now
}

// checkStartup ends Startup: the pipe is full, or loses or marks too much (section 5.3.1).
func (b *bbr) checkStartup(s *Sample) {
	if b.state != startup {
		return
	}
	lossy := b.loss.start && b.congested() && b.loss.events >= bbrStartupLosses
	if !b.fullPipe.reached && (lossy || b.ecn.rounds >= bbrECNStartup) {
		b.fullPipe.reached = true
		b.inflightLong = max(b.bdp(1), b.latestInflight)
	}
	if b.fullPipe.reached {
		b.state, b.pacingGain, b.cwndGain = drain, bbrDrainGain, bbrCwndGain
	}
}

// lossRound gathers the losses of a round trip.
type lossRound struct {
	start     bool   // this ACK begins a round
	delivered uint64 // Sample.Total at which the next begins
	arrived   uint64
	lost      uint64
	events    int           // ACKs that found losses
	minRTT    time.Duration // 0: none was measured
}

func (l *lossRound) note(s *Sample) {
	l.arrived += uint64(s.Delivered)
	if s.RTT > 0 && (l.minRTT == 0 || s.RTT < l.minRTT) {
		l.minRTT = s.RTT
	}
	if s.Lost > 0 {
		l.lost += uint64(s.Lost)
		l.events++
	}
}

// begin begins the next round.
func (l *lossRound) begin(s *Sample) { *l = lossRound{delivered: s.Total} }

// baseline is the loss rate of the path when the flow does not fill it: what interference
// loses, and a lower rate of this flow would not save. It is the least rate of some windows
// of segments, because losses at random are in each of them, and those that other flows
// cause in a short queue come and go.
type baseline struct {
	lost, sent float64 // bytes, of the window that is being filled
	windows    [baselineWindows]float64
	filled     int // windows, in all
}

const (
	baselineWindows = 4
	baselineWindow  = 1024 // segments of a window
	baselineLeast   = 64   // segments of the first window that count before it is full
)

func (a *baseline) note(lost, sent, mss float64) {
	a.lost += lost
	a.sent += sent
	if a.sent >= baselineWindow*mss {
		a.windows[a.filled%baselineWindows] = a.lost / a.sent
		a.filled++
		a.lost, a.sent = 0, 0
	}
}

// ratio returns the loss rate. It is bounded, since no measurement shall make a flow that
// fills its path ignore losses.
func (a *baseline) ratio(mss float64) float64 {
	least := bbrMaxBaseline
	for _, r := range a.windows[:min(a.filled, baselineWindows)] {
		least = min(least, r)
	}
	if a.filled == 0 {
		if a.sent < baselineLeast*mss {
			return 0
		}
		least = min(least, a.lost/a.sent)
	}
	return least
}

// noteBaseline counts the round that ends where its losses are none of this flow's making:
// no queue has grown, and the flow sends no faster than the path delivers, or in Startup
// still gets more with every round.
func (b *bbr) noteBaseline() {
	l := &b.loss
	queue := l.minRTT == 0 || l.minRTT > b.minRTT+b.minRTT/8
	growing := b.state == startup && b.fullPipe.count == 0
	if !queue && (b.state == cruise || growing) {
		b.baseline.note(float64(l.lost), float64(l.lost+l.arrived), float64(b.mss))
	}
}

// ecnRound measures how much is marked, as Linux's BBRv3 does.
type ecnRound struct {
	marked, arrived uint64
	alpha           float64 // smoothed
	ratio           float64 // of the last round
	rounds          int     // in a row with much marking
}

func (e *ecnRound) note(s *Sample) {
	e.arrived += uint64(s.Delivered)
	e.marked += uint64(min(s.Marked, s.Delivered))
}

// close ends a round.
func (e *ecnRound) close() {
	if e.arrived == 0 {
		return
	}
	e.ratio = float64(e.marked) / float64(e.arrived)
	e.alpha += bbrECNGain * (e.ratio - e.alpha)
	e.marked, e.arrived = 0, 0
	if e.ratio < bbrECNThresh {
		e.rounds = 0
		return
	}
	e.rounds++
}

// resetSignals is BBRResetCongestionSignals.
func (b *bbr) resetSignals() { b.latestBW, b.latestInflight, b.loss.lost, b.loss.events = 0, 0, 0, 0 }
