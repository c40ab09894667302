package ring

// Consumer is the node's side of the ring from a program.
type Consumer struct{ half }

// Len returns how many bytes wait.
func (c *Consumer) Len() (int, error) {
	n := c.tail.Load() - c.own
	if n > uint32(len(c.data)) {
		return 0, ErrViolation
	}
	return int(n), nil
}

// Peek returns the bytes that wait, at most most. The program may change them at any time: copy them before use.
func (c *Consumer) Peek(most int) ([2][]byte, error) {
	n, err := c.Len()
	if err != nil {
		return [2][]byte{}, err
	}
	return c.pieces(c.own, uint32(min(n, most))), nil
}

// Discard frees the first n bytes.
func (c *Consumer) Discard(n int) {
	c.own += uint32(n)
	c.head.Store(c.own)
}

// Arm makes the program write a doorbell byte with the next bytes. What it has written before is found by one more Len.
func (c *Consumer) Arm() { c.notifier.Store(notifierArmed) }

// Suppress is that the node polls the ring: the program writes no doorbell bytes.
func (c *Consumer) Suppress() {
	if c.notifier.Load() != notifierDisarmed {
		c.notifier.Store(notifierDisarmed)
	}
}

// Doorbells returns how many doorbell bytes the program says it has written. It is a hint.
func (c *Consumer) Doorbells() uint32 { return c.doorbells.Load() }

// Full reports whether the program has filled its socket, because it waits for space.
func (c *Consumer) Full() bool { return c.fill.Load() != 0 }

// Filled reports whether the program has filled its socket, because it waits for space in the ring, and whether at
// least half of the ring is free, so that the socket is to be emptied now. Emptied has to be called before that is done.
func (c *Consumer) Filled() bool {
	if c.fill.Load() == 0 {
		return false
	}
	n, err := c.Len()
	return err == nil && n <= len(c.data)/2
}

// Emptied notes that the socket is being emptied.
func (c *Consumer) Emptied() { c.fill.Store(0) }
