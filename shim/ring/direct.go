package ring

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets of preload/direct.h, in bytes. A test compares them with what a C compiler says.
const (
	DirectMagic   = 0x4d444952 // "RIDM"
	DirectVersion = 1

	directHeader        = 4096
	directEndedAt       = 64
	directAt            = 256
	directDirectionSize = 192
	directNotifierAt    = 0 // of a direction
	directTailAt        = 8
	directWantAt        = 12
	directCPUAt         = 16
	directClosesAt      = 20
	directHeadAt        = 64
	directSpaceAt       = 68
	directAskedAt       = 128

	directAsleep = 3 // states of a notifier
	directWoken  = 4
	directSleeps = 1 // in space

	directLeft  = 1 << 31 // of an index: the direction goes on by the socket
	directIndex = directLeft - 1
)

// Direct is the memory of a connection between two programs, which the node has made and has no part in. It only looks: what it reads
// are claims of both programs.
type Direct struct {
	b    []byte
	last [2]uint32
}

// CreateDirect makes shared memory with two rings of size bytes, a power of two. It returns the descriptor for both programs, which
// the caller closes. No holder of the descriptor can change the size of the memory.
func CreateDirect(size int) (*Direct, int, error) {
	b, fd, err := sealed("millrace-direct", directHeader, size)
	if err != nil {
		return nil, -1, err
	}
	d := &Direct{b: b}
	d.word(magicAt).Store(DirectMagic)
	d.word(versionAt).Store(DirectVersion)
	d.word(sizeAt).Store(uint32(size))
	return d, fd, nil
}

func (d *Direct) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&d.b[at])) }

// Moved reports whether both directions go by the socket by now.
func (d *Direct) Moved() bool {
	for i := range 2 {
		at := directAt + i*directDirectionSize
		if (d.word(at+directTailAt).Load()|d.word(at+directHeadAt).Load())&directLeft == 0 {
			return false
		}
	}
	return true
}

// Count returns how many bytes the programs have read from both rings since the last call, modulo 2 GiB for each.
func (d *Direct) Count() (n uint64) {
	for i := range 2 {
		head := d.word(directAt+i*directDirectionSize+directHeadAt).Load() & directIndex
		n += uint64((head - d.last[i]) & directIndex)
		d.last[i] = head
	}
	return n
}

// End tells both programs that the socket of one is closed, so that they look, and wakes what sleeps by futex(2).
func (d *Direct) End() {
	d.word(directEndedAt).Store(1)
	for i := range 2 {
		at := directAt + i*directDirectionSize
		notifier, space := d.word(at+directNotifierAt+lowHalf), d.word(at+directSpaceAt)
		if old := notifier.Load(); old&0xff == directAsleep {
			notifier.CompareAndSwap(old, old-directAsleep+directWoken) // or a producer wakes it
		}
		space.And(^uint32(directSleeps))
		for _, word := range []*atomic.Uint32{notifier, space} {
			_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0) // it is mapped
		}
	}
}

const futexWake = 1

// lowHalf is where the state is in a notifier.
var lowHalf = int(binary.NativeEndian.Uint32([]byte{0, 0, 0, 4}) & 4)

// Close unmaps the memory. Nothing of d may be used after it.
func (d *Direct) Close() error {
	b := d.b
	d.b = nil
	return unix.Munmap(b)
}

// sealed makes memory of a header and two rings whose size nobody can change, and maps it.
func sealed(name string, header, size int) ([]byte, int, error) {
	if size < 4096 || size > 1<<30 || size&(size-1) != 0 {
		return nil, -1, fmt.Errorf("ring: size %d is no power of two", size)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdNoExec)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, -1, fmt.Errorf("ring: memfd_create: %w", err)
	}
	total := header + 2*size
	if err = unix.Ftruncate(fd, int64(total)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	var b []byte
	if err == nil {
		b, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("ring: %w", err)
	}
	return b, fd, nil
}
