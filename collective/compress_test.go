package collective

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// TestCompressedSumsKeepTheirBound compares sums of vectors that travel as bfloat16 with exact ones, for every algorithm.
func TestCompressedSumsKeepTheirBound(t *testing.T) {
	const n, count = 6, 40_000
	inputs := make([][]float32, n)
	for r := range inputs {
		g := rand.New(rand.NewPCG(uint64(r), 1))
		inputs[r] = make([]float32, count)
		for i := range inputs[r] {
			inputs[r][i] = float32(g.NormFloat64())
		}
	}
	for _, a := range Algorithms(KindAllReduce) {
		var mu sync.Mutex
		var first []float32
		local(t, n, Config{}, func(c *Comm) error {
			v := slices.Clone(inputs[c.Rank()])
			b := Compressed(v)
			if err := errors.Join(c.SetAlgorithm(KindAllReduce, a), c.AllReduce(b, b, Sum)); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = v
			}
			rounded := 0
			for i := range v {
				var sum, magnitudes float64
				for r := range n {
					sum += float64(inputs[r][i])
					magnitudes += math.Abs(float64(inputs[r][i]))
				}
				if e := math.Abs(float64(v[i]) - sum); e > (n+1)*magnitudes/512+1e-5 {
					return fmt.Errorf("%s: element %d is %v, want %v", a, i, v[i], sum)
				} else if e > 1e-5 {
					rounded++
				}
				if math.Float32bits(v[i]) != math.Float32bits(first[i]) {
					return fmt.Errorf("%s: element %d differs between ranks: %v and %v", a, i, v[i], first[i])
				}
			}
			if rounded < count/2 {
				return fmt.Errorf("%s: only %d elements are rounded: was anything compressed?", a, rounded)
			}
			return nil
		})
	}
}

// TestCompressedVectorsMove runs the operations that keep vectors in scratch memory, with values that bfloat16 has.
func TestCompressedVectorsMove(t *testing.T) {
	local(t, 5, Config{}, func(c *Comm) error {
		n, me := c.Size(), c.Rank()
		for _, k := range []Kind{KindReduce, KindReduceScatter, KindGather, KindAllToAll} {
			for _, a := range Algorithms(k) {
				src, dst := make([]float32, n), make([]float32, n)
				for i := range src {
					src[i] = float32(10*me + i)
				}
				in, out := Compressed(src), Compressed(dst)
				err := c.SetAlgorithm(k, a)
				want := func(i int) float32 { return float32(100 + n*i) }
				switch {
				case err != nil:
				case k == KindReduce:
					err = c.Reduce(out, in, Sum, 0)
				case k == KindReduceScatter:
					err = c.ReduceScatter(out.Range(me, me+1), in, Sum)
				case k == KindGather:
					want = func(i int) float32 { return float32(10 * i) }
					err = c.Gather(out, in.Range(0, 1), 0)
				default:
					want = func(i int) float32 { return float32(10*i + me) }
					err = c.AllToAll(out, in)
				}
				if err != nil {
					return err
				}
				for i, v := range dst {
					mine := k == KindAllToAll || k == KindReduceScatter && i == me || me == 0 && k != KindReduceScatter
					if mine && v != want(i) {
						return fmt.Errorf("%s by %s: element %d is %v, want %v", k, a, i, v, want(i))
					}
				}
			}
		}
		return nil
	})
}

// TestTopKConverges minimizes a quadratic function of all ranks by gradients of which a tenth is sent, and loses nothing.
func TestTopKConverges(t *testing.T) {
	const n, size = 4, 100
	local(t, n, Config{}, func(c *Comm) error {
		g := rand.New(rand.NewPCG(uint64(c.Rank()), 2))
		target := make([]float32, size) // of this rank: the minimum is at the mean of all
		for i := range target {
			target[i] = float32(g.NormFloat64())
		}
		mean := slices.Clone(target)
		if err := c.AllReduce(Slice(mean), Slice(mean), Avg); err != nil {
			return err
		}
		x, grad, top := make([]float32, size), make([]float32, size), TopK{K: size / 10}
		given, sent := make([]float64, size), make([]float32, size)
		for step := range 1500 {
			for i := range x {
				grad[i] = x[i] - target[i]
				given[i] += float64(grad[i])
			}
			if err := top.AllReduce(c, grad); err != nil {
				return err
			}
			for i := range x {
				x[i] -= 0.05 / (1 + float32(step)/200) * grad[i] / n
				sent[i] += grad[i]
			}
		}
		for i := range x {
			if math.Abs(float64(x[i]-mean[i])) > 0.1 {
				return fmt.Errorf("element %d ends at %v, want %v", i, x[i], mean[i])
			}
			given[i] -= float64(top.Rest()[i])
		}
		if err := c.AllReduce(Slice(given), Slice(given), Sum); err != nil {
			return err
		}
		for i := range sent {
			if math.Abs(given[i]-float64(sent[i])) > 0.01 {
				return fmt.Errorf("element %d: %v was given and not kept, and %v sent", i, given[i], sent[i])
			}
		}
		if err := (&TopK{K: size + 1}).AllReduce(c, grad); !errors.Is(err, ErrArguments) {
			return fmt.Errorf("more than all: %w", err)
		}
		return nil
	})
}

