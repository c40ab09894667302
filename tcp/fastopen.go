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

// knows reports whether cookie is one that t's remote end was given; old that it is the former hour's.
func (s *secrets) knows(now clock.Time, t *wire.Tuple, cookie []byte) (ok, old bool) {
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
	f := &m.front
	if !s.Options.HasFastOpen {
		return 0, false
	}
	ok, old := f.secrets.knows(now, t, s.Options.FastOpen)
	if !ok || l.opening >= l.backlog { // RFC 7413 5.1: SYNs with stolen cookies must not fill the queue
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
	c := m.opened(now, &h)
	if c == nil {
		return 0, false
	}
	m.stats.FastOpens++
	f.openFast(c, l)
	l.push(c)
	return c.inputFastOpen(now, s), true
}

// openFast counts c among those of l whose handshake is not complete.
func (f *front) openFast(c *Conn, l *Listener) {
	if f.opening == nil {
		f.opening = map[uint32]*Listener{}
	}
	f.opening[c.id] = l
	l.opening++
}

// openedFast counts c no more: its handshake is complete, or it is gone.
func (f *front) openedFast(c *Conn) {
	if l := f.opening[c.id]; l != nil {
		delete(f.opening, c.id)
		l.opening--
	}
}

// fastOpens is what a client knows of servers.
type fastOpens struct {
	known map[wire.Addr]*fastOpenServer
	order []wire.Addr // as they came, a ring once it is full
	next  int
}

// fastOpenServer is one of them.
type fastOpenServer struct {
	cookie [16]byte // RFC 7413 4.1.1: 4 to 16 bytes
	len    uint8    // 0 is none yet
	losses uint8
	mss    uint16     // as the server announced: what the data of a SYN must fit into
	quiet  clock.Time // no Fast Open until then
}

const (
	maxFastOpens  = 4096 // servers remembered; the one that came first makes room
	fastOpenQuiet = 30 * time.Minute
)

// cookie returns what a SYN to the server says: its cookie and the MSS that it announced, or no cookie, which asks for one. ok
// is false where Fast Open is not to be tried.
func (f *fastOpens) cookie(now clock.Time, server *wire.Addr) (cookie []byte, mss uint16, ok bool) {
	s := f.known[*server]
	if s == nil {
		return nil, 0, true
	}
	if now.Before(s.quiet) {
		return nil, 0, false
	}
	return s.cookie[:s.len], s.mss, true
}

// learn notes what a SYN-ACK brought (RFC 7413 4.1.3).
func (f *fastOpens) learn(server *wire.Addr, cookie []byte, mss uint16) {
	if len(cookie) < 4 || len(cookie) > 16 || len(cookie)%2 != 0 {
		return
	}
	s := f.server(server)
	s.len = uint8(copy(s.cookie[:], cookie))
	s.mss = mss
}

// worked notes that a SYN with an option came through.
func (f *fastOpens) worked(server *wire.Addr) {
	if s := f.known[*server]; s != nil {
		s.losses = 0
	}
}

// lost notes that a SYN with an option was not answered: something in the way may drop such ones, so
// that they are not tried for a while, twice as long each time (RFC 7413 4.1.3.1).
func (f *fastOpens) lost(now clock.Time, server *wire.Addr) {
	s := f.server(server)
	s.quiet = now.Add(fastOpenQuiet << s.losses)
	s.losses = min(s.losses+1, 8)
}

// server returns what is kept of the server, with room made for it.
func (f *fastOpens) server(server *wire.Addr) *fastOpenServer {
	if s := f.known[*server]; s != nil {
		return s
	}
	if f.known == nil {
		f.known = map[wire.Addr]*fastOpenServer{}
	}
	s := &fastOpenServer{}
	if len(f.order) < maxFastOpens {
		f.order = append(f.order, *server)
	} else {
		delete(f.known, f.order[f.next])
		f.order[f.next] = *server
		f.next = (f.next + 1) % maxFastOpens
	}
	f.known[*server] = s
	return s
}
