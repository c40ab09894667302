package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// sendCookie answers a SYN without keeping anything of it.
func (m *Mux) sendCookie(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, a *auth.State) packet.Verdict {
	terms := termsOf(l.opts, s)
	stamp := uint32(0)
	if terms.timestamps() {
		if terms.ecn() == ecnAccurate { // a cookie cannot say how it was agreed: RFC 3168's, which every such peer takes
			terms = terms.withECN(ecnClassic)
		}
		stamp = cookieStamp(terms)
	} else {
		terms = termsNoScale
	}
	h := halfOpen{tuple: *t, irs: s.Seq, tsRecent: s.Options.TSVal, terms: terms}
	h.iss = m.passive.cookies.bake(now, t, s.Seq, announcedBy(t, &s.Options), stamp)
	if a != nil {
		a.Init(l.opts.Keys, t, h.iss)
		a.SetPeerISN(h.irs)
	}
	m.stats.CookiesSent++
	m.sendSynAck(now, l, &h, a, stamp+1)
	return packet.Deliver
}

// cookieInput takes an ACK for a listener: it may bring a cookie back, else it is reset (RFC 9293
// 3.10.7.2). A connection that is refused for want of room may come again with the peer's next segment.
func (m *Mux) cookieInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment) packet.Verdict {
	iss, irs := s.Ack-1, s.Seq-1
	stamp, terms := uint32(0), termsNoScale
	if s.Options.HasTimestamps && !l.opts.NoTimestamps {
		stamp = s.Options.TSEcr & cookieTS
		terms = cookieTerms(stamp)
	}
	mss, ok := uint16(0), false
	if !s.Flags.Has(wire.FlagSYN) && mayConnect(t) {
		mss, ok = m.passive.cookies.taste(now, t, iss, irs, stamp)
	}
	if !ok {
		if now.Before(m.passive.cookies.until) {
			m.stats.CookiesBad++
		}
		m.reset(now, t, s)
		return packet.DropState
	}
	if l.full() {
		m.stats.AcceptOverflow++
		return packet.DropBacklog
	}
	return m.acceptCookie(now, l, t, s, mss, terms)
}

// acceptCookie makes a connection of a good cookie.
func (m *Mux) acceptCookie(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, mss uint16, terms synTerms) packet.Verdict {
	h := m.handshakeOf(l, t, terms)
	h.iss, h.irs, h.peerMSS, h.tsRecent = s.Ack-1, s.Seq-1, mss, s.Options.TSVal
	if k := l.opts.Keys; k != nil {
		h.auth = auth.New(k, t, h.iss)
		h.auth.SetPeerISN(h.irs)
		if !h.auth.Verify(s.Raw) {
			m.stats.AuthFailed++
			return packet.DropAuth
		}
	}
	m.stats.CookiesGood++
	v, _ := m.establish(now, l, &h, s)
	return v
}
