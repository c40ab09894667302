package cache

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// put has a response with its content written, and the one before it removed at once: it would answer otherwise if this one left memory
// before it is written.
func (d *Disk) put(e *Entry, at Mark) {
	d.removeSame(e)
	if e.Length() > d.longest.Load() || d.rests() {
		return
	}
	own := e.copy()
	body := e.Body
	if !d.enqueue(e.Size(), func() {
		w := d.newFile(own)
		w.add(body)
		w.commit(at)
	}) {
		d.counts[DiskFull].Add(1)
	}
}

// copy returns an entry with the same description.
func (e *Entry) copy() *Entry {
	return &Entry{
		Key: e.Key, Status: e.Status, Fields: e.Fields, vary: e.vary, tag: e.tag, modified: e.modified, generated: e.generated, arrived: e.arrived,
		initial: e.initial, lifetime: e.lifetime, staleRevalidate: e.staleRevalidate, staleError: e.staleError, stale: e.stale,
		explicit: e.explicit, always: e.always,
	}
}

// freshen has the description of a stored response replaced by that of a fresh one with the same content. Where it does not fit, the file
// keeps the old one: it is validated again after a restart.
func (d *Disk) freshen(old, fresh *Entry, at Mark) {
	if old.disk == nil {
		if old = d.index.same(fresh); old == nil || old.tag != fresh.tag || old.modified != fresh.modified || old.Length() != fresh.Length() {
			d.put(fresh, at)
			return
		}
	}
	own := fresh.copy()
	own.disk = old.disk
	if !own.disk.owner.CompareAndSwap(old, own) { // it has left meanwhile
		return
	}
	if !d.index.Store(own, at) {
		d.index.Remove(old)
		if own.disk.owner.CompareAndSwap(own, nil) {
			d.enqueue(0, func() { d.unlink(d.name(own.disk.id)) })
		}
		return
	}
	meta := own.appendMeta(nil)
	if headerSize+int64(len(meta)) > own.disk.head {
		return
	}
	d.enqueue(own.disk.head, func() { d.wrote(d.describeAnew(own, meta)) })
}

