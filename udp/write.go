package udp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Write sends messages and returns how many were sent completely. Where that is less than
// all, the verdict is why the next one was not: see Output.Send; DropMalformed is a message
// without a peer. After DropTxFull the owner gets Writable when to try again; of a message
// of several datagrams, N is what was sent.
func (s *Socket) Write(now clock.Time, msgs []Message) (int, packet.Verdict) {
	for i := range msgs {
		if v := s.send(now, &msgs[i]); v != packet.Forward {
			if v == packet.DropTxFull && !s.writeBlocked {
				s.block()
			}
			return i, v
		}
	}
	return len(msgs), packet.Forward
}

// block puts s at the end of those that try again in a Poll.
func (s *Socket) block() {
	m := s.m
	s.writeBlocked = true
	if m.blockedHead == nil {
		m.blockedHead = s
	} else {
		m.blockedTail.nextBlocked = s
	}
	m.blockedTail = s
}

// send sends one message, from its N on.
func (s *Socket) send(now clock.Time, msg *Message) packet.Verdict {
	o := &s.m.out
	if v := s.fillAddresses(o, msg); v != packet.Forward {
		return v
	}
	s.fillHeader(o, msg)
	total := 0
	for _, b := range msg.Buffers {
		total += len(b)
	}
	size := msg.SegmentSize
	if size <= 0 || size > total {
		size = total
	}
	if size > maxPayloadTo(o.Tuple.Remote) {
		return packet.DropTooBig
	}
	if o.RouteCache == nil {
		s.m.recentPeers.add(o.Tuple, s.m.cfg.Seed)
	}
	return s.sendSegments(now, o, msg, total, size)
}

// maxPayloadTo returns the most bytes of a datagram to an address: its length fields have
// 16 bits (RFC 768, RFC 791 3.1, RFC 8200 3).
func maxPayloadTo(remote wire.Addr) int {
	if remote.Is4() {
		return maxPayload - 20
	}
	return maxPayload
}

// fillAddresses fills in source and destination. The route cache serves only the socket's
// own flow.
func (s *Socket) fillAddresses(o *Outgoing, msg *Message) packet.Verdict {
	t := &s.m.outTuple
	*t = s.tuple
	o.Tuple, o.RouteCache = t, nil
	if s.connected {
		o.RouteCache = &s.routeCache
	}
	if msg.RemotePort != 0 && (msg.Remote != t.Remote || msg.RemotePort != t.RemotePort) {
		t.Remote, t.RemotePort = msg.Remote, msg.RemotePort
		o.RouteCache = nil
	}
	if t.RemotePort == 0 || t.Remote.Unspecified() {
		return packet.DropMalformed
	}
	if msg.Local != (wire.Addr{}) && msg.Local != t.Local {
		t.Local = msg.Local
		o.RouteCache = nil
	}
	if t.Local.Unspecified() || t.Local.Multicast() {
		t.Local = wire.Addr{}
		if t.Remote.Is4() && s.scope.V6Only || !t.Remote.Is4() && s.scope.Addr == wire.Unspecified4 {
			return packet.DropNoRoute
		}
		return packet.Forward
	}
	if t.Local.Is4() != t.Remote.Is4() {
		return packet.DropNoRoute
	}
	return packet.Forward
}

// fillHeader fills in the other fields of the IP header.
func (s *Socket) fillHeader(o *Outgoing, msg *Message) {
	p := &s.opts
	o.TOS = msg.TOS
	if msg.TOS == 0 {
		o.TOS = p.TOS
	} else if msg.TOS>>2 == 0 {
		o.TOS |= p.TOS &^ 3
	}
	o.TTL, o.Interface, o.Loop = p.TTL, p.Interface, false
	if o.Tuple.Remote.Multicast() {
		o.TTL, o.Loop = max(1, p.MulticastTTL), !p.NoLoop
		if p.MulticastInterface != 0 {
			o.Interface = p.MulticastInterface
		}
	}
	if msg.TTL != 0 {
		o.TTL = msg.TTL
	}
	if msg.Interface != 0 {
		o.Interface = msg.Interface
	}
	o.DontFragment, o.Broadcast, o.NoChecksum = p.DontFragment, p.Broadcast, p.NoChecksum
}
