package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TCP Fast Open (RFC 7413): who has shown before that an address is his, by the cookie that
// was sent to it, may send data with his SYN.

// TCP Fast Open (RFC 7413), the server's side: a peer that has shown by an earlier cookie
// that it receives at its address may send data with its SYN.
//
// Cookies are a MAC over both addresses and the hour. Each is valid in its hour and the
// next, which changes the key as RFC 7413 4.1.2 wants without keeping a list of keys.
const (
	fastOpenCookieLen = 8
	fastOpenPeriod    = time.Hour
)

// fastOpenCookie returns the cookie of t's remote end, of this hour or of one before.
func (s *secrets) fastOpenCookie(now clock.Time, t *wire.Tuple, before clock.Time) (c [fastOpenCookieLen]byte) {
	epoch := uint64(now/clock.Time(fastOpenPeriod) - before)
	binary.BigEndian.PutUint64(c[:], s.fastOpen.addrs(&t.Local, &t.Remote, epoch))
	return c
}

// verifyFastOpenCookie reports whether cookie belongs to t's remote end, and whether it is
// of the hour before.
func (s *secrets) verifyFastOpenCookie(now clock.Time, t *wire.Tuple, cookie []byte) (ok, old bool) {
	for before := range clock.Time(2) {
		c := s.fastOpenCookie(now, t, before)
		if subtle.ConstantTimeCompare(c[:], cookie) == 1 {
			return true, before > 0
		}
	}
	return false, false
}

// fastOpenInput handles a SYN with a valid cookie: its connection begins at once, and the
// application may accept it before the handshake is complete (RFC 7413 4.2.2). done is
// false where the normal handshake has to serve the SYN.
func (m *Mux) fastOpenInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, iss uint32) (v packet.Verdict, done bool) {
	f := &m.passive
	if !s.Options.HasFastOpen {
		return 0, false
	}
	ok, old := f.secrets.verifyFastOpenCookie(now, t, s.Options.FastOpen)
	if !ok || l.fastOpenPending >= l.backlog { // RFC 7413 5.1: SYNs with stolen cookies must not fill the queue
		return 0, false
	}
	// The connection is made as if the handshake were complete; its own SYN-ACK
	// acknowledges SYN and data together.
	terms := termsOf(l.opts, s)
	h := m.handshakeOf(l, t, terms)
	h.announced = m.synWindow(l.opts, terms) // its SYN-ACK is the connection's own
	h.iss, h.irs, h.peerMSS, h.tsRecent, h.window = iss, s.Seq, announcedBy(t, &s.Options), s.Options.TSVal, s.Window
	h.fastOpen = true
	if old {
		c := f.secrets.fastOpenCookie(now, t, 0)
		h.cookie = c[:]
	}
	c := m.newPassiveConn(now, &h)
	if c == nil {
		return 0, false
	}
	m.stats.FastOpens++
	f.trackFastOpen(c, l)
	l.enqueue(c)
	return c.inputFastOpen(now, s), true
}

// trackFastOpen counts c among the connections of l whose handshake is not complete.
func (f *passive) trackFastOpen(c *Conn, l *Listener) {
	if f.fastOpenPending == nil {
		f.fastOpenPending = map[uint32]*Listener{}
	}
	f.fastOpenPending[c.id] = l
	l.fastOpenPending++
}

// moveFastOpen makes c count at l, where its handshake is not complete.
func (f *passive) moveFastOpen(c *Conn, l *Listener) {
	if from := f.fastOpenPending[c.id]; from != nil {
		from.fastOpenPending--
		l.fastOpenPending++
		f.fastOpenPending[c.id] = l
	}
}

// untrackFastOpen stops that: the handshake is complete, or c is gone.
func (f *passive) untrackFastOpen(c *Conn) {
	if l := f.fastOpenPending[c.id]; l != nil {
		delete(f.fastOpenPending, c.id)
		l.fastOpenPending--
	}
}

// inputFastOpen handles the payload of the SYN that made the connection (RFC 7413 4.2.2).
func (c *Conn) inputFastOpen(now clock.Time, s *Segment) packet.Verdict {
	x := behindSYN(s)
	return c.inputText(now, &x)
}

// outputFastOpenData sends data behind the SYN-ACK, before that is acknowledged: the cookie
// has shown that the peer is at its address (RFC 7413 4.2.2). Once the SYN-ACK timed out,
// data and FIN wait for the handshake.
func (c *Conn) outputFastOpenData(now clock.Time) bool {
	if c.state != StateSynReceived || c.m.passive.fastOpenPending[c.id] == nil || c.has(flagFIN) || c.sender.scoreboard.Backoff() > 0 {
		return true
	}
	return c.outputNew(now)
}
