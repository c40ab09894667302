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

// cubic is the congestion control of RFC 9438; its slow start ends by HyStart++ (RFC 9406).
type cubic struct {
	cubicState
	hystart hystart
	saved   *cubicState // before the last reduction; kept from the first one on
}

// cubicState is what an undone reduction restores (RFC 9438 4.9). Windows are in segments where they
// are floats.
type cubicState struct {
	window
	epoch   clock.Time // t_epoch, with begun
	last    clock.Time // time of the last ACK
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
	c.srtt = s.SRTT
	idle := s.Now - c.last
	c.last = s.Now
	switch {
	case s.FastRecovery:
	case !s.WindowLimited:
		c.epoch += idle // the time of the curve stands still (RFC 9438 5.8)
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
	if !c.begun {
		c.begin(s.Now, cwnd)
	}
	arrived := float64(s.Delivered) / float64(c.mss)
	t := s.Now.Sub(c.epoch).Seconds()
	c.friendly(arrived, cwnd)
	if now := c.curve(t); now < c.est {
		c.set(max(c.est, cwnd)) // 4.3: Reno would have more
		return
	}
	target := min(max(c.curve(t+s.SRTT.Seconds()), cwnd), 1.5*cwnd)
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

// curve is W_cubic(t).
func (c *cubic) curve(t float64) float64 {
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
		c.begun = false
	case Restart:
		c.restart()
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
	if c.saved == nil {
		c.saved = new(cubicState)
	}
	*c.saved = c.cubicState
}

// restore undoes the last reduction (4.9).
func (c *cubic) restore() {
	if c.saved == nil || c.saved.cwnd < c.cwnd {
		return
	}
	last, srtt, mss := c.last, c.srtt, c.mss
	c.cubicState = *c.saved
	c.last, c.srtt, c.mss = last, srtt, mss
}
