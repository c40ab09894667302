package collective

import (
	"errors"
	"slices"
)

// Group starts operations, which are executed beside what the caller does: the collective ones in their order, and single messages
// at a time. Vectors belong to an operation until its Handle is done. It belongs to one goroutine.
type Group struct {
	c       *Comm
	handles []*Handle
}

// Group returns an empty group.
func (c *Comm) Group() *Group { return &Group{c: c} }

func (g *Group) add(h *Handle) *Handle {
	g.handles = append(g.handles, h)
	return h
}

// Wait waits for all operations of the group and returns their errors. The group is empty then.
func (g *Group) Wait() error {
	var errs []error
	for _, h := range g.handles {
		if err := h.Wait(); err != nil && !slices.ContainsFunc(errs, func(e error) bool { return errors.Is(err, e) }) {
			errs = append(errs, err) // a failed rank is the error of all operations
		}
	}
	g.handles = g.handles[:0]
	return errors.Join(errs...)
}

// AllReduce starts Comm.AllReduce, and the other methods those of their names.
func (g *Group) AllReduce(dst, src Buffer, op Op) *Handle {
	return g.add(g.c.allReduce(dst, src, op, true))
}

// Reduce starts Comm.Reduce.
func (g *Group) Reduce(dst, src Buffer, op Op, root int) *Handle {
	return g.add(g.c.reduce(dst, src, op, root, true))
}

// Broadcast starts Comm.Broadcast.
func (g *Group) Broadcast(v Buffer, root int) *Handle { return g.add(g.c.broadcast(v, root, true)) }

// AllGather starts Comm.AllGather, or AllGatherV where there are counts.
func (g *Group) AllGather(dst, src Buffer, counts ...int) *Handle {
	return g.add(g.c.allGather(dst, src, counts, true))
}

// ReduceScatter starts Comm.ReduceScatter, or ReduceScatterV where there are counts.
func (g *Group) ReduceScatter(dst, src Buffer, op Op, counts ...int) *Handle {
	return g.add(g.c.reduceScatter(dst, src, counts, op, true))
}

// AllToAll starts Comm.AllToAll.
func (g *Group) AllToAll(dst, src Buffer) *Handle { return g.add(g.c.allToAll(dst, src, true)) }

// AllToAllV starts Comm.AllToAllV.
func (g *Group) AllToAllV(dst, src Buffer, received, sent []int) *Handle {
	return g.add(g.c.allToAllV(dst, src, received, sent, true))
}

// Gather starts Comm.Gather, or GatherV where there are counts.
func (g *Group) Gather(dst, src Buffer, root int, counts ...int) *Handle {
	return g.add(g.c.gatherOrScatter(KindGather, dst, src, counts, root, true))
}

// Scatter starts Comm.Scatter, or ScatterV where there are counts.
func (g *Group) Scatter(dst, src Buffer, root int, counts ...int) *Handle {
	return g.add(g.c.gatherOrScatter(KindScatter, src, dst, counts, root, true))
}

// Barrier starts Comm.Barrier.
func (g *Group) Barrier() *Handle { return g.add(g.c.barrier(true)) }

// Send starts Comm.Send.
func (g *Group) Send(v Buffer, to int, tag uint32) *Handle {
	return g.add(g.c.single(v, to, tag, true, true))
}

// Recv starts Comm.Recv.
func (g *Group) Recv(v Buffer, from int, tag uint32) *Handle {
	return g.add(g.c.single(v, from, tag, false, true))
}
