package queue

import (
	"encoding/binary"
	"net/netip"

	"github.com/millrace/millrace/shim/ring"
)

// Bits of conn.pending: entries for the block that wait for a free slot. What they announce is state, so one bit holds any number.
const (
	pendingAccept = 1 << iota
	pendingCredit
	pendingFin
	pendingReset
)

// conn is the host's view of a connection. Positions count the bytes of a stream, modulo 2^32.
type conn struct {
	peer       netip.AddrPort
	errno      uint32 // of the reset
	in, read   uint32 // given to the block, and consumed by it
	out, acked uint32 // received from the block, and acknowledged to it
	generation uint16
	state      State
	pending    uint8
	queued     bool // in Block.dirty
}

// Stats has the counters of a block. A kernel that follows the protocol has no violations and no stale entries.
type Stats struct {
	Entries    uint64 // taken from the device
	Violations uint64 // entries that no correct kernel writes
	Stale      uint64 // entries for a connection that the block has closed
	Discarded  uint64 // entries for a connection that failed, which the block did not know yet
}

// Block is the host's end of the queues of a thread block. It belongs to the holder of a loop.
//
// The device may write anything into its queue and rings at any time. So each word is read once, and positions are the host's own.
type Block struct {
	down  *ring.QueueProducer
	up    *ring.QueueConsumer
	conns []conn
	free  []uint32
	dirty []uint32 // connections with pending bits
	rings []byte
	size  uint32 // of a ring

	blockOps []ring.Entry // for the block itself, which wait for a slot: at most one answer to LISTEN, and STOP
	health   health
	stats    Stats
	entry    ring.Entry // being written
	taken    ring.Entry // being read: events refer to it
}

// health is that of a block's queues.
type health uint8

const (
	intact   health = iota
	broken          // the device wrote what no queue can have
	reported        // and Take has returned that
)

// Conn names a connection of a Block. A closed one's value is never valid again within 65536 uses of its slot.
type Conn struct {
	Index      uint32
	Generation uint16
}

// Stats returns the counters.
func (b *Block) Stats() Stats { return b.stats }

// Broken reports whether the device has destroyed a queue. Nothing more is read from the block then.
func (b *Block) Broken() bool { return b.health != intact }

// Used returns how many connections have a slot.
func (b *Block) Used() int { return len(b.conns) - len(b.free) }

// lookup returns a connection that has not been closed by the block, else nil.
func (b *Block) lookup(k Conn) *conn {
	if k.Index >= uint32(len(b.conns)) {
		return nil
	}
	if c := &b.conns[k.Index]; c.generation == k.Generation && c.state != Free {
		return c
	}
	return nil
}

// Open assigns a connection to the block. It returns false if all slots are in use.
func (b *Block) Open(peer netip.AddrPort) (Conn, bool) {
	if len(b.free) == 0 || b.Broken() {
		return Conn{}, false
	}
	i := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	c := &b.conns[i]
	*c = conn{peer: peer, generation: c.generation, state: Free.Next(Accept), queued: c.queued}
	b.post(i, pendingAccept)
	return Conn{i, c.generation}, true
}

// Deliver passes bytes of the peer to the block, in order, and returns their number, which the free space of ring and queue bounds.
func (b *Block) Deliver(k Conn, pieces [2][]byte) (n int) {
	c := b.lookup(k)
	if c == nil || !c.state.receives() {
		return 0
	}
	for _, p := range pieces {
		for len(p) > 0 {
			done := b.deliver(k, c, p)
			if done == 0 {
				return n
			}
			n += done
			p = p[done:]
		}
	}
	return n
}

// deliver writes one entry: DATA if the bytes fit into it, else RING.
func (b *Block) deliver(k Conn, c *conn, p []byte) int {
	// The block must learn of the connection first.
	if c.pending&pendingAccept != 0 && !b.send(k.Index) {
		return 0
	}
	n := min(len(p), int(b.size-(c.in-c.read)))
	if n == 0 {
		return 0
	}
	e := b.newEntry(k.Index, opData)
	if n <= ring.EntryBytes {
		e.Length = uint8(copy(e.Data[:], p[:n]))
	} else {
		// The bytes may be overwritten if there is no slot: the block does not know of them.
		copyIn(b.ring(k.Index, false), c.in, p[:n])
		e.Operation, e.Length = opRing, 8
		binary.NativeEndian.PutUint32(e.Data[:], c.in)
		binary.NativeEndian.PutUint32(e.Data[4:], uint32(n))
	}
	if !b.put(e) {
		return 0
	}
	c.in += uint32(n)
	return n
}

