// Package memory turns keys and virtual addresses into bytes: protection domains, memory regions with their bounds, rights and keys, and
// memory windows, which are parts of regions with rights and keys of their own. No other package of rdma reads or writes memory that a peer names.
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
	WindowBind // memory windows may be bound to the region

	LocalRead Access = 0

	remoteRights = RemoteWrite | RemoteRead | RemoteAtomic
)

// Accessor is a queue pair that reaches memory. Windows of type 2B are those of one queue pair.
type Accessor struct {
	PD PD
	QP uint32
}

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

	windows int        // bound to the region
	window  WindowType // 0 is a region; all below is of windows
	qp      uint32     // that has bound it
	parent  uint32     // key of the region
}

// Table holds the regions of a context.
type Table struct {
	regions []region
	free    []uint32
	draw    func() uint32
	live    int // regions
	windows int

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
	return t.enter(r)
}

// enter gives a region or window a place and a key.
func (t *Table) enter(r region) (uint32, error) {
	place, ok := t.place()
	if !ok {
		return 0, ErrFull
	}
	tag := (t.regions[place].key + 1) & (1<<tagBits - 1)
	r.key = t.draw()<<(placeBits+tagBits) | place<<tagBits | tag
	t.regions[place] = r
	*t.counter(&r)++
	return r.key, nil
}

// leave frees the place of a region or window.
func (t *Table) leave(r *region) {
	*t.counter(r)--
	t.free = append(t.free, r.key>>tagBits&(mostPlace-1))
	*r = region{key: r.key} // the next one here has another tag
}

// counter is that of the kind of r.
func (t *Table) counter(r *region) *int {
	if r.window != 0 {
		return &t.windows
	}
	return &t.live
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
	switch {
	case r == nil || r.window != 0:
		return ErrKey
	case r.windows > 0: // 10.6.7.2.1
		return ErrBound
	}
	t.leave(r)
	return nil
}

// Invalidate takes the remote rights from a region of the domain, and the bytes from a window of type 2B that the queue pair has bound, as
// SEND with invalidate does (9.4.1.1). The local rights of a region stay, so that its owner can deregister it.
func (t *Table) Invalidate(by Accessor, key uint32) bool {
	r := t.find(key)
	switch {
	case r == nil || r.pd != by.PD || r.window == Type1:
		return false
	case r.window == Type2B:
		if r.qp != by.QP {
			return false
		}
		t.unbind(r)
		return true
	case r.access&remoteRights == 0 || r.windows > 0: // nothing to take, or windows would keep it
		return false
	}
	r.access &^= remoteRights
	return true
}

// Begin ends the use of what Slice has returned of remote regions, without writing it. Each packet begins with it.
func (t *Table) Begin() { t.used, t.writes = 0, t.writes[:0] }

// Slice returns the n bytes at va if the region or window with the key is of the accessor, has all of these rights, and contains them; nil where
// not. It borrows them. Those of memory here are valid until the region ends. Those of a remote region are a copy, which
// is valid until Begin and which Commit writes back where the rights are of writing. n is at least 1, and what is borrowed of
// remote regions at once is at most a packet.
func (t *Table) Slice(by Accessor, key uint32, va uint64, n uint32, rights Access) []byte {
	r, off := t.within(by, key, va, n, rights)
	switch {
	case r == nil:
		return nil
	case r.remote == nil:
		return r.mem[off : off+uint64(n) : off+uint64(n)]
	}
	return t.stage(r, off, n, rights)
}

// Permits reports whether Slice would return bytes, for any n. Remote memory itself may be missing all the same.
func (t *Table) Permits(by Accessor, key uint32, va uint64, n uint32, rights Access) bool {
	r, _ := t.within(by, key, va, n, rights)
	return r != nil
}

// within returns the region that contains bytes, and where they begin in it; nil where the access is not permitted.
func (t *Table) within(by Accessor, key uint32, va uint64, n uint32, rights Access) (*region, uint64) {
	r := t.find(key)
	if r == nil || r.pd != by.PD || r.access&rights != rights {
		return nil, 0
	}
	if r.window != 0 && (rights&remoteRights == 0 || r.window == Type2B && r.qp != by.QP) {
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
