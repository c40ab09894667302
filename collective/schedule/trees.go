package schedule

import "math/bits"

// Tree is the place of a rank in a tree.
type Tree struct {
	Parent   int // -1 is none
	Children []int
}

// DoubleTree returns the places of a rank in two binary trees over the same ranks, each for half of the bytes (Sanders, Speck and
// Träff 2009). Rank 0 is above the roots of both. Every other rank is a leaf in at least one tree, so it sends no more than
// the bytes of the vector twice, in an all-reduce.
//
// Ranks 1 to n-1 are numbered in order, so that odd numbers are leaves. The second tree is the mirror image of the first where that
// exchanges odd and even (n-1 even), and shifted by one where it does not.
func DoubleTree(n, rank int) [2]Tree {
	m := n - 1
	mirror := func(i int) int { return m + 1 - i }
	shift := func(i int) int { return i%m + 1 }
	unshift := func(i int) int { return (i+m-2)%m + 1 }
	straight := func(i int) int { return i }
	second, back := mirror, mirror
	if m%2 == 1 {
		second, back = shift, unshift
	}
	return [2]Tree{place(m, rank, straight, straight), place(m, rank, second, back)}
}

// place returns the place of a rank in the in-order tree of numbers 1 to m, in which rank r has number to(r).
func place(m, rank int, to, from func(int) int) Tree {
	if rank == 0 {
		return Tree{Parent: -1, Children: []int{from(floorPower(m))}}
	}
	i := to(rank)
	t := Tree{}
	if up := above(m, i); up > 0 {
		t.Parent = from(up)
	}
	for j := 1; j <= m; j++ {
		if above(m, j) == i {
			t.Children = append(t.Children, from(j))
		}
	}
	return t
}

// above returns the parent of number i in the in-order tree of 1 to m; 0 is none.
func above(m, i int) int {
	bit := i & -i
	if up := i&^bit | bit<<1; up <= m {
		return up
	}
	return i &^ bit
}

// DoubleTreeAllReduce reduces and broadcasts along both trees of DoubleTree at once, in chunks for each of them, so that the
// rounds of chunks overlap: about 4 log2(n) + 2 chunks rounds. It has 2 chunks blocks, one half for each tree.
func DoubleTreeAllReduce(n, rank, chunks int) Schedule {
	s := Schedule{Blocks: 2 * chunks}
	if n == 1 {
		return s
	}
	trees := DoubleTree(n, rank)
	lag := 2 * bits.Len(uint(n)) // chunks on the way up and down at a time
	for tick := range chunks + lag {
		up, down := tick, tick-lag
		var combine, middle, spread Step
		for i, t := range trees {
			if up < chunks {
				b := at(i*chunks + up)
				for _, c := range t.Children {
					combine.Recv = append(combine.Recv, Message{Peer: c, Spans: b, Reduce: true})
				}
				switch m := (Message{Peer: t.Parent, Spans: b}); {
				case t.Parent < 0:
				case len(t.Children) == 0: // at once: its parent here may be its child in the other tree
					combine.Send = append(combine.Send, m)
				default:
					middle.Send = append(middle.Send, m)
				}
			}
			if down >= 0 {
				b := at(i*chunks + down)
				switch m := (Message{Peer: t.Parent, Spans: b}); {
				case t.Parent < 0:
				case len(t.Children) == 0: // last, for the same reason
					spread.Recv = append(spread.Recv, m)
				default:
					middle.Recv = append(middle.Recv, m)
				}
				for _, c := range t.Children {
					spread.Send = append(spread.Send, Message{Peer: c, Spans: b})
				}
			}
		}
		for _, st := range []Step{combine, middle, spread} {
			if len(st.Send)+len(st.Recv) > 0 {
				s.Steps = append(s.Steps, st)
			}
		}
	}
	return s
}

// ChainBroadcast passes chunks of the vector from rank to rank: n-2+chunks rounds, and the vector once through each rank, for very
// long vectors. It has chunks blocks.
func ChainBroadcast(n, rank, root, chunks int) Schedule {
	return relative(n, rank, root, func(n, r int) Schedule {
		s := Schedule{Blocks: chunks}
		for c := range chunks {
			if r > 0 {
				s.Steps = append(s.Steps, recvFrom(r-1, at(c), false))
			}
			if r < n-1 {
				s.Steps = append(s.Steps, sendTo(r+1, at(c)))
			}
		}
		return s
	})
}

// Hierarchical is an all-reduce over groups, such as the ranks of one host, between which links are slower: a ring of
// reduce-scatter in each group, a ring of all-reduce between the ranks of the same place in all groups, and a ring of all-gather in
// each group. A byte crosses between groups as often as in a ring of one rank of each group. Groups of equal size have
// size x groups blocks. Groups of different sizes combine in their first ranks (HierarchicalLeaders).
func Hierarchical(groups [][]int, rank int) Schedule {
	g, place := find(groups, rank)
	size := len(groups[0])
	for _, members := range groups {
		if len(members) != size {
			return HierarchicalLeaders(groups, rank)
		}
	}
	parts := len(groups)
	wide := func(b int) Span { return Span{b * parts, (b + 1) * parts} }
	column := make([]int, parts)
	for i, members := range groups {
		column[i] = members[place]
	}
	s := Schedule{Blocks: size * parts}
	s.Steps = within(RingReduceScatter(size, place).Steps, groups[g], wide)
	s.Steps = append(s.Steps, within(RingAllReduce(parts, g).Steps, column, func(b int) Span { return Span{place*parts + b, place*parts + b + 1} })...)
	s.Steps = append(s.Steps, within(RingAllGather(size, place).Steps, groups[g], wide)...)
	return s
}

// HierarchicalLeaders is an all-reduce by a binomial tree in each group, recursive doubling between their first ranks, and the
// tree back: few rounds between groups, which may differ in size. It has one block.
func HierarchicalLeaders(groups [][]int, rank int) Schedule {
	g, place := find(groups, rank)
	members := groups[g]
	s := Schedule{Blocks: 1, Steps: within(BinomialReduce(len(members), place, 0).Steps, members, same)}
	if place == 0 {
		leaders := make([]int, len(groups))
		for i := range groups {
			leaders[i] = groups[i][0]
		}
		s.Steps = append(s.Steps, within(RecursiveDoubling(len(groups), g).Steps, leaders, same)...)
	}
	s.Steps = append(s.Steps, within(BinomialBroadcast(len(members), place, 0).Steps, members, same)...)
	return s
}

// find returns the group of a rank and its place there.
func find(groups [][]int, rank int) (group, place int) {
	for g, members := range groups {
		for i, r := range members {
			if r == rank {
				return g, i
			}
		}
	}
	panic("schedule: a rank is in no group")
}
