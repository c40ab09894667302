package pool

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/millrace/millrace/gateway/maglev"
)

// build fills what the algorithm of the snapshot draws from.
func (s *snapshot) build() {
	weights := make([]int, len(s.list))
	for i, b := range s.list {
		weights[i] = int(b.weight.Load())
	}
	s.sequence, s.urn, s.slots = nil, nil, nil
	switch s.Balance {
	case RoundRobin:
		s.sequence = sequenceOf(weights)
	case LeastRequest, Random:
		s.urn = newUrn(weights)
	case ConsistentHash:
		shares := make([]maglev.Share, len(s.list))
		for i, b := range s.list {
			shares[i] = maglev.Share{Name: b.name, Weight: weights[i]}
		}
		s.slots = maglev.Fill(shares, s.HashSize)
	}
}

// Bounds of a cycle of RoundRobin. Up to the first, in backends times turns, it is nginx's; in a longer one each backend's turns
// are spread evenly, which takes no time for each pair. Weights whose sum is above the second are scaled down to it.
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
	if sum*len(turns) <= smoothWork {
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

// spread returns an order in which turn k of w lies near (k + 1/2)/w of the cycle.
func spread(weights []int, sum int) []uint16 {
	type turn struct {
		at      float64
		backend uint16
	}
	list := make([]turn, 0, sum)
	for i, w := range weights {
		for k := range w {
			list = append(list, turn{(float64(k) + 0.5) / float64(w), uint16(i)})
		}
	}
	slices.SortStableFunc(list, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	order := make([]uint16, len(list))
	for i := range list {
		order[i] = list[i].backend
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
