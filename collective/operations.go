package collective

import (
	"fmt"

	"github.com/millrace/millrace/collective/link"
	"github.com/millrace/millrace/collective/numeric"
)

// AllReduce combines src of all ranks into dst of all ranks. Both may be the same vector.
func (c *Comm) AllReduce(dst, src Buffer, op Op) error {
	return c.allReduce(dst, src, op, false).Wait()
}

func (c *Comm) allReduce(dst, src Buffer, op Op, async bool) *Handle {
	if err := pair(&dst, &src, 1, 1, op); err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindAllReduce), typ: src.typ, op: op, count: src.n, root: -1}
	k.algorithm = c.pick(KindAllReduce, dst.bytes())
	return c.collective(k, async, func(r *run) error {
		copyElements(&dst, &src)
		r.sched = c.schedule(KindAllReduce, k.algorithm, 0, dst.bytes())
		r.block = evenly(&dst, r.sched.Blocks)
		err := r.execute()
		if m, ok := dst.mem.(rounder); ok && err == nil {
			m.Round(dst.off, dst.n) // some ranks have sent the result, and others not
		}
		r.average(&dst, err)
		return err
	})
}

// Reduce combines src of all ranks into dst of root, where both may be the same vector. Other ranks' dst is not used.
func (c *Comm) Reduce(dst, src Buffer, op Op, root int) error {
	return c.reduce(dst, src, op, root, false).Wait()
}

func (c *Comm) reduce(dst, src Buffer, op Op, root int, async bool) *Handle {
	if c.rank != root {
		dst = src
	}
	if err := pair(&dst, &src, 1, 1, op); err != nil {
		return failedHandle(err)
	}
	if err := c.isRank(root); err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindReduce), typ: src.typ, op: op, count: src.n, root: root}
	k.algorithm = c.pick(KindReduce, src.bytes())
	return c.collective(k, async, func(r *run) error {
		work := dst
		if c.rank != root {
			work = c.scratch(&src, src.n)
		}
		copyElements(&work, &src)
		r.sched = c.schedule(KindReduce, k.algorithm, root, src.bytes())
		r.block = evenly(&work, r.sched.Blocks)
		err := r.execute()
		if c.rank == root {
			r.average(&dst, err)
		}
		return err
	})
}

// Broadcast copies the vector of root to that of all ranks.
func (c *Comm) Broadcast(v Buffer, root int) error { return c.broadcast(v, root, false).Wait() }

func (c *Comm) broadcast(v Buffer, root int, async bool) *Handle {
	if err := pair(&v, &v, 1, 1, 0); err != nil {
		return failedHandle(err)
	}
	if err := c.isRank(root); err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindBroadcast), typ: v.typ, count: v.n, root: root}
	k.algorithm = c.pick(KindBroadcast, v.bytes())
	return c.collective(k, async, func(r *run) error {
		r.sched = c.schedule(KindBroadcast, k.algorithm, root, v.bytes())
		r.block = evenly(&v, r.sched.Blocks)
		return r.execute()
	})
}

// AllGather puts src of each rank into dst of all ranks, in the order of ranks. dst is Size times as long. src may be this rank's
// part of dst.
func (c *Comm) AllGather(dst, src Buffer) error { return c.allGather(dst, src, nil, false).Wait() }

// AllGatherV is AllGather of vectors of different lengths: counts has those of all ranks.
func (c *Comm) AllGatherV(dst, src Buffer, counts []int) error {
	return c.allGather(dst, src, counts, false).Wait()
}

func (c *Comm) allGather(dst, src Buffer, counts []int, async bool) *Handle {
	starts, err := c.layout(&dst, &src, counts, c.rank)
	if err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindAllGather), typ: src.typ, count: dst.n, root: -1}
	k.algorithm = c.pick(KindAllGather, dst.bytes())
	return c.collective(k, async, func(r *run) error {
		own := dst.Range(starts[c.rank], starts[c.rank+1])
		copyElements(&own, &src)
		r.sched = c.schedule(KindAllGather, k.algorithm, 0, dst.bytes())
		r.block = at(&dst, starts)
		return r.execute()
	})
}

// ReduceScatter combines src of all ranks and puts this rank's part of the result into dst. src is Size times as long.
func (c *Comm) ReduceScatter(dst, src Buffer, op Op) error {
	return c.reduceScatter(dst, src, nil, op, false).Wait()
}

// ReduceScatterV is ReduceScatter with parts of different lengths: counts has those of all ranks.
func (c *Comm) ReduceScatterV(dst, src Buffer, counts []int, op Op) error {
	return c.reduceScatter(dst, src, counts, op, false).Wait()
}

