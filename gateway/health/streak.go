package health

// streak records the probes of a target: whether it counts as healthy, and how many of the
// last ones, in a row, had the other result.
type streak struct {
	healthy bool
	against int
}

// add counts a probe and reports whether the target's health changed by it: after rise successes
// in a row while it was unhealthy, after fall failures in a row while it was healthy.
func (s *streak) add(ok bool, c *Check) (changed bool) {
	if ok == s.healthy {
		s.against = 0
		return false
	}
	s.against++
	limit := c.Rise
	if s.healthy {
		limit = c.Fall
	}
	if s.against < limit {
		return false
	}
	s.healthy, s.against = ok, 0
	return true
}
