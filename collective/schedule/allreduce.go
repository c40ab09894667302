package schedule

// RingAllReduce is a ring of reduce-scatter and then of all-gather (Patarasuk and Yuan 2009): 2(n-1) rounds, and 2(n-1)/n of the
// bytes from each rank, the least that is possible. It has n blocks.
func RingAllReduce(n, rank int) Schedule {
	right, left := (rank+1)%n, mod(rank-1, n)
	s := Schedule{Blocks: n}
	for k := range n - 1 {
		s.Steps = append(s.Steps, exchange(right, at(mod(rank-k, n)), left, at(mod(rank-k-1, n)), true))
	}
	for k := range n - 1 {
		s.Steps = append(s.Steps, exchange(right, at(mod(rank+1-k, n)), left, at(mod(rank-k, n)), false))
	}
	return s
}

// fold is the pairing by which n ranks become a power of two: of the first 2(n-p) ranks each even one gives its data to the odd
// one after it, sits out, and gets the result.
type fold struct {
	power, extra int // ranks that go on, and pairs
	rank         int // among those that go on; -1 sits out
	pre, post    []Step
}

// newFold returns the part of a rank in the fold of all of its blocks.
func newFold(n, rank, blocks int) fold {
	f := fold{power: floorPower(n)}
	f.extra = n - f.power
	switch {
	case rank >= 2*f.extra:
		f.rank = rank - f.extra
	case rank%2 == 0:
		f.rank = -1
		f.pre = []Step{sendTo(rank+1, all(blocks))}
		f.post = []Step{recvFrom(rank+1, all(blocks), false)}
	default:
		f.rank = rank / 2
		f.pre = []Step{recvFrom(rank-1, all(blocks), true)}
		f.post = []Step{sendTo(rank-1, all(blocks))}
	}
	return f
}

// original returns the rank that goes on as number r.
func (f *fold) original(r int) int {
	if r < f.extra {
		return 2*r + 1
	}
	return r + f.extra
}

// RecursiveDoubling exchanges the whole vector with a rank at twice the distance in each round: log2(n) rounds, the least that is
// possible, and two more where n is no power of two. It has one block.
func RecursiveDoubling(n, rank int) Schedule {
	f := newFold(n, rank, 1)
	s := Schedule{Blocks: 1, Steps: f.pre}
	if f.rank >= 0 {
		for d := 1; d < f.power; d *= 2 {
			peer := f.original(f.rank ^ d)
			s.Steps = append(s.Steps, exchange(peer, at(0), peer, at(0), true))
		}
	}
	s.Steps = append(s.Steps, f.post...)
	return s
}

// Rabenseifner halves the vector in each round of a reduce-scatter, and doubles it again in those of an all-gather: 2 log2(n) rounds,
// and 2(p-1)/p of the bytes from each rank, for p the largest power of two in n; where n is another, some ranks move the vector
// once more. It has p blocks.
func Rabenseifner(n, rank int) Schedule {
	p := floorPower(n)
	f := newFold(n, rank, p)
	s := Schedule{Blocks: p, Steps: f.pre}
	if f.rank >= 0 {
		lo, hi := 0, p
		for d := p / 2; d > 0; d /= 2 {
			var step Step
			step, lo, hi = halve(f.original(f.rank^d), f.rank&d != 0, lo, hi)
			s.Steps = append(s.Steps, step)
		}
		for d := 1; d < p; d *= 2 {
			peer, mine := f.original(f.rank^d), Span{f.rank &^ (d - 1), f.rank&^(d-1) + d}
			theirs := Span{mine.Lo ^ d, mine.Lo ^ d + d}
			s.Steps = append(s.Steps, exchange(peer, []Span{mine}, peer, []Span{theirs}, false))
		}
	}
	s.Steps = append(s.Steps, f.post...)
	return s
}

// halve is a step of recursive halving: the rank keeps the upper half of blocks lo to hi-1 or the lower one, and gives away the other.
func halve(peer int, upper bool, lo, hi int) (Step, int, int) {
	mid := (lo + hi) / 2
	lower, higher := []Span{{lo, mid}}, []Span{{mid, hi}}
	if upper {
		return exchange(peer, lower, peer, higher, true), mid, hi
	}
	return exchange(peer, higher, peer, lower, true), lo, mid
}

// TreeAllReduce reduces along a binomial tree to rank 0 and broadcasts along the same: 2 log2(n) rounds, few messages in all
// (2(n-1)). It has one block.
func TreeAllReduce(n, rank int) Schedule {
	return Schedule{Blocks: 1, Steps: append(BinomialReduce(n, rank, 0).Steps, BinomialBroadcast(n, rank, 0).Steps...)}
}
