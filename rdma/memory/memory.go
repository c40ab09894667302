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

// Remote is memory of another process. Both methods move all of b from or to an address of that process, or return false.
type Remote interface {
	Read(b []byte, addr uint64) bool
	Write(b []byte, addr uint64) bool
}

// region is registered memory. key 0 is none.
type region struct {
	mem    []byte // nil of a remote region
	remote Remote // nil of memory here
	addr   uint64 // remote: of the first byte in its process
	size   uint64 // bytes; 0 is no region
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

	staging []byte  // copies of remote memory that Slice has returned
	used    int     // bytes of staging
	writes  []write // that Commit does
}

// write is a copy in staging that Commit writes to its region.
type write struct {
	remote Remote
	addr   uint64
	b      []byte
}

// stagingSize holds the payload of a packet and the headers of a datagram.
const stagingSize = 8192

// NewTable returns an empty table. draw returns random numbers, of which keys are made.
func NewTable(draw func() uint32) *Table {
	return &Table{regions: make([]region, 1), draw: draw} // place 0 is none's, so that no key is small
}

// Len returns the number of regions.
func (t *Table) Len() int { return t.live }

// Register makes mem a region that starts at the virtual address va, and returns its key, which is the local and the remote
// one. It borrows mem until Deregister; memory of the Go heap is kept alive by it.
func (t *Table) Register(pd PD, mem []byte, va uint64, access Access) (uint32, error) {
	return t.register(region{mem: mem, size: uint64(len(mem)), va: va, pd: pd, access: access})
}

// RegisterRemote makes size bytes from addr on of another process a region that starts at the virtual address va.
func (t *Table) RegisterRemote(pd PD, r Remote, addr, size, va uint64, access Access) (uint32, error) {
	if size != 0 && addr+size-1 < addr {
		return 0, ErrWraps
	}
	if t.staging == nil {
		t.staging = make([]byte, stagingSize)
	}
	return t.register(region{remote: r, addr: addr, size: size, va: va, pd: pd, access: access})
}

func (t *Table) register(r region) (uint32, error) {
	switch {
	case r.size == 0:
		return 0, ErrEmpty
	case r.va+r.size-1 < r.va:
		return 0, ErrWraps
	case r.access&(RemoteWrite|RemoteAtomic) != 0 && r.access&LocalWrite == 0:
		return 0, ErrAccess
	}
	place, ok := t.place()
	if !ok {
		return 0, ErrFull
	}
	tag := (t.regions[place].key + 1) & (1<<tagBits - 1)
	r.key = t.draw()<<(placeBits+tagBits) | place<<tagBits | tag
	t.regions[place] = r
	t.live++
	return r.key, nil
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
		if r := &t.regions[p]; r.key == key && r.size != 0 {
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

// Begin ends the use of what Slice has returned of remote regions, without writing it. Each packet begins with it.
func (t *Table) Begin() { t.used, t.writes = 0, t.writes[:0] }

// Slice returns the n bytes at va if the region with the key is of pd, has all of these rights, and contains them; nil where
// not. It borrows them. Those of memory here are valid until the region ends. Those of a remote region are a copy, which
// is valid until Begin and which Commit writes back where the rights are of writing. n is at least 1, and what is borrowed of
// remote regions at once is at most a packet.
func (t *Table) Slice(pd PD, key uint32, va uint64, n uint32, rights Access) []byte {
	r, off := t.within(pd, key, va, n, rights)
	switch {
	case r == nil:
		return nil
	case r.remote == nil:
		return r.mem[off : off+uint64(n) : off+uint64(n)]
	}
	return t.stage(r, off, n, rights)
}

// Permits reports whether Slice would return bytes, for any n. Remote memory itself may be missing all the same.
func (t *Table) Permits(pd PD, key uint32, va uint64, n uint32, rights Access) bool {
	r, _ := t.within(pd, key, va, n, rights)
	return r != nil
}

// within returns the region that contains bytes, and where they begin in it; nil where the access is not permitted.
func (t *Table) within(pd PD, key uint32, va uint64, n uint32, rights Access) (*region, uint64) {
	r := t.find(key)
	if r == nil || r.pd != pd || r.access&rights != rights {
		return nil, 0
	}
	off := va - r.va // wraps below the region to more than its length
	if off >= r.size || uint64(n) > r.size-off {
		return nil, 0
	}
	return r, off
}

// stage copies bytes of a remote region, as far as the rights need their present value.
func (t *Table) stage(r *region, off uint64, n uint32, rights Access) []byte {
	if int64(n) > int64(len(t.staging)-t.used) {
		return nil
	}
	b := t.staging[t.used : t.used+int(n) : t.used+int(n)]
	writes := rights&(LocalWrite|RemoteWrite|RemoteAtomic) != 0
	if !writes || rights&RemoteAtomic != 0 {
		if !r.remote.Read(b, r.addr+off) {
			return nil
		}
	}
	if writes {
		t.writes = append(t.writes, write{r.remote, r.addr + off, b})
	}
	t.used += int(n)
	return b
}

// Commit writes to remote regions what the caller has put into their copies, in the order of the Slices. It returns
// false where their process does not have the memory (any more), or may not write it.
func (t *Table) Commit() bool {
	ok := true
	for i := range t.writes {
		w := &t.writes[i]
		ok = ok && w.remote.Write(w.b, w.addr)
	}
	t.Begin()
	return ok
}