// TestDeterministicRunsHaveTheSameBits sums the same floats by ranks that come in another order.
func TestDeterministicRunsHaveTheSameBits(t *testing.T) {
	for _, count := range []int{7, 20_000} {
		var mu sync.Mutex
		var first []float32
		for range 3 {
			local(t, 5, Config{Deterministic: true}, func(c *Comm) error {
				g := rand.New(rand.NewPCG(uint64(c.Rank()), 3))
				v := make([]float32, count)
				for i := range v {
					v[i] = float32(g.NormFloat64())
				}
				if err := c.AllReduce(Slice(v), Slice(v), Sum); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = v
				}
				if !slices.Equal(v, first) {
					return errors.New("the bits differ")
				}
				return nil
			})
		}
	}
}

// TestMeasuredCostsAreTheSameOnAllRanks connects with the measurement, and compares what all ranks would choose.
func TestMeasuredCostsAreTheSameOnAllRanks(t *testing.T) {
	costs := make([]Costs, 3)
	errs := group(t, 3, nil, func(c *Comm) error {
		costs[c.Rank()] = c.Costs()
		for size := 1; size < 1<<20; size = size*3/2 + 1 {
			if got, want := c.pick(KindAllReduce, size), c.Plan(KindAllReduce, representative(size))[0].Algorithm; got != want {
				return fmt.Errorf("%d bytes: %s is chosen, %s is cheapest", size, got, want)
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	k := costs[0]
	if costs[1] != k || costs[2] != k || !k.Measured || k.Alpha <= 0 || k.Gamma <= 0 || k.Work <= 0 || k.Cores < 1 {
		t.Errorf("%+v", costs)
	}
}

// TestTheChoiceFollowsTheCosts has costs for which the best algorithm is known.
func TestTheChoiceFollowsTheCosts(t *testing.T) {
	parity := make([]string, 16) // ranks at distances that are powers of two are on different hosts
	for i := range parity {
		parity[i] = fmt.Sprint(bits.OnesCount(uint(i)) % 2)
	}
	c := locals(t, 1, Config{})[0]
	for name, x := range map[string]struct {
		costs Costs
		n     int
		hosts []string
		bytes int
		want  []Algorithm
	}{
		"short":                  {Costs{Alpha: 1e-5, Beta: 1e-9, AlphaFar: 1e-5, BetaFar: 1e-9}, 8, nil, 8, []Algorithm{Doubling}},
		"long":                   {Costs{Alpha: 1e-5, Beta: 1e-9, AlphaFar: 1e-5, BetaFar: 1e-9}, 7, nil, 64 << 20, []Algorithm{Ring}},
		"long, power of 2":       {Costs{Alpha: 1e-5, Beta: 1e-9, AlphaFar: 1e-5, BetaFar: 1e-9}, 8, nil, 64 << 20, []Algorithm{RabenseifnerA}},
		"few cores":              {Costs{Alpha: 1e-6, Work: 1e-4, Cores: 1}, 8, nil, 8, []Algorithm{TreeA, DoubleTreeA}},
		"hosts, short":           {Costs{Alpha: 1e-6, AlphaFar: 1e-3}, 16, parity, 8, []Algorithm{Leaders}},
		"hosts, very long":       {Costs{Alpha: 1e-6, Beta: 1e-11, AlphaFar: 1e-5, BetaFar: 1e-9}, 16, parity, 256 << 20, []Algorithm{Hierarchical}},
		"more than is simulated": {Costs{Alpha: 1e-5, Beta: 1e-9, AlphaFar: 1e-5, BetaFar: 1e-9}, 100, nil, 8, []Algorithm{Doubling}},
	} {
		members, hosts := make([]int, x.n), x.hosts
		for i := range members {
			members[i] = i
		}
		if hosts == nil {
			hosts = make([]string, x.n)
		}
		w := &world{hosts: hosts, costs: x.costs}
		k := &Comm{w: w, members: members, groups: w.groups(members)}
		if got := k.Plan(KindAllReduce, x.bytes); !slices.Contains(x.want, got[0].Algorithm) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	if a := c.pick(KindBroadcast, 1); a == "" {
		t.Error("no choice for one rank")
	}
}
