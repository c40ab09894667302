package cuda

import (
	"sync/atomic"
	"unsafe"
)

// slotMax is the most packets of a batch in a slot: GK_RING_MAX.
const slotMax = 256

// slot is struct gk_ring_slot of ring.h: a place for one batch, in memory that the device maps. The host
// writes the first line and reads the second.
type slot struct {
	seq0       uint32
	nOps       uint32
	desc       Ptr
	seq1       uint32
	epoch      uint32
	tables     Ptr
	seq2       uint32
	generation uint32
	_          uint64
	stop       uint32
	alive      uint32
	_          [18]uint32

	done   uint32
	status uint32
	beat   uint32
	ended  uint32
	_      [28]uint32
}

// ringParams is struct gk_ring: the parameters of a launch.
type ringParams struct {
	slots    Ptr
	mem      Ptr
	size     uint64
	state    Ptr
	lifetime uint64 // ns
	patience uint64 // ns
	shift    uint32
	launch   uint32
}

// markParams is struct gk_mark.
type markParams struct {
	word  Ptr
	value uint32
	_     uint32
}

// work is the content of a posted slot.
type work struct {
	desc, tables      Ptr
	n, ops            uint32
	epoch, generation uint32
}

// post makes a free slot READY: the sequence numbers are written last, and the device reads nothing before them.
func (s *slot) post(seq uint32, w work) {
	s.nOps = w.n | w.ops<<16
	s.desc = w.desc
	s.epoch = w.epoch
	s.tables = w.tables
	s.generation = w.generation
	atomic.StoreUint32(&s.seq2, seq)
	atomic.StoreUint32(&s.seq1, seq)
	atomic.StoreUint32(&s.seq0, seq)
}

// finished reports whether the slot's batch seq is DONE or in ERROR. What the device wrote before is
// there then.
func (s *slot) finished(seq uint32) bool { return atomic.LoadUint32(&s.done) == seq }

// waits reports whether the device owes the slot an answer.
func (s *slot) waits() bool { return atomic.LoadUint32(&s.seq0) != atomic.LoadUint32(&s.done) }

// statusText reports why a slot is in state ERROR.
func statusText(status uint32) string {
	switch status {
	case 1:
		return "a batch of more packets than a slot has"
	case 2:
		return "descriptors or tables at no valid address"
	}
	return "a status that no kernel gives"
}

// ringBytes is the memory that a ring of n slots takes.
func ringBytes(n int) int { return n * int(unsafe.Sizeof(slot{})) }

// ringWords finds the slots of a ring in its memory, which begins on a boundary of 128 bytes.
func ringWords(mem []byte, n int) []slot {
	_ = mem[ringBytes(n)-1]
	return unsafe.Slice((*slot)(unsafe.Pointer(&mem[0])), n)
}

// stop ends the blocks of all slots; they take no batch any more.
func stop(slots []slot) {
	for i := range slots {
		atomic.StoreUint32(&slots[i].stop, 1)
	}
}

// heartbeat lets the blocks of all slots see that the host lives.
func heartbeat(slots []slot) {
	for i := range slots {
		atomic.AddUint32(&slots[i].alive, 1)
	}
}
