package cc

import (
	"math"

	"github.com/millrace/millrace/clock"
)

// The constants of RFC 9438 4.
const (
	betaCubic  = 0.7
	scaleCubic = 0.4 // C
	alphaCubic = 3 * (1 - betaCubic) / (1 + betaCubic)
)

// cubic is the congestion control of RFC 9438; its slow start ends by HyStart++ (RFC 9406). It is small
// until the initial slow start is over.
type cubic struct {
	window
	hystart hystart
	*bend   // nil until congestion avoidance, or a reduction
}

// bend is what congestion avoidance needs.
type bend struct {
	curve
	last  clock.Time // time of the last ACK
	saved *before    // kept from the first reduction on
}

// before is what an undone reduction restores (RFC 9438 4.9).
type before struct {
	window
	curve
}

// curve is an epoch of congestion avoidance. Windows are in segments where they are floats.
type curve struct {
	epoch   clock.Time // t_epoch, with begun
	max     float64    // W_max
	k       float64    // K, seconds
	est     float64    // W_est
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
	c.measured(s.SRTT)
	if b := c.bend; b != nil {
		if !s.FastRecovery && !s.WindowLimited {
			b.epoch += s.Now - b.last // the time of the curve stands still (RFC 9438 5.8)
		}
		b.last = s.Now
	}
	switch {
	case s.FastRecovery, !s.WindowLimited:
	case c.ssthresh == infinite: // HyStart++ is for the initial slow start (RFC 9406 4.3)
		c.grow(c.hystart.allow(&s, s.Delivered))
		if c.hystart.over() {
			c.ssthresh = c.cwnd
		}
	case c.slowStart():
		c.grow(s.Delivered)
	default:
		c.avoid(&s)
	}
}

// avoid is congestion avoidance (RFC 9438 4.2 to 4.5).
func (c *cubic) avoid(s *Sample) {
	cwnd := float64(c.cwnd) / float64(c.mss)
	if c.bend == nil {
		c.bend = &bend{last: s.Now}
	}
	if !c.begun {
		c.begin(s.Now, cwnd)
	}
	arrived := float64(s.Delivered) / float64(c.mss)
	t := s.Now.Sub(c.epoch).Seconds()
	c.friendly(arrived, cwnd)
	if now := c.cubic(t); now < c.est {
		c.set(max(c.est, cwnd)) // 4.3: Reno would have more
		return
	}
	target := min(max(c.cubic(t+s.SRTT.Seconds()), cwnd), 1.5*cwnd)
	c.set(cwnd + (target-cwnd)/cwnd*min(arrived, cwnd))
}

// begin starts an epoch. Without a reduction before it, the window is its own maximum (4.8, 4.10).
func (c *cubic) begin(now clock.Time, cwnd float64) {
	c.begun, c.epoch = true, now
	if !c.reduced || c.max < cwnd {
		c.max = cwnd
	}
	c.reduced = false
	c.k = math.Cbrt((c.max - cwnd) / scaleCubic)
	c.est = cwnd
}

// cubic is W_cubic(t).
func (c *curve) cubic(t float64) float64 {
	d := t - c.k
	return scaleCubic*d*d*d + c.max
}

// friendly advances W_est, the window Reno would have (4.3).
func (c *cubic) friendly(arrived, cwnd float64) {
	alpha := alphaCubic
	if c.est >= float64(c.prior) {
		alpha = 1
	}
	c.est += alpha * arrived / cwnd
}

// set sets the window, in segments, and keeps what is below a byte for the next time.
func (c *cubic) set(segments float64) {
	bytes := segments*float64(c.mss) + float64(c.credit)/(1<<16)
	whole := math.Floor(min(bytes, largest))
	c.credit = uint32((bytes - whole) * (1 << 16))
	c.cwnd = max(uint32(whole), c.mss)
}

// OnEvent implements Controller.
func (c *cubic) OnEvent(_ clock.Time, e Event, flight uint32) {
	switch e {
	case Lost, Congestion, ProbeLost:
		c.decrease(flight)
	case Timeout:
		c.decrease(flight)
		c.collapse()
		c.reduced = false // 4.8: the next epoch begins with K = 0
	case Backoff:
		c.collapse()
	case Undo:
		c.restore()
	case Recovered:
		c.stop()
	case Restart:
		c.restart()
		c.stop()
	}
}

// stop ends the epoch.
func (c *cubic) stop() {
	if c.bend != nil {
		c.begun = false
	}
}

// decrease is multiplicative decrease with fast convergence (RFC 9438 4.6, 4.7).
func (c *cubic) decrease(flight uint32) {
	c.save()
	base := c.base(flight)
	cwnd := float64(base) / float64(c.mss)
	c.prior = float32(cwnd)
	if cwnd < c.max {
		cwnd *= (1 + betaCubic) / 2
	}
	c.max = cwnd
	c.reduce(uint32(float64(base) * betaCubic))
	c.begun, c.reduced = false, true
}

func (c *cubic) save() {
	if c.bend == nil {
		c.bend = new(bend)
	}
	if c.saved == nil {
		c.saved = new(before)
	}
	*c.saved = before{c.window, c.curve}
}

// restore undoes the last reduction (4.9).
func (c *cubic) restore() {
	if c.bend == nil || c.saved == nil || c.saved.cwnd < c.cwnd {
		return
	}
	srtt, mss := c.srtt, c.mss
	c.window, c.curve = c.saved.window, c.saved.curve
	c.srtt, c.mss = srtt, mss
}
