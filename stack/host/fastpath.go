package host

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Handle implements stack.Handler: it decides what becomes of each packet of a burst, and takes the
// frames of those that were for this host.
func (h *Host) Handle(now clock.Time, b *packet.Batch) {
	h.gro.reset(b)
	h.local.known = false
	for i, n := 0, 0; i < len(b.D); i += n {
		n = max(1, packet.Chain(b.D[i:]))
		d := &b.D[i]
		if d.Verdict == packet.Undecided {
			d.Verdict = h.input(now, b, i, n)
		}
	}
	h.gro.flush(h, now)
	h.release(b)
	h.output.RequestTick()
}

// release gives the frames of what was delivered back to the pool.
func (h *Host) release(b *packet.Batch) {
	for i := 0; i < len(b.D); i++ {
		mine := b.D[i].Verdict == packet.Deliver
		for ; ; i++ {
			if mine {
				h.pool.Put(b.D[i].Off)
			}
			if i+1 == len(b.D) || !b.D[i].Flags.Has(packet.FlagMore) {
				break
			}
		}
	}
}

// The findings of the header pass with which a packet needs no closer look than that of arrival.
const (
	slowPathFlags = packet.FlagVLAN | packet.FlagFragment | packet.FlagFragmentRest | packet.FlagOptions |
		packet.FlagMalformed | packet.FlagTruncated | packet.FlagTunnel
	fastPath4 = packet.FlagIPv4 | packet.FlagIPChecksumOK
)

// rxPacket is a received packet that is plain: TCP or UDP behind an IP header without options, all of it
// there, from a host to an address of ours.
type rxPacket struct {
	l3      []byte // from the IP header on, in the first frame
	l4      []byte // from the transport header to the end of the packet, in the first frame
	d       *packet.Desc
	at      int // index of d in the batch
	n       int // descriptors
	v4      bool
	tos     uint8
	ttl     uint8
	payload int // bytes behind the IP header, in all frames
}

// input decides the packet of n descriptors that begins at i. Undecided is one that waits for its
// neighbours in the burst.
func (h *Host) input(now clock.Time, b *packet.Batch, i, n int) packet.Verdict {
	a := rxPacket{d: &b.D[i], at: i, n: n}
	if v, owner := h.handover(a.d); owner {
		return v
	}
	if !h.fastPath(b, &a) {
		return h.slowPath(now, b, i, n)
	}
	if !a.d.Flags.Has(packet.FlagL4ChecksumOK) && !h.checksumOK(b, &a) {
		return packet.DropL4Checksum
	}
	if a.d.Proto == wire.ProtoTCP {
		return h.inputTCP(now, b, &a)
	}
	return h.inputUDP(now, b, &a)
}

// handover hands a packet over whose flow belongs to another loop, and a fragment to where those of its
// datagram meet. One that was handed over has come to the loop that its hash names, or to the leader.
func (h *Host) handover(d *packet.Desc) (packet.Verdict, bool) {
	n := uint32(len(h.group.Hosts))
	if n == 1 || d.Flags&(packet.FlagHanded|packet.FlagMalformed) != 0 || d.Flags&(packet.FlagIPv4|packet.FlagIPv6) == 0 {
		return packet.Undecided, false
	}
	if d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP && d.Flags&packet.FlagFragment == 0 {
		return packet.Undecided, false
	}
	if owner := d.Hash % n; owner != uint32(h.self) {
		d.Flow = owner
		return packet.Handover, true
	}
	return packet.Undecided, false
}

// fastPath reports whether a packet is what most are, and fills in the rest of a.
func (h *Host) fastPath(b *packet.Batch, a *rxPacket) bool {
	d := a.d
	if d.Flags&slowPathFlags != 0 || d.Payload == 0 || d.Proto != wire.ProtoTCP && d.Proto != wire.ProtoUDP || int(d.Port) >= len(h.macs) {
		return false
	}
	frame := b.Arena.Bytes(d)
	if wire.MAC(frame) != h.macs[d.Port] {
		return false
	}
	a.l3 = frame[d.L3:]
	switch {
	case d.Flags.Has(fastPath4):
		q := wire.IPv4(a.l3)
		a.v4, a.tos, a.ttl, a.payload = true, q.TOS(), q.TTL(), int(q.TotalLen())-wire.IPv4Len
		if !h.addressed4(q, d.Port) {
			return false
		}
	case d.Flags.Has(packet.FlagIPv6):
		q := wire.IPv6(a.l3)
		a.tos, a.ttl, a.payload = q.TrafficClass(), q.HopLimit(), int(q.PayloadLen())
		if !h.addressed6(q, d.Port) {
			return false
		}
	default:
		return false
	}
	a.l4 = frame[d.L4:min(int(d.Len), int(d.L4)+a.payload)]
	return a.payload > 0 && (a.n == 1) == (len(a.l4) == a.payload)
}

