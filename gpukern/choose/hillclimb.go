package choose

// hillClimber moves a share between 0 and 1 to where a measured cost is least, as NBA (Kim and others,
// EuroSys 2015) does for GPUs. It tries a step and keeps it if the cost fell by more than the hysteresis.
// Otherwise it goes back, reverses the direction and halves the step. At a minimum it pauses, then tries
// again, because the traffic may have changed.
type hillClimber struct {
	share, step float64
	best        float64 // cost at the share that is kept; 0 is not measured yet
	from        float64 // the share that is kept, while another is tried
	trying      bool
	failed      int // directions in a row without gain
	pause       int // windows until the next try
}

const (
	firstStep    = 1.0 / 8
	minStep      = 1.0 / 64
	hysteresis   = 0.04
	pauseWindows = 32 // windows
)

// newHillClimber returns one that starts at a share.
func newHillClimber(share float64) hillClimber { return hillClimber{share: share, step: firstStep} }

// observe takes the cost of the window that ends and sets the share for the next.
func (c *hillClimber) observe(cost float64) {
	if c.trying {
		c.evaluate(cost)
		return
	}
	c.best = cost
	if c.pause > 0 {
		c.pause--
		return
	}
	c.try()
}

// evaluate keeps the share that was tried, or goes back.
func (c *hillClimber) evaluate(cost float64) {
	c.trying = false
	if cost < c.best*(1-hysteresis) {
		c.best, c.failed = cost, 0
		c.try()
		return
	}
	c.share = c.from
	c.step = -c.step
	if c.failed++; c.failed < 2 {
		return
	}
	c.failed = 0
	if c.step /= 2; max(c.step, -c.step) < minStep {
		c.step = firstStep
		c.pause = pauseWindows
	}
}

// try moves the share by a step, the other way at an end.
func (c *hillClimber) try() {
	to := min(max(c.share+c.step, 0), 1)
	if to == c.share {
		c.step = -c.step
		to = min(max(c.share+c.step, 0), 1)
	}
	c.from, c.share, c.trying = c.share, to, true
}

// reset sets the share after a fault or a late batch, and pauses.
func (c *hillClimber) reset(to float64) {
	*c = hillClimber{share: to, step: -firstStep, pause: pauseWindows}
}
