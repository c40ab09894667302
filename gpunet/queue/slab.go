package queue

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/shim/ring"
)

const (
	magic      = 0x4d52474e
	version    = 1
	page       = 4096
	headerSize = 32

	minRing, maxRing = 1 << 10, 1 << 20
	maxConnections   = 1 << 16 // of a block: a descriptor of the device API has 16 bits for the index
	maxBlocks        = 1 << 12
	maxSlots         = 1 << 16
	maxSlab          = 1 << 40
)

// Operations of entries, as slab.h describes them.
const (
	opAccept = iota + 1
	opFin
	opReset
	opListening
	opStop
	opData
	opRing
	opCredit
	opListen
	opShutdown
	opClose
	opExit
)

// none is the connection of entries that belong to a block.
const none = 1<<32 - 1

// Layout has the sizes of a slab.
type Layout struct {
	Blocks      int // thread blocks, each with its own queues and connections
	Connections int // of each block, at most 65536
	Slots       int // entries of each queue, a power of two; 0 is 256
	Ring        int // bytes of each ring of a connection, a power of two from 1 KiB to 1 MiB; 0 is 4 KiB
}

// withDefaults returns l with its zero values replaced, and an error for sizes that cannot be.
func (l Layout) withDefaults() (Layout, error) {
	if l.Slots == 0 {
		l.Slots = 256
	}
	if l.Ring == 0 {
		l.Ring = 4 << 10
	}
	power := func(n int) bool { return n&(n-1) == 0 }
	switch {
	case l.Blocks < 1 || l.Blocks > maxBlocks:
		return l, fmt.Errorf("gpunet: %d blocks: a kernel has 1 to %d", l.Blocks, maxBlocks)
	case l.Connections < 1 || l.Connections > maxConnections:
		return l, fmt.Errorf("gpunet: %d connections per block: choose 1 to %d", l.Connections, maxConnections)
	case l.Slots < 2 || l.Slots > maxSlots || !power(l.Slots):
		return l, fmt.Errorf("gpunet: %d slots in a queue: choose a power of two from 2 to %d", l.Slots, maxSlots)
	case l.Ring < minRing || l.Ring > maxRing || !power(l.Ring):
		return l, fmt.Errorf("gpunet: rings of %d bytes: choose a power of two from %d to %d", l.Ring, minRing, maxRing)
	case l.size() > maxSlab:
		return l, fmt.Errorf("gpunet: a slab of %d bytes: choose fewer connections or smaller rings", l.size())
	}
	return l, nil
}

// Size returns the bytes of the slab.
func (l Layout) Size() (int, error) {
	l, err := l.withDefaults()
	return l.size(), err
}

func (l Layout) size() int { return page + l.Blocks*l.stride() }

// queuesSize returns the bytes of both queues of a block, in whole pages.
func (l Layout) queuesSize() int { return (2*ring.QueueSize(l.Slots) + page - 1) &^ (page - 1) }

// stride returns the bytes of the region of a block.
func (l Layout) stride() int { return l.queuesSize() + l.Connections*2*l.Ring }

func (l Layout) downAt(block int) int { return page + block*l.stride() }
func (l Layout) upAt(block int) int   { return l.downAt(block) + ring.QueueSize(l.Slots) }

// ringAt returns where the ring to the block is; the one from it follows.
func (l Layout) ringAt(block, connection int) int {
	return l.downAt(block) + l.queuesSize() + connection*2*l.Ring
}

// New makes zeroed, page-aligned memory a slab and returns the host's ends, one for each block. The memory is shared with
// the kernel, and must stay until that has ended.
func New(mem []byte, l Layout) ([]*Block, error) {
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(mem) < l.size() {
		return nil, fmt.Errorf("gpunet: %d bytes of memory for a slab of %d", len(mem), l.size())
	}
	blocks := make([]*Block, l.Blocks)
	for i := range blocks {
		if blocks[i], err = newBlock(mem, l, i); err != nil {
			return nil, err
		}
	}
	for i, w := range []int{magic, version, l.Blocks, l.Connections, l.Slots, l.Ring} {
		binary.NativeEndian.PutUint32(mem[4*i:], uint32(w))
	}
	binary.NativeEndian.PutUint64(mem[24:], uint64(l.stride()))
	return blocks, nil
}

func newBlock(mem []byte, l Layout, i int) (*Block, error) {
	down, up := mem[l.downAt(i):l.upAt(i)], mem[l.upAt(i):][:ring.QueueSize(l.Slots)]
	err := errors.Join(ring.InitQueue(down, l.Slots), ring.InitQueue(up, l.Slots))
	if err != nil {
		return nil, err
	}
	b := &Block{conns: make([]conn, l.Connections), size: uint32(l.Ring), rings: mem[l.ringAt(i, 0):][:l.Connections*2*l.Ring]}
	b.free = make([]uint32, l.Connections)
	for c := range b.free {
		b.free[c] = uint32(l.Connections - 1 - c)
	}
	var err2 error
	b.down, err = ring.NewQueueProducer(down)
	b.up, err2 = ring.NewQueueConsumer(up)
	return b, errors.Join(err, err2)
}
