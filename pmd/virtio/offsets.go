package virtio

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/wire"
)

// startCut prepares to cut a packet, as the device would have that one end has left it to and the other end does not have
// (TSO, USO). It reports false where h describes no such packet.
func startCut(c *segment.Cutter, data []byte, h *header) bool {
	c.Stop()
	return h.flags&packet.OffloadNeedsChecksum != 0 && c.Start(data, h.gso, int(h.segmentSize))
}

// completeChecksum fills in the checksum of a packet that has only the sum of its pseudo-header in the field, and reports false when
// the offsets of h lie outside of its first piece.
func completeChecksum(a *packet.Arena, d []packet.Desc, h *header) bool {
	first := a.Bytes(&d[0])
	from, at := int(h.checksumFrom), int(h.checksumFrom)+int(h.checksumAt)
	if from < wire.EthernetLen || at+2 > len(first) {
		return false
	}
	sum, odd := uint32(0), false
	for i := range d {
		p := a.Bytes(&d[i])
		if i == 0 {
			p = p[from:]
		}
		one := wire.Sum(p, 0)
		if odd { // bytes of the other places of their words (RFC 1071 2)
			one = one>>8 | one&0xff<<8
		}
		sum = uint32(^wire.Fold(sum + one))
		odd = odd != (len(p)%2 != 0)
	}
	// A UDP checksum of 0 would say that there is none (RFC 768); to TCP both zeros are the same.
	binary.BigEndian.PutUint16(first[at:], wire.UDPChecksum(wire.Fold(sum)))
	return true
}
