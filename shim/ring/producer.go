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
func (p *Producer) Commit(n int) (bells int) {
	p.own += uint32(n)
	p.tail.Store(p.own)
	for range 4 { // a correct program changes bell only a few times meanwhile
		bell := p.bell.Load()
		next, bells := uint32(bellRung), 1
		more := p.own-p.head.Load() > p.want.Load()
		switch {
		case bell == bellArmed:
		case bell == bellAsleep && more:
			bells = 2
		case bell == bellAsleep:
			next = bellWoken
		case (bell == bellSuppressed || bell == bellWoken) && more:
		default:
			return 0
		}
		if p.bell.CompareAndSwap(bell, next) {
			p.sent += uint32(bells)
			p.rung.Store(p.sent)
			return bells
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

// Rung returns how many doorbell bytes Commit has asked for.
func (p *Producer) Rung() uint32 { return p.sent }
