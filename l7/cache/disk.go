package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/semantics"
)

// Disk is the second level of a cache: responses in files of one folder, a file for each.
//
// What describes the responses is in memory, in an index that is a Cache itself: looking up, eviction and invalidation are those of the first
// level, and no loop waits for a disk. One goroutine writes and removes files, from a queue of bounded bytes. What finds no place in it is not
// written. Files are read by Content.
//
// A file gets its name once it is written as a whole. It is not forced to the disk: checksums find what a crash has left torn, in the
// description when the folder is opened, in the content when it is read.
type Disk struct {
	o       DiskOptions
	dir     *os.File
	lock    *os.File
	index   *Cache
	ids     atomic.Uint64
	first   uint64 // of ids
	loads   sync.WaitGroup
	session string // in the names of files that are not whole

	mu    sync.Mutex
	cond  sync.Cond
	jobs  []diskJob
	bytes int64 // of jobs
	state diskState
	idle  bool // the writer has nothing to do
	fills map[Key]struct{}
	ended chan struct{}

	loading  atomic.Bool
	sick     atomic.Bool // the last write has failed
	sickRead atomic.Bool // the last read has
	retry    atomic.Int64
	longest  atomic.Int64 // content
	counts   [diskCounts]atomic.Uint64
}

// DiskOptions configure a Disk.
type DiskOptions struct {
	Dir       string
	Bytes     int64    // of files, each rounded up to blocks of the disk
	MaxObject int64    // bytes of the content of a response
	Objects   int64    // files
	Lock      *os.File // of the folder, by a process that this one replaces; nil takes it
	Budget    files.Budget
	Log       *slog.Logger
	Now       func() time.Time
}

// diskState is the state of a Disk.
type diskState uint8

const (
	diskWaits  diskState = iota // for Start: another process may still write
	diskServes                  // files are read and written
	diskHeld                    // another process has the folder: nothing is found, written or removed
	diskClosed
)

// diskJob is something that the writer does.
type diskJob struct {
	bytes int64 // of the queue
	run   func()
}

// DiskCount is a counter of a Disk.
type DiskCount int

// Values of DiskCount.
const (
	DiskWritten    DiskCount = iota // responses
	DiskReads                       // files that were opened for responses
	DiskFull                        // responses that were not written, as too much was waiting to be
	DiskDamaged                     // files that were dropped: torn, or not what was written
	DiskReadError                   // reads that have failed
	DiskWriteError                  // files that could not be written
	DiskRecreated                   // times that the folder was made again, having been removed
	diskCounts
)

const (
	// diskQueue bounds the bytes that wait for the writer.
	diskQueue = 32 << 20
	// diskBlock is the size of the blocks in which file systems give space.
	diskBlock = 4096
	// diskRetry is the time for which nothing is written after a failure, such as that of a full disk.
	diskRetry = 10 * time.Second
	diskHold  = 5 * time.Second
)

// ErrDiskLocked is the error of a folder that another process uses.
var ErrDiskLocked = errors.New("another process uses the folder of the cache: give each gateway a folder of its own")

// OpenDisk opens a folder, which it makes if it is not there. Files that are in it are found after Start.
func OpenDisk(o DiskOptions) (*Disk, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Disk{o: o, session: strconv.FormatUint(rand.Uint64(), 36), fills: map[Key]struct{}{}, ended: make(chan struct{})}
	d.cond.L = &d.mu
	d.longest.Store(o.MaxObject)
	d.first = rand.Uint64()
	d.ids.Store(d.first)
	d.index = New(Options{Memory: o.Bytes, Objects: o.Objects, Dropped: d.dropped})
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Dir, err)
	}
	go d.write()
	return d, nil
}

// Lock returns the lock, for a process that replaces this one.
func (d *Disk) Lock() *os.File { return d.lock }

// Dir returns the folder.
func (d *Disk) Dir() string { return d.o.Dir }

// Start reads the descriptions of what is in the folder, on a goroutine, and begins to write. It does nothing after the first call, but
// for going on after Hold.
func (d *Disk) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.state
	if was == diskClosed || was == diskServes {
		return
	}
	d.state = diskServes
	if was == diskWaits {
		d.loading.Store(true)
		d.loads.Go(d.load)
	}
}

// Hold leaves the folder to another process, once what is waiting has been written: a disk that hangs is waited for no longer than
// diskHold. Start goes on.
func (d *Disk) Hold() {
	written := make(chan struct{})
	go func() { d.Sync(); close(written) }()
	select {
	case <-written:
	case <-time.After(diskHold):
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == diskServes {
		d.state = diskHeld
	}
}

// Sync waits until all that is waiting is written and removed.
func (d *Disk) Sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for (len(d.jobs) > 0 || !d.idle) && d.state != diskClosed {
		d.cond.Wait()
	}
}

