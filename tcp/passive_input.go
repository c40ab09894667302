package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// inputUnmatched handles a segment that belongs to no connection: it may be for a TIME-WAIT
// record, a SYN queue record or a listener, in this order, since a record is more specific
// than the listener that it came from. Anything else has no connection and is reset (RFC 9293
// 3.10.7.1).
func (m *Mux) inputUnmatched(now clock.Time, t *wire.Tuple, s *Segment) packet.Verdict {
	f := &m.passive
	var floor *uint32
	if slot := f.timeWait.find(t); slot != noSlot {
		v, last, again := m.timeWaitInput(now, slot, s)
		if !again {
			return v
		}
		floor = &last
	}
	if slot := f.synQueue.find(t); slot != noSlot {
		return m.halfOpenInput(now, slot, t, s)
	}
	if l := f.listenerFor(t); l != nil {
		return m.listenInput(now, l, t, s, floor)
	}
	m.reset(now, t, s)
	return packet.DropNoSocket
}

// listenInput is the LISTEN state (RFC 9293 3.10.7.2). floor, where not nil, is the last
// sequence number of the tuple's connection before, which the new one has to exceed.
func (m *Mux) listenInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, floor *uint32) packet.Verdict {
	switch {
	case s.TTL < l.opts.MinTTL:
		return packet.DropTTL
	case s.Flags.Has(wire.FlagRST):
		return packet.DropState
	case s.Flags.Has(wire.FlagACK):
		return m.cookieInput(now, l, t, s)
	case !s.Flags.Has(wire.FlagSYN) || s.Flags.Has(wire.FlagFIN) || !mayConnect(t):
		return packet.DropState
	}
	return m.synInput(now, l, t, s, floor)
}

// mayConnect reports whether t may have a connection: neither end is multicast or broadcast
// (RFC 9293 3.9.2.3, MUST-57), and it is not one with itself, which a forged source would
// make loop.
func mayConnect(t *wire.Tuple) bool {
	return t.RemotePort != 0 && !notUnicast(&t.Local) && !notUnicast(&t.Remote) && t.Reverse() != *t
}

// notUnicast reports whether a is multicast, the broadcast address or unspecified.
func notUnicast(a *wire.Addr) bool {
	if a.Is4() {
		return a[12]&0xf0 == 0xe0 || [4]byte(a[12:]) == [4]byte{255, 255, 255, 255} || [4]byte(a[12:]) == [4]byte{}
	}
	return a[0] == 0xff || *a == wire.Addr{}
}

// synInput answers a SYN for a listener: by a record, or where records are scarce by a
// cookie. With a full backlog the SYN is dropped, as no SYN-ACK may promise a connection
// that Accept has no room for; the peer retransmits.
func (m *Mux) synInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, floor *uint32) packet.Verdict {
	f := &m.passive
	if l.full() {
		m.stats.AcceptOverflow++
		return packet.DropBacklog
	}
	iss := f.secrets.initialSequence(now, t)
	if floor != nil {
		iss = sequenceAbove(iss, *floor)
	}
	a, ok := f.authFor(l, t, iss, s)
	if !ok {
		m.stats.AuthFailed++
		return packet.DropAuth
	}
	// A signed SYN has no room for the cookie of Fast Open.
	if l.opts.FastOpen && a == nil {
		if v, done := m.fastOpenInput(now, l, t, s, iss); done {
			return v
		}
	}
	// Backlog many records per listener: more would complete handshakes for which Accept
	// has no room.
	if f.synQueue.scarce() || l.halfOpen >= l.mostHalfOpen() {
		return m.sendCookie(now, l, t, s, a)
	}
	slot := f.synQueue.add(now, t)
	if slot == noSlot {
		return m.sendCookie(now, l, t, s, a)
	}
	f.synQueue.link(l, slot)
	h := f.synQueue.at(slot)
	h.iss, h.irs, h.tsRecent = iss, s.Seq, s.Options.TSVal
	h.peerMSS = announcedBy(t, &s.Options)
	h.terms = termsOf(l.opts, s)
	if m.promisesShort(l.synAckOptions) {
		h.terms |= termsSmallWindow
	}
	if a != nil {
		h.keyIndex = a.Key()
	}
	m.sendHalfOpen(now, l, slot, a)
	return packet.Deliver
}

// minHalfOpen is the number of records that a listener may have whatever its backlog: handshakes take
// a round trip, so a backlog of one would otherwise let a single connection through per
// round trip.
const minHalfOpen = 16

// mostHalfOpen returns how many records l may have.
func (l *Listener) mostHalfOpen() int { return max(l.backlog, minHalfOpen) }