// localCache is the address of ours that was asked for last, in this burst.
type localCache struct {
	addr  wire.Addr
	port  uint8
	known bool
	local bool
}

// isLocal reports whether a is an address of this host when a packet comes in on port.
func (h *Host) isLocal(port uint8, a wire.Addr) bool {
	if !h.local.known || h.local.port != port || h.local.addr != a {
		h.local = localCache{a, port, true, h.IP.Local(port, a) == ip.Unicast}
	}
	return h.local.local
}

// addressed4 reports whether a packet goes from what can be another host to an address of ours. Sources such as
// a group's or the loopback's, and our own, are left to the closer look (RFC 1122 3.2.1.3).
func (h *Host) addressed4(q wire.IPv4, port uint8) bool {
	src := q.Src()
	if src[0] == 0 || src[0] == 127 || src[0] >= 224 || src == q.Dst() {
		return false
	}
	return h.isLocal(port, wire.AddrFrom4(q.Dst()))
}

// addressed6 is ours4 for IPv6; ::/8 has the unspecified address, the loopback and embedded ones (RFC 4291 2.5).
func (h *Host) addressed6(q wire.IPv6, port uint8) bool {
	src := q.Src()
	if src[0] == 0 || src[0] == 0xff || src == q.Dst() {
		return false
	}
	return h.isLocal(port, q.Dst())
}

// checksumOK computes the transport checksum of a packet that the engine has not found right: because it is
// wrong, or because it did not look.
func (h *Host) checksumOK(b *packet.Batch, a *rxPacket) bool {
	if a.d.Proto == wire.ProtoUDP && wire.UDP(a.l4).ValidHeader() {
		if wire.UDP(a.l4).Checksum() == 0 {
			return true // there is none: whether that may be is the socket's to say (RFC 768, RFC 6935)
		}
		if size := int(wire.UDP(a.l4).Len()); size <= a.payload { // what is behind it belongs to nobody
			a.payload, a.l4 = size, a.l4[:min(len(a.l4), size)]
		}
	}
	acc := a.pseudo()
	if a.d.Flags.Has(packet.FlagOffload) {
		return true // it never was on a wire
	}
	s := checksummer{acc: acc}
	s.add(a.l4)
	a.eachRest(b, s.add)
	return wire.Fold(s.acc) == 0
}

// pseudo returns the sum of the pseudo header.
func (a *rxPacket) pseudo() uint32 {
	if a.v4 {
		q := wire.IPv4(a.l3)
		return wire.PseudoHeader4(q.Src(), q.Dst(), a.d.Proto, uint32(a.payload))
	}
	q := wire.IPv6(a.l3)
	return wire.PseudoHeader6(q.Src(), q.Dst(), a.d.Proto, uint32(a.payload))
}

// eachRest calls f with the pieces of the payload that lie in frames behind the first.
func (a *rxPacket) eachRest(b *packet.Batch, f func([]byte)) {
	left := a.payload - len(a.l4)
	for i := a.at + 1; i < a.at+a.n && left > 0; i++ {
		p := b.Arena.Bytes(&b.D[i])
		p = p[:min(len(p), left)]
		left -= len(p)
		f(p)
	}
}

// checksummer is a running sum over pieces of any length.
type checksummer struct {
	acc uint32
	odd bool
}

func (s *checksummer) add(p []byte) {
	if s.odd && len(p) > 0 {
		s.acc = wire.Sum([]byte{0, p[0]}, s.acc)
		p, s.odd = p[1:], false
	}
	s.acc = wire.Sum(p, s.acc)
	s.odd = s.odd != (len(p)&1 == 1)
}

// fillTuple returns the flow of a as this host sees it.
func (a *rxPacket) fillTuple(t *wire.Tuple) {
	if a.v4 {
		q := wire.IPv4(a.l3)
		t.Local, t.Remote = wire.AddrFrom4(q.Dst()), wire.AddrFrom4(q.Src())
	} else {
		q := wire.IPv6(a.l3)
		t.Local, t.Remote = q.Dst(), q.Src()
	}
	u := wire.UDP(a.l4) // ports lie where those of TCP do
	t.LocalPort, t.RemotePort = u.DstPort(), u.SrcPort()
}