// Close writes what is waiting, and releases the folder.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.state == diskClosed {
		d.mu.Unlock()
		return nil
	}
	d.state = diskClosed
	d.cond.Broadcast()
	d.mu.Unlock()
	<-d.ended
	d.loads.Wait()
	return errors.Join(d.dir.Close(), d.lock.Close())
}

// serves reports whether files are read and written.
func (d *Disk) serves() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state == diskServes
}

// enqueue has the writer do something, and reports false where too much is waiting. Removals have no bytes: they always find a place.
func (d *Disk) enqueue(bytes int64, run func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != diskServes || bytes > 0 && d.bytes+bytes > diskQueue {
		return false
	}
	d.jobs, d.bytes = append(d.jobs, diskJob{bytes, run}), d.bytes+bytes
	d.cond.Broadcast()
	return true
}

// write does what is in the queue, until Close.
func (d *Disk) write() {
	defer close(d.ended)
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.jobs) == 0 && d.state != diskClosed {
			d.idle = true
			d.cond.Broadcast()
			d.cond.Wait()
		}
		if len(d.jobs) == 0 {
			return
		}
		d.idle = false
		job := d.jobs[0]
		d.jobs[0] = diskJob{}
		d.jobs = d.jobs[1:]
		d.mu.Unlock()
		job.run()
		d.mu.Lock()
		d.bytes -= job.bytes
	}
}

// SetLimits changes the bounds.
func (d *Disk) SetLimits(bytes, object, objects int64) {
	d.longest.Store(object)
	d.index.most.Store(objects)
	d.index.SetMemory(bytes)
}

// lookup returns the entry for a request.
func (d *Disk) lookup(k Key, fields []semantics.Field) (*Entry, Miss) {
	if d == nil || !d.serves() {
		return nil, URIMiss
	}
	return d.index.Lookup(k, fields)
}

// removeSame removes the entry for the same requests as e.
func (d *Disk) removeSame(e *Entry) {
	if old := d.index.same(e); old != nil {
		d.index.Remove(old)
	}
}

// dropped has the file of an entry removed that has left the index, unless another entry has the file. The lock of the index is held.
func (d *Disk) dropped(e *Entry) {
	if e.disk.owner.CompareAndSwap(e, nil) {
		id := e.disk.id
		d.enqueue(0, func() { d.unlink(d.name(id)) })
	}
}

// name returns the path of a file below the folder.
func (d *Disk) name(id uint64) string {
	hex := fmt.Sprintf("%016x", id)
	return filepath.Join(hex[:2], hex)
}

// unlink removes a file.
func (d *Disk) unlink(name string) {
	if err := unix.Unlinkat(int(d.dir.Fd()), name, 0); err != nil && err != unix.ENOENT {
		d.wrote(err)
	}
}

// wrote notes the outcome of a write. Of several failures in a row the first is logged.
func (d *Disk) wrote(err error) {
	if err == nil {
		if d.sick.CompareAndSwap(true, false) {
			d.o.Log.Info("cache on disk", "folder", d.o.Dir, "result", "responses are written again")
		}
		return
	}
	d.counts[DiskWriteError].Add(1)
	d.retry.Store(d.o.Now().Add(diskRetry).UnixNano())
	if !d.sick.Swap(true) {
		d.o.Log.Error("cache on disk", "folder", d.o.Dir, "error", err.Error(), "result", "responses are not written for now",
			"remedy", "make room on the disk, or lower disk.bytes; see that the gateway may write to the folder")
	}
}

// rests reports whether nothing is written for now, since a write has failed.
func (d *Disk) rests() bool { return d.sick.Load() && d.o.Now().UnixNano() < d.retry.Load() }

// read notes the outcome of a read.
func (d *Disk) read(err error) {
	switch {
	case err == nil:
		if d.sickRead.CompareAndSwap(true, false) {
			d.o.Log.Info("cache on disk", "folder", d.o.Dir, "result", "files are read again")
		}
		return
	case errors.Is(err, errDamaged):
		d.counts[DiskDamaged].Add(1)
	default:
		d.counts[DiskReadError].Add(1)
	}
	if !d.sickRead.Swap(true) {
		d.o.Log.Error("cache on disk", "folder", d.o.Dir, "error", err.Error(), "result", "the response is dropped, and fetched again",
			"remedy", "nothing after a crash; otherwise check the disk")
	}
}

// DiskStats are counters of a Disk.
type DiskStats struct {
	Dir                   string
	Bytes, Limit, Objects int64
	Loading               bool
	Evicted               uint64
	Counts                [diskCounts]uint64
}

// Stats returns the counters.
func (d *Disk) Stats() DiskStats {
	st := d.index.Stats()
	out := DiskStats{Dir: d.o.Dir, Bytes: st.Bytes, Limit: st.Limit, Objects: st.Objects, Loading: d.loading.Load(), Evicted: st.Evicted}
	for i := range out.Counts {
		out.Counts[i] = d.counts[i].Load()
	}
	return out
}
