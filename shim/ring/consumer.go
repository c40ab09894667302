package ring

// Consumer is the node's end of the ring from a program.
type Consumer struct {
	direction
	own   uint64 // bytes that were read
	state uint8  // that was published in arm
	epoch uint32
}

// Len returns how many bytes wait.
func (c *Consumer) Len() (int, error) {
	n := c.tail.Load() - c.own
	if n > uint64(len(c.data)) {
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
	return c.pieces(c.own, min(n, most)), nil
}

// Discard frees the first n bytes.
func (c *Consumer) Discard(n int) {
	c.own += uint64(n)
	c.head.Store(c.own)
}

// Arm makes the program write a doorbell byte with the next bytes. What it has written before is found by one more Len.
func (c *Consumer) Arm() {
	if answerTo(wakeup(c.state, c.epoch, 0), c.notified.Load()) != answerNone {
		c.epoch = (c.epoch + 1) & epochMask
	} else if c.state == notifyArmed {
		return
	}
	c.publish(notifyArmed)
}

// Suppress is called while the node polls the ring: the program writes no doorbell bytes.
func (c *Consumer) Suppress() {
	if c.state != notifyDisarmed {
		c.publish(notifyDisarmed)
	}
}

func (c *Consumer) publish(state uint8) {
	c.state = state
	c.arm.Store(wakeup(state, c.epoch, 0))
}

// Doorbells returns how many doorbell bytes the program claims to have written. It is a hint.
func (c *Consumer) Doorbells() uint32 { return highOf(c.notified.Load()) }

// Full reports whether the program has filled its socket, because it waits for space.
func (c *Consumer) Full() bool {
	return c.space.Load()&spaceFilled != 0 && c.waits()
}

// waits reports whether the program waits for space.
func (c *Consumer) waits() bool { return c.space.Load()>>epochShift != c.freed.Load()&epochMask }

// Filled reports whether the program has filled its socket, because it waits for space in the ring, and whether at
// least half of the ring is free, so that the socket is to be emptied now. Emptied has to be called before that is done.
func (c *Consumer) Filled() bool {
	if !c.Full() {
		return false
	}
	n, err := c.Len()
	return err == nil && n <= len(c.data)/2
}

// Emptied publishes that the socket is being emptied.
func (c *Consumer) Emptied() { c.freed.Store(c.space.Load() >> epochShift) }
