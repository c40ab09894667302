package proxy

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// back2 is a connection to a backend with HTTP/2.
type back2 struct {
	conn2
	settled bool // the backend's settings have arrived
}

// newBack2 has HTTP/2 on a link that has been established. The settings of the backend are bounded by a time.
func newBack2(l *link, settings time.Duration, owner Owner) *back2 {
	b := &back2{conn2: conn2{
		l: l, owner: owner, m: http2.NewMachine(http2.RoleClient, http2.Options{Window: backWindow, ConnWindow: maxShared * backWindow}),
	}}
	l.session = b
	l.deadline(&l.inputBy, settings)
	b.control()
	return b
}

// limit implements backConn.
func (b *back2) limit() (streams int, known bool) {
	return int(min(b.m.Peer().MaxStreams, maxShared)), b.settled
}

// streams implements backConn.
func (b *back2) streams() int { return b.m.Streams() }

// reusable implements backConn.
func (b *back2) reusable() bool { return b.l.open() }

// begin implements backConn. The first requests wait for the settings: they say how many may begin at a time, and whether one may
// that opens a WebSocket (RFC 8441 3). One that the backend refuses could not be sent again after its content.
func (b *back2) begin(user any, _ bool) (Stream, Caps, error) {
	if !b.settled {
		return nil, Caps{}, ErrWait
	}
	s, err := b.m.Open()
	if err != nil {
		return nil, Caps{}, ErrUnprocessed
	}
	st := b.newStream(b, s)
	st.user = user
	b.l.inputBy = clock.Never
	return st, Caps{Shared: true}, nil
}

func (b *back2) input(p []byte, fin bool) int {
	err := b.pull(b, p)
	switch {
	case err != nil:
		b.lose(ErrProtocol)
		b.l.close()
	case fin:
		b.lose(ErrTerminated)
		b.l.close()
	}
	return len(p)
}

// handle implements session2.
func (b *back2) handle(ev *http2.Event, st *stream2) {
	switch {
	case ev.Kind == http2.PeerSettings:
		b.settled = true
		b.emit(Settings, nil)
	case ev.Kind == http2.GoAway: // RFC 9113 6.8
		b.emit(Leaving, nil)
		b.eachStream(func(st *stream2) {
			if st.s.ID() > ev.Last {
				st.emit(Failed, ErrUnprocessed)
			}
		})
	case st == nil:
	case ev.Kind == http2.Headers:
		b.ev.Message, b.ev.Ending = &ev.Stream.Message, EndsLater
		if b.m.EndFollows(ev.Stream) {
			b.ev.Ending = EndsNow
		}
		st.emit(Head, nil)
	case ev.Kind == http2.Failed:
		st.emit(Failed, resetError(ev))
	}
}

// resetError returns why a stream has failed.
func resetError(ev *http2.Event) error {
	switch {
	case ev.Code == http2.RefusedStream: // RFC 9113 8.7: not processed
		return ErrUnprocessed
	case ev.Err != nil:
		return ErrProtocol
	case ev.Code == http2.Cancel:
		return ErrCanceled
	}
	return ErrIncomplete
}

// lose ends all requests.
func (b *back2) lose(err error) {
	b.emit(Leaving, err)
	b.failAll(err)
	b.emit(Closed, nil)
}

// head implements session2.
func (b *back2) head(st *stream2, m *semantics.Message, e Ending) (err error) {
	if m.Protocol != "" && !b.m.Peer().ExtendedConnect {
		return ErrUpgrade
	}
	b.l.out, err = b.m.AppendRequest(b.output(), st.s, m, e == EndsNow && m.Protocol == "")
	return err
}

// canceled implements session2.
func (b *back2) canceled(st *stream2, _ bool) {
	b.m.Reset(st.s, http2.Cancel)
	b.control()
}

// released implements session2.
func (b *back2) released(_ *stream2, s *http2.Stream) {
	b.m.Release(s)
	b.control()
}

// rest implements backConn.
func (b *back2) rest(t time.Duration) { b.l.deadline(&b.l.inputBy, t) }

// close implements backConn.
func (b *back2) close() { b.l.close() }

func (b *back2) expired(output bool) {
	switch {
	case output:
		b.lose(ErrTimeout)
		b.l.abort()
	case !b.settled:
		b.l.abort()
		b.lose(ErrSettings)
	case b.m.Streams() == 0:
		b.emit(Closed, nil)
		b.m.GoAway(http2.NoError)
		b.control()
		b.l.close()
	}
}

func (b *back2) failed(err error) { b.lose(err) }
