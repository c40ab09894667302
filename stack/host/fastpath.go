package host

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Handle implements stack.Handler: it passes each packet of a burst to its transport, and takes the frames
// of those that were for this host. Merged packets are passed on at the end of the burst at the latest.
// It requests a Tick, which sends what the packets caused, such as ACKs, and calls the owners of sockets: once for a
// burst, not for each packet, so that a reader wakes once and an ACK covers several segments.
func (h *Host) Handle(now clock.Time, b *packet.Batch) {
	h.gro.reset(b)
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

// release returns the frames of delivered packets to the pool: the transports have copied what they keep. Dropped packets
// and those for other loops stay in the batch, and their frames belong to the loop. A packet of several frames has its
// verdict in the first descriptor.
func (h *Host) release(b *packet.Batch) {
	for i := 0; i < len(b.D); i++ {
		delivered := b.D[i].Verdict == packet.Deliver
		for ; ; i++ {
			if delivered {
				h.pool.Put(b.D[i].Off)
			}
			if i+1 == len(b.D) || !b.D[i].Flags.Has(packet.FlagMore) {
				break
			}
		}
	}
}

// rxPacket is a packet on the fast path (ip.Node.FastPath): unfragmented TCP or UDP, no IP options or
// extension headers, complete, from another host to a local unicast address. It borrows the frames.
type rxPacket struct {
	ip.FastPacket
	l4 []byte // from the transport header to the end of the packet, in the first frame
	d  *packet.Desc
	at int // index of d in the batch
	n  int // descriptors

	placed int // bytes of payload that the driver has received to where PlacePayload said, behind those of l4
}

// input decides the packet of n descriptors that begins at i. Undecided means that it is in a GRO slot,
// whose flush writes its verdict.
func (h *Host) input(now clock.Time, b *packet.Batch, i, n int) packet.Verdict {
	a := rxPacket{d: &b.D[i], at: i, n: n}
	if v, owner := h.handover(a.d); owner {
		return v
	}
	if a.placed = h.placed(a.d); a.placed > 0 {
		a.d.Flags &^= packet.FlagTruncated // nothing is missing
	}
	if !h.fastPath(b, &a) {
		if a.placed > 0 {
			return packet.DropUnsupported // the slow path needs the payload in frames
		}
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

// handover decides packets whose flow belongs to another loop, and fragments, which meet on the loop that
// the hash of their addresses names. A packet that has been handed over stays: it was sent to the loop
// of its hash, or to the leader. The hash is the engine's own, not that of the device: devices hash differently, and a
// connection is known only to the loop that Group.Owner names.
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

// fastPath reports whether a packet may take the fast path and is complete, and then fills in the rest of a. Bytes behind
// the length of the IP header are padding of short Ethernet frames and are cut off. A packet in one frame must have all its
// bytes there, one in a chain must not; otherwise the slow path decides.
func (h *Host) fastPath(b *packet.Batch, a *rxPacket) bool {
	d := a.d
	frame := b.Arena.Bytes(d)
	if !h.IP.FastPath(frame, d, &a.FastPacket) {
		return false
	}
	a.l4 = frame[d.L4:min(int(d.Len), int(d.L4)+a.Payload)]
	return a.Payload > 0 && (a.n == 1) == (len(a.l4)+a.placed == a.Payload)
}

// checksumOK computes the transport checksum of a packet for which the engine has not found it right:
// because it is wrong, because the packet spans several frames, or because the engine does not verify.
func (h *Host) checksumOK(b *packet.Batch, a *rxPacket) bool {
	if a.d.Proto == wire.ProtoUDP && wire.UDP(a.l4).ValidHeader() {
		if wire.UDP(a.l4).Checksum() == 0 {
			return true // no checksum: the socket decides whether to accept that (RFC 768, RFC 6935)
		}
		if size := int(wire.UDP(a.l4).Len()); size <= a.Payload { // bytes behind the datagram are not covered
			a.Payload, a.l4 = size, a.l4[:min(len(a.l4), size)]
		}
	}
	acc := a.pseudo()
	if a.d.Flags.Has(packet.FlagOffload) {
		return true // CHECKSUM_PARTIAL: the field has the pseudo-header alone, since the packet has not left this machine
	}
	s := checksummer{acc: acc}
	s.add(a.l4)
	a.eachRest(b, s.add)
	return wire.Fold(s.acc) == 0
}

// pseudo returns the sum of the pseudo-header.
func (a *rxPacket) pseudo() uint32 {
	if a.Is4 {
		q := wire.IPv4(a.L3)
		return wire.PseudoHeader4(q.Src(), q.Dst(), a.d.Proto, uint32(a.Payload))
	}
	q := wire.IPv6(a.L3)
	return wire.PseudoHeader6(q.Src(), q.Dst(), a.d.Proto, uint32(a.Payload))
}

// eachRest calls f with the pieces of the payload that lie in the frames after the first.
func (a *rxPacket) eachRest(b *packet.Batch, f func([]byte)) {
	left := a.Payload - len(a.l4)
	for i := a.at + 1; i < a.at+a.n && left > 0; i++ {
		p := b.Arena.Bytes(&b.D[i])
		p = p[:min(len(p), left)]
		left -= len(p)
		f(p)
	}
}

// checksummer adds up pieces of any length. A piece of odd length leaves the low half of a 16-bit word to
// the next one (RFC 1071 2).
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

// fillTuple fills in the flow of a as this host sees it: the destination is local.
func (a *rxPacket) fillTuple(t *wire.Tuple) {
	if a.Is4 {
		q := wire.IPv4(a.L3)
		t.Local, t.Remote = wire.AddrFrom4(q.Dst()), wire.AddrFrom4(q.Src())
	} else {
		q := wire.IPv6(a.L3)
		t.Local, t.Remote = q.Dst(), q.Src()
	}
	u := wire.UDP(a.l4) // TCP has its ports in the same place
	t.LocalPort, t.RemotePort = u.DstPort(), u.SrcPort()
}