func (c *Comm) reduceScatter(dst, src Buffer, counts []int, op Op, async bool) *Handle {
	starts, err := c.layout(&src, &dst, counts, c.rank)
	if err == nil && !op.Valid() {
		err = fmt.Errorf("%w: %v", ErrArguments, op)
	}
	if err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindReduceScatter), typ: src.typ, op: op, count: src.n, root: -1}
	k.algorithm = c.pick(KindReduceScatter, src.bytes())
	return c.collective(k, async, func(r *run) error {
		work := c.scratch(&src, src.n)
		copyElements(&work, &src)
		r.sched = c.schedule(KindReduceScatter, k.algorithm, 0, src.bytes())
		r.block = at(&work, starts)
		if err := r.execute(); err != nil {
			return err
		}
		own := work.Range(starts[c.rank], starts[c.rank+1])
		copyElements(&dst, &own)
		r.average(&dst, nil)
		return nil
	})
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier() error { return c.barrier(false).Wait() }

func (c *Comm) barrier(async bool) *Handle {
	k := call{name: string(KindBarrier), root: -1, algorithm: Dissemination}
	return c.collective(k, async, func(r *run) error {
		r.sched = c.schedule(KindBarrier, Dissemination, 0, 0)
		r.block = func(int) part { return part{} }
		return r.execute()
	})
}

// bytes returns the size on the wire.
func (b *Buffer) bytes() int { return b.n * b.memory().WireSize() }

// evenly cuts a vector into blocks.
func evenly(v *Buffer, blocks int) func(b int) part {
	m := v.memory()
	return func(b int) part {
		lo, hi := b*v.n/blocks, (b+1)*v.n/blocks
		return part{m, v.off + lo, hi - lo}
	}
}

// at cuts a vector at starts.
func at(v *Buffer, starts []int) func(b int) part {
	m := v.memory()
	return func(b int) part { return part{m, v.off + starts[b], starts[b+1] - starts[b]} }
}

// average completes Avg.
func (r *run) average(v *Buffer, err error) {
	if r.op == Avg && err == nil && v.n > 0 {
		v.memory().Divide(v.off, v.n, r.c.Size())
	}
}

// pair checks two vectors, of which a has times as many elements as b has times of. An op of 0 is none.
func pair(a, b *Buffer, timesA, timesB int, op Op) error {
	switch {
	case !a.typ.Valid() || a.typ != b.typ:
		return fmt.Errorf("%w: vectors of %v and %v", ErrArguments, a.typ, b.typ)
	case a.memory().WireSize() != b.memory().WireSize():
		return fmt.Errorf("%w: one vector is compressed and the other is not", ErrArguments)
	case a.n < 0 || b.n < 0 || a.n > link.MaxMessage/8 || b.n > link.MaxMessage/8:
		return fmt.Errorf("%w: %d and %d elements, at most 2^37", ErrArguments, a.n, b.n)
	case a.n*timesB != b.n*timesA:
		return fmt.Errorf("%w: vectors of %d and %d elements, want %d times as many", ErrArguments, a.n, b.n, max(timesA, timesB))
	case op != 0 && !op.Valid():
		return fmt.Errorf("%w: %v", ErrArguments, op)
	}
	return nil
}

func (c *Comm) isRank(r int) error {
	if r < 0 || r >= c.Size() {
		return fmt.Errorf("%w: rank %d of %d", ErrArguments, r, c.Size())
	}
	return nil
}

// layout returns where the parts of all ranks are in whole, of which own is that of a rank. The last entry is the end.
func (c *Comm) layout(whole, own *Buffer, counts []int, rank int) ([]int, error) {
	n := c.Size()
	starts := make([]int, n+1)
	if counts == nil {
		if err := pair(whole, own, n, 1, 0); err != nil {
			return nil, err
		}
		for i := range starts {
			starts[i] = i * own.n
		}
		return starts, nil
	}
	if len(counts) != n {
		return nil, fmt.Errorf("%w: %d counts for %d ranks", ErrArguments, len(counts), n)
	}
	for i, k := range counts {
		if k < 0 || k > link.MaxMessage/8 {
			return nil, fmt.Errorf("%w: count %d of rank %d", ErrArguments, k, i)
		}
		starts[i+1] = starts[i] + k
	}
	if whole.typ != own.typ || whole.n != starts[n] || own.n != counts[rank] {
		return nil, fmt.Errorf("%w: vectors of %d %v and %d %v, want %d and %d", ErrArguments, whole.n, whole.typ, own.n, own.typ, starts[n], counts[rank])
	}
	return starts, pair(whole, whole, 1, 1, 0)
}

// scratch returns memory for a vector of the kind of another one, until the end of the operation. Operations of a communicator follow each other.
func (c *Comm) scratch(like *Buffer, n int) Buffer {
	t := like.typ
	if like.mem != nil {
		return InMemory(like.mem.Scratch(n), t, n)
	}
	words := (n*t.Size() + 7) / 8 // aligned for each type
	if cap(c.words) < words {
		c.words = make([]uint64, words)
	}
	return Buffer{typ: t, n: n, host: hostMemory{numeric.Bytes(c.words[:words])[:n*t.Size()], t}}
}