// halfOpenInput is the state SYN-RECEIVED (RFC 9293 3.10.7.4) of a SYN queue record.
func (m *Mux) halfOpenInput(now clock.Time, slot uint32, t *wire.Tuple, s *Segment) packet.Verdict {
	f := &m.passive
	h := f.synQueue.at(slot)
	l := f.listeners[h.listenerID]
	if s.TTL < l.opts.MinTTL {
		return packet.DropTTL
	}
	a := f.authOf(l, h)
	if a != nil && !a.Verify(s.Raw) {
		m.stats.AuthFailed++
		return packet.DropAuth
	}
	old := h.terms.timestamps() && s.Options.HasTimestamps && int32(s.Options.TSVal-h.tsRecent) < 0
	switch {
	case s.Flags.Has(wire.FlagRST):
		return m.halfOpenReset(now, slot, l, a, s)
	case s.Flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN && s.Seq == h.irs:
		if h.terms.conflicts(l.opts, s) {
			m.resetHalfOpen(now, slot, l, a)
			return packet.DropState
		}
		h.terms = h.terms.again(s)
		m.sendHalfOpen(now, l, slot, a)
		return packet.Deliver
	case s.Flags.Has(wire.FlagSYN), old, !acceptable(s, h.irs+1, m.synWindow(l.synAckOptions, h.terms)):
		// RFC 5961 4.2 and not RFC 9293 3.10.7.4, which goes back to LISTEN at a SYN in the
		// window: blind ones would find it. A peer that has begun anew resets what the ACK
		// tells of.
		m.challenge(now, l, h, a)
		return packet.DropSequence
	case !s.Flags.Has(wire.FlagACK):
		return packet.DropState
	case h.terms.timestamps() && !s.Options.HasTimestamps:
		return packet.DropState // RFC 7323 3.2
	case s.Ack != h.iss+1:
		m.reset(now, t, s)
		return packet.DropState
	}
	return m.completeHandshake(now, slot, l, s)
}

// acceptable is the first check of RFC 9293 3.10.7.4, with the window of our SYN-ACK.
func acceptable(s *Segment, next uint32, window uint32) bool {
	n := s.Len
	if s.Flags.Has(wire.FlagFIN) {
		n++
	}
	return s.Seq-next < window || n > 0 && s.Seq+n-1-next < window
}

// halfOpenReset handles a RST. It counts only with exactly the next number; another one in
// the window is challenged (RFC 5961 3.2), since a blind attacker hits a window far more
// easily than a number.
func (m *Mux) halfOpenReset(now clock.Time, slot uint32, l *Listener, a *auth.State, s *Segment) packet.Verdict {
	h := m.passive.synQueue.at(slot)
	if s.Seq == h.irs+1 {
		m.passive.synQueue.end(l, slot)
		m.stats.Failed++
		return packet.Deliver
	}
	if s.Seq-h.irs-1 < m.synWindow(l.synAckOptions, h.terms) {
		m.challenge(now, l, h, a)
	}
	return packet.DropSequence
}

// resetHalfOpen ends a handshake whose SYNs contradict each other. The numbers are right for
// a peer that has got our SYN-ACK, and for one that has not.
func (m *Mux) resetHalfOpen(now clock.Time, slot uint32, l *Listener, a *auth.State) {
	f := &m.passive
	h := *f.synQueue.at(slot)
	f.synQueue.end(l, slot)
	m.stats.Failed++
	if m.reply(now, &h.tuple, &wire.TCPHeader{Seq: h.iss + 1, Ack: h.irs + 1, Flags: wire.FlagRST | wire.FlagACK}, a, l.opts) {
		m.stats.ResetsOut++
	}
}

// completeHandshake makes a connection of a record whose SYN-ACK was acknowledged and
// passes it the segment.
func (m *Mux) completeHandshake(now clock.Time, slot uint32, l *Listener, s *Segment) packet.Verdict {
	f := &m.passive
	if l.full() {
		m.stats.AcceptOverflow++
		return packet.DropBacklog // our next SYN-ACK brings the ACK again
	}
	h := f.synQueue.at(slot)
	shake := m.handshakeOf(l, &h.tuple, h.terms)
	shake.iss, shake.irs, shake.peerMSS, shake.tsRecent = h.iss, h.irs, h.peerMSS, h.tsRecent
	if h.resent == 0 && h.terms&termsSYNRepeated == 0 {
		shake.sent = h.sentAt(now)
	}
	shake.resent = h.resent > 0
	if k := l.opts.Keys; k != nil {
		shake.auth = auth.New(k, &h.tuple, h.iss)
		shake.auth.SetPeerISN(h.irs)
		shake.auth.UseKey(h.keyIndex)
	}
	v, ok := m.establish(now, l, &shake, s)
	if ok {
		f.synQueue.end(l, slot)
	}
	return v
}

// handshakeOf returns what was negotiated, without sequence numbers.
func (m *Mux) handshakeOf(l *Listener, t *wire.Tuple, terms synTerms) handshake {
	h := handshake{
		tuple: *t, scaling: terms.scaling(), sack: terms.sack(), timestamps: terms.timestamps(),
		tsOffset: m.passive.secrets.timestampOffset(t), ecn: terms.ecn(), synECN: terms.synECN(),
		notECT: terms&termsNotECT != 0, sendsSynAck: true,
		opts: l.opts, owner: l, announced: m.synWindow(l.synAckOptions, terms),
	}
	if h.scaling {
		h.sendScale, h.receiveScale = terms.scale(), scaleFor(l.synAckOptions)
	}
	return h
}

// establish makes the connection, queues it for Accept, and passes it the segment that
// completed the handshake.
func (m *Mux) establish(now clock.Time, l *Listener, h *handshake, s *Segment) (v packet.Verdict, ok bool) {
	c := m.newPassiveConn(now, h)
	if c == nil {
		return packet.DropMemory, false
	}
	l.admit(now, c, s)
	return c.input(now, s), true
}
