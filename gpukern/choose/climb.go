package choose

// climber moves a share between 0 and 1 to where a measured cost is least: hill climbing, as NBA (Kim
// and others, EuroSys 2015) does for GPUs. It tries a step, keeps it where the cost fell by more than the
// hysteresis, else goes back, turns round and halves the step. At rest it looks again from time to time,
// for the traffic may have changed.
type climber struct {
	share, step float64
	best        float64 // cost at the share that is kept; 0 is not measured yet
	from        float64 // the share that is kept, while another is tried
	trying      bool
	failed      int // directions that did not pay, in a row
	rest        int // windows until the next try
}

const (
	firstStep  = 1.0 / 8
	leastStep  = 1.0 / 64
	hysteresis = 0.04
	restFor    = 32 // windows
)

// newClimber returns a climber that begins at a share.
func newClimber(share float64) climber { return climber{share: share, step: firstStep} }

// measured takes the cost of the window that ends and moves the share for the next.
func (c *climber) measured(cost float64) {
	if c.trying {
		c.judge(cost)
		return
	}
	c.best = cost
	if c.rest > 0 {
		c.rest--
		return
	}
	c.try()
}

// judge keeps the share that was tried, or goes back.
func (c *climber) judge(cost float64) {
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
	if c.step /= 2; max(c.step, -c.step) < leastStep {
		c.step = firstStep
		c.rest = restFor
	}
}

// try moves the share by a step, the other way at an end.
func (c *climber) try() {
	to := min(max(c.share+c.step, 0), 1)
	if to == c.share {
		c.step = -c.step
		to = min(max(c.share+c.step, 0), 1)
	}
	c.from, c.share, c.trying = c.share, to, true
}

// fall sets the share after a fault or a late batch, and rests.
func (c *climber) fall(to float64) {
	*c = climber{share: to, step: -firstStep, rest: restFor}
}
