package dpdk

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// memory is the mbufs of an arena: one set for all queues, because a frame that one receives another may send.
type memory struct {
	c      uintptr // struct mrd_memory
	arena  *ring.Arena
	inside bool
	users  int
}

// memories are those in use, under loaded.
var memories []*memory

func base(a *ring.Arena) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.Mem))) }

// pageSize returns the size of the pages of an arena that DPDK may rely on.
func pageSize(a *ring.Arena) uintptr {
	if a.Pages() == ring.PagesHugeTLB {
		return 2 << 20
	}
	return 4096
}

// memory returns the mbufs of an arena, which DPDK then knows as external memory.
func (s *shim) memory(arena *ring.Arena, inside bool) (*memory, error) {
	loaded.Lock()
	defer loaded.Unlock()
	known := false
	for _, m := range memories {
		if m.arena != arena {
			continue
		}
		if known = true; m.inside == inside {
			m.users++
			return m, nil
		}
	}
	if !known {
		if err := errno(s.call("mrd_register", base(arena), uintptr(len(arena.Mem)), pageSize(arena), 0, 0)); err != nil {
			return nil, fmt.Errorf("%w: external memory of %d bytes: %w", ErrEnvironment, len(arena.Mem), err)
		}
	}
	m := &memory{arena: arena, inside: inside, users: 1}
	memories = append(memories, m)
	if m.c = uintptr(s.call("mrd_memory_new", base(arena), uintptr(arena.Frames()), uintptr(arena.Shift), flag(inside))); m.c == 0 {
		s.drop(m)
		return nil, fmt.Errorf("%w: no memory for the mbufs of %d frames", ErrEnvironment, arena.Frames())
	}
	return m, nil
}

// release ends the use of an arena's mbufs by one queue.
func (s *shim) release(m *memory) {
	loaded.Lock()
	defer loaded.Unlock()
	if m.users--; m.users == 0 {
		s.call("mrd_memory_free", m.c)
		s.drop(m)
	}
}

// drop forgets m. With the last set of mbufs of an arena DPDK forgets its memory, which the caller may then unmap.
func (s *shim) drop(m *memory) {
	memories = slices.DeleteFunc(memories, func(o *memory) bool { return o == m })
	if !slices.ContainsFunc(memories, func(o *memory) bool { return o.arena == m.arena }) {
		s.call("mrd_unregister", base(m.arena), uintptr(len(m.arena.Mem)))
	}
}

// mapDMA lets a device of a bus reach the arena through the IOMMU. Virtual devices have none.
func (d *Device) mapDMA(m *memory) error {
	if d.where.Virtual {
		return nil
	}
	if err := errno(d.shim.call("mrd_register", base(m.arena), uintptr(len(m.arena.Mem)), pageSize(m.arena), uintptr(d.port), 1)); err != nil {
		return &pmd.OpError{
			Op: "map", Device: d.Name, Err: fmt.Errorf("%w: DMA to the arena: %w", ErrEnvironment, err),
			Remedy: "bind the device to vfio-pci, with an IOMMU, and raise the limit memlock (docs/dpdk.md)",
		}
	}
	return nil
}
