package schedule

// RingAllGather passes the blocks of all ranks around: n-1 rounds, and n-1 blocks from each rank, the least that is possible. It
// has n blocks, those of the ranks, which may differ in size.
func RingAllGather(n, rank int) Schedule {
	right, left := (rank+1)%n, mod(rank-1, n)
	s := Schedule{Blocks: n}
	for k := range n - 1 {
		s.Steps = append(s.Steps, exchange(right, at(mod(rank-k, n)), left, at(mod(rank-k-1, n)), false))
	}
	return s
}

// BruckAllGather doubles the blocks that a rank has in each round: log2(n) rounds, the least that is possible, and no byte more
// than the ring. It has n blocks.
func BruckAllGather(n, rank int) Schedule {
	s := Schedule{Blocks: n}
	for have := 1; have < n; have *= 2 {
		more := min(have, n-have)
		to, from := mod(rank-have, n), (rank+have)%n
		s.Steps = append(s.Steps, exchange(to, wrap(rank, more, n), from, wrap(rank+have, more, n), false))
	}
	return s
}

// RingReduceScatter is the first half of RingAllReduce, shifted so that each rank ends with its own block: n-1 rounds and n-1
// blocks from each rank, the least that is possible. It has n blocks.
func RingReduceScatter(n, rank int) Schedule {
	right, left := (rank+1)%n, mod(rank-1, n)
	s := Schedule{Blocks: n}
	for k := range n - 1 {
		s.Steps = append(s.Steps, exchange(right, at(mod(rank-k-1, n)), left, at(mod(rank-k-2, n)), true))
	}
	return s
}

// HalvingReduceScatter is the first half of Rabenseifner's algorithm with all n blocks: log2(n) rounds. Where n is no power
// of two, ranks are paired first, and those that sat out get their block at the end. It has n blocks.
func HalvingReduceScatter(n, rank int) Schedule {
	f := newFold(n, rank, n)
	s := Schedule{Blocks: n, Steps: f.pre}
	if f.rank < 0 {
		s.Steps = append(s.Steps, recvFrom(rank+1, at(rank), false))
		return s
	}
	// first is the first block of the ranks from r on that go on: a pair shares a part of two blocks.
	first := func(r int) int {
		if r <= f.extra {
			return 2 * r
		}
		return r + f.extra
	}
	lo, hi := 0, f.power
	for d := f.power / 2; d > 0; d /= 2 {
		peer, mid := f.original(f.rank^d), (lo+hi)/2
		lower, higher := []Span{{first(lo), first(mid)}}, []Span{{first(mid), first(hi)}}
		if f.rank&d != 0 {
			s.Steps, lo = append(s.Steps, exchange(peer, lower, peer, higher, true)), mid
		} else {
			s.Steps, hi = append(s.Steps, exchange(peer, higher, peer, lower, true)), mid
		}
	}
	if f.rank < f.extra {
		s.Steps = append(s.Steps, sendTo(rank-1, at(rank-1)))
	}
	return s
}

// Outgoing returns the block of an all-to-all that a rank has for another, and Incoming the one that it gets from another. Its own
// part is not in a message.
func Outgoing(to int) int { return to }

// Incoming is described at Outgoing.
func Incoming(n, from int) int { return n + from }

// PairwiseAllToAll exchanges with each other rank in a round of its own: n-1 rounds, no byte twice. It has 2n blocks, see Outgoing,
// which may differ in size.
func PairwiseAllToAll(n, rank int) Schedule {
	s := Schedule{Blocks: 2 * n}
	for k := 1; k < n; k++ {
		to, from := (rank+k)%n, mod(rank-k, n)
		s.Steps = append(s.Steps, exchange(to, at(Outgoing(to)), from, at(Incoming(n, from)), false))
	}
	return s
}

// BruckAllToAll moves each block by the binary digits of its distance: log2(n) rounds, with half of all blocks in each. It has n
// blocks of equal size: block k begins as what the rank has for rank+k, and ends as what it got from rank-k.
func BruckAllToAll(n, rank int) Schedule {
	s := Schedule{Blocks: n}
	for d := 1; d < n; d *= 2 {
		var spans []Span
		for k := range n {
			if k&d != 0 {
				spans = appendSpan(spans, Span{k, k + 1})
			}
		}
		s.Steps = append(s.Steps, exchange((rank+d)%n, spans, mod(rank-d, n), spans, false))
	}
	return s
}

// DisseminationBarrier has no blocks: in log2(n) rounds, the least that is possible, each rank hears of all others.
func DisseminationBarrier(n, rank int) Schedule {
	var s Schedule
	for d := 1; d < n; d *= 2 {
		s.Steps = append(s.Steps, exchange((rank+d)%n, nil, mod(rank-d, n), nil, false))
	}
	return s
}
