package host

import (
	"encoding/binary"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// route returns the path of a flow: the one that cache names if it is still valid, else a new lookup,
// which cache then names. A nil path comes with the reason. The transports keep cache with the
// connection, so that a segment costs a comparison instead of a lookup in the routing table.
func (h *Host) route(now clock.Time, t *wire.Tuple, dev uint8, cache *uint64) (*ip.Path, packet.Verdict) {
	if cache != nil && *cache != 0 {
		if p := h.IP.Path(now, ip.Ref(*cache)); p != nil {
			return p, packet.Forward
		}
	}
	p, why := h.IP.Route(now, t.Remote, t.Local, dev)
	if p == nil {
		return nil, why
	}
	if cache != nil {
		*cache = uint64(p.Ref)
	}
	return p, packet.Forward
}

// HopLimit returns the TTL or hop limit of packets of a flow whose program has chosen none.
func (h *Host) HopLimit(t *wire.Tuple) uint8 {
	if p, _ := h.route(h.Now(), t, ip.AnyDev, nil); p != nil {
		return p.TTL
	}
	return ip.DefaultTTL
}

// headerTemplate holds what the Ethernet and IP headers of the packets of one send have in common. Only
// length, identification and checksum differ from packet to packet: they are written into a copy,
// and the IPv4 checksum is the sum of the rest plus those two words (RFC 1071 2, the sum is
// associative).
type headerTemplate struct {
	b   [wire.EthernetLen + wire.IPv6Len]byte
	n   int // length
	v4  bool
	sum uint32 // of the IPv4 header without its length, identification and checksum
	id  uint16 // of the next packet
}

// init fills the template for packets on a path.
func (t *headerTemplate) init(p *ip.Path, hdr *ip.Header) {
	t.n = p.Put(t.b[:], hdr, 0)
	t.v4, t.id = hdr.Src.Is4(), hdr.ID
	if t.v4 {
		q := wire.IPv4(t.b[wire.EthernetLen:t.n])
		q.SetTotalLen(0)
		q.SetID(0)
		q.SetChecksum(0)
		t.sum = wire.Sum(q, 0)
	}
}

// write writes the headers of a packet with payload bytes behind them to the start of b. Each packet gets the next
// identification: a router may fragment one without DF, and fragments of two packets must not be joined (RFC 6864 4.3).
func (t *headerTemplate) write(b []byte, payload int) {
	copy(b, t.b[:t.n])
	q := b[wire.EthernetLen:t.n]
	if !t.v4 {
		binary.BigEndian.PutUint16(q[4:], uint16(payload))
		return
	}
	total := uint16(payload + wire.IPv4Len)
	binary.BigEndian.PutUint16(q[2:], total)
	binary.BigEndian.PutUint16(q[4:], t.id)
	binary.BigEndian.PutUint16(q[10:], wire.Fold(t.sum+uint32(total)+uint32(t.id)))
	t.id++
}

// flowLabel returns the IPv6 flow label of a flow (RFC 6437 3): the same for all its packets, so that routers that hash it
// keep the flow on one path, and unlike those of other flows. The seed makes labels of two hosts independent.
func (h *Host) flowLabel(t *wire.Tuple) uint32 {
	if t.Local.Is4() {
		return 0
	}
	x := h.seed ^ binary.LittleEndian.Uint64(t.Local[8:]) ^ binary.LittleEndian.Uint64(t.Remote[8:])*0x9e3779b97f4a7c15
	x ^= binary.LittleEndian.Uint64(t.Remote[:]) + uint64(t.LocalPort)<<16 + uint64(t.RemotePort)
	x *= 0xd1b54a32d192ed03
	return uint32(x>>44) | 1 // 20 bits; 0 would mean that the packet has no label
}
