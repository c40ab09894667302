package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// limit returns the memory that queue and leases may have.
func (s *Socket) limit() int {
	if s.opts.ReceiveBuffer == 0 {
		return DefaultReceiveBuffer
	}
	return s.opts.ReceiveBuffer
}

// enqueue copies n bytes of payload, from offset off on, into the queue; false is that
// there is no room. An empty queue takes a datagram of any length, as on Linux: one that is
// longer than the buffer could never be received.
func (s *Socket) enqueue(t *wire.Tuple, d *Datagram, off, n int) bool {
	if size := sizeOf(n); s.usedBytes > 0 && s.usedBytes+size > s.limit() || !s.m.makeRoom(s, size) {
		s.stats.Lost++
		s.m.stats.Lost++
		return false
	}
	x := s.m.pool.get(n)
	gather(x.buf[:n], d.Payload, off)
	x.remote, x.remotePort, x.local = t.Remote, t.RemotePort, t.Local
	x.iface, x.tos, x.ttl, x.time = d.Interface, d.TOS, d.TTL, d.Time
	s.push(x)
	s.stats.Received++
	s.m.stats.Queued++
	s.mark(Readable)
	return true
}

// gather copies bytes from offset off of src on to dst.
func gather(dst []byte, src [][]byte, off int) {
	for _, b := range src {
		if off >= len(b) {
			off -= len(b)
			continue
		}
		dst = dst[copy(dst, b[off:]):]
		off = 0
		if len(dst) == 0 {
			return
		}
	}
}

// push adds a datagram at the end of the queue.
func (s *Socket) push(x *node) {
	if s.head == nil {
		s.head = x
	} else {
		s.tail.next = x
	}
	s.tail = x
	s.usedBytes += x.size
	s.queueBytes += x.size
	s.m.longest.update(s)
}

// pop takes the first datagram out of the queue; its memory still counts until free.
func (s *Socket) pop() *node {
	x := s.head
	s.head = x.next
	if s.head == nil {
		s.tail = nil
	}
	x.next = nil
	s.queueBytes -= x.size
	s.m.longest.update(s)
	return x
}

// free returns a datagram's memory.
func (s *Socket) free(x *node) {
	s.usedBytes -= x.size
	s.m.pool.put(x)
}

// Readable reports whether Read, Lease or TakeErr has something.
func (s *Socket) Readable() bool { return s.head != nil || s.err != nil }

// Queued returns the memory of what waits to be read and of leases, in bytes.
func (s *Socket) Queued() int { return s.usedBytes }

// Read fills messages with datagrams that wait and returns how many it filled. With GRO one
// Message may have several of them, see SegmentSize.
func (s *Socket) Read(now clock.Time, msgs []Message) int {
	n := 0
	for n < len(msgs) && s.head != nil {
		s.readOne(&msgs[n])
		n++
	}
	return n
}

// readOne moves the first datagram to a message, and with GRO those after it that can be
// merged.
func (s *Socket) readOne(msg *Message) {
	x := s.pop()
	x.fillMessage(msg)
	room := 0
	for _, b := range msg.Buffers {
		room += len(b)
	}
	msg.N = min(x.n, room)
	msg.Truncated = x.n > room
	scatter(msg.Buffers, 0, x.buf[:msg.N])
	if s.opts.GRO && x.n > 0 {
		s.coalesceRead(msg, x, min(room, maxPacket))
	}
	s.free(x)
}

// fillMessage writes everything but the payload to a message.
func (x *node) fillMessage(msg *Message) {
	msg.Remote, msg.RemotePort, msg.Local = x.remote, x.remotePort, x.local
	msg.Interface, msg.TOS, msg.TTL, msg.Time = x.iface, x.tos, x.ttl, x.time
	msg.SegmentSize = 0
}

// scatter copies src to offset off of dst on.
func scatter(dst [][]byte, off int, src []byte) {
	for _, b := range dst {
		if off >= len(b) {
			off -= len(b)
			continue
		}
		src = src[copy(b[off:], src):]
		off = 0
		if len(src) == 0 {
			return
		}
	}
}

// Lease is a datagram that was taken out of a queue without copying. Its memory counts
// against the socket until Release.
type Lease struct {
	s *Socket
	x *node
}

// Lease takes the first datagram that waits.
func (s *Socket) Lease(now clock.Time) (l Lease, ok bool) {
	if s.head == nil {
		return Lease{}, false
	}
	return Lease{s, s.pop()}, true
}

// Payload borrows the datagram's bytes until Release.
func (l Lease) Payload() []byte { return l.x.buf[:l.x.n] }

// Describe writes the datagram's addresses and the like to a message, and its length, but
// no payload.
func (l Lease) Describe(msg *Message) {
	l.x.fillMessage(msg)
	msg.N, msg.Truncated = l.x.n, false
}

// Release returns the memory, once, also after the socket was closed. Like all else it
// belongs to the owner of the loop.
func (l Lease) Release() { l.s.free(l.x) }
