package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A file of a Disk, in little endian:
//
//	0   8  "mrcache1"
//	8   4  head: bytes before the content, a multiple of diskBlock
//	12  4  bytes of the description
//	16  8  length of the content
//	24  4  CRC-32C of the table
//	28  4  CRC-32C of bytes 0 to 28 and of the description
//	32     description (appendMeta), and zeros up to head
//	head   content
//	       table: CRC-32C of each sumBlock bytes of the content
//
// The description can be replaced in place by one that fits: a 304 changes it. A crash meanwhile leaves it with a wrong checksum.

const (
	diskMagic  = "mrcache1"
	headerSize = 32
	// headSpare bounds the growth of a description, in bytes.
	headSpare = 512
	// sumBlock is the content that has one checksum: what is read and checked at once.
	sumBlock = 64 << 10
	// maxHead bounds descriptions that are read.
	maxHead = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is the error of a file that is not what was written.
var errDamaged = errors.New("the file is damaged")

// onDisk is the place of a content. Entries with the same content share it.
type onDisk struct {
	id     uint64
	length int64 // of the content
	head   int64
	bytes  int64  // of the file, in whole blocks
	sum    uint32 // of the table
	owner  atomic.Pointer[Entry]

	mu    sync.Mutex // of what follows: answers share the descriptor
	fd    int
	users int
	table []byte
}

// fileSize returns the length of a file.
func (o *onDisk) fileSize() int64 { return o.head + o.length + tableSize(o.length) }

// tableSize returns the bytes of the table for a content.
func tableSize(length int64) int64 { return 4 * ((length + sumBlock - 1) / sumBlock) }

// roundUp returns n in whole blocks.
func roundUp(n int64) int64 { return (n + diskBlock - 1) / diskBlock * diskBlock }

// headFor returns the bytes of a head with room for a description.
func headFor(meta int) int64 { return roundUp(headerSize + int64(meta) + headSpare) }

// appendHead appends a head.
func appendHead(b, meta []byte, o *onDisk) []byte {
	at := len(b)
	b = append(b, diskMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(o.head))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(meta)))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.length))
	b = binary.LittleEndian.AppendUint32(b, o.sum)
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, meta))
	b = append(b, meta...)
	return append(b, make([]byte, int(o.head)-headerSize-len(meta))...)
}

// parseHead reads the head of a file of a size, and returns the entry that it describes.
func parseHead(r io.ReaderAt, size int64) (*Entry, error) {
	var h [headerSize]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return nil, tornIfShort(err)
	}
	o := &onDisk{head: int64(binary.LittleEndian.Uint32(h[8:])), length: int64(binary.LittleEndian.Uint64(h[16:])), sum: binary.LittleEndian.Uint32(h[24:]), fd: -1}
	n := int64(binary.LittleEndian.Uint32(h[12:]))
	if string(h[:8]) != diskMagic || o.head > maxHead || headerSize+n > o.head || o.length < 0 || o.length > size || o.fileSize() != size {
		return nil, errDamaged
	}
	meta := make([]byte, n)
	if _, err := r.ReadAt(meta, headerSize); err != nil {
		return nil, tornIfShort(err)
	}
	if crc32.Update(crc32.Checksum(h[:28], castagnoli), castagnoli, meta) != binary.LittleEndian.Uint32(h[28:]) {
		return nil, errDamaged
	}
	e, err := parseMeta(meta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	o.bytes = roundUp(size)
	o.owner.Store(e)
	e.disk = o
	return e, nil
}

// tornIfShort returns the error of a file that ends too early as that of a damaged one.
func tornIfShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDamaged
	}
	return err
}

// load enters what is in the folder into the index. A response that has been stored meanwhile is newer, and one of a URL that has been
// invalidated is not entered.
func (d *Disk) load() {
	defer d.loading.Store(false)
	for i := range 256 {
		sub := fmt.Sprintf("%02x", i)
		names, err := d.names(sub)
		if err != nil {
			d.read(err)
			continue
		}
		for _, name := range names {
			if !d.loadable() {
				return
			}
			d.loadFile(sub, name)
		}
	}
}

func (d *Disk) loadable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state != diskClosed
}

// names returns the names in a folder below the one of the cache.
func (d *Disk) names(sub string) ([]string, error) {
	fd, err := unix.Openat(int(d.dir.Fd()), sub, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), sub)
	defer f.Close()
	return f.Readdirnames(-1)
}

// loadFile enters a file into the index. What is torn is removed, and what no cache has written stays.
func (d *Disk) loadFile(sub, name string) {
	var id uint64
	path := sub + "/" + name
	if n, _ := fmt.Sscanf(name, "%016x", &id); n != 1 || d.name(id) != path {
		if of, ok := unfinished(name); ok && of != d.session { // of a process that has ended
			d.unlink(path)
		}
		return
	}
	if id-d.first <= d.ids.Load()-d.first { // one of this process, which enters it itself
		return
	}
	e, err := d.describe(path)
	switch {
	case err == unix.ENOENT: // it was removed meanwhile
		return
	case errors.Is(err, errDamaged):
		d.counts[DiskDamaged].Add(1)
		d.unlink(path)
		return
	case err != nil:
		d.read(err)
		return
	}
	if e.disk.id = id; d.index.same(e) != nil || !d.index.Store(e, Mark{}) {
		d.unlink(path)
	}
}

// describe reads the description of a file.
func (d *Disk) describe(path string) (*Entry, error) {
	fd, err := unix.Openat(int(d.dir.Fd()), path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errDamaged
	}
	return parseHead(f, st.Size())
}
