package datapath

import (
	"encoding/binary"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// view is one packet in the handler: the fields that decide, read once from where the descriptor says they
// are. It borrows the frame, and its offsets are stale once setLink or encapsulate has moved the start.
type view struct {
	d            *packet.Desc
	p            []byte // the captured bytes
	src, dst     addr
	sport, dport uint16
	flags        wire.TCPFlags // 0 for UDP, and where the header is in another fragment
	is4          bool
	part         part
	mtu          int    // of a packet that is too big: what would fit. 0: it fits
	localAddr    addr   // the gateway address that its sender knows, when it is not dst
	idAt         uint16 // of a fragment: offset of the identification,
	id           uint32 // and what takes its place where addresses change
	cut          uint32 // bytes of the fragments that the packet was cut into, without the last, which is d
}

// read reads addresses, ports and TCP flags at the offsets that the engine wrote, into a view that is zero. The
// engine has checked that the headers are complete, so no length is tested here. A fragment other than the first
// has no ports.
//
// It fills the view in place: a view that is returned is copied, 16 bytes at a time, right after its fields were
// stored 8 bytes at a time. The core cannot forward such stores to the loads, and waits for each of them.
func (v *view) read(d *packet.Desc, p []byte) {
	v.readIP(d, p)
	if d.L4 == 0 {
		return
	}
	l4 := p[d.L4:]
	ports := binary.BigEndian.Uint32(l4)
	v.sport, v.dport = uint16(ports>>16), uint16(ports)
	if d.Proto == wire.ProtoTCP {
		v.flags = wire.TCP(l4).Flags()
	}
}

// readIP reads the addresses.
func (v *view) readIP(d *packet.Desc, p []byte) {
	v.d, v.p, v.is4 = d, p, d.Flags.Has(packet.FlagIPv4)
	if ip := p[d.L3:]; v.is4 {
		v.src, v.dst = addr4(ip[12:16]), addr4(ip[16:20])
	} else {
		v.src, v.dst = wireAddr6(ip[8:24]), wireAddr6(ip[24:40])
	}
}

// hopsLeft returns the TTL or hop limit.
func (v *view) hopsLeft() uint8 {
	if v.is4 {
		return v.p[v.d.L3+8]
	}
	return v.p[v.d.L3+7]
}

// size returns the length of the network-layer packet.
func (v *view) size() int {
	ip := v.p[v.d.L3:]
	if v.is4 {
		return int(wire.IPv4(ip).TotalLen())
	}
	return wire.IPv6Len + int(wire.IPv6(ip).PayloadLen())
}

// needs returns the length of the largest network-layer packet that v becomes on the wire: a large packet
// with segmentation offload is cut by the device, and its segments count.
func (h translator) needs(v *view) int {
	size := v.size()
	if !v.d.Flags.Has(packet.FlagOffload) {
		return size
	}
	return min(size, int(v.d.Payload)-int(v.d.L3)+int(h.arena.Offload(v.d).SegmentSize))
}

// rewrite holds the new headers of a packet. The differences l3 and l4 are constants of the connection
// (setDeltas), so that a packet costs two additions per checksum instead of a sum over old and new headers.
type rewrite struct {
	src, dst     addr
	sport, dport uint16
	l3, l4       uint16 // what this adds to the checksums: see conn
}

// sourceOf returns the address that the backend of a connection sees.
func (s *Snapshot) sourceOf(c *Conn) addr {
	if c.snat != 0 {
		return s.snats[c.snat]
	}
	return c.client
}

// setDeltas computes what rewriting adds to the checksums (RFC 1624 eqn. 3): a constant of the connection,
// because every packet of it has the same addresses and ports before and after. Replies change by the complement.
func (c *Conn) setDeltas(s *Snapshot) {
	front, frontPort := s.vip(c.vip)
	to, port := s.endpoint(c.endpoint)
	src := s.sourceOf(c)
	c.l3Delta = wire.AddDiff(c.client.diff(src), front.addr.diff(to.addr))
	before, after := uint32(c.clientPort)<<16|uint32(frontPort), uint32(c.sourcePort)<<16|uint32(port)
	c.l4Delta = wire.AddDiff(c.l3Delta, wire.Diff32(before, after))
}

// ttlDelta is the change of the IPv4 header checksum by a decrement of the TTL: -0x0100 in ones'
// complement, for the TTL is the upper byte of its word.
const ttlDelta = 0xfeff

// apply rewrites the headers in the frame: addresses, ports, TTL or hop limit less one. Checksums are
// updated by the connection's constant difference (RFC 1624), never recomputed: a right one stays right, and
// a wrong one stays wrong for the receiver to see.
func (v *view) apply(r *rewrite) {
	p := v.p
	if v.part != whole {
		v.renumber()
	}
	v.applyIP(r.src, r.dst, r.l3)
	if v.part == later {
		return
	}
	l4 := p[v.d.L4:]
	binary.BigEndian.PutUint32(l4, uint32(r.sport)<<16|uint32(r.dport))
	if v.d.Flags.Has(packet.FlagOffload) {
		v.readdress(l4, r.l3)
		return
	}
	if v.d.Proto == wire.ProtoUDP {
		wire.UDP(l4).Update(r.l4)
		return
	}
	wire.TCP(l4).SetChecksum(wire.Apply(wire.TCP(l4).Checksum(), r.l4))
}

// applyIP rewrites the IP header: addresses, which differ by diff from those that were there, and one hop
// less.
func (v *view) applyIP(src, dst addr, diff uint16) {
	if v.is4 {
		ip := wire.IPv4(v.p[v.d.L3 : v.d.L3+20])
		ip[8]--
		src.put(ip[12:16])
		dst.put(ip[16:20])
		ip.SetChecksum(wire.Apply(ip.Checksum(), wire.AddDiff(diff, ttlDelta)))
		return
	}
	ip := v.p[v.d.L3 : v.d.L3+40]
	ip[7]--
	src.put(ip[8:24])
	dst.put(ip[24:40])
}

// readdress changes a transport checksum that is still to be made: its field holds the sum of the pseudo
// header, not complemented, in which there are addresses and no ports.
func (v *view) readdress(l4 []byte, diff uint16) {
	if v.d.Proto == wire.ProtoUDP {
		wire.UDP(l4).SetChecksum(^wire.Apply(^wire.UDP(l4).Checksum(), diff))
		return
	}
	wire.TCP(l4).SetChecksum(^wire.Apply(^wire.TCP(l4).Checksum(), diff))
}

// renumber gives a fragment an identification of the gateway's. Senders number their datagrams for each pair
// of addresses (RFC 6864 4.1). Behind a translator many senders share one pair, and the receiver would put
// fragments of different datagrams together.
func (v *view) renumber() {
	if !v.is4 {
		binary.BigEndian.PutUint32(v.p[v.idAt:], v.id)
		return
	}
	ip := wire.IPv4(v.p[v.d.L3 : v.d.L3+20])
	ip.SetChecksum(wire.Update16(ip.Checksum(), ip.ID(), uint16(v.id)))
	ip.SetID(uint16(v.id))
}

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

// translate sends a packet of a client on to the backend's address and the given port, from the source that
// the backend sees.
func (h translator) translate(c *Conn, v *view, to *Endpoint, port uint16) packet.Verdict {
	if verdict := h.tracker().checkHop(v, &to.Hop); verdict != packet.Forward {
		return verdict
	}
	r := rewrite{
		src: v.src, dst: to.addr, sport: c.sourcePort, dport: port, l3: c.l3Delta, l4: c.l4Delta,
	}
	if c.snat != 0 {
		r.src = h.snap.snats[c.snat]
	}
	v.apply(&r)
	return h.leave(v, &to.Hop)
}

// setLink makes the link header that of the way out, and the port too: the addresses, and the tag of
// the hop's VLAN in place of the one that the packet came with. The packet may begin elsewhere in
// its frame then: views of it are stale. It reports false where there is no room for a tag.
func (h translator) setLink(d *packet.Desc, hop *Hop) bool {
	if (d.L3 != wire.EthernetLen || hop.VLAN != 0) && !h.retag(d, hop.VLAN) {
		return false
	}
	d.Port = hop.Dev
	p := h.arena.Bytes(d)
	copy(p[0:6], hop.MAC[:])
	copy(p[6:12], h.snap.Devices[hop.Dev].MAC[:])
	return true
}

// leave gives a rewritten packet the link header of hop. One that checkHop found larger than its MTU leaves in fragments.
func (h translator) leave(v *view, hop *Hop) packet.Verdict {
	if !h.setLink(v.d, hop) {
		return packet.DropNoFrame
	}
	return h.fragmenter().leave(v, hop, true)
}

// retag replaces, pushes or pops the tag of a frame; id 0 is none. A tag that is replaced keeps its
// priority. The addresses are not moved with the header's start: the caller writes them.
func (h translator) retag(d *packet.Desc, id uint16) bool {
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
