package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"testing"
)

// sums is a Visitor over blocks that count how often each rank's contribution is in them.
type sums struct {
	t      *testing.T
	blocks [][][]int // of a rank, of a block: the contributions of all ranks
	inbox  map[[2]int][][][]int
	name   string
}

func expand(m *Message) (blocks []int) {
	for _, s := range m.Spans {
		for b := s.Lo; b < s.Hi; b++ {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func (v *sums) Send(rank int, m *Message) {
	var parts [][]int
	for _, b := range expand(m) {
		if v.blocks[rank][b] == nil {
			v.t.Fatalf("%s: rank %d sends block %d, which it does not have", v.name, rank, b)
		}
		parts = append(parts, slices.Clone(v.blocks[rank][b]))
	}
	k := [2]int{rank, m.Peer}
	v.inbox[k] = append(v.inbox[k], parts)
}

func (v *sums) Recv(rank int, m, _ *Message) {
	k := [2]int{m.Peer, rank}
	parts := v.inbox[k][0]
	v.inbox[k] = v.inbox[k][1:]
	for i, b := range expand(m) {
		if !m.Reduce {
			v.blocks[rank][b] = parts[i]
			continue
		}
		if v.blocks[rank][b] == nil {
			v.t.Fatalf("%s: rank %d reduces into block %d, which it does not have", v.name, rank, b)
		}
		for r, c := range parts[i] {
			v.blocks[rank][b][r] += c
		}
	}
}

func (v *sums) End(int) {}

// execute runs an algorithm among n ranks. begin returns the contributions of a block of a rank at first; nil is none.
func execute(t *testing.T, name string, n int, gen func(rank int) Schedule, begin func(rank, block int) []int) ([][][]int, []Schedule) {
	t.Helper()
	v := &sums{t: t, inbox: map[[2]int][][][]int{}, name: fmt.Sprintf("%s of %d", name, n)}
	ranks := make([]Schedule, n)
	for r := range n {
		ranks[r] = gen(r)
		if ranks[r].Blocks != ranks[0].Blocks {
			t.Fatalf("%s: ranks differ in blocks", v.name)
		}
		if err := ranks[r].Check(n, r); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		blocks := make([][]int, ranks[r].Blocks)
		for b := range blocks {
			blocks[b] = begin(r, b)
		}
		v.blocks = append(v.blocks, blocks)
	}
	if err := Simulate(ranks, v); err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
	return v.blocks, ranks
}

// one is the contribution of one rank, ones of all.
func one(n, rank int) []int {
	c := make([]int, n)
	c[rank] = 1
	return c
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

const most = 17

// contiguousGroups cuts n ranks into groups of at most size.
func contiguousGroups(n, size int) (groups [][]int) {
	for r := range n {
		if r%size == 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
	}
	return groups
}

func TestAllReduceSumsEveryRankOnce(t *testing.T) {
	for n := 1; n <= most; n++ {
		algorithms := map[string]func(rank int) Schedule{
			"ring":         func(r int) Schedule { return RingAllReduce(n, r) },
			"doubling":     func(r int) Schedule { return RecursiveDoubling(n, r) },
			"rabenseifner": func(r int) Schedule { return Rabenseifner(n, r) },
			"tree":         func(r int) Schedule { return TreeAllReduce(n, r) },
		}
		for _, chunks := range []int{1, 2, 5, 40} {
			algorithms[fmt.Sprint("double tree ", chunks)] = func(r int) Schedule { return DoubleTreeAllReduce(n, r, chunks) }
		}
		for _, size := range []int{1, 2, 3, 4, 8} {
			algorithms[fmt.Sprint("hierarchical ", size)] = func(r int) Schedule { return Hierarchical(contiguousGroups(n, size), r) }
			algorithms[fmt.Sprint("leaders ", size)] = func(r int) Schedule { return HierarchicalLeaders(contiguousGroups(n, size), r) }
		}
		for name, gen := range algorithms {
			end, _ := execute(t, name, n, gen, func(r, _ int) []int { return one(n, r) })
			for r := range end {
				for b := range end[r] {
					if !slices.Equal(end[r][b], ones(n)) {
						t.Fatalf("%s of %d: block %d of rank %d has %v", name, n, b, r, end[r][b])
					}
				}
			}
		}
	}
}

func TestRootedOperationsReachTheirRoot(t *testing.T) {
	for n := 1; n <= most; n++ {
		for root := range n {
			for name, gen := range map[string]func(n, rank, root int) Schedule{
				"binomial":        BinomialBroadcast,
				"scatter, gather": ScatterAllGather,
				"chain":           func(n, r, root int) Schedule { return ChainBroadcast(n, r, root, 7) },
			} {
				end, _ := execute(t, "broadcast "+name, n, func(r int) Schedule { return gen(n, r, root) }, func(r, _ int) []int {
					if r == root {
						return one(n, root)
					}
					return nil
				})
				for r := range end {
					for b := range end[r] {
						if !slices.Equal(end[r][b], one(n, root)) {
							t.Fatalf("broadcast %s of %d from %d: block %d of rank %d has %v", name, n, root, b, r, end[r][b])
						}
					}
				}
			}
			for name, gen := range map[string]func(n, rank, root int) Schedule{"binomial": BinomialReduce, "ring": ReduceScatterGather} {
				end, _ := execute(t, "reduce "+name, n, func(r int) Schedule { return gen(n, r, root) }, func(r, _ int) []int { return one(n, r) })
				for b, c := range end[root] {
					if !slices.Equal(c, ones(n)) {
						t.Fatalf("reduce %s of %d to %d: block %d has %v", name, n, root, b, c)
					}
				}
			}
			for name, gen := range map[string]func(n, rank, root int) Schedule{"binomial": BinomialScatter, "linear": LinearScatter} {
				end, _ := execute(t, "scatter "+name, n, func(r int) Schedule { return gen(n, r, root) }, func(r, b int) []int {
					if r == root {
						return []int{b + 100}
					}
					return nil
				})
				for r := range end {
					if !slices.Equal(end[r][r], []int{r + 100}) {
						t.Fatalf("scatter %s of %d from %d: rank %d has %v", name, n, root, r, end[r])
					}
				}
			}
			for name, gen := range map[string]func(n, rank, root int) Schedule{"binomial": BinomialGather, "linear": LinearGather} {
				end, _ := execute(t, "gather "+name, n, func(r int) Schedule { return gen(n, r, root) }, ownBlock)
				for b := range n {
					if !slices.Equal(end[root][b], []int{b + 100}) {
						t.Fatalf("gather %s of %d to %d: block %d has %v", name, n, root, b, end[root][b])
					}
				}
			}
		}
	}
}

// ownBlock is what a rank has that contributes one block.
func ownBlock(rank, block int) []int {
	if rank == block {
		return []int{rank + 100}
	}
	return nil
}

func TestAllGatherAndReduceScatter(t *testing.T) {
	for n := 1; n <= most; n++ {
		for name, gen := range map[string]func(n, rank int) Schedule{"ring": RingAllGather, "bruck": BruckAllGather} {
			end, _ := execute(t, "all-gather "+name, n, func(r int) Schedule { return gen(n, r) }, ownBlock)
			for r := range end {
				for b := range end[r] {
					if !slices.Equal(end[r][b], []int{b + 100}) {
						t.Fatalf("all-gather %s of %d: block %d of rank %d has %v", name, n, b, r, end[r][b])
					}
				}
			}
		}
		for name, gen := range map[string]func(n, rank int) Schedule{"ring": RingReduceScatter, "halving": HalvingReduceScatter} {
			end, _ := execute(t, "reduce-scatter "+name, n, func(r int) Schedule { return gen(n, r) }, func(r, _ int) []int { return one(n, r) })
			for r := range end {
				if !slices.Equal(end[r][r], ones(n)) {
					t.Fatalf("reduce-scatter %s of %d: rank %d has %v", name, n, r, end[r][r])
				}
			}
		}
	}
}

func TestAllToAll(t *testing.T) {
	for n := 1; n <= most; n++ {
		end, _ := execute(t, "pairwise", n, func(r int) Schedule { return PairwiseAllToAll(n, r) }, func(r, b int) []int {
			if b < n {
				return []int{100*r + b}
			}
			return nil
		})
		for r := range n {
			for from := range n {
				if got := end[r][Incoming(n, from)]; from != r && !slices.Equal(got, []int{100*from + r}) {
					t.Fatalf("pairwise of %d: rank %d has %v of %d", n, r, got, from)
				}
			}
		}
		end, _ = execute(t, "bruck", n, func(r int) Schedule { return BruckAllToAll(n, r) }, func(r, k int) []int { return []int{100*r + (r+k)%n} })
		for r := range n {
			for k := range n {
				if from := mod(r-k, n); !slices.Equal(end[r][k], []int{100*from + r}) {
					t.Fatalf("bruck of %d: rank %d has %v of %d", n, r, end[r][k], from)
				}
			}
		}
	}
}

// heard is a Visitor of barriers: each rank knows who has entered.
type heard struct {
	known [][]bool
	inbox map[[2]int][][]bool
}

func (h *heard) Send(rank int, m *Message) {
	k := [2]int{rank, m.Peer}
	h.inbox[k] = append(h.inbox[k], slices.Clone(h.known[rank]))
}

func (h *heard) Recv(rank int, m, _ *Message) {
	k := [2]int{m.Peer, rank}
	for r, ok := range h.inbox[k][0] {
		h.known[rank][r] = h.known[rank][r] || ok
	}
	h.inbox[k] = h.inbox[k][1:]
}

func (h *heard) End(int) {}

func TestBarrierHearsOfAllRanks(t *testing.T) {
	for n := 1; n <= most; n++ {
		h := &heard{inbox: map[[2]int][][]bool{}}
		var ranks []Schedule
		for r := range n {
			ranks = append(ranks, DisseminationBarrier(n, r))
			known := make([]bool, n)
			known[r] = true
			h.known = append(h.known, known)
		}
		if err := Simulate(ranks, h); err != nil {
			t.Fatal(err)
		}
		for r, known := range h.known {
			if slices.Contains(known, false) {
				t.Errorf("%d ranks: rank %d has heard of %v", n, r, known)
			}
		}
	}
}

func TestEveryRankIsALeafInOneOfTwoTrees(t *testing.T) {
	for n := 2; n <= 300; n++ {
		var depth [2]int
		for rank := 1; rank < n; rank++ {
			trees := DoubleTree(n, rank)
			if len(trees[0].Children) > 0 && len(trees[1].Children) > 0 {
				t.Fatalf("%d ranks: rank %d is a leaf in no tree", n, rank)
			}
			for i := range trees {
				if len(trees[i].Children) > 2 {
					t.Fatalf("%d ranks: rank %d has %d children", n, rank, len(trees[i].Children))
				}
				steps := 0
				for r := rank; r != 0; r = DoubleTree(n, r)[i].Parent {
					if steps++; steps > n {
						t.Fatalf("%d ranks: rank %d does not reach the root", n, rank)
					}
				}
				depth[i] = max(depth[i], steps)
			}
		}
		if bound := log2(n) + 1; depth[0] > bound || depth[1] > bound {
			t.Errorf("%d ranks: depth %v, at most %d", n, depth, bound)
		}
	}
}

// TestBytesAndRoundsMeetTheBounds compares each algorithm with its lower bound or its formula, for blocks that make a vector of
// n x power bytes.
func TestBytesAndRoundsMeetTheBounds(t *testing.T) {
	for n := 2; n <= 33; n++ {
		p, power := floorPower(n), n&(n-1) == 0
		logn := log2(n)
		vector := n * p
		type bound struct{ bytes, rounds int } // -1 is not checked
		ringBytes := 2 * (n - 1) * vector / n
		for name, c := range map[string]struct {
			gen   func(rank int) Schedule
			block int
			most  bound
		}{
			"ring all-reduce":    {func(r int) Schedule { return RingAllReduce(n, r) }, vector / n, bound{ringBytes, 2 * (n - 1)}},
			"ring all-gather":    {func(r int) Schedule { return RingAllGather(n, r) }, 3, bound{3 * (n - 1), n - 1}},
			"bruck all-gather":   {func(r int) Schedule { return BruckAllGather(n, r) }, 3, bound{3 * (n - 1), logn}},
			"ring r-s":           {func(r int) Schedule { return RingReduceScatter(n, r) }, 3, bound{3 * (n - 1), n - 1}},
			"pairwise":           {func(r int) Schedule { return PairwiseAllToAll(n, r) }, 3, bound{3 * (n - 1), n - 1}},
			"bruck all-to-all":   {func(r int) Schedule { return BruckAllToAll(n, r) }, 1, bound{(n + 1) / 2 * logn, logn}},
			"barrier":            {func(r int) Schedule { return DisseminationBarrier(n, r) }, 1, bound{0, logn}},
			"broadcast":          {func(r int) Schedule { return BinomialBroadcast(n, r, n/2) }, 1, bound{logn, 1}},
			"reduce":             {func(r int) Schedule { return BinomialReduce(n, r, n/2) }, 1, bound{1, logn}},
			"binomial gather":    {func(r int) Schedule { return BinomialGather(n, r, n/2) }, 1, bound{n / 2, logn}},
			"linear scatter":     {func(r int) Schedule { return LinearScatter(n, r, n/2) }, 1, bound{n - 1, 1}},
			"double tree":        {func(r int) Schedule { return DoubleTreeAllReduce(n, r, 4) }, vector, bound{2 * 8 * vector, -1}},
			"recursive doubling": {func(r int) Schedule { return RecursiveDoubling(n, r) }, vector, foldBound(power, p, vector, bits.Len(uint(p))-1)},
			"rabenseifner":       {func(r int) Schedule { return Rabenseifner(n, r) }, vector / p, rabenseifnerBound(power, p, vector)},
		} {
			for r := range n {
				s := c.gen(r)
				bytes, _ := s.Sent(func(int) int { return c.block })
				if bytes > c.most.bytes {
					t.Errorf("%s of %d: rank %d sends %d bytes, at most %d", name, n, r, bytes, c.most.bytes)
				}
				if c.most.rounds >= 0 && s.Rounds() > c.most.rounds {
					t.Errorf("%s of %d: rank %d has %d rounds, at most %d", name, n, r, s.Rounds(), c.most.rounds)
				}
			}
		}
	}
}

// foldBound is the bound of recursive doubling: the vector in each round, and once more for ranks that are paired.
func foldBound(power bool, p, vector, rounds int) struct{ bytes, rounds int } {
	if power {
		return struct{ bytes, rounds int }{rounds * vector, rounds}
	}
	return struct{ bytes, rounds int }{(rounds + 1) * vector, rounds + 1}
}

func rabenseifnerBound(power bool, p, vector int) struct{ bytes, rounds int } {
	bytes, rounds := 2*(p-1)*vector/p, 2*(bits.Len(uint(p))-1)
	if !power {
		bytes, rounds = bytes+vector, rounds+1
	}
	return struct{ bytes, rounds int }{bytes, rounds}
}

// TestHierarchyCrossesRarely counts the bytes between groups: each rank sends 2(g-1)/g of its share.
func TestHierarchyCrossesRarely(t *testing.T) {
	const size, parts = 4, 3
	groups := contiguousGroups(size*parts, size)
	for r := range size * parts {
		s := Hierarchical(groups, r)
		far := 0
		for _, st := range s.Steps {
			for _, m := range st.Send {
				if m.Peer/size != r/size {
					far += m.Bytes(func(int) int { return 1 })
				}
			}
		}
		if want := 2 * (parts - 1); far != want {
			t.Errorf("rank %d sends %d blocks to other groups, want %d", r, far, want)
		}
	}
}

func TestSimulateFindsWhatCannotBe(t *testing.T) {
	v := &timer{Model: &Model{}, size: func(int) int { return 1 }, n: 2, now: make([]float64, 2), sent: make([]float64, 2), arrivals: make([][]float64, 4)}
	if err := Simulate([]Schedule{{Blocks: 1, Steps: []Step{recvFrom(1, at(0), false)}}, {Blocks: 1}}, v); !errors.Is(err, ErrDeadlock) {
		t.Errorf("a receive without a send: %v", err)
	}
	if err := Simulate([]Schedule{{Blocks: 1, Steps: []Step{sendTo(1, at(0))}}, {Blocks: 1}}, v); err == nil {
		t.Error("a send without a receive passes")
	}
	if err := Simulate([]Schedule{{Steps: []Step{sendTo(1, at(0))}}, {Steps: []Step{recvFrom(0, all(2), false)}}}, v); err == nil {
		t.Error("a message of one block is received as two")
	}
	for _, s := range []Schedule{
		{Blocks: 1, Steps: []Step{sendTo(0, at(0))}},
		{Blocks: 1, Steps: []Step{sendTo(2, at(0))}},
		{Blocks: 1, Steps: []Step{recvFrom(1, at(1), false)}},
		{Blocks: 1, Steps: []Step{recvFrom(1, []Span{{0, 0}}, false)}},
	} {
		if s.Check(2, 0) == nil {
			t.Errorf("%+v passes", s)
		}
	}
}

// TestTimeFollowsTheFormulas compares the simulated time with the textbook's.
func TestTimeFollowsTheFormulas(t *testing.T) {
	const n, bytes = 8, 8 << 20
	m := &Model{Alpha: 10e-6, Beta: 1e-9, Gamma: 0.1e-9}
	of := func(gen func(rank int) Schedule, block int) float64 {
		t.Helper()
		var ranks []Schedule
		for r := range n {
			ranks = append(ranks, gen(r))
		}
		s, err := Time(ranks, m, func(int) int { return block })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	near := func(name string, got, want float64) {
		if got < want*0.999 || got > want*1.001 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	part := float64(bytes) / n
	near("ring", of(func(r int) Schedule { return RingAllReduce(n, r) }, bytes/n), 14*(m.Alpha+part*m.Beta)+7*part*m.Gamma)
	near("doubling", of(func(r int) Schedule { return RecursiveDoubling(n, r) }, bytes), 3*(m.Alpha+bytes*(m.Beta+m.Gamma)))
	m.Cores, m.Work = 2, 1e-3
	near("work", of(func(r int) Schedule { return RecursiveDoubling(n, r) }, 0), 24*1e-3/2)
	m.Far, m.AlphaFar = func(a, b int) bool { return a/4 != b/4 }, 1
	near("far", of(func(r int) Schedule { return RecursiveDoubling(n, r) }, 0), 1+2*m.Alpha)
}
