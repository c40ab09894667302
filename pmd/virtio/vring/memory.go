package vring

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Errors of a peer. They are returned wrapped with what was wrong: test with errors.Is.
var (
	ErrMemory = errors.New("memory regions are unusable")
	ErrRing   = errors.New("virtqueue is unusable")
	ErrChain  = errors.New("descriptor chain is unusable")
)

// Region is a part of a guest's memory that is mapped here.
type Region struct {
	Guest uint64 // guest physical address, as descriptors have it
	User  uint64 // address in the process of the other end, as vhost-user names rings
	Mem   []byte // the mapping; its length is that of the region
}

// Memory is the set of regions of a guest. It does not change once it is made, so queues share it.
type Memory struct{ regions []Region }

// MaxRegions bounds the regions of a guest: what QEMU needs for hot-plugged memory, and few enough to be searched one by one.
const MaxRegions = 32

// NewMemory returns the memory of disjoint regions. It borrows the mappings.
func NewMemory(regions []Region) (*Memory, error) {
	if len(regions) > MaxRegions {
		return nil, fmt.Errorf("%w: %d of them, at most %d are mapped", ErrMemory, len(regions), MaxRegions)
	}
	for i, r := range regions {
		size := uint64(len(r.Mem))
		if size == 0 || r.Guest+size < r.Guest || r.User+size < r.User {
			return nil, fmt.Errorf("%w: region %d has %d bytes at %#x", ErrMemory, i, size, r.Guest)
		}
		for j, o := range regions[:i] {
			if overlap(r.Guest, size, o.Guest, uint64(len(o.Mem))) || overlap(r.User, size, o.User, uint64(len(o.Mem))) {
				return nil, fmt.Errorf("%w: regions %d and %d overlap", ErrMemory, j, i)
			}
		}
	}
	sorted := slices.Clone(regions)
	slices.SortFunc(sorted, func(a, b Region) int { return len(b.Mem) - len(a.Mem) }) // most packets lie in the largest
	return &Memory{sorted}, nil
}

func overlap(a, n, b, m uint64) bool { return a < b+m && b < a+n }

// At borrows the bytes from the guest physical address on: n of them, or those up to the end of their region, nil where the address
// is in none. A buffer may go on in another region.
func (m *Memory) At(addr uint64, n uint32) []byte {
	for i := range m.regions {
		r := &m.regions[i]
		// An address below the region wraps to an offset beyond it.
		if off := addr - r.Guest; off < uint64(len(r.Mem)) {
			return r.Mem[off:][:min(uint64(n), uint64(len(r.Mem))-off)]
		}
	}
	return nil
}

// user returns where the other process has the ring part of n bytes at addr, which has to be aligned and in one region.
func (m *Memory) user(what string, addr uint64, n, align int) (unsafe.Pointer, error) {
	for i := range m.regions {
		r := &m.regions[i]
		if off := addr - r.User; off < uint64(len(r.Mem)) && uint64(n) <= uint64(len(r.Mem))-off {
			p := unsafe.Pointer(&r.Mem[off])
			if uintptr(p)%uintptr(align) != 0 {
				return nil, fmt.Errorf("%w: its %s at %#x is not aligned to %d bytes", ErrRing, what, addr, align)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: its %s of %d bytes at %#x is not in the guest's memory", ErrRing, what, n, addr)
}

// The functions below access memory that another process changes meanwhile. Indices and flags that order other accesses are
// loaded and stored atomically. The others are plain: a descriptor is copied to local variables before it is checked.

func at(p unsafe.Pointer, off int) unsafe.Pointer { return unsafe.Add(p, off) }
