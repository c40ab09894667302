package cuda

import (
	"unsafe"

	"github.com/millrace/millrace/packet"
)

// sharedMemory is the memory that an engine shares with its device, one block:
//
//	slots | marks | copies: Depth times Copy descriptors | room: descriptors of NewBatch
type sharedMemory struct {
	block  *Block
	slots  []slot
	marks  []mark
	copies []packet.Desc // those of flight i begin at i*each
	each   int
	pool   []packet.Desc
	taken  int // of room
}

// mark is where the launches of a bulk batch say that they are done: a line for each flight.
type mark struct {
	done uint32
	_    [31]uint32
}

func (w *sharedMemory) open(d *Device, cfg *Config) (err error) {
	const line = 128
	at := 0
	part := func(bytes int) int {
		at = (at + line - 1) &^ (line - 1)
		start := at
		at += bytes
		return start
	}
	ring := part(ringBytes(cfg.Slots))
	marks := part(cfg.Depth * int(unsafe.Sizeof(mark{})))
	copies := part(cfg.Depth * cfg.Copy * packet.DescSize)
	room := part(cfg.Room * packet.DescSize)
	if w.block, err = d.AllocHost(at); err != nil {
		return err
	}
	mem := w.block.Mem
	w.slots = ringWords(mem[ring:], cfg.Slots)
	w.marks = unsafe.Slice((*mark)(unsafe.Pointer(&mem[marks])), cfg.Depth)
	w.copies, w.each = descs(mem[copies:], cfg.Depth*cfg.Copy), cfg.Copy
	w.pool = descs(mem[room:], cfg.Room)
	return nil
}

func descs(mem []byte, n int) []packet.Desc {
	return unsafe.Slice((*packet.Desc)(unsafe.Pointer(&mem[0])), n)
}

// ptr returns the device's address of something in the block.
func (w *sharedMemory) ptr(p unsafe.Pointer) Ptr {
	return w.block.Ptr + Ptr(uintptr(p)-uintptr(unsafe.Pointer(&w.block.Mem[0])))
}

// place returns the device's address of descriptors that lie in room, 0 for others.
func (w *sharedMemory) place(d []packet.Desc) Ptr {
	first, p := unsafe.Pointer(unsafe.SliceData(w.pool)), unsafe.Pointer(unsafe.SliceData(d))
	if uintptr(p)-uintptr(first) >= uintptr(len(w.pool))*packet.DescSize {
		return 0
	}
	return w.ptr(p)
}

// NewBatch makes a batch for at most n packets of a, whose descriptors the device works on in place. Where
// the room for those is used up they lie on the heap, and the engine copies them. The batch may be used
// until Close.
func (e *Engine) NewBatch(a *packet.Arena, n int) *packet.Batch {
	w := &e.shared
	if n > len(w.pool)-w.taken {
		return packet.NewBatch(a, n)
	}
	d := w.pool[w.taken : w.taken : w.taken+n]
	w.taken += n
	return &packet.Batch{Arena: a, D: d}
}
