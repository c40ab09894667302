package ring

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mmapShared maps a new file in memory, of reserved huge pages where there are any. Its size is sealed, so that no process that
// gets it can take pages away from the others.
func (a *Arena) mmapShared(n int, huge Huge) error {
	var err error
	if huge != HugeOff {
		if err = a.mmapFile(roundUp(n, hugePage), unix.MFD_HUGETLB); err == nil {
			a.pages = PagesHugeTLB + ", shared"
			return nil
		}
	}
	if huge == HugeRequire {
		return fmt.Errorf("arena: %w: %d needed, raise vm.nr_hugepages (%v)", ErrNoHugePages, roundUp(n, hugePage)/hugePage, err)
	}
	if err = a.mmapFile(roundUp(n, 4096), 0); err != nil {
		return fmt.Errorf("arena: map %d bytes of shared memory: %w", n, err)
	}
	a.pages = PagesSmall + ", shared"
	return nil
}

func (a *Arena) mmapFile(n, flags int) (err error) {
	if a.file, err = unix.MemfdCreate("millrace-arena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags); err != nil {
		return err
	}
	if err = unix.Ftruncate(a.file, int64(n)); err == nil {
		_, err = unix.FcntlInt(uintptr(a.file), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		a.raw, err = unix.Mmap(a.file, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		_ = a.closeFile()
		return err
	}
	a.Mem = a.raw
	return nil
}

// File returns the file descriptor of shared memory, which is the arena's; -1 where the memory is not shared. The frames are at the same offsets
// in the file as in Mem.
func (a *Arena) File() int { return a.file }

func (a *Arena) closeFile() error {
	if a.file < 0 {
		return nil
	}
	fd := a.file
	a.file = -1
	return unix.Close(fd)
}
