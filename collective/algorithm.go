package collective

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/collective/schedule"
)

// Kind is a kind of operation that algorithms differ for.
type Kind string

// The kinds.
const (
	KindAllReduce     Kind = "all-reduce"
	KindReduce        Kind = "reduce"
	KindBroadcast     Kind = "broadcast"
	KindAllGather     Kind = "all-gather"
	KindReduceScatter Kind = "reduce-scatter"
	KindAllToAll      Kind = "all-to-all"
	KindGather        Kind = "gather"
	KindScatter       Kind = "scatter"
	KindBarrier       Kind = "barrier"
)

// Algorithm is the name of an algorithm of a kind.
type Algorithm string

// The algorithms. Package schedule describes them.
const (
	Ring          Algorithm = "ring"
	Doubling      Algorithm = "recursive-doubling"
	RabenseifnerA Algorithm = "rabenseifner"
	TreeA         Algorithm = "tree"
	DoubleTreeA   Algorithm = "double-tree"
	Hierarchical  Algorithm = "hierarchical"
	Leaders       Algorithm = "leaders"
	Binomial      Algorithm = "binomial"
	ScatterGather Algorithm = "scatter-gather"
	Chain         Algorithm = "chain"
	Bruck         Algorithm = "bruck"
	Halving       Algorithm = "halving"
	Pairwise      Algorithm = "pairwise"
	Linear        Algorithm = "linear"
	Dissemination Algorithm = "dissemination"
)

// shape holds what a schedule depends on.
type shape struct {
	kind   Kind
	n      int
	root   int
	bytes  int // of the vector
	groups [][]int
}

// generators has the algorithms of each kind.
var generators = map[Kind]map[Algorithm]func(s *shape, rank int) schedule.Schedule{
	KindAllReduce: {
		Ring:          func(s *shape, r int) schedule.Schedule { return schedule.RingAllReduce(s.n, r) },
		Doubling:      func(s *shape, r int) schedule.Schedule { return schedule.RecursiveDoubling(s.n, r) },
		RabenseifnerA: func(s *shape, r int) schedule.Schedule { return schedule.Rabenseifner(s.n, r) },
		TreeA:         func(s *shape, r int) schedule.Schedule { return schedule.TreeAllReduce(s.n, r) },
		DoubleTreeA: func(s *shape, r int) schedule.Schedule {
			return schedule.DoubleTreeAllReduce(s.n, r, chunks(s.bytes/2))
		},
		Hierarchical: func(s *shape, r int) schedule.Schedule { return schedule.Hierarchical(s.groups, r) },
		Leaders:      func(s *shape, r int) schedule.Schedule { return schedule.HierarchicalLeaders(s.groups, r) },
	},
	KindReduce: {
		Binomial: func(s *shape, r int) schedule.Schedule { return schedule.BinomialReduce(s.n, r, s.root) },
		Ring:     func(s *shape, r int) schedule.Schedule { return schedule.ReduceScatterGather(s.n, r, s.root) },
	},
	KindBroadcast: {
		Binomial:      func(s *shape, r int) schedule.Schedule { return schedule.BinomialBroadcast(s.n, r, s.root) },
		ScatterGather: func(s *shape, r int) schedule.Schedule { return schedule.ScatterAllGather(s.n, r, s.root) },
		Chain: func(s *shape, r int) schedule.Schedule {
			return schedule.ChainBroadcast(s.n, r, s.root, chunks(s.bytes))
		},
	},
	KindAllGather: {
		Ring:  func(s *shape, r int) schedule.Schedule { return schedule.RingAllGather(s.n, r) },
		Bruck: func(s *shape, r int) schedule.Schedule { return schedule.BruckAllGather(s.n, r) },
	},
	KindReduceScatter: {
		Ring:    func(s *shape, r int) schedule.Schedule { return schedule.RingReduceScatter(s.n, r) },
		Halving: func(s *shape, r int) schedule.Schedule { return schedule.HalvingReduceScatter(s.n, r) },
	},
	KindAllToAll: {
		Pairwise: func(s *shape, r int) schedule.Schedule { return schedule.PairwiseAllToAll(s.n, r) },
		Bruck:    func(s *shape, r int) schedule.Schedule { return schedule.BruckAllToAll(s.n, r) },
	},
	KindGather: {
		Binomial: func(s *shape, r int) schedule.Schedule { return schedule.BinomialGather(s.n, r, s.root) },
		Linear:   func(s *shape, r int) schedule.Schedule { return schedule.LinearGather(s.n, r, s.root) },
	},
	KindScatter: {
		Binomial: func(s *shape, r int) schedule.Schedule { return schedule.BinomialScatter(s.n, r, s.root) },
		Linear:   func(s *shape, r int) schedule.Schedule { return schedule.LinearScatter(s.n, r, s.root) },
	},
	KindBarrier: {
		Dissemination: func(s *shape, r int) schedule.Schedule { return schedule.DisseminationBarrier(s.n, r) },
	},
}

// Kinds lists the kinds of operations.
func Kinds() []Kind {
	return []Kind{KindAllReduce, KindReduce, KindBroadcast, KindAllGather, KindReduceScatter, KindAllToAll, KindGather, KindScatter, KindBarrier}
}

// Algorithms lists the algorithms of a kind, in alphabetical order.
func Algorithms(k Kind) (list []Algorithm) {
	for a := range generators[k] {
		list = append(list, a)
	}
	slices.Sort(list)
	return list
}

// Pipelined algorithms cut a vector into chunks: small enough that several are on their way, and large enough that the costs of
// a message are small beside those of its bytes.
const (
	chunkBytes = 128 << 10
	chunksMost = 64
)

func chunks(bytes int) int { return min(max(bytes/chunkBytes, 1), chunksMost) }

// scheduleKey identifies a schedule of a rank.
type scheduleKey struct {
	kind   Kind
	a      Algorithm
	root   int
	chunks int
}

// schedule returns the schedule of an algorithm for this rank.
func (c *Comm) schedule(kind Kind, a Algorithm, root, bytes int) *schedule.Schedule {
	key := scheduleKey{kind, a, root, 0}
	if a == DoubleTreeA || a == Chain {
		key.chunks = chunks(bytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schedules[key]; s != nil {
		return s
	}
	s := generators[kind][a](&shape{kind: kind, n: c.Size(), root: root, bytes: bytes, groups: c.groups}, c.rank)
	c.schedules[key] = &s
	return &s
}

// SetAlgorithm fixes the algorithm of a kind of operation, on all ranks alike; "" is the choice by cost.
func (c *Comm) SetAlgorithm(k Kind, a Algorithm) error {
	if a != "" && generators[k][a] == nil {
		return fmt.Errorf("%w: no algorithm %q of %s; there are %v", ErrArguments, a, k, Algorithms(k))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fixed[k] = a
	return nil
}
