package ring

// Producer is the node's end of the ring to a program.
type Producer struct {
	direction
	own   uint64 // bytes that were written
	epoch uint32 // that was answered
	done  uint8  // the answer
	sent  uint32 // doorbell bytes
	asked uint32 // epoch of space
}

// Reserve returns the free space of the ring, at most most bytes.
func (p *Producer) Reserve(most int) ([2][]byte, error) {
	used, err := p.Used()
	if err != nil {
		return [2][]byte{}, err
	}
	return p.pieces(p.own, min(len(p.data)-used, most)), nil
}

// Commit publishes the first n bytes of what Reserve returned. It returns how many doorbell bytes the caller has to write
// to the socket now, at most 1.
func (p *Producer) Commit(n int) (doorbells int) {
	p.own += uint64(n)
	p.tail.Store(p.own)
	arm := p.arm.Load() // after tail: a consumer that arms later sees the bytes
	answer, used := p.done, p.own-p.head.Load()
	if epochOf(arm) != p.epoch {
		answer = answerNone
	}
	switch state := stateOf(arm); {
	case answer >= answerNotified:
		return 0
	case state == notifyArmed || state == notifyWatched: // unless it has read them by now
		if used == 0 {
			return 0
		}
	case (state == notifySpinning || state == notifyAsleep) && used > uint64(highOf(arm)):
	default:
		return 0
	}
	p.epoch, p.done = epochOf(arm), answerNotified
	p.sent++
	p.notified.Store(wakeup(p.done, p.epoch, p.sent))
	return 1
}

// Used returns how many bytes the program has not read.
func (p *Producer) Used() (int, error) {
	used := p.own - p.head.Load()
	if used > uint64(len(p.data)) {
		return 0, ErrViolation
	}
	return int(used), nil
}

// AwaitSpace makes the program write a doorbell byte once it has freed space. It reports whether there is space already.
func (p *Producer) AwaitSpace() bool {
	p.asked = (p.asked + 1) & epochMask
	p.space.Store(p.asked<<epochShift | spaceByte)
	return p.own-p.head.Load() < uint64(len(p.data))
}

// Doorbells returns how many doorbell bytes Commit has asked for.
func (p *Producer) Doorbells() uint32 { return p.sent }
