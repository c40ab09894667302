package schedule

// BinomialBroadcast sends the vector along a binomial tree from root: log2(n) rounds, the least that is possible. It has one
// block.
func BinomialBroadcast(n, rank, root int) Schedule {
	return relative(n, rank, root, func(n, r int) Schedule {
		s := Schedule{Blocks: 1}
		d := 1
		for ; d < n && r&d == 0; d *= 2 {
		}
		if r > 0 {
			s.Steps = append(s.Steps, recvFrom(r&^d, at(0), false))
		}
		for d /= 2; d > 0; d /= 2 { // the largest subtree first, which has the most rounds before it
			if r+d < n {
				s.Steps = append(s.Steps, sendTo(r+d, at(0)))
			}
		}
		return s
	})
}

// BinomialReduce combines the vectors along a binomial tree to root: log2(n) rounds. It has one block.
func BinomialReduce(n, rank, root int) Schedule {
	return relative(n, rank, root, func(n, r int) Schedule {
		s := Schedule{Blocks: 1}
		for d := 1; d < n; d *= 2 {
			if r&d != 0 {
				s.Steps = append(s.Steps, sendTo(r&^d, at(0)))
				break
			}
			if r+d < n {
				s.Steps = append(s.Steps, recvFrom(r+d, at(0), true))
			}
		}
		return s
	})
}

// subtree returns the number of ranks in the part of a binomial tree below r, r included, and the distance to its parent.
func subtree(n, r int) (size, parent int) {
	d := 1
	for ; d < n && r&d == 0; d *= 2 {
	}
	return min(d, n-r), d
}

// BinomialScatter sends each rank its block along a binomial tree from root: log2(n) rounds. Ranks within the tree hold the blocks of those below
// them for a while. It has n blocks, those of the ranks.
func BinomialScatter(n, rank, root int) Schedule {
	s := relative(n, rank, root, func(n, r int) Schedule {
		s := Schedule{Blocks: n}
		size, d := subtree(n, r)
		if r > 0 {
			s.Steps = append(s.Steps, recvFrom(r&^d, []Span{{r, r + size}}, false))
		}
		for d /= 2; d > 0; d /= 2 {
			if r+d < n {
				below, _ := subtree(n, r+d)
				s.Steps = append(s.Steps, sendTo(r+d, []Span{{r + d, r + d + below}}))
			}
		}
		return s
	})
	rotate(s.Steps, root, n)
	return s
}

// BinomialGather is BinomialScatter in the other direction.
func BinomialGather(n, rank, root int) Schedule { return reverse(BinomialScatter(n, rank, root)) }

// reverse exchanges senders and receivers, and the first step and the last.
func reverse(s Schedule) Schedule {
	r := Schedule{Blocks: s.Blocks}
	for i := len(s.Steps) - 1; i >= 0; i-- {
		r.Steps = append(r.Steps, Step{Send: s.Steps[i].Recv, Recv: s.Steps[i].Send})
	}
	return r
}

// rotate adds by to the numbers of all blocks, modulo n.
func rotate(steps []Step, by, n int) {
	for _, st := range steps {
		for _, messages := range [][]Message{st.Send, st.Recv} {
			for i := range messages {
				var spans []Span
				for _, s := range messages[i].Spans {
					spans = append(spans, wrap(s.Lo+by, s.Hi-s.Lo, n)...)
				}
				messages[i].Spans = spans
			}
		}
	}
}

// LinearScatter has root send each rank its block: n-1 messages in one round, no byte twice. It has n blocks.
func LinearScatter(n, rank, root int) Schedule {
	s := Schedule{Blocks: n}
	if rank != root {
		s.Steps = []Step{recvFrom(root, at(rank), false)}
		return s
	}
	var step Step
	for k := 1; k < n; k++ {
		to := (root + k) % n
		step.Send = append(step.Send, Message{Peer: to, Spans: at(to)})
	}
	s.Steps = []Step{step}
	return s
}

// LinearGather is LinearScatter in the other direction.
func LinearGather(n, rank, root int) Schedule { return reverse(LinearScatter(n, rank, root)) }

// ScatterAllGather broadcasts by a binomial scatter and a ring of all-gather (van de Geijn): log2(n)+n-1 rounds, and about twice
// the bytes of the vector through each rank, for long vectors. It has n blocks.
func ScatterAllGather(n, rank, root int) Schedule {
	s := BinomialScatter(n, rank, root)
	s.Steps = append(s.Steps, RingAllGather(n, rank).Steps...)
	return s
}

// ReduceScatterGather reduces by a ring of reduce-scatter and a gather: for long vectors. It has n blocks.
func ReduceScatterGather(n, rank, root int) Schedule {
	s := RingReduceScatter(n, rank)
	s.Steps = append(s.Steps, LinearGather(n, rank, root).Steps...)
	return s
}
