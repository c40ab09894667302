package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// classes are the sizes of buffers, bytes: few, so that a buffer that was read serves the
// next datagram.
var classes = [...]int{256, 2048, 10240, 65536}

const (
	// nodeOverhead is the memory of a queued datagram beside its buffer, rounded up: without
	// it, floods of empty datagrams would be free.
	nodeOverhead = 128

	// maxCached bounds the memory that waits to be used again, bytes.
	maxCached = 1 << 20
)

// node is a datagram in a queue.
type node struct {
	next          *node
	buf           []byte // all of a class
	n             int    // bytes of payload at its start
	size          int    // memory taken: class and overhead
	class         uint8
	tos, ttl      uint8
	remotePort    uint16
	iface         uint32
	time          clock.Time
	remote, local wire.Addr
}

// pool provides nodes and bounds the memory of those in use.
type pool struct {
	budget int64
	used   int64 // bytes of nodes in use
	cached int64 // bytes of free nodes
	free   [len(classes)]*node
}

// classOf returns the smallest class for n bytes; n is at most that of the largest.
func classOf(n int) uint8 {
	for c, size := range classes {
		if n <= size {
			return uint8(c)
		}
	}
	return uint8(len(classes) - 1)
}

// sizeOf returns the memory that a node for n bytes takes.
func sizeOf(n int) int { return classes[classOf(n)] + nodeOverhead }

// room returns how many bytes may still be taken.
func (p *pool) room() int64 { return p.budget - p.used }

// get returns a node for n bytes. The caller has checked room.
func (p *pool) get(n int) *node {
	c := classOf(n)
	x := p.free[c]
	if x == nil {
		x = &node{buf: make([]byte, classes[c]), class: c, size: classes[c] + nodeOverhead}
	} else {
		p.free[c] = x.next
		p.cached -= int64(x.size)
		x.next = nil
	}
	p.used += int64(x.size)
	x.n = n
	return x
}

// put takes a node back.
func (p *pool) put(x *node) {
	p.used -= int64(x.size)
	x.next = nil
	if p.cached+int64(x.size) > maxCached {
		return
	}
	p.cached += int64(x.size)
	x.next, p.free[x.class] = p.free[x.class], x
}
