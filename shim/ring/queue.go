package ring

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
	"unsafe"
)

// EntryBytes is the number of bytes in an entry itself.
const EntryBytes = queueInline

// Entry is an entry of a queue.
type Entry struct {
	Connection uint32
	Generation uint16 // of the connection: the caller drops an entry of an older one
	Operation  uint8
	Length     uint8  // of Data
	Offset     uint32 // of bytes that are elsewhere, in units of 16
	Data       [EntryBytes]byte
}

// chunks returns how many chunks of a slot the entry fills, with the first.
func (e *Entry) chunks() int { return 1 + (int(e.Length)+queueChunk-1)/queueChunk }

// queue is the common part of both ends of a queue of entries for an end that cannot be woken, such as a kernel of a GPU. Each chunk of 16
// bytes has the sequence of its lap, so that nothing else orders them.
type queue struct {
	b        []byte
	mask     uint64
	shift    int
	position uint64 // of this end
}

// QueueSize returns the bytes of a queue of slots entries, a power of two.
func QueueSize(slots int) int { return queueSize + slots*entrySize }

// InitQueue makes b, zeros on a boundary of 128 bytes, an empty queue.
func InitQueue(b []byte, slots int) error {
	if slots <= 0 || slots > 1<<24 || slots&(slots-1) != 0 || len(b) < QueueSize(slots) || uintptr(unsafe.Pointer(&b[0]))%entrySize != 0 {
		return fmt.Errorf("ring: %d slots in %d bytes are no queue", slots, len(b))
	}
	q := queue{b: b}
	q.word(queueVersionAt).Store(version)
	q.word(queueSlotsAt).Store(uint32(slots))
	q.word(queueMagicAt).Store(queueMagic)
	return nil
}

// open checks the header of a queue that another has made.
func open(b []byte) (queue, error) {
	q := queue{b: b}
	if len(b) < queueSize || uintptr(unsafe.Pointer(&b[0]))%entrySize != 0 || q.word(queueMagicAt).Load() != queueMagic || q.word(queueVersionAt).Load() != version {
		return q, fmt.Errorf("ring: no queue of version %d", version)
	}
	slots := int(q.word(queueSlotsAt).Load())
	if slots <= 0 || slots&(slots-1) != 0 || slots > (len(b)-queueSize)/entrySize {
		return q, fmt.Errorf("ring: %d slots in %d bytes", slots, len(b))
	}
	q.mask, q.shift = uint64(slots-1), bits.TrailingZeros(uint(slots))
	return q, nil
}

func (q *queue) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&q.b[at])) }
func (q *queue) long(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&q.b[at])) }

// chunk returns where a chunk of the slot at the position of this end is.
func (q *queue) chunk(i int) int {
	return queueSize + int(q.position&q.mask)*entrySize + i*chunkSize
}

// sequence returns that of the lap: 1 for the first, and never 0, which is a slot that was not written.
func (q *queue) sequence() uint32 {
	lap := q.position >> q.shift
	return uint32(lap%(1<<32-1)) + 1
}

// store writes a chunk: its low half first, so that whoever sees the sequence sees both halves.
func (q *queue) store(i int, low uint64, high uint32) {
	at := q.chunk(i)
	q.long(at).Store(low)
	q.long(at + 8).Store(uint64(q.sequence())<<32 | uint64(high))
}

// load reads a chunk, the half with the sequence first. ok is that it has that of the lap.
func (q *queue) load(i int) (low uint64, high uint32, ok bool) {
	at := q.chunk(i)
	w := q.long(at + 8).Load()
	return q.long(at).Load(), uint32(w), uint32(w>>32) == q.sequence()
}

// QueueProducer writes entries. It belongs to one goroutine.
type QueueProducer struct {
	queue
	consumed uint64 // as it was seen last
	answered uint32 // epoch of arm that was woken for
}

// NewQueueProducer returns the writing end of a new queue.
func NewQueueProducer(b []byte) (*QueueProducer, error) {
	q, err := open(b)
	return &QueueProducer{queue: q}, err
}

