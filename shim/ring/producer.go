package ring

// Producer is the node's side of the ring to a program.
type Producer struct {
	half
	sent uint32 // doorbell bytes
}

// Reserve returns the free space of the ring, at most most bytes.
func (p *Producer) Reserve(most int) ([2][]byte, error) {
	used := p.own - p.head.Load()
	size := uint32(len(p.data))
	if used > size {
		return [2][]byte{}, ErrViolation
	}
	return p.pieces(p.own, min(size-used, uint32(most))), nil
}

// Commit publishes the first n bytes of what Reserve returned. It returns how many doorbell bytes the caller has to write
// to the socket now: the program's reader may sleep in poll(2) or in read(2).
func (p *Producer) Commit(n int) (doorbells int) {
	p.own += uint32(n)
	p.tail.Store(p.own)
	for range 4 { // a correct program changes notifier only a few times meanwhile
		notifier := p.notifier.Load()
		next, doorbells := uint32(notifierDisarmed), 1
		more := p.own-p.head.Load() > p.want.Load()
		switch {
		case notifier == notifierArmed:
		case notifier == notifierAsleep && more:
			doorbells = 2
		case notifier == notifierAsleep:
			next = notifierWoken
		case (notifier == notifierSuppressed || notifier == notifierWoken) && more:
		default:
			return 0
		}
		if p.notifier.CompareAndSwap(notifier, next) {
			p.sent += uint32(doorbells)
			p.doorbells.Store(p.sent)
			return doorbells
		}
	}
	return 0
}

// Used returns how many bytes the program has not read.
func (p *Producer) Used() (int, error) {
	used := p.own - p.head.Load()
	if used > uint32(len(p.data)) {
		return 0, ErrViolation
	}
	return int(used), nil
}

// AwaitSpace makes the program write a doorbell byte once it has freed space. It reports whether there is space already.
func (p *Producer) AwaitSpace() bool {
	p.space.Store(1)
	return p.own-p.head.Load() < uint32(len(p.data))
}

// Doorbells returns how many doorbell bytes Commit has asked for.
func (p *Producer) Doorbells() uint32 { return p.sent }
