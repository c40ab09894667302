package virtio

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd/virtio/vhostuser"
	"github.com/millrace/millrace/pmd/virtio/vring"
)

// mapping is a region of a guest that is mapped here.
type mapping struct {
	region vhostuser.MemRegion
	raw    []byte // as mapped: from a page's boundary
	mem    []byte // the region in it
	sealed bool   // it cannot shrink (F_SEAL_SHRINK)
}

// maxRegion bounds a region, bytes, so that sums of its fields do not overflow.
const maxRegion = 1 << 46

// mapRegion maps a region of a file, which it borrows. The file has to hold all of the region now; that it may shrink later is what catchFaults
// is for. The offset of huge pages is that of a page, so the mapping begins at its boundary.
func mapRegion(fd int, r vhostuser.MemRegion) (*mapping, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%w: fstat: %w", ErrGuest, err)
	}
	switch {
	case r.Size == 0 || r.Size > maxRegion || r.Offset > maxRegion:
		return nil, fmt.Errorf("%w: a region of %d bytes at offset %d", ErrGuest, r.Size, r.Offset)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%w: the file of a region has mode %#o and is no memory", ErrGuest, st.Mode)
	case r.Offset+r.Size > uint64(st.Size):
		return nil, fmt.Errorf("%w: a region ends at %d of a file of %d bytes", ErrGuest, r.Offset+r.Size, st.Size)
	}
	page := uint64(max(st.Blksize, 4096)) // of hugetlbfs the size of its pages
	from := r.Offset / page * page
	length := (r.Offset - from + r.Size + page - 1) / page * page
	raw, err := unix.Mmap(fd, int64(from), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap of %d bytes: %w", ErrGuest, length, err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return &mapping{r, raw, raw[r.Offset-from:][:r.Size], err == nil && seals&unix.F_SEAL_SHRINK != 0}, nil
}

func (m *mapping) unmap() { _ = unix.Munmap(m.raw) }

// guestMemory returns the memory of mappings, and what a fault in them is known by.
func guestMemory(list []*mapping) (*vring.Memory, []span, error) {
	regions, spans := make([]vring.Region, len(list)), make([]span, len(list))
	for i, m := range list {
		regions[i] = vring.Region{Guest: m.region.Guest, User: m.region.User, Mem: m.mem}
		spans[i] = spanOf(m.raw)
	}
	mem, err := vring.NewMemory(regions)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrGuest, err)
	}
	return mem, spans, nil
}

// sealed reports whether no mapping can shrink.
func sealed(list []*mapping) bool {
	for _, m := range list {
		if !m.sealed {
			return false
		}
	}
	return true
}
