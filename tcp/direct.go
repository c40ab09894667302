package tcp

import (
	"unsafe"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/buffer"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// DirectReader is an Owner whose readers may wait with a buffer. Data in order goes straight to it, past the receive
// buffer: one copy less, and no memory of the budget.
type DirectReader interface {
	Owner

	// ReadBuffer borrows what is left of the buffer of the reader that waits first; nil where none does. It is borrowed
	// until the next Poll, and all of it is scratch space: a placed segment that is rejected has written there. So
	// the owner lets no reader go between the receipt of a burst and Poll, but reports at once what Filled has said
	// (io.Reader: "may use all of p as scratch space during the call").
	ReadBuffer() []byte

	// Filled reports that the first n bytes of that were received. They count as read. Ready follows.
	Filled(n int)
}

// readBuffer returns the buffer of a reader that waits, if the next byte in order goes there: nothing waits to be read
// before it, and it is not urgent.
func (c *Conn) readBuffer() []byte {
	if c.rcv != nil || c.flags&(flagRcvUrgent|flagReadShutdown|flagOrphaned) != 0 {
		return nil
	}
	if r, ok := c.owner.(DirectReader); ok {
		return r.ReadBuffer()
	}
	return nil
}

// fillReader copies the first bytes of n from the segment at c.rcvNxt on to the buffer of a reader that waits, and returns how
// many.
func (c *Conn) fillReader(s *Segment, n uint32) uint32 {
	b := c.readBuffer()
	if len(b) == 0 {
		return 0
	}
	b = b[:min(len(b), int(n))]
	buffer.Gather(b, s.Payload, c.rcvNxt-s.Seq)
	c.filled(uint32(len(b)))
	return uint32(len(b))
}

// filled notes that the reader has the next n bytes.
func (c *Conn) filled(n uint32) {
	c.owner.(DirectReader).Filled(int(n))
	c.rcvNxt += n
	c.counts.received += uint64(n)
}

// readDirect notes that a reader got n bytes: the window follows.
func (c *Conn) readDirect(now clock.Time, n uint32) {
	if n > 0 {
		c.tuneReceive(now, n)
		c.promise()
		c.windowOpened()
	}
}

// Payload of large segments can be received straight to its place (direct data placement): the driver asks by Place while
// it has only the headers, and the segment comes to Input as one that is Placed. Between the two nothing
// but this burst happens on the loop.
//
//	Place(A), Place(B)  memory for A, memory for B behind it: the reader's buffer first, then the ring
//	Input(A)            A is accepted: its bytes are there
//	Input(B)            likewise
//	Poll                what was not accepted is forgotten
//
// A segment that Input drops, whose checks are all made there, leaves bytes that are never read in the
// rest of a reader's buffer or in unused memory of the ring. Those behind it in the burst are out of order then and
// dropped too: the peer sends them again.

// placement is a range of sequence numbers and where its bytes are.
type placement struct {
	conn        uint32
	left, right uint32
	direct      uint32 // bytes of it in the buffer of the reader
	used        uint32 // bytes of that buffer which this and earlier placements of the burst take
	reader      *byte  // the first of the direct bytes
	ring        *byte  // the first of the ring's buffer, nil where all is direct
}

// placements are those of a burst.
type placements struct {
	list   [maxPlacements]placement
	n      int
	pieces [3][]byte

	// ring is that of the connection with the number owner which had none. The connection gets it with the first
	// segment that needs it.
	ring  *buffer.Ring
	owner uint32
}

const (
	maxPlacements = 8

	// placedRing is the least memory for the placements of a burst in a ring that was empty, bytes.
	placedRing = 128 << 10
)

// Place returns memory for n bytes of payload that the segment with the header b announces, in up to three pieces,
// which are lent until Poll (the list of them until the next call); none where the segment is not the next one in order, or there is no memory. later means
// that there will be, once the segments before it were passed to Input.
func (m *Mux) Place(t *wire.Tuple, b wire.TCP, n int) (pieces [][]byte, later bool) {
	c := m.lookup(t)
	if c == nil || !c.placeable(b) {
		return nil, false
	}
	k := &m.placed
	next, used, before := c.rcvNxt, uint32(0), (*placement)(nil)
	for i := k.n - 1; i >= 0; i-- {
		if k.list[i].conn == c.id {
			before = &k.list[i]
			next, used = before.right, before.used
			break
		}
	}
	p := placement{conn: c.id, left: b.Seq(), right: b.Seq() + uint32(n), used: used}
	if p.left != next || seqnum.Before(c.rcvAdv, p.right) {
		// What is missing may be in this burst, in frames.
		return nil, seqnum.Before(next, p.left)
	}
	if k.n == len(k.list) {
		return nil, true
	}
	k.pieces = [3][]byte{}
	out := k.pieces[:0]
	if buf := c.readBuffer(); uint32(len(buf)) > used {
		buf = buf[used:]
		buf = buf[:min(len(buf), n)]
		p.direct, p.reader = uint32(len(buf)), unsafe.SliceData(buf)
		p.used += p.direct
		out = append(out, buf)
	}
	if at := p.left + p.direct; at != p.right {
		r := c.placeRing(at, p.right, before != nil)
		if r == nil {
			return nil, before != nil
		}
		room := r.Room(at, p.right-at)
		p.ring = r.Memory()
		out = append(out, room[0])
		if len(room[1]) > 0 {
			out = append(out, room[1])
		}
	}
	k.list[k.n] = p
	k.n++
	return out, false
}

// placeable reports whether payload behind the header b may be placed: nothing but its sequence number decides where it
// goes.
func (c *Conn) placeable(b wire.TCP) bool {
	const special = wire.FlagSYN | wire.FlagRST | wire.FlagURG
	switch c.state {
	case StateEstablished, StateFinWait1, StateFinWait2:
	default:
		return false
	}
	return c.active != nil && c.auth == nil && !b.Flags().Any(special) && b.Flags().Has(wire.FlagACK) &&
		c.flags&(flagRcvUrgent|flagReadShutdown|flagOrphaned|flagPeerFIN) == 0 &&
		(c.rcv == nil || len(c.rcv.OutOfOrder()) == 0)
}

// placeRing returns a ring with room for [left, right). Where earlier segments of the burst have bytes in it (behind), it cannot
// move to another buffer.
func (c *Conn) placeRing(left, right uint32, behind bool) *buffer.Ring {
	m := c.m
	k := &m.placed
	switch r := c.rcv; {
	case r != nil:
		if r.Fits(right) || !behind && r.Reserve(&m.buffers, right) == right {
			return r
		}
		return nil
	case k.ring != nil:
		if k.owner == c.id && k.ring.Fits(right) {
			return k.ring
		}
		return nil
	}
	r := m.rings.get()
	r.Reset(left)
	if r.Reserve(&m.buffers, left+max(right-left, placedRing)) != left+max(right-left, placedRing) && r.Reserve(&m.buffers, right) != right {
		m.putRing(r)
		return nil
	}
	k.ring, k.owner = r, c.id
	return r
}

// acceptPlaced takes the bytes of a placed segment, of which [left, right) are new, and returns how many of them the reader
// has; the others are in the ring. False is that they are not where they belong now: the segments before
// them were not accepted, or not as they were expected.
func (c *Conn) acceptPlaced(s *Segment, left, right uint32) (direct uint32, ok bool) {
	k := &c.m.placed
	for i := range k.list[:k.n] {
		p := &k.list[i]
		if p.conn != c.id || p.left != s.Seq {
			continue
		}
		if left != p.left || left != c.rcvNxt || right != p.right {
			return 0, false
		}
		if p.direct > 0 {
			if b := c.readBuffer(); len(b) < int(p.direct) || unsafe.SliceData(b) != p.reader {
				return 0, false
			}
		}
		if p.ring != nil && !c.adopt(p, left+p.direct) {
			return 0, false
		}
		if p.direct > 0 {
			c.filled(p.direct)
		}
		return p.direct, true
	}
	return 0, false
}

// adopt reports whether the ring of the connection, which gets that of the burst where it has none, has the bytes of
// p from seq on.
func (c *Conn) adopt(p *placement, seq uint32) bool {
	k := &c.m.placed
	if c.rcv == nil && k.ring != nil && k.owner == c.id && k.ring.Base() == seq {
		c.rcv, k.ring = k.ring, nil
		c.rcv.Holder = c.id
	}
	return c.rcv != nil && c.rcv.Memory() == p.ring
}

// endPlacements forgets what was placed and not accepted.
func (m *Mux) endPlacements() {
	k := &m.placed
	if r := k.ring; r != nil {
		k.ring = nil
		m.putRing(r)
	}
	k.n, k.pieces = 0, [3][]byte{}
}
