package http3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Session is a session of WebTransport (draft-ietf-webtrans-http3): streams and datagrams of its own in a
// connection of HTTP/3. All methods may be called concurrently.
type Session struct {
	tunnel *Tunnel
	c      *conn
	ctx    context.Context
	cancel context.CancelCauseFunc
	bidi   chan *SessionStream
	uni    chan *SessionStream
	drain  chan struct{}

	wmu sync.Mutex // serializes capsules

	mu       sync.Mutex
	streams  map[*SessionStream]struct{}
	drained  bool
	flow     SessionFlow
	flushing bool          // a goroutine sends capsules
	changed  chan struct{} // closed and replaced when the peer gives credit
}

// SessionError is the end of a session. Its code and text are the application's.
type SessionError struct {
	Code   uint32
	Text   string
	Remote bool
}

// Error describes it.
func (e *SessionError) Error() string {
	return fmt.Sprintf("http3: WebTransport session closed with code %d %q", e.Code, e.Text)
}

// ErrSession is returned for a session that cannot be opened.
var ErrSession = errors.New("http3: WebTransport is not enabled at both ends")

const (
	// sessionBacklog is the number of streams of a kind that wait for the application.
	sessionBacklog = 64
	// earlyStreams is the number of streams of a connection that wait for their session, whose request may come
	// after them.
	earlyStreams = 16
	// settingsWait is the time that a session waits for the client's settings.
	settingsWait = 5 * time.Second
)

// AcceptOptions configures AcceptSession. The zero value is valid.
type AcceptOptions struct {
	// CheckOrigin reports whether a page may connect; nil permits those of the request's own host, and
	// clients that are no browsers.
	CheckOrigin func(*http.Request) bool
}

// AcceptSession accepts the request of a session in a handler. The session ends when the handler returns. On
// an error it has sent the response.
func AcceptSession(w http.ResponseWriter, r *http.Request, o *AcceptOptions) (*Session, error) {
	rw, ok := unwrap(w).(*response)
	if !ok || rw.x.r == nil {
		http.Error(w, "WebTransport needs HTTP/3", http.StatusHTTPVersionNotSupported)
		return nil, ErrNotHTTP3
	}
	check := sameOrigin
	if o != nil && o.CheckOrigin != nil {
		check = o.CheckOrigin
	}
	switch c := rw.x.c.conn; {
	case r.Method != http.MethodConnect || !IsSessionProtocol(strings.Join(r.Header[":protocol"], "")):
		http.Error(w, "not a session of WebTransport", http.StatusNotImplemented)
		return nil, ErrSession
	case c.m.own.WebTransport == 0:
		http.Error(w, "WebTransport is off", http.StatusNotImplemented)
		return nil, ErrSession
	case !check(r):
		http.Error(w, "the origin is not allowed", http.StatusForbidden)
		return nil, fmt.Errorf("http3: WebTransport from the origin %q is not allowed", r.Header.Get("Origin"))
	case !c.awaitSettings(r.Context()):
		http.Error(w, "no SETTINGS", http.StatusBadRequest)
		return nil, ErrSession
	case !c.reserveSession():
		http.Error(w, "too many sessions", http.StatusTooManyRequests)
		return nil, errors.New("http3: more sessions than MachineOptions.WebTransport")
	}
	defer rw.x.c.conn.releaseSession()
	t, err := AcceptTunnel(w, r)
	if err != nil {
		return nil, err
	}
	return newSession(t), nil
}

