package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open opens the folder, takes its lock, unless it is inherited, and makes the folders in it.
func (d *Disk) open() (err error) {
	if d.dir, err = openFolder(d.o.Dir); err != nil {
		return err
	}
	if d.lock = d.o.Lock; d.lock == nil {
		d.lock, err = takeLock(d.dir)
	}
	if err != nil {
		return errors.Join(err, d.dir.Close())
	}
	if err = makeFolders(d.dir); err != nil {
		return errors.Join(err, d.lock.Close(), d.dir.Close())
	}
	return nil
}

// openFolder opens a folder, which it makes if it is not there. A folder that others may write to would let them answer for every backend,
// and one that they may read shows them responses to requests with credentials.
func openFolder(name string) (_ *os.File, err error) {
	if err = os.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	fd, err := unix.Open(name, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return nil, fmt.Errorf("%s is not a directory, or it is a link: name a folder that is the cache's alone", name)
	}
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer func() {
		if err != nil {
			_ = dir.Close()
		}
	}()
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("the folder is that of user %d: have the gateway's own user (%d) own it", st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		if unix.Faccessat(fd, "lock", unix.F_OK, 0) != nil { // it is not a cache's: to close it could lock others out of what is there
			return nil, fmt.Errorf("others may use the folder (mode %#o): name one that is the cache's alone, which is made with mode 0700", st.Mode&0o777)
		}
		return nil, fmt.Errorf("others may use the folder (mode %#o): chmod 700 %s", st.Mode&0o777, name)
	}
	return dir, nil
}

// makeFolders makes the folders of files that are not there.
func makeFolders(dir *os.File) error {
	for i := range 256 {
		if err := unix.Mkdirat(int(dir.Fd()), fmt.Sprintf("%02x", i), 0o700); err != nil && err != unix.EEXIST {
			return err
		}
	}
	return nil
}

// takeLock takes the lock of the folder, which the kernel releases when the last process that has it ends.
func takeLock(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), "lock", unix.O_CREAT|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	lock := os.NewFile(uintptr(fd), "lock")
	switch err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
		return lock, nil
	case unix.EWOULDBLOCK:
		err = ErrDiskLocked
	}
	return nil, errors.Join(err, lock.Close())
}

// create creates a file that is not there. Where its folder was removed under way, it makes all of them again. It belongs to the writer.
func (d *Disk) create(name string) (*os.File, error) {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(d.dir.Fd()), name, flags, 0o600)
	if err == unix.ENOENT {
		if err = d.recreate(); err != nil {
			return nil, fmt.Errorf("the folder was removed, and cannot be made again: %w", err)
		}
		fd, err = unix.Openat(int(d.dir.Fd()), name, flags, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// recreate makes the folders again that were removed, and drops from the index what was in them. A lock that is in no folder any more
// keeps no other process out: then the folder is opened anew and its lock taken, which another process may have by now.
func (d *Disk) recreate() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.lock.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		if err := d.reopen(); err != nil {
			return err
		}
	}
	if err := makeFolders(d.dir); err != nil {
		return err
	}
	d.counts[DiskRecreated].Add(1)
	d.o.Log.Warn("cache on disk", "folder", d.o.Dir, "result", "the folder was removed and is made again: what was in it is fetched again",
		"remedy", "purge the cache instead of removing its files; keep programs that clean up away from the folder")
	for e := range d.index.Each {
		if unix.Faccessat(int(d.dir.Fd()), d.name(e.disk.id), unix.F_OK, 0) == unix.ENOENT {
			d.index.Remove(e)
		}
	}
	return nil
}

// reopen replaces what the descriptors of the folder and of its lock refer to. Their numbers stay: other goroutines read files by them.
func (d *Disk) reopen() error {
	dir, err := openFolder(d.o.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	lock, err := takeLock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err = unix.Dup3(int(lock.Fd()), int(d.lock.Fd()), unix.O_CLOEXEC); err != nil {
		return err
	}
	return unix.Dup3(int(dir.Fd()), int(d.dir.Fd()), unix.O_CLOEXEC)
}
