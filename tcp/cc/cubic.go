package cc

import (
	"math"

	"github.com/millrace/millrace/clock"
)

// The constants of RFC 9438 4. alphaCubic makes the Reno-friendly window
// grow as fast as Reno with factor 1/2 would on average.
const (
	betaCubic  = 0.7
	scaleCubic = 0.4 // C
	alphaCubic = 3 * (1 - betaCubic) / (1 + betaCubic)
)

// cubic is the congestion control of RFC 9438; its slow start ends by HyStart++ (RFC 9406).
// It is small until the initial slow start is over: most connections end before.
type cubic struct {
	window
	hystart    hystart
	*avoidance // nil until congestion avoidance, or a reduction

	// Each ACK writes a controller, and the next one in memory may belong to a loop on another core. With
	// 48 bytes they would share cache lines.
	_ [16]byte
}

// avoidance is the state of congestion avoidance.
type avoidance struct {
	curve
	last  clock.Time // of the last ACK
	saved *undoState // from the first reduction on
}

// undoState is restored when a reduction is undone (RFC 9438 4.9).
type undoState struct {
	window
	curve
}

// curve is an epoch of congestion avoidance. Windows are in segments where they are floats.
// Growth depends on the time since the last reduction and not on the round-trip time, so
// that flows with different round trips share fairly.
type curve struct {
	epoch   clock.Time // t_epoch, with begun
	max     float64    // W_max
	k       float64    // K, seconds
	renoEst float64    // W_est
	prior   float32    // cwnd_prior
	begun   bool       // congestion avoidance goes on
	reduced bool       // the last reduction was for a loss or mark: max holds
}

func newCubic(mss uint32) *cubic {
	c := &cubic{}
	c.window = newWindow(mss)
	return c
}

// OnAck implements Controller.
func (c *cubic) OnAck(s Sample) {
	c.setSRTT(s.SRTT)
	if b := c.avoidance; b != nil {
		if !s.FastRecovery && !s.WindowLimited {
			b.epoch += s.Now - b.last // the time of the curve stands still (RFC 9438 5.8)
		}
		b.last = s.Now
	}
	switch {
	case s.FastRecovery, !s.WindowLimited, s.Acked == 0:
	case c.ssthresh == infiniteThreshold: // HyStart++ is for the initial slow start (RFC 9406 4.3)
		c.increase(c.hystart.allow(&s, s.Acked))
		if c.hystart.done() {
			c.ssthresh = c.cwnd
		}
	case c.slowStart():
		c.increase(s.Acked)
	default:
		c.avoidCongestion(&s)
	}
}

// avoidCongestion is congestion avoidance (RFC 9438 4.2 to 4.5): below Reno's window
// Reno-friendly, else towards the value of the curve one round trip ahead.
func (c *cubic) avoidCongestion(s *Sample) {
	cwnd := float64(c.cwnd) / float64(c.mss)
	if c.avoidance == nil {
		c.avoidance = &avoidance{last: s.Now}
	}
	if !c.begun {
		c.beginEpoch(s.Now, cwnd)
	}
	arrived := float64(s.Acked) / float64(c.mss)
	t := s.Now.Sub(c.epoch).Seconds()
	c.updateRenoEstimate(arrived, cwnd)
	if now := c.windowAt(t); now < c.renoEst {
		c.setWindow(max(c.renoEst, cwnd)) // 4.3: Reno would have more
		return
	}
	target := min(max(c.windowAt(t+s.SRTT.Seconds()), cwnd), 1.5*cwnd)
	c.setWindow(cwnd + (target-cwnd)/cwnd*min(arrived, cwnd))
}

// beginEpoch begins an epoch. Without a reduction before it, the window is its own maximum
// (RFC 9438 4.8, 4.10).
func (c *cubic) beginEpoch(now clock.Time, cwnd float64) {
	c.begun, c.epoch = true, now
	if !c.reduced || c.max < cwnd {
		c.max = cwnd
	}
	c.reduced = false
	c.k = math.Cbrt((c.max - cwnd) / scaleCubic)
	c.renoEst = cwnd
}

// windowAt is W_cubic(t) = C*(t-K)^3 + W_max (RFC 9438 4.2), t in seconds: flat around the
// window of the last loss, steeper far from it.
func (c *curve) windowAt(t float64) float64 {
	d := t - c.k
	return scaleCubic*d*d*d + c.max
}

// updateRenoEstimate advances W_est, the window that Reno would have (RFC 9438 4.3).
func (c *cubic) updateRenoEstimate(arrived, cwnd float64) {
	alpha := alphaCubic
	if c.renoEst >= float64(c.prior) {
		alpha = 1
	}
	c.renoEst += alpha * arrived / cwnd
}

// setWindow sets the window, in segments. The fraction of a byte is kept for the next ACK:
// at a large window single ACKs add less than one.
func (c *cubic) setWindow(segments float64) {
	bytes := segments*float64(c.mss) + float64(c.credit)/(1<<16)
	whole := math.Floor(min(bytes, maxWindow))
	c.credit = uint32((bytes - whole) * (1 << 16))
	c.cwnd = max(uint32(whole), c.mss)
}

// OnEvent implements Controller.
func (c *cubic) OnEvent(_ clock.Time, e Event, flight uint32) {
	switch e {
	case Lost, Congestion, ProbeLost:
		c.decrease(flight)
	case Timeout:
		if flight > onlySYN {
			c.decrease(flight)
		} else {
			c.save()
		}
		c.collapse()
		c.reduced = false // 4.8: the next epoch begins with K = 0
	case Backoff:
		c.collapse()
	case Undo:
		c.restore()
	case Recovered:
		c.endEpoch()
	case Restart:
		c.restart()
		c.endEpoch()
	}
}

// endEpoch ends the epoch.
func (c *cubic) endEpoch() {
	if c.avoidance != nil {
		c.begun = false
	}
}

// decrease is multiplicative decrease with fast convergence (RFC 9438 4.6, 4.7): a flow
// that loses below its last maximum lowers that further, and leaves room to newer flows.
func (c *cubic) decrease(flight uint32) {
	c.save()
	base := c.reductionBase(flight)
	cwnd := float64(base) / float64(c.mss)
	c.prior = float32(cwnd)
	if cwnd < c.max {
		cwnd *= (1 + betaCubic) / 2
	}
	c.max = cwnd
	c.reduce(uint32(float64(base) * betaCubic))
	c.begun, c.reduced = false, true
}

// save keeps what restore needs.
func (c *cubic) save() {
	if c.avoidance == nil {
		c.avoidance = new(avoidance)
	}
	if c.saved == nil {
		c.saved = new(undoState)
	}
	*c.saved = undoState{c.window, c.curve}
}

// restore undoes the last reduction (RFC 9438 4.9), unless the window has grown beyond it.
func (c *cubic) restore() {
	if c.avoidance == nil || c.saved == nil || c.saved.cwnd < c.cwnd {
		return
	}
	srtt, mss := c.srtt, c.mss
	c.window, c.curve = c.saved.window, c.saved.curve
	c.srtt, c.mss = srtt, mss
}
