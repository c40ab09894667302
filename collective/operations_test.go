package collective

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/collective/numeric"
)

// local calls do for each of n ranks in this process, and fails the test by their errors.
func local(t testing.TB, n int, cfg Config, do func(c *Comm) error) {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	cfg.NoMeasure = true
	comms, err := Local(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if err := errors.Join(do(c), c.Close()); err != nil {
				t.Errorf("%d ranks: rank %d: %v", n, c.Rank(), err)
			}
		})
	}
	wg.Wait()
}

// value is element i of a rank's vector: a small integer, so that reductions are exact in each type.
func value(rank, i int, op Op) int {
	if op == Prod {
		return [...]int{1, 2, 1, 1, 1}[(rank+i)%5] // at most 2^4 of 17 ranks
	}
	return (rank*7+i*3)%11 + 1
}

// reduced is element i of the reduction of n ranks, one after the other.
func reduced(n, i int, op Op) int {
	v := value(0, i, op)
	for r := 1; r < n; r++ {
		switch w := value(r, i, op); op {
		case Sum, Avg:
			v += w
		case Prod:
			v *= w
		case Min:
			v = min(v, w)
		case Max:
			v = max(v, w)
		}
	}
	return v
}

// tester makes and reads vectors of one type.
type tester[T numeric.Element] struct {
	to   func(int) T
	from func(T) float64
}

func (x tester[T]) vector(n int, value func(i int) int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = x.to(value(i))
	}
	return v
}

func (x tester[T]) check(name string, v []T, want func(i int) T) error {
	for i := range v {
		if v[i] != want(i) {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", name, i, len(v), x.from(v[i]), x.from(want(i)))
		}
	}
	return nil
}

// divided is a sum as Avg has it.
func divided[T numeric.Element](v T, n int) T {
	w := []T{v}
	numeric.Divide(numeric.Bytes(w), numeric.TypeOf[T](), n)
	return w[0]
}