// Put writes an entry. ok is that there was a free slot. The error is ErrViolation if the other end has taken what was not written.
func (p *QueueProducer) Put(e *Entry) (ok bool, err error) {
	if e.Length > EntryBytes {
		return false, fmt.Errorf("ring: %d bytes in an entry of %d", e.Length, EntryBytes)
	}
	if p.position-p.consumed > p.mask {
		consumed := p.long(queueConsumedAt).Load()
		if p.position-consumed > p.mask+1 {
			return false, ErrViolation
		}
		p.consumed = consumed
		if p.position-consumed > p.mask {
			return false, nil
		}
	}
	for i := 1; i < e.chunks(); i++ {
		var data [chunkSize]byte
		copy(data[:queueChunk], e.Data[(i-1)*queueChunk:])
		p.store(i, binary.NativeEndian.Uint64(data[:]), binary.NativeEndian.Uint32(data[8:]))
	}
	p.store(0, uint64(e.Length)<<56|uint64(e.Operation)<<48|uint64(e.Generation)<<32|uint64(e.Connection), e.Offset)
	p.position++
	return true, nil
}

// Retry publishes after how long this end looks for a free slot again; 0 is that it waits for none.
func (p *QueueProducer) Retry(d time.Duration) { p.word(queueRetryAt).Store(uint32(d.Microseconds())) }

// Deadline returns after how long the other end looks for entries again.
func (p *QueueProducer) Deadline() time.Duration {
	return time.Duration(p.word(queuePollAt).Load()) * time.Microsecond
}

// Wakes reports whether the consumer is to be woken for what has been put, which is marked as solicited or not: once for each
// time that it has armed the queue.
func (p *QueueProducer) Wakes(solicited bool) bool {
	arm := p.word(queueArmAt).Load()
	kind, epoch := arm&(1<<queueWakeBits-1), arm>>queueWakeBits
	if epoch == p.answered || kind != queueWakeAny && (kind != queueWakeSolicited || !solicited) {
		return false
	}
	p.answered = epoch
	return true
}

// QueueConsumer reads entries. It belongs to one goroutine.
type QueueConsumer struct {
	queue
	epoch uint32 // of arm
}

// NewQueueConsumer returns the reading end of a new queue.
func NewQueueConsumer(b []byte) (*QueueConsumer, error) {
	q, err := open(b)
	return &QueueConsumer{queue: q}, err
}

// Arm makes the producer wake this end for the next entry, or for the next solicited one. An entry from before does not: one more Take
// follows.
func (c *QueueConsumer) Arm(solicitedOnly bool) {
	c.epoch = (c.epoch + 1) & (1<<(32-queueWakeBits) - 1)
	kind := uint32(queueWakeAny)
	if solicitedOnly {
		kind = queueWakeSolicited
	}
	c.word(queueArmAt).Store(c.epoch<<queueWakeBits | kind)
}

// Suppress undoes Arm, while this end polls.
func (c *QueueConsumer) Suppress() {
	c.word(queueArmAt).Store(c.epoch<<queueWakeBits | queueWakeNone)
}

// Take reads the next entry and frees its slot. ok is that all of it was there. The error is ErrViolation for a length that cannot be.
func (c *QueueConsumer) Take(e *Entry) (ok bool, err error) {
	low, offset, ok := c.load(0)
	if !ok {
		return false, nil
	}
	e.Connection, e.Generation, e.Operation, e.Length, e.Offset = uint32(low), uint16(low>>32), uint8(low>>48), uint8(low>>56), offset
	if e.Length > EntryBytes {
		return false, ErrViolation
	}
	for i := 1; i < e.chunks(); i++ {
		low, high, ok := c.load(i)
		if !ok {
			return false, nil
		}
		var data [chunkSize]byte
		binary.NativeEndian.PutUint64(data[:], low)
		binary.NativeEndian.PutUint32(data[8:], high)
		copy(e.Data[(i-1)*queueChunk:], data[:queueChunk])
	}
	c.position++
	c.long(queueConsumedAt).Store(c.position)
	return true, nil
}

// Poll publishes after how long this end looks for entries again.
func (c *QueueConsumer) Poll(d time.Duration) { c.word(queuePollAt).Store(uint32(d.Microseconds())) }

// Deadline returns after how long the other end looks for a free slot again; 0 is that it waits for none.
func (c *QueueConsumer) Deadline() time.Duration {
	return time.Duration(c.word(queueRetryAt).Load()) * time.Microsecond
}