// awaitSettings waits for the client's settings, which a session depends on (draft 3.1).
func (c *conn) awaitSettings(ctx context.Context) bool {
	timer := time.NewTimer(settingsWait)
	defer timer.Stop()
	select {
	case <-c.known:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// DialSession opens a session to a URL of the scheme https. ctx bounds the dialing, not the session.
// Machine.WebTransport must be set.
func (t *Transport) DialSession(ctx context.Context, rawURL string, header http.Header) (*Session, *http.Response, error) {
	if t.Machine.WebTransport == 0 {
		return nil, nil, ErrSession
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodConnect, rawURL, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("http3: %w", err)
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header[":protocol"] = sessionProtocols // of which the server's settings choose one
	tunnel, resp, err := t.DialTunnel(ctx, req)
	if err != nil {
		return nil, resp, err
	}
	if tunnel.c.m.peer.WebTransport == 0 {
		_ = tunnel.Close()
		return nil, resp, ErrSession
	}
	return newSession(tunnel), resp, nil
}

func newSession(t *Tunnel) *Session {
	s := &Session{
		tunnel: t, c: t.c, bidi: make(chan *SessionStream, sessionBacklog), uni: make(chan *SessionStream, sessionBacklog),
		drain: make(chan struct{}), streams: map[*SessionStream]struct{}{},
		flow: t.c.m.Flow(), changed: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(t.ctx))
	s.c.mu.Lock()
	if s.c.sessions == nil {
		s.c.sessions = map[uint64]*Session{}
	}
	s.c.sessions[t.id] = s
	early := s.c.early[t.id]
	delete(s.c.early, t.id)
	s.c.mu.Unlock()
	for _, st := range early {
		s.deliver(st)
	}
	go s.capsules()
	context.AfterFunc(t.ctx, func() { s.end(context.Cause(t.ctx)) })
	return s
}

// reserveSession reserves a place for a session, and reports false where there is none. Once the client has the response it may
// request the next session, before this one is entered in sessions.
func (c *conn) reserveSession() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uint64(len(c.sessions)+c.reserved) >= c.m.MaxSessions() {
		return false
	}
	c.reserved++
	return true
}

// releaseSession frees the place: the session is entered in sessions, or was not accepted.
func (c *conn) releaseSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved--
}

// incoming takes a stream of a session from the peer. If the session is not there yet, the stream waits
// (draft 4.5).
func (c *conn) incoming(r *reader, receive receiver, send sender, id uint64) {
	st := &SessionStream{receive: receive, send: send, pre: append([]byte(nil), (*r.buf)[r.n:]...), fin: r.fin}
	r.release()
	c.mu.Lock()
	s := c.sessions[id]
	reject := false
	if s == nil {
		waiting := 0
		for _, list := range c.early {
			waiting += len(list)
		}
		if reject = waiting >= earlyStreams; !reject {
			if c.early == nil {
				c.early = map[uint64][]*SessionStream{}
			}
			c.early[id] = append(c.early[id], st)
		}
	}
	c.mu.Unlock()
	if reject {
		st.abort(WTBufferedStreamRejected)
	}
	if s != nil {
		s.deliver(st)
	}
}

// deliver hands a stream to the application.
func (s *Session) deliver(st *SessionStream) {
	st.session = s
	to, kind := s.bidi, kindOf(st.send == nil)
	if kind == Unidirectional {
		to = s.uni
	}
	s.mu.Lock()
	gone := s.streams == nil
	if !gone {
		s.streams[st] = struct{}{}
	}
	permitted := s.flow.Accept(kind)
	s.mu.Unlock()
	switch {
	case gone:
		st.abort(WTSessionGone)
		return
	case !permitted:
		s.end(errCredit)
		return
	}
	select {
	case to <- st:
	default:
		s.remove(st)
		st.abort(WTBufferedStreamRejected)
		s.taken(kind)
		s.lost()
	}
}

// taken gives the peer credit for another stream.
func (s *Session) taken(kind int) {
	s.credit(func(f *SessionFlow) bool {
		f.Taken(kind)
		return true
	})
}

func (s *Session) remove(st *SessionStream) {
	s.mu.Lock()
	delete(s.streams, st)
	s.mu.Unlock()
}

// capsules reads the capsules of the session's stream.
func (s *Session) capsules() {
	parser := Capsules{Max: MaxCloseText + 4, Known: func(kind uint64) bool {
		return kind == CapsuleCloseSession || kind == CapsuleDrainSession || kind == CapsuleDatagram || IsFlowCapsule(kind)
	}}
	b := make([]byte, 2048)
	for {
		n, err := s.tunnel.Read(b)
		for in := b[:n]; len(in) > 0; {
			kind, value, used, complete, perr := parser.Next(in)
			in = in[used:]
			if perr != nil {
				s.end(&StreamError{Code: MessageError, Text: perr.Error()})
				return
			}
			if complete && s.capsule(kind, value) {
				return
			}
		}
		if err == nil {
			continue
		}
		if err == io.EOF && !parser.Cut() { //nolint:errorlint // Tunnel returns it as it is
			err = &SessionError{Remote: true} // draft 6: as a close with code 0
		} else if err == io.EOF { //nolint:errorlint // the same
			err = &StreamError{Code: MessageError, Text: "the session's stream ends within a capsule"}
		}
		s.end(err)
		return
	}
}

// capsule handles one. It is the last if the session ends.
func (s *Session) capsule(kind uint64, value []byte) (last bool) {
	switch kind {
	case CapsuleDatagram:
		select {
		case s.tunnel.queue <- append([]byte(nil), value...):
		default:
		}
	case CapsuleDrainSession:
		s.mu.Lock()
		if !s.drained {
			s.drained = true
			close(s.drain)
		}
		s.mu.Unlock()
	case CapsuleCloseSession:
		code, text, ok := ParseCloseSession(value)
		if !ok {
			s.end(&StreamError{Code: MessageError, Text: "a malformed close of the session"})
			return true
		}
		s.end(&SessionError{Code: code, Text: text, Remote: true})
		return true
	default:
		return s.flowCapsule(kind, value)
	}
	return false
}

// end ends the session with an error, and its streams.
func (s *Session) end(err error) {
	s.mu.Lock()
	streams := s.streams
	s.streams = nil
	s.mu.Unlock()
	if streams == nil {
		return
	}
	s.cancel(err)
	s.c.mu.Lock()
	delete(s.c.sessions, s.tunnel.id)
	s.c.mu.Unlock()
	for st := range streams {
		st.abort(WTSessionGone)
	}
	var violation *StreamError
	switch {
	case errors.As(err, &violation) && !violation.Remote:
		s.tunnel.abort(violation.Code)
	case s.wmu.TryLock():
		_ = s.tunnel.closeWrite()
		s.wmu.Unlock()
	default:
		s.tunnel.abort(WTSessionGone) // the peer does not read what is being sent
	}
	s.tunnel.end(err)
	s.tunnel.gone(err)
}

// CloseWithError ends the session with a code and a text of at most 1024 bytes for the peer.
func (s *Session) CloseWithError(code uint32, text string) error {
	text = strings.ToValidUTF8(text[:min(len(text), MaxCloseText)], "")
	// The peer closes its side when it has read that. One that does not is not waited for.
	go func() {
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Second):
			s.end(&SessionError{Code: code, Text: text})
		}
	}()
	s.wmu.Lock()
	defer s.wmu.Unlock()
	_, err := s.tunnel.Write(AppendCloseSession(nil, code, text))
	_ = s.tunnel.closeWrite()
	return err
}