// describeAnew replaces the description in a file.
func (d *Disk) describeAnew(e *Entry, meta []byte) error {
	fd, err := unix.Openat(int(d.dir.Fd()), d.name(e.disk.id), unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	_, err = f.WriteAt(appendHead(nil, meta, e.disk), 0)
	return err
}

// newFile is a file that the writer writes. After a failure it takes everything and keeps nothing.
type newFile struct {
	d     *Disk
	entry *Entry
	meta  []byte
	disk  *onDisk
	f     *os.File
	name  string // while it is not whole
	table []byte
	sum   uint32 // of the block that has begun
	in    int    // bytes of that
	err   error
}

// unfinished returns the session in the name of a file that is not whole.
func unfinished(name string) (session string, ok bool) {
	if !strings.HasPrefix(name, ".") {
		return "", false
	}
	_, session, ok = strings.Cut(name, "-")
	return session, ok
}

// newFile begins a file.
func (d *Disk) newFile(e *Entry) *newFile {
	w := &newFile{d: d, entry: e, meta: e.appendMeta(nil), disk: &onDisk{id: d.ids.Add(1), fd: -1}}
	w.disk.head = headFor(len(w.meta))
	path := d.name(w.disk.id)
	w.name = fmt.Sprintf("%s/.%s-%s", path[:2], path[3:], d.session)
	if w.disk.head > maxHead {
		w.err = fmt.Errorf("a header of %d bytes is too long", len(w.meta))
		return w
	}
	w.f, w.err = d.create(w.name)
	return w
}

// add writes content.
func (w *newFile) add(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	if _, w.err = w.f.WriteAt(p, w.disk.head+w.disk.length); w.err != nil {
		return
	}
	w.disk.length += int64(len(p))
	for len(p) > 0 {
		n := min(len(p), sumBlock-w.in)
		w.sum = crc32.Update(w.sum, castagnoli, p[:n])
		if w.in += n; w.in == sumBlock {
			w.endBlock()
		}
		p = p[n:]
	}
}

// endBlock enters the checksum of a block.
func (w *newFile) endBlock() {
	w.table = binary.LittleEndian.AppendUint32(w.table, w.sum)
	w.sum, w.in = 0, 0
}

// commit ends the file, gives it its name, and enters it into the index.
func (w *newFile) commit(at Mark) {
	if w.in > 0 {
		w.endBlock()
	}
	o := w.disk
	if w.err == nil {
		_, w.err = w.f.WriteAt(w.table, o.head+o.length)
	}
	if o.sum = crc32.Checksum(w.table, castagnoli); w.err == nil { // the head comes last: a file without one is not whole
		_, w.err = w.f.WriteAt(appendHead(nil, w.meta, o), 0)
	}
	if w.err != nil {
		w.drop()
		return
	}
	dir := int(w.d.dir.Fd())
	w.err = w.f.Close()
	w.f = nil
	if w.err == nil {
		w.err = unix.Renameat(dir, w.name, dir, w.d.name(o.id))
	}
	if w.err != nil {
		w.drop()
		return
	}
	o.bytes = roundUp(o.fileSize())
	o.owner.Store(w.entry)
	w.entry.disk = o
	if !w.d.index.Store(w.entry, at) {
		w.d.unlink(w.d.name(o.id))
	}
	w.d.counts[DiskWritten].Add(1)
	w.d.wrote(nil)
}

// drop removes the file.
func (w *newFile) drop() {
	if w.f != nil {
		_ = w.f.Close()
	}
	if w.err != nil {
		w.d.wrote(w.err)
	}
	_ = unix.Unlinkat(int(w.d.dir.Fd()), w.name, 0)
}

// DiskFill writes the content of a response to a Disk while it arrives. It belongs to one goroutine.
type DiskFill struct {
	d      *Disk
	entry  *Entry
	mark   Mark
	length int64
	file   *newFile // of the writer
	over   bool
}

// begin begins to write a response whose content follows. It returns nil where it is not to be written, or another request has it written.
func (d *Disk) begin(e *Entry, at Mark) *DiskFill {
	if d.rests() {
		return nil
	}
	d.removeSame(e)
	d.mu.Lock()
	_, busy := d.fills[e.Key]
	if !busy {
		d.fills[e.Key] = struct{}{}
	}
	d.mu.Unlock()
	if busy {
		return nil
	}
	f := &DiskFill{d: d, entry: e.copy(), mark: at}
	if !d.enqueue(diskBlock, func() { f.file = d.newFile(f.entry) }) {
		f.end()
		d.counts[DiskFull].Add(1)
		return nil
	}
	return f
}

// Add has content written, and reports false where that has ended: the response is too long, or the disk too slow. It borrows p.
func (f *DiskFill) Add(p []byte) bool {
	if f.length += int64(len(p)); f.length > f.d.longest.Load() {
		f.Drop()
		return false
	}
	own := append([]byte(nil), p...)
	if !f.d.enqueue(int64(len(p)), func() { f.file.add(own) }) {
		f.d.counts[DiskFull].Add(1)
		f.Drop()
		return false
	}
	return true
}

// Commit stores the response, all of whose content has come.
func (f *DiskFill) Commit() {
	f.finish(func() { f.file.commit(f.mark) })
}

// Drop ends the writing without a response.
func (f *DiskFill) Drop() { f.finish(func() { f.file.drop() }) }

// finish has the writer end the file.
func (f *DiskFill) finish(by func()) {
	if f.over {
		return
	}
	f.over = true
	if !f.d.enqueue(0, func() { by(); f.end() }) { // the folder is left to another process, or closed: the file is found unfinished
		f.end()
	}
}

// end lets other requests write the response.
func (f *DiskFill) end() {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	delete(f.d.fills, f.entry.Key)
}
