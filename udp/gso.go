package udp

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Segmenter turns an Outgoing into datagrams, each with its header, payload and checksum
// (generic segmentation offload). It is for Outputs: the socket above decides once for many
// datagrams.
//
//	for c.Begin(o, tuple, pseudo); c.Size() > 0; {
//		n := c.Next(frame[headers:])
//	}
type Segmenter struct {
	o      *Outgoing
	ports  [2]uint16 // local, remote
	pseudo uint32    // sum of the pseudo header without the length
	at     int       // payload that has been cut off
	piece  int       // index in o.Payload that the next datagram begins in
	off    int       // and where in it
	done   bool
}

// Begin stands c before the first datagram of o. t has the ports; pseudo is the sum of the
// pseudo header for a datagram of no length.
func (c *Segmenter) Begin(o *Outgoing, t *wire.Tuple, pseudo uint32) {
	*c = Segmenter{o: o, ports: [2]uint16{t.LocalPort, t.RemotePort}, pseudo: pseudo}
}

// Segments returns how many datagrams an Outgoing is cut into: at least one, which may be
// empty.
func (o *Outgoing) Segments() int { return packet.Segments(o.Len, o.SegmentSize) }

// Size returns the length of the next datagram with its header, 0 after the last.
func (c *Segmenter) Size() int {
	if c.done {
		return 0
	}
	n := c.o.Len - c.at
	if c.o.SegmentSize > 0 {
		n = min(n, c.o.SegmentSize)
	}
	return wire.UDPLen + n
}

// LastSize returns the length of the last datagram with its header.
func (c *Segmenter) LastSize() int {
	return wire.UDPLen + c.o.Len - (c.o.Segments()-1)*c.o.SegmentSize
}

// Next writes the next datagram to the start of b, which has room for it, and returns its
// length.
func (c *Segmenter) Next(b []byte) int {
	n := c.Size()
	u := wire.UDP(wire.AppendUDP(b[:0], c.ports[0], c.ports[1], n-wire.UDPLen)[:n])
	c.copy(u[wire.UDPLen:])
	if !c.o.NoChecksum {
		u.FillChecksum(c.pseudo + uint32(n))
	}
	c.at += n - wire.UDPLen
	c.done = c.at >= c.o.Len
	return n
}

// ChecksumAt is the offset of the checksum in the header.
const ChecksumAt = 6

// Ports returns source and destination.
func (c *Segmenter) Ports() [2]uint16 { return c.ports }

// WriteLarge writes the header of one large packet of datagrams with n bytes of payload in all to the start of b, for a device
// that cuts it. The checksum field has the sum of the pseudo header, see packet.Offload.
func (c *Segmenter) WriteLarge(b []byte, n int) {
	u := wire.UDP(wire.AppendUDP(b[:0], c.ports[0], c.ports[1], n)[:wire.UDPLen])
	binary.BigEndian.PutUint16(u[ChecksumAt:], ^wire.Fold(c.pseudo+uint32(wire.UDPLen+n)))
}

// Payload fills b from the payload, from where the last call ended, and returns how much that is.
func (c *Segmenter) Payload(b []byte) int {
	n := min(len(b), c.o.Len-c.at)
	c.copy(b[:n])
	c.at += n
	return n
}

// copy fills b from the payload, where the datagram before ended.
func (c *Segmenter) copy(b []byte) {
	for len(b) > 0 {
		n := copy(b, c.o.Payload[c.piece][c.off:])
		b = b[n:]
		if c.off += n; c.off == len(c.o.Payload[c.piece]) {
			c.piece, c.off = c.piece+1, 0
		}
	}
}

// sendSegments sends the rest of a message in pieces as large as the Output takes them.
func (s *Socket) sendSegments(now clock.Time, o *Outgoing, msg *Message, total, size int) packet.Verdict {
	step := size
	if size > 0 && size < total {
		step = max(1, s.m.cfg.Output.Offload()/size) * size
	}
	for {
		o.Len = min(step, total-msg.N)
		o.SegmentSize = min(size, o.Len)
		o.Payload = s.m.slicePieces(msg.Buffers, msg.N, o.Len)
		if v := s.m.cfg.Output.Send(now, o); v != packet.Forward {
			return v
		}
		sent := uint64(o.Segments())
		s.stats.Sent += sent
		s.m.stats.Sent += sent
		if msg.N += o.Len; msg.N >= total {
			return packet.Forward
		}
	}
}

// slicePieces returns n bytes of b from offset off on; the list is valid until the next
// call.
func (m *Mux) slicePieces(b [][]byte, off, n int) [][]byte {
	m.pieces = m.pieces[:0]
	for _, p := range b {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		p = p[off:]
		off = 0
		if len(p) >= n {
			m.pieces = append(m.pieces, p[:n])
			break
		}
		m.pieces = append(m.pieces, p)
		n -= len(p)
	}
	return m.pieces
}
