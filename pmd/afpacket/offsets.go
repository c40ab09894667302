package afpacket

import (
	"encoding/binary"

	"github.com/millrace/millrace/pmd/segment"
	"github.com/millrace/millrace/wire"
)

// fillChecksum completes the checksum of a packet that has only the sum of its pseudo-header in the field
// (CHECKSUM_PARTIAL). It reports false when the offsets lie outside of the packet.
func (p *received) fillChecksum() bool {
	at := p.csumStart + p.csumOffset
	if p.csumStart > len(p.data) || at+2 > len(p.data) {
		return false
	}
	sum := wire.Fold(wire.Sum(p.data[p.csumStart:], 0))
	// A UDP checksum of 0 would say that there is none (RFC 768); to TCP both zeros are the same.
	binary.BigEndian.PutUint16(p.data[at:], wire.UDPChecksum(sum))
	return true
}

// expressible reports whether segmentation of a packet can be left to the device that sends it: its checksum is not
// complete, and lies within the bytes of headers that the kernel accepts.
func (p *received) expressible() bool {
	return p.partial && p.mss > 0 && p.csumStart >= wire.EthernetLen &&
		p.csumStart+p.csumOffset+2 <= len(p.data) && p.csumStart+p.csumOffset+2 <= segment.MaxHeaders
}
