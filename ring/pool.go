package ring

import (
	"fmt"

	"github.com/millrace/millrace/packet"
)

// Pool holds the free frames of one loop, last in first out, so that the frame used next is the
// one most likely in the cache. It has no lock: a pool belongs to one loop, as its drivers do. A shared
// pool would put one contended cache line on the way of every packet. Loops share an arena instead, each
// with a pool of its own, cut from it by Arena.Cut.
//
// Frames are named by the byte offset of their first byte, as the addresses of an AF_XDP UMEM are.
type Pool struct {
	_     pad // pools are made one after the other, for loops on different cores
	arena *Arena
	free  []uint32
	size  int
	guard guard // checks in a debug build, nothing otherwise
	_     pad
}

// Cut moves n frames that no pool has yet from the arena to a new pool. n <= 0 takes all that are left.
func (a *Arena) Cut(n int) (*Pool, error) {
	left := a.Frames() - a.cut
	if n <= 0 {
		n = left
	}
	if n > left || n == 0 {
		return nil, fmt.Errorf("arena: %d frames wanted for a pool, %d of %d left", n, left, a.Frames())
	}
	p := &Pool{arena: a, free: make([]uint32, 0, n), size: n, guard: newGuard(a)}
	// The lowest first, so that what GetBatch returns ascends: it is the order of the kernel's fill ring for ever, and a
	// processor fetches ahead towards higher addresses.
	for i := range n {
		p.Put(uint32(a.cut+i) << a.Shift)
	}
	a.cut += n
	return p, nil
}

// Arena returns the arena whose frames these are.
func (p *Pool) Arena() *Arena { return p.arena }

// Free returns the number of free frames.
func (p *Pool) Free() int { return len(p.free) }

// Size returns the number of frames the pool was cut with.
func (p *Pool) Size() int { return p.size }

// Get passes one frame to the caller, if any is free. Its contents are undefined.
func (p *Pool) Get() (off uint32, ok bool) {
	n := len(p.free) - 1
	if n < 0 {
		return 0, false
	}
	off = p.free[n]
	p.free = p.free[:n]
	p.guard.got(off)
	return off, true
}

// GetBatch passes up to n frames to the caller, as Get does one by one. The slice is the pool's: it
// is valid until the next call of any method.
func (p *Pool) GetBatch(n int) []uint32 {
	left := len(p.free) - min(n, len(p.free))
	got := p.free[left:]
	p.free = p.free[:left]
	p.guard.gotBatch(got)
	return got
}

// Put takes a frame back. off is any byte offset inside of it, so that a descriptor whose headers were
// pushed or stripped needs no arithmetic. It panics when more frames come back than the pool was cut
// with: one was put twice, and two packets would be received into it.
func (p *Pool) Put(off uint32) {
	if len(p.free) == cap(p.free) {
		panic("ring: frame put into a full pool: it was put twice")
	}
	off &^= 1<<p.arena.Shift - 1
	p.guard.put(off)
	p.free = append(p.free, off)
}

// PutBatch takes back the frames of every descriptor of b and empties it. It panics as Put does.
func (p *Pool) PutBatch(b *packet.Batch) {
	n := len(p.free)
	if n+len(b.D) > cap(p.free) {
		panic("ring: frames put into a full pool: some were put twice")
	}
	inFrame := uint32(1)<<p.arena.Shift - 1
	p.free = p.free[:n+len(b.D)]
	free := p.free[n:] // a local: the length in p is written once and not for each frame
	for i := range free {
		off := b.D[i].Off &^ inFrame
		p.guard.put(off)
		free[i] = off
	}
	b.Reset()
}

// Holds implements Holder: the free frames.
func (p *Pool) Holds(visit func(off uint32)) {
	for _, off := range p.free {
		visit(off)
	}
}
