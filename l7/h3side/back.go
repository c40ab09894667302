package h3side

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// Back is a connection to a backend with HTTP/3.
type Back struct {
	*Conn
	// settled is whether the backend's settings have arrived. Without them it is not known whether extended CONNECT is permitted.
	settled bool
	full    bool // the backend permits no further stream for now
	warned  bool // the backend has sent GOAWAY: it closes the connection
	alone   bool // the connection is for one session of WebTransport at a time
	idleBy  clock.Time
}

// goAwayTime is the time in which a backend, after GOAWAY and the last response, closes the connection by itself. If both closed at
// once, the packets of one would meet a connection that is gone.
const goAwayTime = 2 * time.Second

// NewBack has HTTP/3 on a connection to a backend. SETTINGS_MAX_FIELD_SECTION_SIZE announces the largest header, but only as
// advice (RFC 9114 4.2.2), so that the machine enforces it too.
//
// QUIC has no end of a stream's output that its sender sees while credit is missing: without the timeout of writes, a request whose
// backend grants none would hold its place, and its content, until the connection is idle.
func NewBack(w *link.Runner, c *quicconn.Conn, most side.HeaderLimits, owner side.Owner) *Back {
	return newBack(w, c, http3.MachineOptions{MaxFieldSection: most.Bytes, MaxFields: most.Fields}, owner)
}

// NewSessionBack has HTTP/3 on a connection for sessions of WebTransport, one at a time: no other request shares its windows, and an end
// without flow control may have no two (draft-ietf-webtrans-http3 5.1). limits are the backend's at the begin of a session.
func NewSessionBack(w *link.Runner, c *quicconn.Conn, most side.HeaderLimits, limits http3.SessionLimits, owner side.Owner) *Back {
	b := newBack(w, c, http3.MachineOptions{MaxFieldSection: most.Bytes, MaxFields: most.Fields, WebTransport: 1, Session: limits}, owner)
	b.alone = true
	return b
}

func newBack(w *link.Runner, c *quicconn.Conn, o http3.MachineOptions, owner side.Owner) *Back {
	b := &Back{Conn: newConn(w, c, http3.NewMachine(http3.RoleClient, o), owner), idleBy: clock.Never}
	b.session = b
	c.SetWriteTimeout(link.BackWrite, uint64(http3.RequestCancelled))
	return b
}

// Limit implements side.Backend.
func (b *Back) Limit() (streams int, known bool) {
	if b.full { // a stream that ends makes place: MAX_STREAMS follows it (RFC 9000 19.11)
		return 0, true
	}
	if b.alone {
		return 1, b.settled
	}
	return side.MaxShared, true
}

// Streams implements side.Backend.
func (b *Back) Streams() int { return len(b.Conn.Streams) }

// Reusable implements side.Backend.
func (b *Back) Reusable() bool { return !b.closed }

// Begin implements side.Backend. The settings permit extended CONNECT, or not (RFC 9220 3). Other requests need not
// wait for them: a client may send before it has them, with the initial values (RFC 9114 7.2.4.2). How many streams may
// be open comes from QUIC's own limit (RFC 9000 4.6).
func (b *Back) Begin(user any, upgrade bool) (side.Stream, side.Caps, error) {
	switch b.idleBy = clock.Never; {
	case b.closed:
		return nil, side.Caps{}, side.ErrUnprocessed
	case upgrade && !b.settled:
		return nil, side.Caps{}, side.ErrWait
	}
	s, err := b.C.Open()
	if b.full = errors.Is(err, quic.ErrStreamLimit); b.full {
		return nil, side.Caps{}, side.ErrFull
	}
	if err != nil {
		return nil, side.Caps{}, side.ErrUnprocessed
	}
	h, err := b.m.Open(s.ID())
	if err != nil { // the machine has failed, and with it the connection
		s.Reset(uint64(http3.RequestCancelled))
		s.Release()
		return nil, side.Caps{}, side.ErrProtocol
	}
	st := b.newStream(s, h)
	st.User = user
	b.enlist(st)
	return st, side.Caps{Shared: true}, nil
}

// opened implements role.
func (b *Back) opened(*Stream) bool { return false } // the machine refuses streams of the server

