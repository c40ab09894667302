package virtio

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/segment"
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
	return segment.CompleteChecksum(a, d, int(h.checksumFrom), int(h.checksumAt))
}
