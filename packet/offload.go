package packet

import "encoding/binary"

// OffloadLen is the length of an Offload in a frame, bytes.
const OffloadLen = 10

// Offload is the work on a packet with FlagOffload that the device which sends it has to do: fill in the
// transport checksum and cut the packet into segments. The checksum field holds the sum of the
// pseudo-header, not complemented, as virtio and Linux (CHECKSUM_PARTIAL) expect it.
//
// It lies at the start of the packet's first frame, in the headroom, because Desc has no room for it. The
// layout is that of a virtio_net_hdr (virtio 1.2, 5.1.6) in the byte order of the machine, but two
// offsets are counted from the frame's first byte and not from the packet's. So they stay right when
// headers are pushed in front of the packet or taken away.
//
//	 0       1     2          4         6            8
//	+-------+-----+----------+---------+------------+-------------+
//	| flags | GSO | headers' | segment | checksum's | checksum's  |
//	|       |     | end      | size    | first byte | offset in it|
//	+-------+-----+----------+---------+------------+-------------+
type Offload struct {
	Flags, GSO   uint8
	HeadersEnd   uint16 // end of the headers that each segment repeats
	SegmentSize  uint16 // bytes of payload of each segment but the last
	ChecksumFrom uint16 // first byte that the checksum covers
	ChecksumAt   uint16 // where the checksum lies, from there
}

// Values of Offload.Flags and Offload.GSO (virtio 1.2, 5.1.6).
const (
	OffloadNeedsChecksum = 1 // Flags: the transport checksum is the device's to fill in

	GSONone  = 0
	GSOTCPv4 = 1
	GSOTCPv6 = 4
	GSOUDP   = 5    // each segment a datagram (VIRTIO_NET_HDR_GSO_UDP_L4)
	GSOECN   = 0x80 // with GSOTCPv4 or GSOTCPv6: the first segment alone carries CWR (RFC 3168 6.1.2)
)

// Offload reads the Offload of a packet with FlagOffload, whose first descriptor is d.
func (a *Arena) Offload(d *Desc) Offload {
	b := a.offload(d)
	return Offload{
		Flags: b[0], GSO: b[1],
		HeadersEnd:   binary.NativeEndian.Uint16(b[2:]),
		SegmentSize:  binary.NativeEndian.Uint16(b[4:]),
		ChecksumFrom: binary.NativeEndian.Uint16(b[6:]),
		ChecksumAt:   binary.NativeEndian.Uint16(b[8:]),
	}
}

// SetOffload writes o for the packet whose first descriptor is d. The caller has left OffloadLen bytes of
// headroom, or the packet's own bytes are overwritten, and sets FlagOffload.
func (a *Arena) SetOffload(d *Desc, o *Offload) {
	b := a.offload(d)
	b[0], b[1] = o.Flags, o.GSO
	binary.NativeEndian.PutUint16(b[2:], o.HeadersEnd)
	binary.NativeEndian.PutUint16(b[4:], o.SegmentSize)
	binary.NativeEndian.PutUint16(b[6:], o.ChecksumFrom)
	binary.NativeEndian.PutUint16(b[8:], o.ChecksumAt)
}

// offload borrows the bytes of the Offload: the first of the frame, whatever the value of Off.
func (a *Arena) offload(d *Desc) []byte {
	frame := d.Off &^ (1<<a.Shift - 1)
	return a.Mem[frame:][:OffloadLen:OffloadLen]
}

// OffloadPlaced, in Offload.Flags, marks a packet whose payload is not in its frame: the driver has received it to where
// the transport wants it (pmd.Placer), and the descriptor has the headers alone. Such a packet never leaves
// the loop that received it, unless the payload is external (OffloadExternal).
const OffloadPlaced = 0x80

// PlacedHeadroom is the headroom in bytes that a packet with OffloadPlaced needs.
const PlacedHeadroom = OffloadLen + 4

// Placed returns how many bytes of payload of the packet with FlagOffload, whose first descriptor is d, are placed; 0 for
// one that lies in frames.
func (a *Arena) Placed(d *Desc) int {
	b := a.Mem[d.Off&^(1<<a.Shift-1):]
	if b[0]&OffloadPlaced == 0 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(b[OffloadLen:]))
}

// SetPlaced notes, after SetOffload, that n bytes of payload of the packet that starts with d are placed.
func (a *Arena) SetPlaced(d *Desc, n int) {
	b := a.Mem[d.Off&^(1<<a.Shift-1):]
	b[0] |= OffloadPlaced
	binary.NativeEndian.PutUint32(b[OffloadLen:], uint32(n))
}

// Segments returns how many segments n bytes of payload make where each but the last has size bytes. It is one where
// nothing is to be segmented: for size 0, and for no payload, since a header alone is a segment too.
func Segments(n, size int) int {
	if size <= 0 || n <= size {
		return 1
	}
	return (n + size - 1) / size
}
