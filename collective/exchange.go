package collective

import (
	"fmt"

	"github.com/millrace/millrace/collective/link"
	"github.com/millrace/millrace/collective/schedule"
)

// AllToAll sends the i-th part of src to rank i, and puts what comes from it into the i-th part of dst. Both have Size parts of equal
// length, and are different memory.
func (c *Comm) AllToAll(dst, src Buffer) error { return c.allToAll(dst, src, false).Wait() }

func (c *Comm) allToAll(dst, src Buffer, async bool) *Handle {
	n := c.Size()
	err := pair(&dst, &src, 1, 1, 0)
	if err == nil && src.n%n != 0 {
		err = fmt.Errorf("%w: %d elements in parts for %d ranks", ErrArguments, src.n, n)
	}
	if err != nil {
		return failedHandle(err)
	}
	k := call{name: string(KindAllToAll), typ: src.typ, count: src.n, root: -1}
	k.algorithm = c.pick(KindAllToAll, src.bytes())
	starts := make([]int, n+1)
	for i := range starts {
		starts[i] = i * (src.n / n)
	}
	return c.collective(k, async, func(r *run) error {
		r.sched = c.schedule(KindAllToAll, k.algorithm, 0, src.bytes())
		if k.algorithm == Bruck {
			return r.bruckAllToAll(&dst, &src, src.n/n)
		}
		return r.pairwise(&dst, &src, starts, starts)
	})
}

// AllToAllV is AllToAll with parts of different lengths: sent has those of src and received those of dst, by rank.
func (c *Comm) AllToAllV(dst, src Buffer, received, sent []int) error {
	return c.allToAllV(dst, src, received, sent, false).Wait()
}

func (c *Comm) allToAllV(dst, src Buffer, received, sent []int, async bool) *Handle {
	var from, to []int
	var err error
	for _, v := range []struct {
		b      *Buffer
		counts []int
		starts *[]int
	}{{&src, sent, &to}, {&dst, received, &from}} {
		if len(v.counts) != c.Size() {
			return failedHandle(fmt.Errorf("%w: %d counts for %d ranks", ErrArguments, len(v.counts), c.Size()))
		}
		own := v.b.clipped(v.counts[c.rank])
		if *v.starts, err = c.layout(v.b, &own, v.counts, c.rank); err != nil {
			return failedHandle(err)
		}
	}
	if src.typ != dst.typ || sent[c.rank] != received[c.rank] {
		return failedHandle(fmt.Errorf("%w: %d %v to this rank itself, and %d %v from it", ErrArguments, sent[c.rank], src.typ, received[c.rank], dst.typ))
	}
	k := call{name: string(KindAllToAll) + "v", typ: src.typ, root: -1, algorithm: Pairwise} // counts differ between ranks
	return c.collective(k, async, func(r *run) error {
		r.sched = c.schedule(KindAllToAll, Pairwise, 0, 0)
		return r.pairwise(&dst, &src, from, to)
	})
}

// clipped returns the vector with n elements, whether it has them or not, to be checked.
func (b *Buffer) clipped(n int) Buffer {
	r := *b
	r.n = n
	return r
}

// pairwise executes PairwiseAllToAll, with the starts of parts of dst and src.
func (r *run) pairwise(dst, src *Buffer, from, to []int) error {
	n, me := r.c.Size(), r.c.rank
	mine, own := src.Range(to[me], to[me+1]), dst.Range(from[me], from[me+1])
	copyElements(&own, &mine)
	incoming, outgoing := at(dst, from), at(src, to)
	r.block = func(b int) part {
		if b < schedule.Incoming(n, 0) {
			return outgoing(b)
		}
		return incoming(b - schedule.Incoming(n, 0))
	}
	return r.execute()
}

// bruckAllToAll executes BruckAllToAll with parts of each elements.
func (r *run) bruckAllToAll(dst, src *Buffer, each int) error {
	n, me := r.c.Size(), r.c.rank
	work := r.c.scratch(src, src.n)
	for k := range n {
		to, from := work.Range(k*each, (k+1)*each), (me+k)%n
		part := src.Range(from*each, (from+1)*each)
		copyElements(&to, &part)
	}
	r.block = evenly(&work, n)
	if err := r.execute(); err != nil {
		return err
	}
	for k := range n {
		from := work.Range(k*each, (k+1)*each)
		at := (me - k + n) % n
		to := dst.Range(at*each, (at+1)*each)
		copyElements(&to, &from)
	}
	return nil
}

// Gather puts src of each rank into dst of root, in the order of ranks. dst is Size times as long; that of other ranks is not used.
func (c *Comm) Gather(dst, src Buffer, root int) error {
	return c.gatherOrScatter(KindGather, dst, src, nil, root, false).Wait()
}

// GatherV is Gather of vectors of different lengths: counts has those of all ranks, at all ranks.
func (c *Comm) GatherV(dst, src Buffer, counts []int, root int) error {
	return c.gatherOrScatter(KindGather, dst, src, counts, root, false).Wait()
}

// Scatter puts the i-th part of src of root into dst of rank i. src is Size times as long as dst; that of other ranks is not used.
func (c *Comm) Scatter(dst, src Buffer, root int) error {
	return c.gatherOrScatter(KindScatter, src, dst, nil, root, false).Wait()
}

