package gpukern

import (
	"encoding/binary"

	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// parseFast is the parse stage for the packets that most packets are: TCP or UDP, not a fragment, over
// IPv4 without options or IPv6 without extension headers, untagged, in one descriptor and all there.
// It reports false, with nothing written to d, for any other, which the parser reads. TCP and UDP take
// the same instructions here, because a branch that packets take at random costs more than they do.
func parseFast(t *tuple.Tuple, d *packet.Desc, p []byte) bool {
	if len(p) < 54 {
		return false
	}
	var l4, end int
	var proto uint8
	var flags packet.Flags
	switch h := p[14:54]; binary.BigEndian.Uint16(p[12:]) {
	case wire.EtherTypeIPv4:
		if h[0] != 0x45 || binary.BigEndian.Uint16(h[6:])&0x3fff != 0 {
			return false
		}
		l4, end, proto, flags = 34, 14+int(binary.BigEndian.Uint16(h[2:])), h[9], packet.FlagIPv4
		t.SrcHi = uint64(binary.BigEndian.Uint32(h[12:])) << 32
		t.DstHi = uint64(binary.BigEndian.Uint32(h[16:])) << 32
		t.SrcLo, t.DstLo = 0, 0
	case wire.EtherTypeIPv6:
		if h[0]>>4 != 6 {
			return false
		}
		l4, end, proto, flags = 54, 54+int(binary.BigEndian.Uint16(h[4:])), h[6], packet.FlagIPv6
		t.SrcHi, t.SrcLo = binary.BigEndian.Uint64(h[8:]), binary.BigEndian.Uint64(h[16:])
		t.DstHi, t.DstLo = binary.BigEndian.Uint64(h[24:]), binary.BigEndian.Uint64(h[32:])
	default:
		return false
	}
	if uint64(1)<<proto&(1<<wire.ProtoTCP|1<<wire.ProtoUDP) == 0 || end > len(p) || len(p) < l4+20 {
		return false
	}
	h := p[l4 : l4+20]
	header, shortest, size := 8, 8, int(binary.BigEndian.Uint16(h[4:]))
	offset := int(h[12]>>4) * 4
	if proto == wire.ProtoTCP {
		header, shortest, size = offset, 20, offset
	}
	if size < shortest || l4+size > end {
		return false
	}
	d.L3, d.L4, d.Payload = 14, uint16(l4), uint16(l4+header)
	d.Flags, d.Proto = d.Flags|flags, proto
	t.Ports, t.End = binary.BigEndian.Uint32(h), uint32(end)
	t.Proto, t.Known = proto, tuple.Ports
	return true
}
