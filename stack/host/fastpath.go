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

// rxPacket is a received packet on the fast path: unfragmented TCP or UDP, no IP options, complete.
type rxPacket struct {
	ip.FastPacket
	l4 []byte // from the transport header to the end of the packet, in the first frame
	d  *packet.Desc
	at int // index of d in the batch
	n  int // descriptors
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

// fastPath reports whether ip lets a packet pass without its slow path, and all of it is there, and fills in the rest
// of a.
func (h *Host) fastPath(b *packet.Batch, a *rxPacket) bool {
	d := a.d
	frame := b.Arena.Bytes(d)
	if !h.IP.FastPath(frame, d, &a.FastPacket) {
		return false
	}
	a.l4 = frame[d.L4:min(int(d.Len), int(d.L4)+a.Payload)]
	return a.Payload > 0 && (a.n == 1) == (len(a.l4) == a.Payload)
}

// checksumOK computes the transport checksum of a packet that the engine has not found right: because it is
// wrong, or because it did not look.
func (h *Host) checksumOK(b *packet.Batch, a *rxPacket) bool {
	if a.d.Proto == wire.ProtoUDP && wire.UDP(a.l4).ValidHeader() {
		if wire.UDP(a.l4).Checksum() == 0 {
			return true // there is none: whether that may be is the socket's to say (RFC 768, RFC 6935)
		}
		if size := int(wire.UDP(a.l4).Len()); size <= a.Payload { // what is behind it belongs to nobody
			a.Payload, a.l4 = size, a.l4[:min(len(a.l4), size)]
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
	if a.Is4 {
		q := wire.IPv4(a.L3)
		return wire.PseudoHeader4(q.Src(), q.Dst(), a.d.Proto, uint32(a.Payload))
	}
	q := wire.IPv6(a.L3)
	return wire.PseudoHeader6(q.Src(), q.Dst(), a.d.Proto, uint32(a.Payload))
}

// eachRest calls f with the pieces of the payload that lie in frames behind the first.
func (a *rxPacket) eachRest(b *packet.Batch, f func([]byte)) {
	left := a.Payload - len(a.l4)
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
	if a.Is4 {
		q := wire.IPv4(a.L3)
		t.Local, t.Remote = wire.AddrFrom4(q.Dst()), wire.AddrFrom4(q.Src())
	} else {
		q := wire.IPv6(a.L3)
		t.Local, t.Remote = q.Dst(), q.Src()
	}
	u := wire.UDP(a.l4) // ports lie where those of TCP do
	t.LocalPort, t.RemotePort = u.DstPort(), u.SrcPort()
}
