package host

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// PlacePayload implements stack.PayloadPlacer: for the next segments of a connection it returns the buffer of the reader that waits, and the
// receive buffer. The checks are only those that find the connection: fastPath and the connection verify the
// packet when it comes with its batch. One that they reject has changed no byte that anyone reads.
func (h *Host) PlacePayload(head []byte, size int) (how pmd.Placement, headers int, pieces [][]byte) {
	var t wire.Tuple
	l4 := wire.EthernetLen
	switch {
	case len(head) < wire.EthernetLen+wire.IPv6Len+wire.TCPLen:
		return pmd.PlaceInFrames, 0, nil
	case wire.Ethernet(head).EtherType() == wire.EtherTypeIPv4:
		q := wire.IPv4(head[l4:])
		l4 += wire.IPv4Len
		if q[0] != 4<<4|wire.IPv4Len/4 || q.Proto() != wire.ProtoTCP || int(q.TotalLen()) != size-wire.EthernetLen || q.Fragment() {
			return pmd.PlaceInFrames, 0, nil
		}
		t.Local, t.Remote = wire.AddrFrom4(q.Dst()), wire.AddrFrom4(q.Src())
	case wire.Ethernet(head).EtherType() == wire.EtherTypeIPv6:
		q := wire.IPv6(head[l4:])
		l4 += wire.IPv6Len
		if q[0]>>4 != 6 || q.NextHeader() != wire.ProtoTCP || int(q.PayloadLen()) != size-l4 {
			return pmd.PlaceInFrames, 0, nil
		}
		t.Local, t.Remote = q.Dst(), q.Src()
	default:
		return pmd.PlaceInFrames, 0, nil
	}
	seg := wire.TCP(head[l4:])
	if !seg.Valid() || l4+seg.DataOffset() > h.arena.FrameSize()/2 {
		return pmd.PlaceInFrames, 0, nil
	}
	headers = l4 + seg.DataOffset()
	t.LocalPort, t.RemotePort = seg.DstPort(), seg.SrcPort()
	pieces, later := h.TCP.Place(&t, seg, size-headers)
	switch {
	case later:
		return pmd.PlaceLater, 0, nil
	case len(pieces) == 0:
		return pmd.PlaceInFrames, 0, nil
	}
	return pmd.PlaceDirect, headers, pieces
}

// placed returns how many bytes of payload of a packet are where PlacePayload said, 0 for a packet in frames.
func (h *Host) placed(d *packet.Desc) int {
	if !d.Flags.Has(packet.FlagOffload) {
		return 0
	}
	return h.arena.Placed(d)
}
