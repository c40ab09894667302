package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// back3 is a connection to a backend with HTTP/3.
type back3 struct {
	*conn3
	settled bool // the backend's settings have arrived
	full    bool // the backend permits no further stream for now
	warned  bool // the backend has sent GOAWAY: it closes the connection
	idleBy  clock.Time
}

// goAwayTime is how long a backend has, after GOAWAY and the last response, to close the connection by itself.
const goAwayTime = 2 * time.Second

// maxBackHeader bounds the header of a response, in bytes.
const maxBackHeader = 256 << 10

// newBack3 has HTTP/3 on a connection to a backend.
func newBack3(w *runner, c *quicconn.Conn, owner Owner) *back3 {
	m := http3.NewMachine(http3.RoleClient, http3.MachineOptions{MaxFieldSection: maxBackHeader})
	b := &back3{conn3: newConn3(w, c, m, owner), idleBy: clock.Never}
	b.session = b
	return b
}

// limit implements backConn.
func (b *back3) limit() (streams int, known bool) {
	if b.full {
		return 0, true
	}
	return maxShared, true
}

// streams implements backConn.
func (b *back3) streams() int { return len(b.conn3.streams) }

// reusable implements backConn.
func (b *back3) reusable() bool { return !b.closed }

// begin implements backConn. The settings permit extended CONNECT, or not (RFC 9220 3).
func (b *back3) begin(user any, upgrade bool) (Stream, Caps, error) {
	switch b.idleBy = clock.Never; {
	case b.closed:
		return nil, Caps{}, ErrUnprocessed
	case upgrade && !b.settled:
		return nil, Caps{}, ErrWait
	}
	s, err := b.c.Open()
	if b.full = errors.Is(err, quic.ErrStreamLimit); b.full {
		return nil, Caps{}, ErrFull
	}
	if err != nil {
		return nil, Caps{}, ErrUnprocessed
	}
	h, err := b.m.Open(s.ID())
	if err != nil {
		s.Reset(uint64(http3.RequestCancelled))
		s.Release()
		return nil, Caps{}, ErrProtocol
	}
	st := b.newStream(s, h)
	st.user = user
	b.enlist(st)
	b.arm(b.w.now.Add(backWrite / 4))
	return st, Caps{Shared: true}, nil
}

func (b *back3) opened(*stream3) bool { return false } // the machine refuses streams of the server

// message implements session3.
func (b *back3) message(st *stream3, ev *http3.Event) {
	if st.user == nil {
		return
	}
	if ev.Kind == http3.TooLarge {
		st.abort(http3.ExcessiveLoad)
		st.emit(Failed, ErrProtocol)
		return
	}
	m := &st.h.Message
	b.ev.Message, b.ev.Ending = m, EndsLater
	if m.Status >= 200 {
		st.keepHeader()
		if st.last && (m.ContentLength <= 0 || m.Status == 304 || st.bodiless) { // otherwise the content is missing
			b.ev.Ending = EndsNow
		}
	}
	st.emit(Head, nil)
}

func (b *back3) control(ev *http3.Event) {
	switch ev.Kind {
	case http3.PeerSettings:
		b.settled = true
		b.emit(Settings, nil)
	case http3.GoAway: // RFC 9114 5.2
		b.warned = true
		b.emit(Leaving, nil)
		for _, st := range slices.Clone(b.conn3.streams) {
			if st.s != nil && st.s.ID() >= ev.ID {
				st.emit(Failed, ErrUnprocessed)
			}
		}
	}
}

func (b *back3) broken(st *stream3, err error) {
	cause := ErrIncomplete
	var remote *quic.StreamError
	var malformed *http3.StreamError
	switch {
	case errors.As(err, &remote) && http3.ErrorCode(remote.Code) == http3.RequestRejected: // RFC 9114 4.1.1: not processed
		cause = ErrUnprocessed
	case errors.As(err, &malformed):
		cause = ErrProtocol
	}
	if st.user == nil {
		st.close(http3.RequestCancelled)
		return
	}
	st.emit(Failed, cause)
}

// stopped implements session3. The response follows, or a reset (RFC 9114 4.1); what is held is dropped.
func (b *back3) stopped(st *stream3, _ error) { st.emit(Writable, nil) }

func (b *back3) lost(error) {
	b.emit(Leaving, ErrUnprocessed)
	b.failAll(ErrTerminated)
	b.emit(Closed, nil)
}

// rest implements backConn.
func (b *back3) rest(t time.Duration) {
	b.idleBy = b.w.now.Add(t)
	b.arm(b.idleBy)
}

// close implements backConn. A backend that has sent GOAWAY closes by itself, if it does so in time.
func (b *back3) close() {
	if b.warned {
		b.rest(goAwayTime)
		return
	}
	b.conn3.close(http3.NoError, "", nil)
}

func (b *back3) passed() {
	switch {
	case len(b.conn3.streams) > 0:
		b.checkStuck()
		b.arm(b.w.now.Add(backWrite / 4))
	case b.idleBy <= b.w.now:
		b.emit(Closed, nil)
		b.conn3.close(http3.NoError, "", nil)
	default:
		b.arm(b.idleBy)
	}
}

// checkStuck ends the requests that the backend has taken nothing of for a time.
func (b *back3) checkStuck() {
	for _, st := range slices.Clone(b.conn3.streams) {
		if st.s != nil && st.stuck != 0 && b.w.now >= st.stuck.Add(backWrite) {
			st.emit(Failed, ErrTimeout)
		}
	}
}

// head implements session3.
func (b *back3) head(st *stream3, m *semantics.Message, e Ending) error {
	switch {
	case m.Protocol != "":
		if peer, _ := b.m.Peer(); !peer.ExtendedConnect {
			return ErrUpgrade
		}
		st.h.ExpectTunnel()
	case m.Method == "HEAD":
		st.bodiless = true
		st.h.ExpectNoContent()
	}
	st.out = b.m.AppendRequest(st.output(), st.s.ID(), m)
	st.fin = e == EndsNow && m.Protocol == ""
	return nil
}

// canceled implements session3.
func (b *back3) canceled(st *stream3, _ bool) { st.abort(http3.RequestCancelled) }

// released implements session3. A request whose response is complete needs no rest (RFC 9114 4.1).
func (b *back3) released(st *stream3) {
	code := http3.RequestCancelled
	if st.arrived {
		code = http3.NoError
	}
	st.close(code)
	b.full = false
}