// ScatterV is Scatter with parts of different lengths: counts has those of all ranks, at all ranks.
func (c *Comm) ScatterV(dst, src Buffer, counts []int, root int) error {
	return c.gatherOrScatter(KindScatter, src, dst, counts, root, false).Wait()
}

// gatherOrScatter moves between a vector of root and parts of it at all ranks.
func (c *Comm) gatherOrScatter(kind Kind, whole, own Buffer, counts []int, root int, async bool) *Handle {
	if err := c.isRank(root); err != nil {
		return failedHandle(err)
	}
	if c.rank != root { // of the length that it has at root
		total := own.n * c.Size()
		for i, k := range counts {
			if i == 0 {
				total = 0
			}
			total += k
		}
		whole = own.clipped(total)
	}
	starts, err := c.layout(&whole, &own, counts, c.rank)
	if err != nil {
		return failedHandle(err)
	}
	k := call{name: string(kind), typ: own.typ, count: whole.n, root: root}
	k.algorithm = c.pick(kind, whole.bytes())
	return c.collective(k, async, func(r *run) error {
		r.sched = c.schedule(kind, k.algorithm, root, whole.bytes())
		if c.rank != root {
			r.block = r.held(&own, starts)
			return r.execute()
		}
		r.block = at(&whole, starts)
		part := whole.Range(starts[root], starts[root+1])
		if kind == KindGather {
			copyElements(&part, &own)
			return r.execute()
		}
		err := r.execute()
		copyElements(&own, &part)
		return err
	})
}

// held returns where a rank that is not the root has blocks: its own in a vector, and those of ranks below it in scratch memory.
func (r *run) held(own *Buffer, starts []int) func(b int) part {
	touched := make([]bool, len(starts))
	for i := range r.sched.Steps {
		st := &r.sched.Steps[i]
		for _, messages := range [][]schedule.Message{st.Send, st.Recv} {
			for _, m := range messages {
				for _, s := range m.Spans {
					for b := s.Lo; b < s.Hi; b++ {
						touched[b] = true
					}
				}
			}
		}
	}
	offsets, total := make([]int, len(starts)), 0
	for b, ok := range touched {
		offsets[b] = total
		if ok && b != r.c.rank {
			total += starts[b+1] - starts[b]
		}
	}
	work := r.c.scratch(own, total)
	mine, others := own.memory(), work.memory()
	return func(b int) part {
		if b == r.c.rank {
			return part{mine, own.off, own.n}
		}
		return part{others, offsets[b], starts[b+1] - starts[b]}
	}
}

// singleMessages is the bit of contexts that single messages have.
const singleMessages = 1 << 63

// Send sends a vector to a rank, whose Recv has the same tag, type and length. It returns when the vector may be changed, which may be
// before it has arrived.
func (c *Comm) Send(v Buffer, to int, tag uint32) error {
	return c.single(v, to, tag, true, false).Wait()
}

// Recv receives a vector that a rank sends with the same tag. Messages with a tag arrive in the order of their Sends.
func (c *Comm) Recv(v Buffer, from int, tag uint32) error {
	return c.single(v, from, tag, false, false).Wait()
}

func (c *Comm) single(v Buffer, peer int, tag uint32, send, async bool) *Handle {
	if err := pair(&v, &v, 1, 1, 0); err != nil {
		return failedHandle(err)
	}
	if err := c.isRank(peer); err != nil || peer == c.rank {
		return failedHandle(fmt.Errorf("%w: rank %d, want another one of %d", ErrArguments, peer, c.Size()))
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return failedHandle(ErrClosed)
	}
	key := single{peer, tag, send}
	number := c.singles[key]
	c.singles[key] = number + 1
	c.mu.Unlock()
	h := &Handle{done: make(chan struct{})}
	execute := func() {
		defer close(h.done)
		h.err = c.executeSingle(v, peer, send, link.Key{Context: c.context | singleMessages, Sequence: number, Step: tag})
	}
	if async {
		go execute()
	} else {
		execute()
	}
	return h
}

func (c *Comm) executeSingle(v Buffer, peer int, send bool, key link.Key) error {
	if err := c.w.failureNow(); err != nil {
		return err
	}
	k := call{name: "recv", typ: v.typ, count: v.n, root: -1}
	if send {
		k.name = "send"
	}
	act := c.begin(k)
	defer c.end(act)
	act.waits.Store(int32(c.members[peer]))
	k.name = "" // the fingerprint is the same at both ends
	r := &run{c: c, act: act, sum: k.fingerprint()}
	h := link.Header{Key: key, Fingerprint: r.sum, Total: uint64(v.bytes())}
	r.block = evenly(&v, 1)
	m := schedule.Message{Peer: peer, Spans: []schedule.Span{{Lo: 0, Hi: 1}}}
	var err error
	if send {
		parts, _ := r.gatherParts(&m)
		c.link(peer).Send(&h, parts, &r.pending)
		err = r.pending.Wait()
	} else {
		r.to.reset(act, 0, false)
		for p := range r.ranges(&m) {
			r.to.add(p)
		}
		err = c.link(peer).Recv(&h, &r.to)
	}
	if err != nil {
		return c.broken(peer, err)
	}
	return nil
}
