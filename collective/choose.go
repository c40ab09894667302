package collective

import (
	"cmp"
	"math/bits"
	"runtime"
	"slices"

	"github.com/millrace/millrace/collective/schedule"
)

// Costs holds the figures by which algorithms are chosen, in seconds. All ranks have the same.
type Costs struct {
	Alpha    float64 `json:"alpha"`     // of a message between ranks of a machine, one way
	Beta     float64 `json:"beta"`      // of a byte
	AlphaFar float64 `json:"alpha_far"` // between machines
	BetaFar  float64 `json:"beta_far"`
	Gamma    float64 `json:"gamma"` // of a byte that is reduced

	// Work is the time of a message, and WorkByte that of a byte, of one core of a machine on which all ranks send at a time. Cores are
	// those of the machine with the fewest. 0 is that none of these bounds an operation.
	Work     float64 `json:"work"`
	WorkByte float64 `json:"work_byte"`
	Cores    int     `json:"cores"`

	Measured bool `json:"measured"`
}

// fixedCosts are those of Config.Deterministic and NoMeasure: of TCP in a machine and over 10 Gb/s.
var fixedCosts = Costs{Alpha: 20e-6, Beta: 0.5e-9, AlphaFar: 40e-6, BetaFar: 0.8e-9, Gamma: 0.15e-9}

// Estimate is the cost of an algorithm.
type Estimate struct {
	Algorithm Algorithm `json:"algorithm"`
	Seconds   float64   `json:"seconds"`
}

// Costs returns the costs that the choice counts with.
func (c *Comm) Costs() Costs { return c.w.costs }

// Plan returns the costs of all algorithms for a vector of some bytes, the cheapest first. Operations take that.
func (c *Comm) Plan(k Kind, bytes int) []Estimate {
	var list []Estimate
	for _, a := range Algorithms(k) {
		if (a == Hierarchical || a == Leaders) && (len(c.groups) == 1 || len(c.groups) == c.Size()) {
			continue // there is one level: it is the ring or the tree
		}
		s := &shape{kind: k, n: c.Size(), bytes: bytes, groups: c.groups}
		list = append(list, Estimate{a, c.estimate(s, a)})
	}
	slices.SortStableFunc(list, func(a, b Estimate) int { return cmp.Compare(a.Seconds, b.Seconds) })
	return list
}

// simulatedMost is the number of ranks up to which all of them are simulated.
const simulatedMost = 128

// estimate returns the time of an algorithm.
func (c *Comm) estimate(s *shape, a Algorithm) float64 {
	gen := generators[s.kind][a]
	size := func(blocks int) func(int) int {
		if a == Pairwise {
			blocks /= 2 // those that arrive are others
		}
		return func(b int) int { return (b%blocks+1)*s.bytes/blocks - b%blocks*s.bytes/blocks }
	}
	m := c.model()
	if s.n > simulatedMost {
		return sampled(s, gen, m, size)
	}
	ranks := make([]schedule.Schedule, s.n)
	for r := range ranks {
		ranks[r] = gen(s, r)
	}
	t, err := schedule.Time(ranks, m, size(ranks[0].Blocks))
	if err != nil {
		panic(err) // no schedule of a generator deadlocks
	}
	return t
}

// sampled bounds the time of many ranks by the messages of some of them, one after the other.
func sampled(s *shape, gen func(s *shape, rank int) schedule.Schedule, m *schedule.Model, size func(blocks int) func(int) int) (longest float64) {
	for _, r := range []int{0, 1, s.n / 2, s.n - 1} {
		p := gen(s, r)
		bytes, messages := p.Sent(size(p.Blocks))
		rounds := max(p.Rounds(), 2*bits.Len(uint(s.n))) // a rank low in a tree has few, and waits for all above it
		t := float64(rounds)*max(m.Alpha, m.AlphaFar) + float64(bytes)*(max(m.Beta, m.BetaFar)+m.Gamma) + float64(messages)*m.Work
		longest = max(longest, t)
	}
	return longest
}

// model returns the costs for ranks of this communicator.
func (c *Comm) model() *schedule.Model {
	k := &c.w.costs
	host := make([]int, c.Size())
	most := 0
	for g, ranks := range c.groups {
		most = max(most, len(ranks))
		for _, r := range ranks {
			host[r] = g
		}
	}
	m := &schedule.Model{Alpha: k.Alpha, Beta: k.Beta, Gamma: k.Gamma, AlphaFar: k.AlphaFar, BetaFar: k.BetaFar, Work: k.Work, WorkByte: k.WorkByte}
	if len(c.groups) > 1 {
		m.Far = func(a, b int) bool { return host[a] != host[b] }
	}
	if most > 1 {
		m.Cores = k.Cores * len(c.groups)
	}
	return m
}

// class groups sizes for which the choice is the same: four of each power of two.
func class(bytes int) int {
	if bytes < 8 {
		return 0
	}
	n := bits.Len(uint(bytes))
	return 4*n + bytes>>(n-3)&3
}

// pick returns the algorithm for a vector.
func (c *Comm) pick(k Kind, bytes int) Algorithm {
	key := choiceKey{k, class(bytes)}
	c.mu.Lock()
	a := cmp.Or(c.fixed[k], c.chosen[key])
	c.mu.Unlock()
	if a != "" {
		return a
	}
	if c.Size() == 1 {
		return Algorithms(k)[0]
	}
	a = c.Plan(k, representative(bytes))[0].Algorithm
	c.mu.Lock()
	c.chosen[key] = a
	c.mu.Unlock()
	return a
}

type choiceKey struct {
	kind  Kind
	class int
}

// representative is the smallest size of a class, so that the choice does not depend on which size came first.
func representative(bytes int) int {
	if bytes < 8 {
		return 4
	}
	n := bits.Len(uint(bytes))
	return bytes &^ (1<<(n-3) - 1)
}

// cores returns how many processors this process may use.
func cores() int { return runtime.GOMAXPROCS(0) }
