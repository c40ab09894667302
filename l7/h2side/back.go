package h2side

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// Back is a connection to a backend with HTTP/2. The window of its connection has room for the windows of all streams, so that one
// response whose client is slow does not stop the others (RFC 9113 5.2.2): only its own stream runs out of credit.
type Back struct {
	conn
	settled bool // the backend's settings have arrived
}

// NewBack has HTTP/2 on a link that has been established. The settings of the backend are bounded by a time.
func NewBack(l *link.Link, most side.HeaderLimits, settings time.Duration, owner side.Owner) *Back {
	b := &Back{conn: conn{
		L: l, owner: owner, m: http2.NewMachine(http2.RoleClient, http2.Options{
			Window: side.BackWindow, ConnWindow: side.MaxShared * side.BackWindow, MaxFieldSection: most.Bytes, MaxFields: most.Fields,
		}),
	}}
	l.Session = b
	l.Deadline(&l.InputBy, settings)
	b.control()
	return b
}

// Limit implements side.Backend.
func (b *Back) Limit() (streams int, known bool) {
	return int(min(b.m.Peer().MaxStreams, side.MaxShared)), b.settled
}

// Streams implements side.Backend.
func (b *Back) Streams() int { return b.m.Streams() }

// Reusable implements side.Backend.
func (b *Back) Reusable() bool { return b.L.Open() }

// Begin implements side.Backend. The first requests wait for the settings: they say how many may begin at a time, and whether one may
// that opens a WebSocket (RFC 8441 3). One that the backend refuses could not be sent again after its content.
func (b *Back) Begin(user any, _ bool) (side.Stream, side.Caps, error) {
	if !b.settled {
		return nil, side.Caps{}, side.ErrWait
	}
	s, err := b.m.Open()
	if err != nil {
		return nil, side.Caps{}, side.ErrUnprocessed
	}
	st := b.newStream(b, s)
	st.User = user
	b.L.InputBy = clock.Never
	return st, side.Caps{Shared: true}, nil
}

// Input implements link.Session.
func (b *Back) Input(p []byte, fin bool) int {
	err := b.pull(b, p)
	switch {
	case err != nil:
		b.lose(side.ErrProtocol)
		b.L.Close()
	case fin:
		b.lose(side.ErrTerminated)
		b.L.Close()
	}
	return len(p)
}

// handle implements role.
func (b *Back) handle(ev *http2.Event, st *Stream) {
	switch {
	case ev.Kind == http2.PeerSettings:
		b.settled = true
		b.emit(side.Settings, nil)
	case ev.Kind == http2.GoAway: // RFC 9113 6.8
		b.emit(side.Leaving, nil) // first: those that fail now are sent again, and must not choose this connection
		b.EachStream(func(st *Stream) {
			if st.s.ID() > ev.Last {
				st.emit(side.Failed, side.ErrUnprocessed)
			}
		})
	case st == nil:
	case ev.Kind == http2.Headers:
		b.ev.Message, b.ev.Ending = &ev.Stream.Message, side.EndsLater
		if b.m.EndFollows(ev.Stream) {
			b.ev.Ending = side.EndsNow
		}
		st.emit(side.Head, nil)
	case ev.Kind == http2.Failed:
		st.emit(side.Failed, resetError(ev))
	}
}

// resetError returns why a stream has failed. Only REFUSED_STREAM promises that the request was not processed.
func resetError(ev *http2.Event) error {
	switch {
	case ev.Code == http2.RefusedStream: // RFC 9113 8.7: not processed
		return side.ErrUnprocessed
	case ev.Err != nil && ev.Code == http2.EnhanceYourCalm: // of this end's machine, which has this code for a header alone
		return side.ErrHeaderSize
	case ev.Err != nil:
		return side.ErrProtocol
	case ev.Code == http2.Cancel:
		return side.ErrCanceled
	}
	return side.ErrIncomplete
}

// lose ends all requests.
func (b *Back) lose(err error) {
	b.emit(side.Leaving, err)
	b.failAll(err)
	b.emit(side.Closed, nil)
}

// head implements role.
func (b *Back) head(st *Stream, m *semantics.Message, e side.Ending) (err error) {
	if m.Protocol != "" && !b.m.Peer().ExtendedConnect {
		return side.ErrUpgrade
	}
	b.L.Out, err = b.m.AppendRequest(b.output(), st.s, m, e == side.EndsNow && m.Protocol == "")
	return err
}

// canceled implements role.
func (b *Back) canceled(st *Stream, _ bool) {
	b.m.Reset(st.s, http2.Cancel)
	b.control()
}

// released implements role.
func (b *Back) released(_ *Stream, s *http2.Stream) {
	b.m.Release(s)
	b.control()
}

// Rest implements side.Backend.
func (b *Back) Rest(t time.Duration) { b.L.Deadline(&b.L.InputBy, t) }

// Close implements side.Backend.
func (b *Back) Close() { b.L.Close() }

// Expired implements link.Session.
func (b *Back) Expired(output bool) {
	switch {
	case output:
		b.lose(side.ErrTimeout)
		b.L.Abort()
	case !b.settled:
		b.L.Abort()
		b.lose(side.ErrSettings)
	case b.m.Streams() == 0: // GOAWAY, so that the backend does not take the end for an error (RFC 9113 9.1)
		b.emit(side.Closed, nil)
		b.m.GoAway(http2.NoError)
		b.control()
		b.L.Close()
	}
}

// Failed implements link.Session.
func (b *Back) Failed(err error) { b.lose(err) }
