package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// TCP Fast Open (RFC 7413): who has shown before that an address is his, by the cookie that was sent to
// it, may send data with his SYN.

// The server's cookies are a MAC of both addresses and the hour: good for one to two of them, which
// changes their key as RFC 7413 4.1.2 wants without a list of keys.
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

// verifyFastOpenCookie reports whether cookie is one that t's remote end was given; old that it is the former hour's.
func (s *secrets) verifyFastOpenCookie(now clock.Time, t *wire.Tuple, cookie []byte) (ok, old bool) {
	for before := range clock.Time(2) {
		c := s.fastOpenCookie(now, t, before)
		if subtle.ConstantTimeCompare(c[:], cookie) == 1 {
			return true, before > 0
		}
	}
	return false, false
}

// fastOpenInput takes a SYN that comes with a cookie of ours: its connection begins at once, and the application may have it
// before the handshake is complete (RFC 7413 4.2.2). done is false where the handshake has to come first.
func (m *Mux) fastOpenInput(now clock.Time, l *Listener, t *wire.Tuple, s *Segment, iss uint32) (v packet.Verdict, done bool) {
	f := &m.passive
	if !s.Options.HasFastOpen {
		return 0, false
	}
	ok, old := f.secrets.verifyFastOpenCookie(now, t, s.Options.FastOpen)
	if !ok || l.fastOpenPending >= l.backlog { // RFC 7413 5.1: SYNs with stolen cookies must not fill the queue
		return 0, false
	}
	terms := termsOf(l.opts, s)
	h := m.handshakeOf(l, t, terms)
	h.iss, h.irs, h.peerMSS, h.tsRecent, h.window = iss, s.Seq, announcedBy(t, &s.Options), s.Options.TSVal, s.Window
	h.fastOpen, h.sent = true, now
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

// addFastOpenOption counts c among those of l whose handshake is not complete.
func (f *passive) trackFastOpen(c *Conn, l *Listener) {
	if f.fastOpenPending == nil {
		f.fastOpenPending = map[uint32]*Listener{}
	}
	f.fastOpenPending[c.id] = l
	l.fastOpenPending++
}

// untrackFastOpen counts c no more: its handshake is complete, or it is gone.
func (f *passive) untrackFastOpen(c *Conn) {
	if l := f.fastOpenPending[c.id]; l != nil {
		delete(f.fastOpenPending, c.id)
		l.fastOpenPending--
	}
}

// fastOpenCache is what a client knows of servers.
type fastOpenCache struct {
	servers map[wire.Addr]*fastOpenServer
	order   []wire.Addr // as they came, a ring once it is full
	next    int
}

// fastOpenServer is one of them.
type fastOpenServer struct {
	cookie      [16]byte // RFC 7413 4.1.1: 4 to 16 bytes
	len         uint8    // 0 is none yet
	losses      uint8
	mss         uint16     // as the server announced: what the data of a SYN must fit into
	pausedUntil clock.Time // no Fast Open until then
}

const (
	maxFastOpenServers = 4096 // servers remembered; the one that came first makes room
	fastOpenPause      = 30 * time.Minute
)

// cookie returns what a SYN to the server says: its cookie and the MSS that it announced, or no cookie, which asks for one. ok
// is false where Fast Open is not to be tried.
func (f *fastOpenCache) cookie(now clock.Time, server *wire.Addr) (cookie []byte, mss uint16, ok bool) {
	s := f.servers[*server]
	if s == nil {
		return nil, 0, true
	}
	if now.Before(s.pausedUntil) {
		return nil, 0, false
	}
	return s.cookie[:s.len], s.mss, true
}

// store notes what a SYN-ACK brought (RFC 7413 4.1.3).
func (f *fastOpenCache) store(server *wire.Addr, cookie []byte, mss uint16) {
	if len(cookie) < 4 || len(cookie) > 16 || len(cookie)%2 != 0 {
		return
	}
	s := f.server(server)
	s.len = uint8(copy(s.cookie[:], cookie))
	s.mss = mss
}

// markWorking notes that a SYN with an option came through.
func (f *fastOpenCache) markWorking(server *wire.Addr) {
	if s := f.servers[*server]; s != nil {
		s.losses = 0
	}
}

// markLost notes that a SYN with an option was not answered: something in the way may drop such ones, so
// that they are not tried for a while, twice as long each time (RFC 7413 4.1.3.1).
func (f *fastOpenCache) markLost(now clock.Time, server *wire.Addr) {
	s := f.server(server)
	s.pausedUntil = now.Add(fastOpenPause << s.losses)
	s.losses = min(s.losses+1, 8)
}

// server returns what is kept of the server, with room made for it.
func (f *fastOpenCache) server(server *wire.Addr) *fastOpenServer {
	if s := f.servers[*server]; s != nil {
		return s
	}
	if f.servers == nil {
		f.servers = map[wire.Addr]*fastOpenServer{}
	}
	s := &fastOpenServer{}
	if len(f.order) < maxFastOpenServers {
		f.order = append(f.order, *server)
	} else {
		delete(f.servers, f.order[f.next])
		f.order[f.next] = *server
		f.next = (f.next + 1) % maxFastOpenServers
	}
	f.servers[*server] = s
	return s
}
