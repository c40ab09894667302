package capture

import "math/bits"

// The magic numbers of pcap, in the byte order of the writer.
const (
	magicMicro    = 0xA1B2C3D4 // microseconds
	magicNano     = 0xA1B23C4D // nanoseconds
	magicModified = 0xA1B2CD34 // microseconds and longer record headers (Linux, about 1999)
)

const (
	pcapHeader     = 24
	recordHeader   = 16
	modifiedHeader = 24
)

// pcap decodes classic pcap:
//
//	file:   magic, major 16, minor 16, reserved, reserved, snaplen, link type      24 bytes
//	record: seconds, fraction, captured length, length on the wire, data           16 + n bytes
//
// Versions before 2.3 have the two lengths the other way round, and files of 2.3 exist with either
// order. The modified form adds to a record: interface index 32, protocol 16, packet type 8, padding 8.
type pcap struct {
	order order
	unit  int64 // ns of the fraction's unit
	head  int   // bytes of a record's header
	minor uint16
}

// newPcap recognizes the magic number, read little-endian.
func newPcap(magic uint32) (*pcap, bool) {
	p := &pcap{unit: 1000, head: recordHeader}
	if byte(magic) == magicMicro>>24 {
		p.order, magic = bigEndian, bits.ReverseBytes32(magic)
	}
	switch magic {
	case magicMicro:
	case magicNano:
		p.unit = 1
	case magicModified:
		p.head = modifiedHeader
	default:
		return nil, false
	}
	return p, true
}

// header reads the file's header.
func (p *pcap) header(r *Reader) error {
	h := r.src.peek(pcapHeader)
	if len(h) < pcapHeader {
		return r.short(0, "header of %d bytes wanted, %d there", pcapHeader, len(h))
	}
	major := p.order.u16(h[4:])
	p.minor = p.order.u16(h[6:])
	if major != 2 {
		return r.fail(0, ErrFormat, "pcap version %d.%d, only 2 is known", major, p.minor)
	}
	link := p.order.u32(h[20:])
	in := Interface{LinkType: LinkType(link), SnapLen: int(min(p.order.u32(h[16:]), 1<<31-1))}
	if link&linkHasFCS != 0 {
		in.FCSLen = 2 * int(link>>28)
	}
	r.ifs = append(r.ifs, in)
	r.rec.LinkType = in.LinkType
	r.src.skip(pcapHeader)
	return nil
}

// linkHasFCS is the bit of the link type field that says that its highest four bits count the
// 16-bit words of frame check sequence behind each packet.
const linkHasFCS = 1 << 26

func (p *pcap) next(r *Reader) error {
	at := r.src.off
	h := r.src.peek(p.head)
	if len(h) < p.head {
		if len(h) == 0 {
			return r.end()
		}
		return r.short(at, "record header of %d bytes wanted, %d there", p.head, len(h))
	}
	o, rec := p.order, &r.rec
	rec.Time = int64(o.u32(h))*second + int64(o.u32(h[4:]))*p.unit
	n, wire := o.u32(h[8:]), o.u32(h[12:])
	if p.minor < 3 || p.minor == 3 && n > wire {
		n, wire = wire, n
	}
	rec.Len = int(wire)
	if n > MaxRecord {
		return r.fail(at, ErrCorrupt, "captured length of at most %d wanted, %d found", MaxRecord, n)
	}
	if p.head == modifiedHeader {
		rec.Meta = modifiedMeta(h[22])
	}
	all := p.head + int(n)
	b := r.src.peek(all)
	if len(b) < all {
		return r.short(at, "%d bytes of packet wanted, %d there", n, len(b)-p.head)
	}
	rec.Data = b[p.head:all:all]
	r.src.skip(all)
	return nil
}

// modifiedMeta turns the packet type of the modified form, which is Linux's sll_pkttype, into a
// direction.
func modifiedMeta(kind uint8) Meta {
	const outgoing = 4
	if kind == outgoing {
		return Meta{Has: HasFlags, Flags: FlagOutbound}
	}
	return Meta{Has: HasFlags, Flags: FlagInbound}
}
