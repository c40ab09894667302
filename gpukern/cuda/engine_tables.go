package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/image"
)

// loaded is tables in use, and where the device has them.
type loaded struct {
	tables     gpukern.Tables
	generation uint32
	mem        *Buffer // nil once the device is lost
	ptr        Ptr     // struct gk_tables
	set        LiteralSet

	// uses counts the flights that look up here; -1 is retired: no new flight uses them.
	uses     atomic.Int32
	replaced atomic.Bool
	next     *loaded // of those that are retired
}

// retire claims l for the list of those whose memory is free. Of those who try one does.
func (l *loaded) retire() bool { return l.replaced.Load() && l.uses.CompareAndSwap(0, -1) }

// take returns the present tables, for one more flight.
func (e *Engine) take() *loaded {
	for {
		l := e.tables.Load()
		if n := l.uses.Load(); n >= 0 && l.uses.CompareAndSwap(n, n+1) {
			return l
		}
	}
}

// release ends a flight's use of tables.
func (e *Engine) release(l *loaded) {
	if l.uses.Add(-1) == 0 && l.retire() {
		e.loader.retired.push(l)
	}
}

// Load brings new tables to the device, for batches submitted from then on. The memory of old ones is used
// again when the last batch that looks up in them is done.
func (e *Engine) Load(t gpukern.Tables) error {
	e.loader.mu.Lock()
	defer e.loader.mu.Unlock()
	if e.loader.closed {
		return gpukern.ErrClosed
	}
	l := &loaded{tables: t, generation: gpukern.NextGeneration()}
	if e.fault.Load() == nil {
		if err := e.upload(l); err != nil {
			if e.dev.Lost() == nil {
				return err
			}
			e.lose(err) // and the CPU takes the tables
		}
	}
	if old := e.tables.Swap(l); old != nil {
		old.replaced.Store(true)
		if old.retire() {
			e.loader.retired.push(old)
		}
	}
	return nil
}

// upload has the device get tables.
func (e *Engine) upload(l *loaded) (err error) {
	m := l.tables.Image(&e.cfg.HashKey)
	if l.mem, _, err = e.loader.put(m); err == nil {
		l.ptr, l.set = l.mem.Ptr, LiteralSetOf(m, l.mem.Ptr)
	}
	return err
}

// retired is a stack of tables without users: the loop pushes without waiting for a load.
type retired struct{ top atomic.Pointer[loaded] }

func (r *retired) push(l *loaded) {
	for {
		l.next = r.top.Load()
		if r.top.CompareAndSwap(l.next, l) {
			return
		}
	}
}

// loader brings tables and state to the device. It frees nothing before the end: that would wait for the
// persistent kernel. Memory of retired tables is used for later ones.
type loader struct {
	mu      sync.Mutex
	d       *Device
	retired retired
	spare   []*Buffer // without users
	all     []*Buffer
	closed  bool
}

// put brings an image to the device and returns where each part lies. The struct is at the buffer's start.
func (l *loader) put(m image.Image) (*Buffer, []Ptr, error) {
	at, size := layout(m)
	b, err := l.room(size)
	if err != nil {
		return nil, nil, err
	}
	head, where := bytes.Clone(m.Struct), make([]Ptr, len(at))
	for i, p := range m.Parts {
		where[i] = b.Ptr + Ptr(at[i])
		binary.LittleEndian.PutUint64(head[p.At:], uint64(where[i]))
	}
	err = l.d.stage.upload(l.d, b.Ptr, head)
	for i, p := range m.Parts {
		if err == nil {
			err = l.d.stage.upload(l.d, where[i], p.Data)
		}
	}
	if err != nil {
		l.spare = append(l.spare, b)
		return nil, nil, err
	}
	return b, where, nil
}

// smallRoom is memory that is not too large for any tables, bytes.
const smallRoom = 1 << 20

// reserve takes a second place for the tables, before the first launch: so tables that do not grow never
// take memory while a kernel runs, which would hold the device up, and of which compute-sanitizer would say
// that the kernel cannot have it.
func (l *loader) reserve(first *Buffer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.d.Alloc(max(first.Size, smallRoom))
	if err == nil {
		l.all, l.spare = append(l.all, b), append(l.spare, b)
	}
	return err
}

// room finds memory without users, the smallest that is large enough but not over twice as large as
// needed, or takes more of the device.
func (l *loader) room(size int) (*Buffer, error) {
	for old := l.retired.top.Swap(nil); old != nil; old = old.next {
		if old.mem != nil {
			l.spare = append(l.spare, old.mem)
		}
	}
	size += size / 8 // tables grow
	best := -1
	for i, b := range l.spare {
		if b.Size >= size && b.Size <= max(2*size, smallRoom) && (best < 0 || b.Size < l.spare[best].Size) {
			best = i
		}
	}
	if best >= 0 {
		b := l.spare[best]
		l.spare = slices.Delete(l.spare, best, best+1)
		return b, nil
	}
	b, err := l.d.Alloc(size)
	if err == nil {
		l.all = append(l.all, b)
	}
	return b, err
}

// close frees all of it. No kernel runs any more.
func (l *loader) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var errs []error
	for _, b := range l.all {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