// Acknowledge frees the ring from the block up to n bytes that its events brought.
func (b *Block) Acknowledge(k Conn, n int) {
	if c := b.lookup(k); c != nil && n > 0 {
		c.acked += min(uint32(n), c.out-c.acked)
		b.post(k.Index, pendingCredit)
	}
}

// Finish reports the peer's FIN to the block, once all bytes are delivered. It returns false if the state has no such transition.
func (b *Block) Finish(k Conn) bool { return b.change(k, Finish, pendingFin) }

// Reset reports to the block that the connection failed. The slot is in use until the block closes it.
func (b *Block) Reset(k Conn, errno uint32) bool {
	if c := b.lookup(k); c != nil && c.state != Failed {
		c.errno = errno
	}
	return b.change(k, Reset, pendingReset)
}

func (b *Block) change(k Conn, by Change, bit uint8) bool {
	c := b.lookup(k)
	if c == nil || c.state.Next(by) == Invalid {
		return false
	}
	c.state = c.state.Next(by)
	b.post(k.Index, bit)
	return true
}

// Listening answers a Listen event: errno 0 is success.
func (b *Block) Listening(errno uint32) {
	e := ring.Entry{Connection: none, Operation: opListening, Length: 4}
	binary.NativeEndian.PutUint32(e.Data[:], errno)
	b.blockOps = append(b.blockOps, e)
	b.Flush()
}

// Stop asks the block to end. Its calls then fail with ECANCELED.
func (b *Block) Stop() {
	b.blockOps = append(b.blockOps, ring.Entry{Connection: none, Operation: opStop})
	b.Flush()
}

// Waiting reports whether entries wait for a free slot, so that Flush is to be called again.
func (b *Block) Waiting() bool { return len(b.dirty)+len(b.blockOps) > 0 }

// Flush writes what waits for free slots.
func (b *Block) Flush() {
	for len(b.blockOps) > 0 && b.put(&b.blockOps[0]) {
		b.blockOps = b.blockOps[1:]
	}
	sent := 0
	for _, i := range b.dirty {
		if !b.send(i) {
			break
		}
		b.conns[i].queued = false
		sent++
	}
	b.dirty = b.dirty[:copy(b.dirty, b.dirty[sent:])]
}

// post marks an entry for a connection as pending, and tries to write it.
func (b *Block) post(i uint32, bit uint8) {
	c := &b.conns[i]
	c.pending |= bit
	if b.send(i) || c.queued {
		return
	}
	c.queued = true
	b.dirty = append(b.dirty, i)
}

// send writes the pending entries of a connection, and returns whether all are written.
func (b *Block) send(i uint32) bool {
	c := &b.conns[i]
	for c.pending != 0 {
		e := b.newEntry(i, 0)
		bit := c.pending & -c.pending
		switch bit {
		case pendingAccept:
			e.Operation, e.Length = opAccept, 18
			addr := c.peer.Addr().As16()
			copy(e.Data[:], addr[:])
			binary.NativeEndian.PutUint16(e.Data[16:], c.peer.Port())
		case pendingCredit:
			e.Operation, e.Length = opCredit, 4
			binary.NativeEndian.PutUint32(e.Data[:], c.acked)
		case pendingFin:
			e.Operation = opFin
		case pendingReset:
			e.Operation, e.Length = opReset, 4
			binary.NativeEndian.PutUint32(e.Data[:], c.errno)
		}
		if !b.put(e) {
			return false
		}
		c.pending &^= bit
	}
	return true
}

func (b *Block) newEntry(i uint32, op uint8) *ring.Entry {
	b.entry = ring.Entry{Connection: i, Generation: b.conns[i].generation, Operation: op}
	return &b.entry
}

func (b *Block) put(e *ring.Entry) bool {
	if b.Broken() {
		return false
	}
	ok, err := b.down.Put(e)
	if err != nil {
		b.health = broken
	}
	return ok
}

// ring returns a ring of a connection: that from the block, or that to it.
func (b *Block) ring(i uint32, up bool) []byte {
	at := uint64(i) * 2 * uint64(b.size)
	if up {
		at += uint64(b.size)
	}
	return b.rings[at:][:b.size]
}

// copyIn copies p to a position of a ring.
func copyIn(ring []byte, position uint32, p []byte) {
	at := int(position) & (len(ring) - 1)
	n := copy(ring[at:], p)
	copy(ring, p[n:])
}
