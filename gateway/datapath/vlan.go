package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// taggedLen is the length of an Ethernet header with one 802.1Q tag.
const taggedLen = wire.EthernetLen + wire.VLANLen

// vlanOf returns the VLAN identifier that a frame is tagged with: 0 for none, and for a tag that
// carries a priority only (802.1Q 6.9.1).
func vlanOf(d *packet.Desc, p []byte) uint16 {
	if d.L3 != taggedLen {
		return 0
	}
	return wire.VLAN(p[wire.EthernetLen:]).ID()
}

// vlan returns the VLAN identifier that the packet came with; 0 is none.
func (v *view) vlan() uint16 { return vlanOf(v.d, v.p) }

// setLink makes the link header that of the way out, and the port too: the addresses, and the tag of
// the hop's VLAN in place of the one that the packet came with. The packet may begin elsewhere in
// its frame then: views of it are stale. It reports false where there is no room for a tag.
func (h *Handler) setLink(d *packet.Desc, hop *Hop) bool {
	if (d.L3 != wire.EthernetLen || hop.VLAN != 0) && !h.retag(d, hop.VLAN) {
		return false
	}
	d.Port = hop.Dev
	p := h.arena.Bytes(d)
	copy(p[0:6], hop.MAC[:])
	copy(p[6:12], h.snap.Devices[hop.Dev].MAC[:])
	return true
}

// retag replaces, pushes or pops the tag of a frame; id 0 is none. A tag that is replaced keeps its
// priority. The addresses are not moved with the header's start: the caller writes them.
func (h *Handler) retag(d *packet.Desc, id uint16) bool {
	p := h.arena.Bytes(d)
	switch tagged := d.L3 == taggedLen; {
	case tagged && id != 0:
		wire.VLAN(p[wire.EthernetLen:]).SetID(id)
	case tagged:
		moveStart(d, wire.VLANLen)
	case h.arena.Headroom(d) < wire.VLANLen:
		return false
	default:
		moveStart(d, -wire.VLANLen)
		p = h.arena.Bytes(d)
		binary.BigEndian.PutUint16(p[wire.EthernetLen-2:], wire.EtherTypeVLAN)
		wire.VLAN(p[wire.EthernetLen:]).SetTCI(id)
	}
	return true
}

// moveStart moves the first byte of a packet by n; its headers stay where they are. The EtherType
// in front of the network header stays there too.
func moveStart(d *packet.Desc, n int) {
	d.Off, d.Len, d.L3 = uint32(int(d.Off)+n), uint16(int(d.Len)-n), uint8(int(d.L3)-n)
	if d.L4 != 0 {
		d.L4 = uint16(int(d.L4) - n)
	}
	if d.Payload != 0 {
		d.Payload = uint16(int(d.Payload) - n)
	}
}
