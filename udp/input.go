package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Input handles a received datagram, which it borrows. Its checksum is right, or absent and
// marked so. t is the flow as this host sees it: Local is the destination, also a group or
// broadcast address. Deliver is that at least one socket has it; otherwise it is the reason
// of the drop. After DropNoSocket the host answers that the port is unreachable, unless the
// datagram came to a group or broadcast address (RFC 1122 3.2.2).
func (m *Mux) Input(now clock.Time, t *wire.Tuple, d *Datagram) packet.Verdict {
	count := d.segments()
	m.stats.Received += count
	v := m.input(t, d)
	if v != packet.Deliver {
		m.stats.Dropped[v] += count
	}
	return v
}

// segments returns how many datagrams were merged.
func (d *Datagram) segments() uint64 {
	return uint64(packet.Segments(d.Len, d.SegmentSize))
}

// input finds the sockets of a datagram.
func (m *Mux) input(t *wire.Tuple, d *Datagram) packet.Verdict {
	if d.Len < 0 || d.SegmentSize < 0 || d.Len > m.maxPayload(d) {
		return packet.DropMalformed
	}
	if d.Broadcast || t.Local.Multicast() {
		return m.inputGroup(t, d)
	}
	if s := m.find(t, d); s != nil {
		return s.input(t, d)
	}
	return packet.DropNoSocket
}

// maxPayload returns the most payload that d may have: what one datagram of an IP packet
// has, or as much as was merged, which is cut again.
func (m *Mux) maxPayload(d *Datagram) int {
	if d.SegmentSize > 0 && d.SegmentSize < maxPayload {
		return d.SegmentSize * maxCoalescedInput
	}
	return maxPayload
}

const (
	maxPayload        = maxPacket - 8 // of IPv6; of IPv4 20 less
	maxCoalescedInput = 1024
)

// input puts d into the queue of s, each of those merged as a datagram of its own.
func (s *Socket) input(t *wire.Tuple, d *Datagram) packet.Verdict {
	if d.NoChecksum && !t.Local.Is4() && !s.opts.NoChecksum {
		return packet.DropL4Checksum // RFC 6935 5, RFC 6936 5
	}
	size := d.SegmentSize
	if size <= 0 || size > d.Len {
		size = d.Len
	}
	if !s.enqueue(t, d, 0, size) {
		return packet.DropSocketFull
	}
	for off := size; off < d.Len; off += size {
		s.enqueue(t, d, off, min(size, d.Len-off))
	}
	return packet.Deliver
}

// inputGroup puts copies of a datagram to a group or broadcast address into the queue of every
// socket that accepts it (RFC 1122 4.1.3.5, RFC 3376 3.1).
func (m *Mux) inputGroup(t *wire.Tuple, d *Datagram) packet.Verdict {
	v := packet.DropNoSocket
	p := m.ports[t.LocalPort]
	if p == nil {
		return v
	}
	if d.Broadcast {
		return m.inputBroadcast(p, t, d)
	}
	for _, s := range p.groups[t.Local] {
		v = s.inputCopy(t, d, v)
	}
	n := 0
	for g, next := p.scopes.Covering(t.Local, 0); g != nil; g, next = p.scopes.Covering(t.Local, next) {
		for s, i := g.Next(0); s != nil && n < maxBroadcast; s, i = g.Next(i) {
			if s.takesAll(t.Local) {
				v = s.inputCopy(t, d, v)
			}
			n++
		}
	}
	return v
}

// maxBroadcast is the number of sockets of a port that receive a broadcast. The host bounds the members of
// a multicast group in the same way: otherwise one user's sockets decide what a datagram costs.
const maxBroadcast = 256

// inputBroadcast puts copies into the queues of the sockets that are not connected, those with the
// more specific address first.
func (m *Mux) inputBroadcast(p *port, t *wire.Tuple, d *Datagram) packet.Verdict {
	v, n := packet.DropNoSocket, 0
	for g, next := p.scopes.Covering(t.Local, 0); g != nil; g, next = p.scopes.Covering(t.Local, next) {
		for s, i := g.Next(0); s != nil && n < maxBroadcast; s, i = g.Next(i) {
			v = s.inputCopy(t, d, v)
			n++
		}
	}
	return v
}

// inputCopy puts a copy into the queue of s, if s accepts it. v is the verdict of the sockets before: one
// that has the datagram is enough for Deliver.
func (s *Socket) inputCopy(t *wire.Tuple, d *Datagram, v packet.Verdict) packet.Verdict {
	if !s.acceptsGroup(t, d) {
		return v
	}
	if got := s.input(t, d); v != packet.Deliver {
		v = got
	}
	return v
}

// acceptsGroup reports whether s accepts a datagram to a group or broadcast address.
func (s *Socket) acceptsGroup(t *wire.Tuple, d *Datagram) bool {
	if s.connected && (s.tuple.Remote != t.Remote || s.tuple.RemotePort != t.RemotePort) {
		return false
	}
	if !s.connected && !s.scope.Covers(t.Local) || !s.acceptsInterface(d) {
		return false
	}
	return d.Broadcast && !s.connected || s.isMember(t, d) || s.takesAll(t.Local)
}