// Drain asks the peer to end the session soon.
func (s *Session) Drain() error {
	return s.send(AppendCapsule(nil, CapsuleDrainSession, nil))
}

// Draining returns a channel that is closed when the peer asks to end the session soon.
func (s *Session) Draining() <-chan struct{} { return s.drain }

// Context ends with the session. Its cause is a *SessionError if an end closed it.
func (s *Session) Context() context.Context { return s.ctx }

// SendDatagram sends a datagram of the session, unreliably. It borrows p.
func (s *Session) SendDatagram(p []byte) error { return s.tunnel.SendDatagram(p) }

// ReceiveDatagram returns the next datagram, which is the caller's.
func (s *Session) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case p := <-s.tunnel.queue:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// OpenStream opens a bidirectional stream. It waits until the peer permits one more.
func (s *Session) OpenStream(ctx context.Context) (*SessionStream, error) {
	if err := s.await(ctx, func(f *SessionFlow) bool { return f.Open(Bidirectional) }); err != nil {
		return nil, err
	}
	qs, err := s.c.q.OpenStream(ctx)
	if err != nil {
		s.notOpened(Bidirectional)
		return nil, converted(err)
	}
	return s.opened(&SessionStream{session: s, receive: qs, send: qs}, false)
}

// OpenUniStream opens a unidirectional stream, which cannot be read.
func (s *Session) OpenUniStream(ctx context.Context) (*SessionStream, error) {
	if err := s.await(ctx, func(f *SessionFlow) bool { return f.Open(Unidirectional) }); err != nil {
		return nil, err
	}
	qs, err := s.c.q.OpenUniStream(ctx)
	if err != nil {
		s.notOpened(Unidirectional)
		return nil, converted(err)
	}
	return s.opened(&SessionStream{session: s, send: qs}, true)
}

// notOpened returns the credit for a stream.
func (s *Session) notOpened(kind int) {
	s.credit(func(f *SessionFlow) bool {
		f.Close(kind)
		return true
	})
}

func (s *Session) opened(st *SessionStream, uni bool) (*SessionStream, error) {
	s.mu.Lock()
	gone := s.streams == nil
	if !gone {
		s.streams[st] = struct{}{}
	}
	s.mu.Unlock()
	if gone {
		st.abort(WTSessionGone)
		return nil, context.Cause(s.ctx)
	}
	if _, err := st.send.Write(AppendWebTransport(nil, s.tunnel.id, uni)); err != nil {
		s.remove(st)
		return nil, converted(err)
	}
	st.send.SetReliableBoundary() // the peer must see whose stream it is, reset or not (draft 4.4)
	return st, nil
}

// AcceptStream returns the next bidirectional stream of the peer. 64 wait; further ones are rejected.
func (s *Session) AcceptStream(ctx context.Context) (*SessionStream, error) {
	return s.accept(ctx, s.bidi, Bidirectional)
}

// AcceptUniStream returns the next unidirectional stream of the peer, which cannot be written.
func (s *Session) AcceptUniStream(ctx context.Context) (*SessionStream, error) {
	return s.accept(ctx, s.uni, Unidirectional)
}

func (s *Session) accept(ctx context.Context, from chan *SessionStream, kind int) (*SessionStream, error) {
	select {
	case st := <-from:
		s.taken(kind)
		return st, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}
