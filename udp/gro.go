package udp

import (
	"github.com/millrace/millrace/wire"
)

// MaxCoalesced is the most datagrams that are merged into one, by a Coalescer and by Read:
// as many as the Linux kernel merges (UDP_GRO_CNT_MAX).
const MaxCoalesced = 64

// maxPacket is the most payload of merged datagrams, bytes: what the length field of an IP
// packet can hold.
const maxPacket = 1<<16 - 1

// Coalescer merges neighbouring datagrams of one flow into one Datagram (generic receive
// offload), so that a burst costs one lookup. All have the size of the first but the last,
// which may be shorter. The zero value is ready for Begin.
//
// The Datagram is valid until the next Begin, and as long as the bytes of what was merged.
// Its fields beside the payload are the caller's to set, before Begin.
type Coalescer struct {
	Datagram
	open   bool // more may join
	left   int  // bytes of payload that Begin announced and Extend has not brought yet
	pieces [MaxCoalesced][]byte
}

// Begin starts anew with one datagram: u has its header and behind it the payload as far as
// that is contiguous. Extend takes the rest. Bytes beyond the length in the header are
// padding and left out (RFC 768).
func (g *Coalescer) Begin(u wire.UDP) {
	left := int(u.Len()) - wire.UDPLen
	g.begin(u, left, 0)
	g.open = left > 0
}

// BeginMerged is Begin for n bytes of payload that a device has merged from datagrams of
// size bytes. The length in the header is that of one of them. Nothing joins.
func (g *Coalescer) BeginMerged(u wire.UDP, n, size int) { g.begin(u, n, size) }

func (g *Coalescer) begin(u wire.UDP, n, size int) {
	g.Payload, g.Len, g.SegmentSize = g.pieces[:0], 0, size
	g.left, g.open = n, false
	g.take(u[wire.UDPLen:])
}

// Extend adds a further piece of the payload of what Begin was given. Nothing joins it
// after. The datagram has at most MaxCoalesced pieces without a memory allocation.
func (g *Coalescer) Extend(piece []byte) {
	g.open = false
	g.take(piece)
}

func (g *Coalescer) take(piece []byte) {
	piece = piece[:min(len(piece), g.left)]
	g.left -= len(piece)
	g.Payload = append(g.Payload, piece)
	g.Len += len(piece)
}

// Join adds a datagram of the same flow, which is Valid and contiguous, and reports whether
// it could. A datagram that is longer than the first would be cut at SegmentSize;
// an empty one would leave no trace.
func (g *Coalescer) Join(u wire.UDP) bool {
	if !g.open || len(g.Payload) == len(g.pieces) {
		return false
	}
	p, size := u.Payload(), len(g.Payload[0])
	if len(p) == 0 || len(p) > size || g.Len+len(p) > maxPacket {
		return false
	}
	g.SegmentSize = size
	g.open = len(p) == size
	g.Payload = append(g.Payload, p)
	g.Len += len(p)
	return true
}

// coalesceRead appends the datagrams that follow x, have its size, and fit; the last may be
// shorter (UDP_GRO of Linux).
func (s *Socket) coalesceRead(msg *Message, x *node, room int) {
	for count := 1; count < MaxCoalesced && s.head != nil; count++ {
		y := s.head
		if !y.follows(x) || msg.N+y.n > room {
			return
		}
		s.pop()
		scatter(msg.Buffers, msg.N, y.buf[:y.n])
		msg.N += y.n
		msg.SegmentSize = x.n
		short := y.n < x.n
		s.free(y)
		if short {
			return
		}
	}
}

// follows reports whether y may be merged behind x.
func (y *node) follows(x *node) bool {
	return y.n > 0 && y.n <= x.n && y.remotePort == x.remotePort && y.tos == x.tos && y.ttl == x.ttl &&
		y.iface == x.iface && y.remote == x.remote && y.local == x.local
}
