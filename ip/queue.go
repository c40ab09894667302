package ip

import (
	"github.com/millrace/millrace/packet"
)

// queued is a frame that waits for the link address of its next hop. It is on the heap and not in a frame of the pool:
// neighbours that do not answer must not take the driver's memory.
type queued struct {
	next  *queued
	frame []byte
}

// packetQueue holds the packets that wait for one neighbour, oldest first. RFC 4861 7.2.2 and RFC 1122 2.3.2.2 ask for one
// packet at least; a queue lets the first flight of a connection, or all fragments of a datagram, arrive.
type packetQueue struct {
	head, tail *queued
	n, bytes   int
}

// enqueue returns room for a frame of size bytes that waits for e, nil where the budget of bytes is spent. A full queue
// loses its oldest packet (RFC 4861 7.2.2). It is full, too, when it would have more bytes than are left for all others:
// so one neighbour that does not answer leaves half of the budget, and the next one half of that.
func (n *Node) enqueue(e *neighbor, size int) []byte {
	for e.queue.n >= n.cfg.MaxQueued || e.queue.n > 0 && e.queue.bytes+size > n.cfg.MaxQueuedBytes-n.neigh.queued-size {
		n.dequeue(e)
		n.stats.Drops[packet.DropNoNeighbor]++
	}
	if n.neigh.queued+size > n.cfg.MaxQueuedBytes {
		return nil
	}
	q := &queued{frame: make([]byte, size)}
	if e.queue.tail == nil {
		e.queue.head = q
	} else {
		e.queue.tail.next = q
	}
	e.queue.tail = q
	e.queue.n++
	e.queue.bytes += size
	n.neigh.queued += size
	return q.frame
}

// dequeue takes the oldest frame that waits for e; nil where there is none.
func (n *Node) dequeue(e *neighbor) []byte {
	q := e.queue.head
	if q == nil {
		return nil
	}
	if e.queue.head = q.next; q.next == nil {
		e.queue.tail = nil
	}
	e.queue.n--
	e.queue.bytes -= len(q.frame)
	n.neigh.queued -= len(q.frame)
	return q.frame
}

// sendQueued sends what waits for e, which is resolved now, in order. The Ethernet header was written before the link
// address was known, so it is written again.
func (n *Node) sendQueued(e *neighbor) {
	for f := n.dequeue(e); f != nil; f = n.dequeue(e) {
		copy(f, e.path.Header[:])
		b := n.cfg.Output.Frame(e.key.dev, len(f))
		if b == nil {
			n.stats.Drops[packet.DropNoFrame]++
			continue
		}
		copy(b, f)
		n.cfg.Output.Send(e.key.dev, len(f))
	}
}

// dropQueued drops what waits for e.
func (n *Node) dropQueued(e *neighbor) {
	for n.dequeue(e) != nil {
		n.stats.Drops[packet.DropNoNeighbor]++
	}
}

// rejectQueued drops what waits for e, and reports each packet to its sender as unreachable (RFC 4861 7.2.2, RFC 1122
// 2.4), so that a transport learns of it before its own timeout.
func (n *Node) rejectQueued(e *neighbor) {
	for f := n.dequeue(e); f != nil; f = n.dequeue(e) {
		n.stats.Drops[packet.DropNoNeighbor]++
		n.deliverUnreachable(f)
	}
}
