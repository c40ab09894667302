package program

import (
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
)

// shared is memory of a queue that the program maps, too. Its size cannot change.
type shared struct {
	b  []byte
	fd int
}

// mfdNoExec is MFD_NOEXEC_SEAL.
const mfdNoExec = 8

// newShared makes memory of a queue with slots entries, a power of two, and extra bytes behind.
func newShared(name string, slots, extra int) (*shared, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|mfdNoExec)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	s := &shared{fd: fd}
	size := ring.QueueSize(slots) + extra
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		s.b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		err = ring.InitQueue(s.b, slots)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	return s, nil
}

// sent closes the descriptor, which the program has.
func (s *shared) sent() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
	s.fd = -1
}

// close unmaps the memory, which nothing uses any more.
func (s *shared) close() {
	s.sent()
	if s.b != nil {
		_ = unix.Munmap(s.b)
	}
	s.b = nil
}

// image is the memory of a program: its /proc/self/mem, opened by itself. It implements rdma.Remote.
type image struct{ fd int }

// openImage checks a descriptor that a program has sent. Another file could block the loop.
func openImage(fd int) (*image, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return nil, err
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	if st.Type != unix.PROC_SUPER_MAGIC || path.Base(name) != "mem" || flags&unix.O_ACCMODE != unix.O_RDWR {
		return nil, fmt.Errorf("rdma/program: %s is not a /proc/self/mem for reading and writing", name)
	}
	return &image{fd: fd}, nil
}

// Read implements rdma.Remote. Where the program has less memory there, nothing is valid.
func (m *image) Read(b []byte, addr uint64) bool {
	n, err := unix.Pread(m.fd, b, int64(addr))
	return err == nil && n == len(b)
}

// Write implements rdma.Remote.
func (m *image) Write(b []byte, addr uint64) bool {
	n, err := unix.Pwrite(m.fd, b, int64(addr))
	return err == nil && n == len(b)
}

func (m *image) close() { unix.Close(m.fd) }
