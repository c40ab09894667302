package collective

// choice chooses algorithms by cost.
type choice struct{}

// pick returns the algorithm for a vector.
func (c *Comm) pick(k Kind, bytes int) Algorithm {
	c.mu.Lock()
	a := c.fixed[k]
	c.mu.Unlock()
	if a != "" {
		return a
	}
	return Algorithms(k)[0]
}