// message implements role. A response whose request has ended may still be on its way: the backend has sent it before it
// saw the reset.
func (b *Back) message(st *Stream, ev *http3.Event) {
	if st.User == nil {
		return
	}
	m := &st.h.Message
	b.ev.Message, b.ev.Ending = m, side.EndsLater
	if m.Status >= 200 {
		st.keepHeader()
		// The end is reported with the header only if the length agrees: content that is missing makes the response malformed (RFC
		// 9114 4.1.2), which the next event reports.
		if st.last && (m.ContentLength <= 0 || m.Status == 304 || st.bodiless) {
			b.ev.Ending = side.EndsNow
		}
	}
	st.emit(side.Head, nil)
}

// control implements role.
func (b *Back) control(ev *http3.Event) {
	switch ev.Kind {
	case http3.PeerSettings: // once, as the first frame of the control stream (RFC 9114 7.2.4)
		b.settled = true
		b.emit(side.Settings, nil)
	case http3.GoAway: // requests from the ID on were not processed, and may be sent again whatever their method (RFC 9114 5.2)
		b.warned = true
		b.drainSessions(ClientEnd)
		b.emit(side.Leaving, nil)
		for _, st := range slices.Clone(b.Conn.Streams) {
			if st.S != nil && st.S.ID() >= ev.ID {
				st.emit(side.Failed, side.ErrUnprocessed)
			}
		}
	}
}

// stopped implements role. Without a timeout the response follows, or a reset (RFC 9114 4.1); what is held is dropped.
func (b *Back) stopped(st *Stream, err error) {
	if errors.Is(err, quicconn.ErrWriteTimeout) {
		st.fail(side.ErrTimeout)
		return
	}
	st.emit(side.Writable, nil)
}

// Rest implements side.Backend.
func (b *Back) Rest(t time.Duration) {
	b.idleBy = b.w.Now.Add(t)
	b.arm(b.idleBy)
}

// Close implements side.Backend. A backend that has sent GOAWAY closes by itself, if it does so in time. The close of a session gets the time
// to arrive: closing a connection of QUIC abandons what is under way.
func (b *Back) Close() {
	switch {
	case b.warned:
		b.Rest(goAwayTime)
		return
	case b.alone:
		b.Rest(lastTime(b.Conn))
		return
	}
	b.Conn.Close(http3.NoError, "", nil)
}

// passed implements role. The owner gets Closed before the connection ends, so that the end does not count as a failure.
func (b *Back) passed() {
	switch {
	case len(b.Conn.Streams) > 0: // released sets the time again
	case b.idleBy <= b.w.Now:
		b.emit(side.Closed, nil)
		b.Conn.Close(http3.NoError, "", nil)
	default:
		b.arm(b.idleBy)
	}
}

// head implements role. The machine has to know which responses have no content despite their Content-Length (RFC 9110
// 9.3.2): otherwise it would take them for incomplete. The header of a tunnel does not end the stream: DATA frames of
// both sides follow (RFC 9220 3).
func (b *Back) head(st *Stream, m *semantics.Message, e side.Ending) error {
	switch {
	case http3.IsSessionProtocol(m.Protocol):
		if peer, _ := b.m.Peer(); !b.alone || !peer.ExtendedConnect || b.m.MaxSessions() == 0 {
			return side.ErrUpgrade
		}
		m.Protocol = b.m.SessionProtocol()
		st.h.ExpectTunnel()
	case m.Protocol != "":
		if peer, _ := b.m.Peer(); !peer.ExtendedConnect {
			return side.ErrUpgrade
		}
		st.h.ExpectTunnel()
	case m.Method == "HEAD":
		st.bodiless = true
		st.h.ExpectNoContent()
	}
	st.out = b.m.AppendRequest(st.output(), st.S.ID(), m)
	if e == side.EndsNow && m.Protocol == "" {
		st.state = outputEnding
	}
	return nil
}

// canceled implements role. H3_REQUEST_CANCELLED is the code of a client that has no use for the response (RFC 9114
// 4.1.1), whatever the reason is.
func (b *Back) canceled(st *Stream, _ bool) { st.abort(http3.RequestCancelled) }

// released implements role. A request whose response is complete needs no rest (RFC 9114 4.1).
func (b *Back) released(st *Stream) {
	code := http3.RequestCancelled
	if st.arrived {
		code = http3.NoError
	}
	st.drop(code)
}

// ended implements role: the stream's place is free.
func (b *Back) ended() { b.full = false }
