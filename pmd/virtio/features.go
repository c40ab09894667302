package virtio

import (
	"encoding/binary"
	"strings"

	"github.com/millrace/millrace/packet"
)

// Feature bits (virtio 1.2, 5.1.3 and 6; bit 30 is vhost-user's).
const (
	featureCsum      = 1 << 0  // the device completes checksums
	featureGuestCsum = 1 << 1  // the driver takes packets with incomplete checksums
	featureMTU       = 1 << 3  // the device says its MTU
	featureGuestTSO4 = 1 << 7  // the driver takes large packets
	featureGuestTSO6 = 1 << 8  //
	featureGuestECN  = 1 << 9  //
	featureHostTSO4  = 1 << 11 // the device takes large packets
	featureHostTSO6  = 1 << 12 //
	featureHostECN   = 1 << 13 //
	featureMrgRxbuf  = 1 << 15 // a packet may fill several buffers of the driver
	featureStatus    = 1 << 16 // the device reports its link
	featureMQ        = 1 << 22 // several queue pairs
	featureIndirect  = 1 << 28
	featureEventIdx  = 1 << 29
	featureProtocol  = 1 << 30 // VHOST_USER_F_PROTOCOL_FEATURES
	featureVersion1  = 1 << 32
	featurePacked    = 1 << 34
	featureGuestUSO4 = 1 << 54
	featureGuestUSO6 = 1 << 55
	featureHostUSO   = 1 << 56

	// featuresRing are those of any device.
	featuresRing = featureMrgRxbuf | featureIndirect | featureEventIdx | featureProtocol | featureVersion1 | featurePacked | featureMQ
	// featuresToDevice are offloads of packets from the driver, featuresToDriver those of packets to it.
	featuresToDevice = featureCsum | featureHostTSO4 | featureHostTSO6 | featureHostECN | featureHostUSO
	featuresToDriver = featureGuestCsum | featureGuestTSO4 | featureGuestTSO6 | featureGuestECN | featureGuestUSO4 | featureGuestUSO6
)

var featureNames = []struct {
	bit  uint64
	name string
}{
	{featurePacked, "packed ring"},
	{featureMrgRxbuf, "mergeable buffers"},
	{featureEventIdx, "event_idx"},
	{featureIndirect, "indirect"},
	{featureCsum, "checksum to device"},
	{featureHostTSO4, "TSO to device"},
	{featureHostUSO, "USO to device"},
	{featureGuestCsum, "checksum to driver"},
	{featureGuestTSO4, "TSO to driver"},
	{featureGuestUSO4, "USO to driver"},
}

// describe returns what was negotiated, for people.
func describe(features uint64) string {
	var on []string
	if features&featurePacked == 0 {
		on = append(on, "split ring")
	}
	for _, f := range featureNames {
		if features&f.bit != 0 {
			on = append(on, f.name)
		}
	}
	return strings.Join(on, ", ")
}

// header is a virtio_net_hdr (virtio 1.2, 5.1.6), whose offsets count from the packet's first byte.
type header struct {
	flags, gso               uint8
	headersEnd, segmentSize  uint16
	checksumFrom, checksumAt uint16
	buffers                  uint16 // that hold the packet, with mergeable buffers
}

const (
	maxHeader    = 12
	legacyHeader = 10 // before virtio 1.0, without mergeable buffers
)

// headerLen returns the length of headers with the features.
func headerLen(features uint64) int {
	if features&(featureVersion1|featureMrgRxbuf) != 0 {
		return maxHeader
	}
	return legacyHeader
}

// parseHeader parses the first bytes of b, which are legacyHeader or more.
func parseHeader(b []byte) (h header) {
	le := binary.LittleEndian
	h = header{b[0], b[1], le.Uint16(b[2:]), le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:]), 0}
	if len(b) >= maxHeader {
		h.buffers = le.Uint16(b[10:])
	}
	return h
}

// put writes h to b, whose length is that of the header.
func (h *header) put(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = h.flags, h.gso
	le.PutUint16(b[2:], h.headersEnd)
	le.PutUint16(b[4:], h.segmentSize)
	le.PutUint16(b[6:], h.checksumFrom)
	le.PutUint16(b[8:], h.checksumAt)
	if len(b) >= maxHeader {
		le.PutUint16(b[10:], h.buffers)
	}
}

// complete reports whether nothing is left to do on the packet.
func (h *header) complete() bool {
	return h.flags&packet.OffloadNeedsChecksum == 0 && h.gso == packet.GSONone
}

// headerOf returns the header of a packet whose first descriptor is d.
func headerOf(a *packet.Arena, d *packet.Desc) (h header) {
	if d.Flags&packet.FlagOffload == 0 {
		return h
	}
	o, start := a.Offload(d), uint16(a.Headroom(d))
	return header{
		flags: o.Flags & packet.OffloadNeedsChecksum, gso: o.GSO,
		headersEnd: o.HeadersEnd - start, segmentSize: o.SegmentSize, checksumFrom: o.ChecksumFrom - start, checksumAt: o.ChecksumAt,
	}
}

// setOffload notes in the first frame of a packet what h leaves to the device that sends it.
func (h *header) setOffload(a *packet.Arena, d *packet.Desc) {
	start := uint16(a.Headroom(d))
	d.Flags |= packet.FlagOffload
	a.SetOffload(d, &packet.Offload{
		Flags: packet.OffloadNeedsChecksum, GSO: h.gso,
		HeadersEnd: h.headersEnd + start, SegmentSize: h.segmentSize, ChecksumFrom: h.checksumFrom + start, ChecksumAt: h.checksumAt,
	})
}

// accepted are the offloads that the other end takes.
type accepted struct{ checksum, tso4, tso6, uso, ecn bool }

// toDriver returns what a driver with the features takes.
func toDriver(f uint64) accepted {
	has := func(bits uint64) bool { return f&bits == bits }
	return accepted{has(featureGuestCsum), has(featureGuestTSO4), has(featureGuestTSO6), has(featureGuestUSO4 | featureGuestUSO6), has(featureGuestECN)}
}

// toDevice returns what a device with the features takes.
func toDevice(f uint64) accepted {
	has := func(bits uint64) bool { return f&bits == bits }
	return accepted{has(featureCsum), has(featureHostTSO4), has(featureHostTSO6), has(featureHostUSO), has(featureHostECN)}
}

// takes reports whether the end takes a packet with the header.
func (a *accepted) takes(h *header) bool {
	switch h.gso &^ packet.GSOECN {
	case packet.GSONone:
		return a.checksum || h.flags&packet.OffloadNeedsChecksum == 0
	case packet.GSOTCPv4:
		return a.tso4 && (a.ecn || h.gso&packet.GSOECN == 0)
	case packet.GSOTCPv6:
		return a.tso6 && (a.ecn || h.gso&packet.GSOECN == 0)
	case packet.GSOUDP:
		return a.uso
	}
	return false
}