// reductions runs all reducing operations with all algorithms in one type.
func reductions[T numeric.Element](c *Comm, x tester[T], ops []Op, counts ...int) error {
	n, me := c.Size(), c.Rank()
	want := func(op Op, shift int) func(i int) T {
		return func(i int) T {
			v := x.to(reduced(n, i+shift, op))
			if op == Avg {
				v = divided(v, n)
			}
			return v
		}
	}
	for _, op := range ops {
		for _, count := range counts {
			src := x.vector(count, func(i int) int { return value(me, i, op) })
			for _, a := range Algorithms(KindAllReduce) {
				dst := slices.Clone(src)
				err := errors.Join(c.SetAlgorithm(KindAllReduce, a), c.AllReduce(Slice(dst), Slice(dst), op))
				if err = errors.Join(err, x.check(fmt.Sprint("all-reduce ", a, op, numeric.TypeOf[T]()), dst, want(op, 0))); err != nil {
					return err
				}
			}
			for _, a := range Algorithms(KindReduce) {
				root := count % n
				dst := make([]T, count)
				err := errors.Join(c.SetAlgorithm(KindReduce, a), c.Reduce(Slice(dst), Slice(src), op, root))
				if me == root {
					err = errors.Join(err, x.check(fmt.Sprint("reduce ", a, op), dst, want(op, 0)))
				}
				if err = errors.Join(err, x.check("source of reduce", src, func(i int) T { return x.to(value(me, i, op)) })); err != nil {
					return err
				}
			}
			for _, a := range Algorithms(KindReduceScatter) {
				whole := x.vector(count*n, func(i int) int { return value(me, i, op) })
				part := make([]T, count)
				err := errors.Join(c.SetAlgorithm(KindReduceScatter, a), c.ReduceScatter(Slice(part), Slice(whole), op))
				if err = errors.Join(err, x.check(fmt.Sprint("reduce-scatter ", a, op), part, want(op, me*count))); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// movements runs all operations that only move, with all algorithms, in one type.
func movements[T numeric.Element](c *Comm, x tester[T], counts ...int) error {
	n, me := c.Size(), c.Rank()
	of := func(rank, i int) T { return x.to(value(rank, i, Sum)) }
	for _, count := range counts {
		root := (count + 1) % n
		src := x.vector(count, func(i int) int { return value(me, i, Sum) })
		gathered := func(i int) T { return of(i/max(count, 1), i%max(count, 1)) }
		for _, a := range Algorithms(KindBroadcast) {
			v := slices.Clone(src)
			err := errors.Join(c.SetAlgorithm(KindBroadcast, a), c.Broadcast(Slice(v), root))
			if err = errors.Join(err, x.check(fmt.Sprint("broadcast ", a), v, func(i int) T { return of(root, i) })); err != nil {
				return err
			}
		}
		for _, a := range Algorithms(KindAllGather) {
			dst := make([]T, n*count)
			err := errors.Join(c.SetAlgorithm(KindAllGather, a), c.AllGather(Slice(dst), Slice(src)))
			if err = errors.Join(err, x.check(fmt.Sprint("all-gather ", a), dst, gathered)); err != nil {
				return err
			}
			clear(dst)
			copy(dst[me*count:], src) // in place
			err = c.AllGather(Slice(dst), Slice(dst[me*count:(me+1)*count]))
			if err = errors.Join(err, x.check(fmt.Sprint("all-gather in place ", a), dst, gathered)); err != nil {
				return err
			}
		}
		for _, a := range Algorithms(KindGather) {
			var dst []T
			if me == root {
				dst = make([]T, n*count)
			}
			err := errors.Join(c.SetAlgorithm(KindGather, a), c.Gather(Slice(dst), Slice(src), root))
			if err = errors.Join(err, x.check(fmt.Sprint("gather ", a), dst, gathered)); err != nil {
				return err
			}
			var whole []T
			if me == root {
				whole = x.vector(n*count, func(i int) int { return value(root, i, Sum) })
			}
			part := make([]T, count)
			err = errors.Join(c.SetAlgorithm(KindScatter, a), c.Scatter(Slice(part), Slice(whole), root))
			if err = errors.Join(err, x.check(fmt.Sprint("scatter ", a), part, func(i int) T { return of(root, me*count+i) })); err != nil {
				return err
			}
		}
		for _, a := range Algorithms(KindAllToAll) {
			whole := x.vector(n*count, func(i int) int { return value(me, i, Sum) })
			dst := make([]T, n*count)
			err := errors.Join(c.SetAlgorithm(KindAllToAll, a), c.AllToAll(Slice(dst), Slice(whole)))
			want := func(i int) T { return of(i/max(count, 1), me*count+i%max(count, 1)) }
			if err = errors.Join(err, x.check(fmt.Sprint("all-to-all ", a), dst, want)); err != nil {
				return err
			}
		}
	}
	return c.Barrier()
}

// unequal runs the operations with parts of different lengths.
func unequal(c *Comm) error {
	n, me := c.Size(), c.Rank()
	counts, starts := make([]int, n), make([]int, n+1)
	for r := range counts {
		counts[r] = (r * 5) % 4 // some are empty
		starts[r+1] = starts[r] + counts[r]
	}
	want := make([]int64, starts[n])
	for r := range n {
		for i := range counts[r] {
			want[starts[r]+i] = int64(100*r + i)
		}
	}
	own := want[starts[me]:starts[me+1]]
	for _, a := range Algorithms(KindAllGather) {
		dst := make([]int64, starts[n])
		if err := errors.Join(c.SetAlgorithm(KindAllGather, a), c.AllGatherV(Slice(dst), Slice(own), counts)); err != nil {
			return err
		}
		if !slices.Equal(dst, want) {
			return fmt.Errorf("all-gather of parts %v by %s: %v", counts, a, dst)
		}
	}
	for _, a := range Algorithms(KindReduceScatter) {
		part := make([]int64, counts[me])
		if err := errors.Join(c.SetAlgorithm(KindReduceScatter, a), c.ReduceScatterV(Slice(part), Slice(want), counts, Sum)); err != nil {
			return err
		}
		for i := range part {
			if part[i] != int64(n)*own[i] {
				return fmt.Errorf("reduce-scatter of parts %v by %s: %v", counts, a, part)
			}
		}
	}
	for _, a := range Algorithms(KindGather) {
		root := n / 2
		dst, part := make([]int64, starts[n]), make([]int64, counts[me])
		err := errors.Join(c.SetAlgorithm(KindGather, a), c.GatherV(Slice(dst), Slice(own), counts, root),
			c.SetAlgorithm(KindScatter, a), c.ScatterV(Slice(part), Slice(want), counts, root))
		if err != nil {
			return err
		}
		if me == root && !slices.Equal(dst, want) || !slices.Equal(part, own) {
			return fmt.Errorf("gather and scatter of parts %v by %s: %v, %v", counts, a, dst, part)
		}
	}
	// To rank j go (me+j)%3 elements.
	sent, received := make([]int, n), make([]int, n)
	var src, arrived []int64
	for j := range n {
		sent[j], received[j] = (me+j)%3, (me+j)%3
		for i := range sent[j] {
			src = append(src, int64(1000*me+10*j+i))
			arrived = append(arrived, int64(1000*j+10*me+i))
		}
	}
	dst := make([]int64, len(arrived))
	if err := c.AllToAllV(Slice(dst), Slice(src), received, sent); err != nil {
		return err
	}
	if !slices.Equal(dst, arrived) {
		return fmt.Errorf("all-to-all of parts: %v, want %v", dst, arrived)
	}
	return nil
}

func integers[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64]() tester[T] {
	return tester[T]{func(i int) T { return T(i) }, func(v T) float64 { return float64(v) }}
}

var (
	float32s = tester[float32]{func(i int) float32 { return float32(i) }, func(v float32) float64 { return float64(v) }}
	float64s = tester[float64]{func(i int) float64 { return float64(i) }, func(v float64) float64 { return v }}
	halves   = tester[numeric.Half]{func(i int) numeric.Half { return numeric.HalfOf(float32(i)) }, func(v numeric.Half) float64 { return float64(v.Float32()) }}
	brains   = tester[numeric.Brain]{func(i int) numeric.Brain { return numeric.BrainOf(float32(i)) }, func(v numeric.Brain) float64 { return float64(v.Float32()) }}
)

// TestEveryOperationEqualsASerialOne runs 1 to 17 ranks, all operations and algorithms, in each of the types.
func TestEveryOperationEqualsASerialOne(t *testing.T) {
	every, sums := numeric.Ops, []Op{Sum}
	for n := 1; n <= 17; n++ {
		local(t, n, Config{}, func(c *Comm) error {
			err := errors.Join(reductions(c, integers[int32](), every, 5), reductions(c, integers[int32](), sums, 0, 1, 64), movements(c, integers[int32](), 0, 5), unequal(c))
			if err != nil {
				return err
			}
			switch n % 6 { // types go by the same code: each of them at some of the sizes
			case 0:
				return errors.Join(reductions(c, integers[int8](), every, 3), reductions(c, integers[int16](), every, 3))
			case 1:
				return errors.Join(reductions(c, integers[int64](), every, 3), reductions(c, float32s, every, 3))
			case 2:
				return errors.Join(reductions(c, integers[uint8](), every, 3), movements(c, integers[uint8](), 3))
			case 3:
				return errors.Join(reductions(c, integers[uint16](), every, 3), reductions(c, halves, every, 3))
			case 4:
				return errors.Join(reductions(c, integers[uint32](), every, 3), reductions(c, float64s, every, 3))
			}
			return errors.Join(reductions(c, integers[uint64](), every, 3), reductions(c, brains, every, 3), movements(c, float64s, 3))
		})
	}
}

// TestLongVectors crosses the limits of messages that are sent at once, of chunks and of pieces that are reduced.
func TestLongVectors(t *testing.T) {
	local(t, 3, Config{}, func(c *Comm) error {
		return errors.Join(reductions(c, float32s, []Op{Sum}, 100_003), movements(c, float32s, 70_001))
	})
}
