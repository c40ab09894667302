// Package ring holds the memory that packets live in and the queues that pass it on: Arena (frames
// in one mapping that AF_XDP, DPDK and CUDA can all register), Pool (the free frames of one loop),
// Audit (every frame has exactly one owner) and two rings, SPSC and MPSC.
//
// Packets start here (a driver takes free frames from a Pool to receive into) and end here (the
// last owner puts the frame back). The package knows no devices. A build with -tags debug poisons free
// frames and panics where one is written, or put twice.
package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/packet"
)

// Huge selects the pages of an arena.
type Huge uint8

// The choices of pages.
const (
	HugeAuto    Huge = iota // reserved huge pages, else transparent ones, else small pages
	HugeOff                 // small pages
	HugeRequire             // reserved huge pages or an error
)

// Kinds of pages, as Arena.Pages returns them.
const (
	PagesHugeTLB     = "reserved 2 MiB"
	PagesTransparent = "transparent 2 MiB" // asked for; the kernel uses them where it has them
	PagesSmall       = "4 KiB"
)

const hugePage = 2 << 20

// ErrNoHugePages reports that HugeRequire found too few reserved huge pages.
var ErrNoHugePages = errors.New("not enough reserved huge pages")

// ArenaConfig describes an arena.
type ArenaConfig struct {
	Frames    int  // at least 1; rounded up to whole pages
	FrameSize int  // bytes, a power of two from 2048 to 65536; 0 is 2048
	Huge      Huge // pages; the zero value takes the best there are
	Shared    bool // the memory is a file that other processes can map too (File)
}

// Arena is page-aligned memory outside of the Go heap, cut into equal frames. The same bytes serve
// as AF_XDP UMEM, DPDK external memory and CUDA-registered host memory; the arena is made first and
// given to each of them.
type Arena struct {
	packet.Arena
	pages string
	raw   []byte // as mapped; Mem lies inside
	cut   int    // frames already handed to pools
	file  int    // of shared memory; -1 otherwise
}

// NewArena maps and prefaults an arena. The caller closes it after every driver and engine that
// registered it.
func NewArena(cfg ArenaConfig) (*Arena, error) {
	size := cfg.FrameSize
	if size == 0 {
		size = 2048
	}
	if bits.OnesCount(uint(size)) != 1 || size < 2048 || size > 65536 {
		return nil, fmt.Errorf("arena: frame size %d is not a power of two from 2048 to 65536", size)
	}
	if cfg.Frames < 1 {
		return nil, fmt.Errorf("arena: %d frames, want at least 1", cfg.Frames)
	}
	if uint64(cfg.Frames)*uint64(size) > 1<<32-hugePage { // rounding up to a huge page must not pass 4 GiB
		return nil, fmt.Errorf("arena: %d frames of %d bytes pass the limit of 4 GiB (Desc.Off has 32 bits)", cfg.Frames, size)
	}
	a := &Arena{Arena: packet.Arena{Shift: uint8(bits.TrailingZeros(uint(size)))}, file: -1}
	if cfg.Shared {
		if err := a.mmapShared(cfg.Frames*size, cfg.Huge); err != nil {
			return nil, err
		}
		return a, nil
	}
	if err := a.mmap(cfg.Frames*size, cfg.Huge); err != nil {
		return nil, err
	}
	return a, nil
}

// mmap maps at least n bytes: from reserved huge pages, else from aligned memory that the kernel
// may back with transparent ones. Huge pages matter because packets touch frames at random: with 4 KiB
// pages each would miss the TLB. MAP_POPULATE faults the pages in now, so that no packet waits for one,
// and AF_XDP and CUDA can pin them.
func (a *Arena) mmap(n int, huge Huge) error {
	const prot = unix.PROT_READ | unix.PROT_WRITE
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_POPULATE
	n = roundUp(n, 4096)
	if huge != HugeOff {
		whole := roundUp(n, hugePage)
		mem, err := unix.Mmap(-1, 0, whole, prot, flags|unix.MAP_HUGETLB)
		if err == nil {
			a.raw, a.Mem, a.pages = mem, mem, PagesHugeTLB
			return nil
		}
		if huge == HugeRequire {
			return fmt.Errorf("arena: %w: %d needed, raise vm.nr_hugepages (%v)", ErrNoHugePages, whole/hugePage, err)
		}
	}
	if huge == HugeOff || n < hugePage {
		mem, err := unix.Mmap(-1, 0, n, prot, flags)
		if err != nil {
			return fmt.Errorf("arena: map %d bytes: %w", n, err)
		}
		a.raw, a.Mem, a.pages = mem, mem, PagesSmall
		return nil
	}
	return a.mmapTransparent(roundUp(n, hugePage))
}

// mmapTransparent maps n bytes on a 2 MiB boundary, asks for transparent huge pages and touches
// each page only then: the kernel chooses the page size at the first touch, and MAP_POPULATE would touch
// all before MADV_HUGEPAGE.
func (a *Arena) mmapTransparent(n int) error {
	mem, err := unix.Mmap(-1, 0, n+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("arena: map %d bytes: %w", n, err)
	}
	skip := int(-uintptr(unsafe.Pointer(&mem[0])) & (hugePage - 1))
	a.raw, a.Mem, a.pages = mem, mem[skip:skip+n:skip+n], PagesTransparent
	if err := unix.Madvise(a.Mem, unix.MADV_HUGEPAGE); err != nil {
		a.pages = PagesSmall
	}
	for i := 0; i < n; i += 4096 {
		a.Mem[i] = 0
	}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// Pages returns, for people, which pages the arena is made of.
func (a *Arena) Pages() string { return a.pages }

// View borrows the arena in the form that batches use.
func (a *Arena) View() *packet.Arena { return &a.Arena }

// Close unmaps the memory. No driver, engine or batch may use it any more: an access faults.
func (a *Arena) Close() error {
	if a.raw == nil {
		return nil
	}
	raw := a.raw
	a.raw, a.Mem = nil, nil
	return errors.Join(unix.Munmap(raw), a.closeFile())
}
