package pool

import (
	"math"
	"math/bits"
	"slices"

	"github.com/millrace/millrace/gateway/maglev"
)

// build fills what the algorithm of the snapshot draws from. Backends that take no new requests are left out, except for
// ConsistentHash: their keys are to return to them, and no other is to move. like is the snapshot before, or nil.
func (s *snapshot) build(like *snapshot, panics bool) {
	weights := make([]int, len(s.list))
	for i, b := range s.list {
		flags := b.flags.Load()
		if panics || s.Balance == ConsistentHash {
			flags &^= flagUnhealthy
		}
		if s.Balance == ConsistentHash {
			flags &^= flagDraining | flagInactive
		}
		if flags == 0 {
			weights[i] = int(b.weight.Load())
		}
	}
	s.weights, s.sequence, s.urn, s.slots = weights, nil, nil, nil
	switch s.Balance {
	case RoundRobin:
		s.sequence = sequenceOf(weights)
	case LeastRequest, Random:
		s.urn = newUrn(weights)
	case ConsistentHash:
		s.slots = s.fill(like)
	}
}

// fill returns the table of ConsistentHash: that of the snapshot before, if nothing it depends on has changed.
func (s *snapshot) fill(like *snapshot) []uint16 {
	if like != nil && like.slots != nil && like.HashSize == s.HashSize && slices.Equal(like.weights, s.weights) &&
		slices.EqualFunc(like.list, s.list, func(a, b *Backend) bool { return a.name == b.name }) {
		return like.slots
	}
	shares := make([]maglev.Share, len(s.list))
	for i, b := range s.list {
		shares[i] = maglev.Share{Name: b.name, Weight: s.weights[i]}
	}
	return maglev.Fill(shares, s.HashSize)
}

// Bounds of a cycle of RoundRobin. Up to the first, in backends times turns, it is nginx's; in a longer one each backend's
// turns are spread evenly, which takes no time for each pair. Weights whose sum is above the second are scaled down to it.
const (
	smoothWork = 1 << 20
	longest    = 1 << 17
)

// sequenceOf returns the order of a whole cycle of weighted round robin, nil without any weight.
func sequenceOf(weights []int) []uint16 {
	turns := slices.Clone(weights)
	sum := reduce(turns)
	if sum == 0 {
		return nil
	}
	switch {
	case slices.Max(turns) == 1:
		return spread(turns, sum) // the same as smooth
	case sum*len(turns) <= smoothWork:
		return smooth(turns, sum)
	}
	if sum > longest {
		scaled := 0
		for i, w := range turns {
			if w > 0 {
				turns[i] = max(1, int(math.Round(float64(w)*longest/float64(sum))))
				scaled += turns[i]
			}
		}
		sum = scaled
	}
	return spread(turns, sum)
}

// reduce divides weights by their greatest common divisor and returns their sum.
func reduce(weights []int) (sum int) {
	common := 0
	for _, w := range weights {
		for w != 0 {
			common, w = w, common%w
		}
	}
	for i := range weights {
		weights[i] /= max(common, 1)
		sum += weights[i]
	}
	return sum
}

// smooth returns the order of nginx's smooth weighted round robin: in each turn all backends gain their weight, and the one
// with the most, the first of several, takes the turn and loses the sum.
func smooth(weights []int, sum int) []uint16 {
	order, current := make([]uint16, sum), make([]int, len(weights))
	for turn := range order {
		best := 0
		for i, w := range weights {
			if current[i] += w; current[i] > current[best] {
				best = i
			}
		}
		current[best] -= sum
		order[turn] = uint16(best)
	}
	return order
}

// spread returns an order in which turn k of w lies near (k + 1/2)/w of the cycle; of those at one place the first comes first.
func spread(weights []int, sum int) []uint16 {
	at := func(k, w int) int { return (2*k + 1) * sum / (2 * w) }
	start := make([]int, sum+1) // of the turns at a place, in the order
	for _, w := range weights {
		for k := range w {
			start[at(k, w)+1]++
		}
	}
	for i := range sum {
		start[i+1] += start[i]
	}
	order := make([]uint16, sum)
	for i, w := range weights {
		for k := range w {
			place := at(k, w)
			order[start[place]] = uint16(i)
			start[place]++
		}
	}
	return order
}

// urn draws an index by weight in one step: the alias method (Walker 1977; Vose, "A Linear Algorithm for Generating Random
// Numbers with a Given Distribution", 1991). A place holds up to two indices, and which part of it is the first one's.
type urn []place

type place struct {
	cut          uint32 // in 2^-32; the place is wholly the first one's where both are the same
	first, other uint16
}

// newUrn returns an urn over the weights above 0, an empty one where there are none.
func newUrn(weights []int) urn {
	var u urn
	var parts []float64
	sum, n := 0, 0
	for _, w := range weights {
		if sum += w; w > 0 {
			n++
		}
	}
	var small, large []int // places that have less than one part, and at least one
	for i, w := range weights {
		if w == 0 {
			continue
		}
		part := float64(w) * float64(n) / float64(sum)
		if part < 1 {
			small = append(small, len(u))
		} else {
			large = append(large, len(u))
		}
		u, parts = append(u, place{first: uint16(i), other: uint16(i)}), append(parts, part)
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		u[s].cut, u[s].other = uint32(parts[s]*(1<<32)), u[l].first
		if parts[l] -= 1 - parts[s]; parts[l] < 1 {
			small, large = append(small, l), large[:len(large)-1]
		}
	}
	return u
}

// draw returns an index by a random number. The urn is not empty.
func (u urn) draw(r uint64) int {
	at, rest := bits.Mul64(r, uint64(len(u)))
	p := &u[at]
	if uint32(rest>>32) < p.cut {
		return int(p.first)
	}
	return int(p.other)
}
