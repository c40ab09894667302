package choose

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestTheClimberFindsTheLowestCost lets it climb on costs with one lowest place, with noise.
func TestTheClimberFindsTheLowestCost(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, best := range []float64{0, 0.3, 0.5, 0.8, 1} {
		c := newHillClimber(1)
		cost := func() float64 {
			return (10 + 40*math.Abs(c.share-best)) * (0.99 + 0.02*r.Float64())
		}
		for range 400 {
			c.observe(cost())
		}
		if at := c.kept(); math.Abs(at-best) > 0.13 {
			t.Errorf("best share %.2f: it is at %.2f", best, at)
		}
	}
}

// kept is the share that is kept while another is tried.
func (c *hillClimber) kept() float64 {
	if c.trying {
		return c.from
	}
	return c.share
}

// TestNoiseMovesNothing: costs that differ by less than the hysteresis are alike.
func TestNoiseMovesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := newHillClimber(0.5)
	for range 1000 {
		c.observe(10 * (1 + 0.015*(r.Float64()*2-1)))
		if math.Abs(c.kept()-0.5) > 1e-9 {
			t.Fatalf("moved to %.2f", c.kept())
		}
	}
}

func TestTheClimberFollowsAChange(t *testing.T) {
	c := newHillClimber(1)
	for i := range 1000 {
		best := 1.0
		if i > 300 {
			best = 0.2
		}
		c.observe(10 + 40*math.Abs(c.share-best))
	}
	if at := c.kept(); math.Abs(at-0.2) > 0.13 {
		t.Errorf("it is at %.2f", at)
	}
}

func TestItRestsBetweenTries(t *testing.T) {
	c := newHillClimber(0.5)
	tries := 0
	for range 1000 {
		c.observe(10)
		if c.trying {
			tries++
		}
	}
	if tries > 250 {
		t.Errorf("%d windows of 1000 were tries", tries)
	}
}

func TestTheShareStaysAShare(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	c := newHillClimber(0.9)
	for range 10000 {
		c.observe(r.Float64())
		if c.share < 0 || c.share > 1 {
			t.Fatalf("share %v", c.share)
		}
	}
	c.reset(0.25)
	if c.share != 0.25 || c.pause != pauseWindows {
		t.Errorf("%+v", c)
	}
}
