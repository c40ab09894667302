package cache

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/files"
)

// Content is content in a file, which one answer reads. It belongs to one goroutine at a time. Each block is compared with its checksum
// before any of it is returned.
type Content struct {
	d        *Disk
	entry    *Entry
	at, left int64
	block    []byte
	number   int64 // of block; -1 is none
	blind    bool  // the file system cannot tell what is in memory
	closed   bool
}

// OpenContent opens the content of an entry that Lookup has found in a file. It may wait for the disk. The content is read from the begin,
// as a whole, until Section. An error means that the response has to be fetched again: an entry whose file is damaged is removed.
func (n *Named) OpenContent(e *Entry) (*Content, error) {
	d := n.disk.Load()
	if d == nil || e.disk == nil {
		return nil, unix.ENOENT
	}
	if err := d.share(e.disk); err != nil {
		if !errors.Is(err, unix.EMFILE) {
			d.failed(e, err)
		}
		return nil, err
	}
	d.counts[DiskReads].Add(1)
	return &Content{d: d, entry: e, left: e.disk.length, number: -1}, nil
}

// failed removes an entry whose file cannot be read.
func (d *Disk) failed(e *Entry, err error) {
	d.read(err)
	if now := d.index.same(e); now != nil && now.disk == e.disk { // its description may be another one by now
		d.index.Remove(now)
	}
}

// share opens the file for one more answer, with its table.
func (d *Disk) share(o *onDisk) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users > 0 {
		o.users++
		return nil
	}
	if b := d.o.Budget; b != nil && !b.TakeFile() {
		return unix.EMFILE
	}
	if err = d.openTable(o); err != nil {
		if d.o.Budget != nil {
			d.o.Budget.ReturnFile()
		}
		return err
	}
	o.users = 1
	return nil
}

// openTable opens the file and reads its table. The caller holds o.mu.
func (d *Disk) openTable(o *onDisk) error {
	fd, err := unix.Openat(int(d.dir.Fd()), d.name(o.id), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	o.table = make([]byte, tableSize(o.length))
	if err = readFull(fd, o.table, o.head+o.length); err == nil && crc32.Checksum(o.table, castagnoli) != o.sum {
		err = errDamaged
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	o.fd = fd
	return nil
}

// Close ends the use of the file.
func (c *Content) Close() {
	if c.closed {
		return
	}
	c.closed = true
	o := c.entry.disk
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users > 0 {
		return
	}
	_ = unix.Close(o.fd)
	o.fd, o.table = -1, nil
	if c.d.o.Budget != nil {
		c.d.o.Budget.ReturnFile()
	}
}

// Section selects a part of the content.
func (c *Content) Section(first, length int64) { c.at, c.left = first, length }

// Left returns how many bytes are to be read.
func (c *Content) Left() int64 { return c.left }

// Read reads the next bytes. io.EOF follows the last. Any other error but files.ErrWait has removed the entry.
func (c *Content) Read(p []byte, w files.Wait) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	if n := c.at / sumBlock; n != c.number {
		err := c.load(n, w)
		if err == files.ErrWait {
			return 0, err
		}
		if err != nil {
			c.d.failed(c.entry, err)
			return 0, err
		}
		c.d.read(nil)
	}
	n := copy(p[:min(int64(len(p)), c.left)], c.block[c.at%sumBlock:])
	c.at += int64(n)
	c.left -= int64(n)
	return n, nil
}

// load reads a block and checks it.
func (c *Content) load(number int64, w files.Wait) error {
	o := c.entry.disk
	if c.block == nil {
		c.block = make([]byte, min(o.length, sumBlock))
	}
	c.block, c.number = c.block[:min(sumBlock, o.length-number*sumBlock)], -1
	at := o.head + number*sumBlock
	if w == files.Now {
		if c.blind {
			return files.ErrWait
		}
		n, err := unix.Preadv2(o.fd, [][]byte{c.block}, at, unix.RWF_NOWAIT)
		if c.blind = err == unix.EOPNOTSUPP; err != nil || n < len(c.block) { // a goroutine finds out why
			return files.ErrWait
		}
	} else if err := readFull(o.fd, c.block, at); err != nil {
		return err
	}
	if crc32.Checksum(c.block, castagnoli) != binary.LittleEndian.Uint32(o.table[4*number:]) {
		return errDamaged
	}
	c.number = number
	return nil
}

// All reads all of the content. It may wait for the disk.
func (c *Content) All() ([]byte, error) {
	body := make([]byte, c.left)
	for at := 0; at < len(body); {
		n, err := c.Read(body[at:], files.Later)
		if err != nil {
			return nil, err
		}
		at += n
	}
	return body, nil
}

// readFull reads p at a place. A file that is too short is damaged.
func readFull(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := unix.Pread(fd, p, at)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return errDamaged
		}
		if n > 0 {
			p, at = p[n:], at+int64(n)
		}
	}
	return nil
}
