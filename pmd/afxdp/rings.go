package afxdp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xring is one side of a ring that is shared with the kernel (net/xdp/xsk_queue.h): fill and completion
// rings carry 64-bit addresses, rx and tx rings carry descriptors of 16 bytes.
//
//	struct xdp_desc   0          8      12        16
//	                  | addr     | len  | options |
//
// The two indices run freely and are masked on use, so that a full ring differs from an empty one. Each
// side stores its own index once for a batch, after the entries (release), and loads the other's before
// it (acquire); sync/atomic gives both. Without that order the other side would read entries that are
// not written yet.
type xring struct {
	prod, cons *uint32 // shared
	flags      *uint32 // shared: XDP_RING_NEED_WAKEUP, written by the kernel
	entries
	size uint32

	head uint32 // the driver's index: of the next entry to write or to read
	peer uint32 // the kernel's index when it was last loaded: each load may miss the cache
	mem  []byte // the mapping
}

// The sizes of entries, in bytes.
const (
	addrSize = 8
	descSize = 16
)

// ringKind holds what differs between the four rings: option, mmap offset, size of an entry.
type ringKind struct {
	name   string
	option int   // of setsockopt, for the number of entries
	page   int64 // of mmap
	elem   int
	off    func(*unix.XDPMmapOffsets) *unix.XDPRingOffset
}

var (
	kindFill = ringKind{
		"fill", unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_PGOFF_FILL_RING, addrSize,
		func(o *unix.XDPMmapOffsets) *unix.XDPRingOffset { return &o.Fr },
	}
	kindComp = ringKind{
		"completion", unix.XDP_UMEM_COMPLETION_RING, unix.XDP_UMEM_PGOFF_COMPLETION_RING, addrSize,
		func(o *unix.XDPMmapOffsets) *unix.XDPRingOffset { return &o.Cr },
	}
	kindRx = ringKind{
		"rx", unix.XDP_RX_RING, unix.XDP_PGOFF_RX_RING, descSize,
		func(o *unix.XDPMmapOffsets) *unix.XDPRingOffset { return &o.Rx },
	}
	kindTx = ringKind{
		"tx", unix.XDP_TX_RING, unix.XDP_PGOFF_TX_RING, descSize,
		func(o *unix.XDPMmapOffsets) *unix.XDPRingOffset { return &o.Tx },
	}
)

// mapRing creates one ring of the socket and maps it. Where the indices lie in the mapping is the kernel's
// choice, which XDP_MMAP_OFFSETS returns.
func mapRing(fd int, k ringKind, n int) (xring, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, k.option, n); err != nil {
		return xring{}, fmt.Errorf("%s ring of %d entries: %w", k.name, n, err)
	}
	var all unix.XDPMmapOffsets
	if err := getsockopt(fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&all), unsafe.Sizeof(all)); err != nil {
		return xring{}, fmt.Errorf("ring offsets: %w", err)
	}
	off := k.off(&all)
	mem, err := unix.Mmap(fd, k.page, int(off.Desc)+n*k.elem,
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return xring{}, fmt.Errorf("map the %s ring: %w", k.name, err)
	}
	p := unsafe.Pointer(&mem[0])
	return xring{
		prod:    (*uint32)(unsafe.Add(p, off.Producer)),
		cons:    (*uint32)(unsafe.Add(p, off.Consumer)),
		flags:   (*uint32)(unsafe.Add(p, off.Flags)),
		entries: entries{base: unsafe.Add(p, off.Desc), mask: uint32(n - 1)},
		size:    uint32(n),
		mem:     mem,
	}, nil
}

// unmap removes the mapping; a ring that was never mapped has none.
func (r *xring) unmap() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	*r = xring{}
	return unix.Munmap(mem)
}

// entries is where the elements of a ring lie. Loops copy it: the compiler then keeps it in registers, which it cannot for
// a field that a store to the ring might change. mask is the size less one: an index wraps without a branch.
type entries struct {
	base unsafe.Pointer
	mask uint32
}

// addr returns an entry of a fill or completion ring: an offset into the UMEM.
func (r entries) addr(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(r.base, uintptr(i&r.mask)*addrSize))
}

// desc returns an entry of an rx or tx ring.
func (r entries) desc(i uint32) *unix.XDPDesc {
	return (*unix.XDPDesc)(unsafe.Add(r.base, uintptr(i&r.mask)*descSize))
}

// room returns how many entries can be written, reading the kernel's index only when fewer than
// want are known to be free.
func (r *xring) room(want uint32) uint32 {
	free := r.size - (r.head - r.peer)
	if free < want {
		r.peer = atomic.LoadUint32(r.cons)
		free = r.size - (r.head - r.peer)
	}
	return min(free, want)
}

// publish passes n entries that were written from head on to the kernel, and with them the frames that they name. The store
// releases the entries: on amd64 it is an XCHG, on arm64 a store-release.
func (r *xring) publish(n uint32) {
	r.head += n
	atomic.StoreUint32(r.prod, r.head)
}

// ready returns how many entries can be read, at most want, reading the kernel's index only when fewer are known to be
// there. That load acquires the entries.
func (r *xring) ready(want uint32) uint32 {
	have := r.peer - r.head
	if have < want {
		r.peer = atomic.LoadUint32(r.prod)
		have = r.peer - r.head
	}
	return min(have, want)
}

// release returns n entries that were read to the kernel, which may overwrite them from now on.
func (r *xring) release(n uint32) {
	r.head += n
	atomic.StoreUint32(r.cons, r.head)
}

// pending returns how many entries the kernel has not read yet. It always loads the kernel's index: callers
// are about to make a system call, which costs more.
func (r *xring) pending() uint32 { return r.head - atomic.LoadUint32(r.cons) }

// needWakeup reports whether the kernel needs a system call before it processes the ring
// (XDP_USE_NEED_WAKEUP): while it is busy it does so by itself.
func (r *xring) needWakeup() bool {
	return atomic.LoadUint32(r.flags)&unix.XDP_RING_NEED_WAKEUP != 0
}

// getsockopt and setsockopt pass structures at level SOL_XDP, which package unix has no functions for.
func getsockopt(fd, opt int, p unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt),
		uintptr(p), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func setsockopt(fd, opt int, p unsafe.Pointer, size uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt),
		uintptr(p), size, 0)
	if e != 0 {
		return e
	}
	return nil
}
