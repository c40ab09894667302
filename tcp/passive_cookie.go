package tcp

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/syncookie"
	"github.com/millrace/millrace/wire"
)

// sendCookie answers a SYN and keeps nothing of it (RFC 4987 3.6).
func (m *Mux) sendCookie(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, a *auth.State) packet.Verdict {
	terms := termsOf(l.opts, s)
	var stamp syncookie.Stamp
	if terms.timestamps() {
		stamp = stampOf(terms)
	} else {
		terms = terms.onlyAccurateECN()
	}
	h := halfOpen{tuple: *t, irs: s.Seq, tsRecent: s.Options.TSVal, terms: terms | termsSmallWindow}
	h.iss = m.passive.cookies.Encode(now, m.passive.secrets.cookie.flow(t), s.Seq, announcedBy(t, &s.Options), stamp)
	if a != nil {
		a.Init(l.opts.Keys, t, h.iss)
		a.SetPeerISN(h.irs)
	}
	m.stats.CookiesSent++
	m.sendSynAck(now, l, &h, a, &stamp)
	return packet.Deliver
}

// cookieInput handles an ACK for a listener: it may bring a cookie back, else it is reset
// (RFC 9293 3.10.7.2). With a full backlog the ACK is dropped without a reset; the next
// segment of the peer brings the cookie again.
func (m *Mux) cookieInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment) packet.Verdict {
	iss, irs := s.Ack-1, s.Seq-1
	var stamp syncookie.Stamp
	terms := termsNoScale
	if s.Options.HasTimestamps && !l.opts.NoTimestamps {
		stamp = syncookie.StampOf(s.Options.TSEcr)
		terms = termsOfStamp(stamp)
	}
	mss, ok := uint16(0), false
	if !s.Flags.Has(wire.FlagSYN) && mayConnect(t) {
		mss, ok = m.passive.cookies.Verify(now, m.passive.secrets.cookie.flow(t), iss, irs, stamp)
	}
	if !ok {
		if m.passive.cookies.Expects(now) {
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

// acceptCookie makes a connection of a valid cookie.
func (m *Mux) acceptCookie(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, mss uint16, terms synTerms) packet.Verdict {
	if ecn.FieldOf(s.Flags, s.AE).OfAccurate() && terms.ecn() == ecn.None && l.opts.ECN != ECNOff && l.opts.ECN != ECNClassic {
		terms = terms.withECN(ecn.Accurate)
	}
	h := m.handshakeOf(l, t, terms|termsSmallWindow) // a cookie has no room to say which
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

// stampOf returns what the timestamp of a SYN-ACK with a cookie carries of terms.
func stampOf(t synTerms) syncookie.Stamp {
	return syncookie.NewStamp(t.scale(), t.sack(), t.ecn() == ecn.Classic)
}

// termsOfStamp is the reverse of stampOf. Accurate ECN needs no room in a Stamp: the ACK
// itself shows it (RFC 9768 5.1).
func termsOfStamp(s syncookie.Stamp) synTerms {
	scale, sack, classic := s.Options()
	t := synTerms(scale) | termsTimestamps
	if sack {
		t |= termsSACK
	}
	if classic {
		t = t.withECN(ecn.Classic)
	}
	return t
}
