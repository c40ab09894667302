// Package memory turns keys and virtual addresses into bytes: protection domains, and memory regions with their bounds,
// rights and keys. No other package of rdma reads or writes memory that a peer names.
//
// The package is pure. A Table belongs to one loop.
//
// InfiniBand Architecture Specification 1, 10.6 (memory management).
package memory

import "errors"

// PD names a protection domain. Queue pairs reach regions of their own domain alone.
type PD uint32

// Access are the rights of a region. Local reads are always permitted.
type Access uint8

// The rights.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
	RemoteAtomic

	LocalRead Access = 0
)

// Errors of Register.
var (
	ErrAccess = errors.New("rdma: remote writes and atomics need local write access too") // 10.6.3.1
	ErrFull   = errors.New("rdma: too many memory regions: deregister some")
	ErrEmpty  = errors.New("rdma: a memory region needs at least one byte")
	ErrWraps  = errors.New("rdma: the region goes on beyond the last address")
	ErrKey    = errors.New("rdma: no memory region has this key")
)

// A key is the place of its region, numbers that cannot be guessed, and a tag that changes with each registration:
//
//	 31           24 23                            8 7             0
//	+---------------+-------------------------------+---------------+
//	|    random     |             place             |      tag      |
//	+---------------+-------------------------------+---------------+
//
// So that a key from before, or of a region beside, does not fit by accident; and a peer that guesses needs 2^15 attempts on
// average for a place that is in use, the first of which ends its queue pair.
const (
	placeBits = 16
	tagBits   = 8
	mostPlace = 1 << placeBits
)

// region is registered memory. key 0 is none.
type region struct {
	mem    []byte
	va     uint64
	key    uint32
	pd     PD
	access Access
}

// Table holds the regions of a context.
type Table struct {
	regions []region
	free    []uint32
	draw    func() uint32
	live    int
}

// NewTable returns an empty table. draw returns random numbers, of which keys are made.
func NewTable(draw func() uint32) *Table {
	return &Table{regions: make([]region, 1), draw: draw} // place 0 is none's, so that no key is small
}

// Len returns the number of regions.
func (t *Table) Len() int { return t.live }

// Register makes mem a region that starts at the virtual address va, and returns its key, which is the local and the remote
// one. It borrows mem until Deregister; memory of the Go heap is kept alive by it.
func (t *Table) Register(pd PD, mem []byte, va uint64, access Access) (uint32, error) {
	switch {
	case len(mem) == 0:
		return 0, ErrEmpty
	case va+uint64(len(mem))-1 < va:
		return 0, ErrWraps
	case access&(RemoteWrite|RemoteAtomic) != 0 && access&LocalWrite == 0:
		return 0, ErrAccess
	}
	place, ok := t.place()
	if !ok {
		return 0, ErrFull
	}
	r := &t.regions[place]
	tag := (r.key + 1) & (1<<tagBits - 1)
	key := t.draw()<<(placeBits+tagBits) | place<<tagBits | tag
	*r = region{mem: mem, va: va, key: key, pd: pd, access: access}
	t.live++
	return key, nil
}

// place returns a place without a region.
func (t *Table) place() (uint32, bool) {
	if n := len(t.free); n > 0 {
		p := t.free[n-1]
		t.free = t.free[:n-1]
		return p, true
	}
	if len(t.regions) == mostPlace {
		return 0, false
	}
	t.regions = append(t.regions, region{})
	return uint32(len(t.regions) - 1), true
}

// find returns the region with a key, nil where there is none.
func (t *Table) find(key uint32) *region {
	if p := key >> tagBits & (mostPlace - 1); int(p) < len(t.regions) {
		if r := &t.regions[p]; r.key == key && r.mem != nil {
			return r
		}
	}
	return nil
}

// Deregister ends a region. Its memory is the caller's again: no later access reaches it.
func (t *Table) Deregister(key uint32) error {
	r := t.find(key)
	if r == nil {
		return ErrKey
	}
	*r = region{key: r.key} // the next region here has another tag
	t.free = append(t.free, key>>tagBits&(mostPlace-1))
	t.live--
	return nil
}

// Invalidate takes the remote rights from a region of pd, as SEND with invalidate does (9.4.1.1). The local ones stay, so
// that its owner can deregister it.
func (t *Table) Invalidate(pd PD, key uint32) bool {
	r := t.find(key)
	if r == nil || r.pd != pd || r.access&(RemoteWrite|RemoteRead|RemoteAtomic) == 0 {
		return false
	}
	r.access &= LocalWrite
	return true
}

// Slice returns the n bytes at va if the region with the key is of pd, has all of these rights, and contains them; nil where
// not. It borrows them: they are valid until the region ends. n is at least 1.
func (t *Table) Slice(pd PD, key uint32, va uint64, n uint32, rights Access) []byte {
	r := t.find(key)
	if r == nil || r.pd != pd || r.access&rights != rights {
		return nil
	}
	off := va - r.va // wraps below the region to more than its length
	if size := uint64(len(r.mem)); off >= size || uint64(n) > size-off {
		return nil
	}
	return r.mem[off : off+uint64(n) : off+uint64(n)]
}
