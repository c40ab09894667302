package host

import (
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// mostLarge bounds the datagrams of a large packet: UDP_MAX_SEGMENTS of kernels before 6.9.
const mostLarge = 64

// train is the large packet of datagrams that was sent last. While it waits in the queue of its device, datagrams of the next
// write join it: a program that sends a lot, such as a QUIC stack, writes less at once than a packet has room for.
type train struct {
	header    headerTemplate
	ports     [2]uint16
	size, len int // of a datagram and of all, payload
	dev       uint8
	mark      uint64 // its name in the queue
	first     uint16 // identification of the first datagram
}

// largeUDP sends datagrams as one large packet, in a chain of frames, that the device cuts and whose checksums it fills
// in, as sendTSO does with segments. Devices number the datagrams from the identification of the first one on.
func (h *Host) largeUDP(p *ip.Path, s *udp.Outgoing) packet.Verdict {
	head := h.header.n + wire.UDPLen
	frames := h.reserve(p.Dev, h.frames(head+s.Len))
	if frames == nil {
		return packet.DropTxFull
	}
	id := h.id
	h.id += uint16(s.Segments())
	if h.joinTrain(p.Dev, s, id) {
		h.fillUDP(frames, head)
		h.output.Extend(p.Dev, h.tx)
		h.tx = h.tx[:0]
		return packet.Forward
	}
	h.train = train{header: h.header, ports: h.udpSegmenter.Ports(), size: s.SegmentSize, len: s.Len, dev: p.Dev, first: id}
	h.fillUDP(frames, head)
	first := &h.tx[0]
	first.Off, first.Len = first.Off-uint32(head), first.Len+uint16(head)
	h.writeTrain(first)
	first.Flags |= packet.FlagOffload
	h.arena.SetOffload(first, &packet.Offload{
		Flags: packet.OffloadNeedsChecksum, HeadersEnd: uint16(headroom + head),
		ChecksumFrom: uint16(headroom + h.header.n), ChecksumAt: udp.ChecksumAt,
		GSO: packet.GSOUDP, SegmentSize: uint16(s.SegmentSize),
	})
	h.transmit(p.Dev)
	h.train.mark = h.output.Mark(p.Dev)
	return packet.Forward
}

// fillUDP fills frames with the payload, and leaves room for headers in the first one.
func (h *Host) fillUDP(frames []uint32, head int) {
	for i, off := range frames {
		d := packet.Desc{Off: off + headroom, Len: uint16(h.frameRoom())}
		if i == 0 {
			d.Off, d.Len = d.Off+uint32(head), d.Len-uint16(head)
		}
		d.Len = uint16(h.udpSegmenter.Payload(h.arena.Bytes(&d)))
		if i+1 < len(frames) {
			d.Flags = packet.FlagMore
		}
		h.tx = append(h.tx, d)
	}
}

// joinTrain makes the last large packet longer by s, whose first datagram has the identification id, if it still waits and
// the datagrams are as if one write had sent them all: the same headers, and identifications in sequence, which they are not
// behind a short datagram.
func (h *Host) joinTrain(dev uint8, s *udp.Outgoing, id uint16) bool {
	t := &h.train
	n := t.len + s.Len
	if t.len == 0 || t.dev != dev || t.size != s.SegmentSize || packet.Segments(n, t.size) > mostLarge ||
		wire.IPv4Len+wire.UDPLen+n > 1<<16-1 || t.first+uint16(t.len/t.size) != id ||
		t.ports != h.udpSegmenter.Ports() || t.header.n != h.header.n || t.header.b != h.header.b {
		return false
	}
	first := h.output.Last(dev, t.mark)
	if first == nil {
		return false
	}
	t.len = n
	h.writeTrain(first)
	return true
}

// writeTrain writes the headers of the train.
func (h *Host) writeTrain(first *packet.Desc) {
	b, t := h.arena.Bytes(first), &h.train
	t.header.id = t.first
	t.header.write(b, wire.UDPLen+t.len)
	h.udpSegmenter.WriteLarge(b[t.header.n:], t.len)
}
