package http3

import (
	"errors"

	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/semantics"
)

// fieldSection decodes the payload of HEADERS or PUSH_PROMISE, and validates it. If it is blocked, the
// payload is kept.
func (m *Machine) fieldSection(s *Stream, p []byte) (Event, error) {
	section := p
	var id uint64
	if s.frame == framePushPromise {
		var n int
		if id, n = varint(p); n == 0 {
			return Event{}, connError(FrameError, "a PUSH_PROMISE that is cut")
		}
		section = p[n:]
		if id >= m.permitted {
			return Event{}, connError(IDError, "a push that was not permitted") // RFC 9114 7.2.5
		}
	}
	done, err := m.decoder.Decode(s.id, section, &s.Section)
	switch {
	case errors.Is(err, qpack.ErrTooLarge):
		return m.tooLarge(s)
	case err != nil:
		return Event{}, qpackError(err)
	case !done:
		if s.state != decoding && len(s.buf) == 0 {
			s.buf = append(s.buf, p...)
		}
		s.state, s.isBlocked = decoding, true
		m.blocked = append(m.blocked, s)
		return Event{}, nil
	}
	s.state, s.left = atFrame, 0
	s.buf = s.buf[:0]
	switch {
	case s.frame == framePushPromise:
		return m.promised(s, id)
	case s.phase == wantContent:
		s.phase = wantEnd
		read := semantics.ReadTrailers
		if m.role == RoleClient {
			read = semantics.ReadResponseTrailers
		}
		var err error
		s.Section.Fields, err = read(s.Section.Fields)
		return Event{Kind: Trailers}, invalid(err)
	case m.role == RoleServer:
		return m.requestHeaders(s)
	}
	return m.responseHeaders(s)
}

func (m *Machine) requestHeaders(s *Stream) (Event, error) {
	if err := s.Message.ReadRequest(s.Section.Fields, m.own.ExtendedConnect); err != nil {
		return Event{}, invalid(err)
	}
	s.phase, s.length = wantContent, s.Message.ContentLength
	if s.Message.Method == "CONNECT" {
		s.tunnel, s.length = true, -1
	}
	return Event{Kind: Headers}, nil
}

func (m *Machine) responseHeaders(s *Stream) (Event, error) {
	if err := s.Message.ReadResponse(s.Section.Fields); err != nil {
		return Event{}, invalid(err)
	}
	status := s.Message.Status
	if status < 200 {
		return Event{Kind: Headers}, m.idle() // RFC 9114 4.1: any number of interim responses
	}
	s.phase = wantContent
	s.length = s.Message.ContentLength
	switch {
	case status == 204 || status == 304:
		s.noContent = true
	case s.tunnel && status > 299:
		s.tunnel = false // a refusal is an ordinary response
	case s.tunnel:
		s.length = -1
	}
	if s.noContent {
		s.length = max(s.length, 0) // RFC 9110 6.4.1: no content, whatever Content-Length says
	}
	return Event{Kind: Headers}, nil
}

// ExpectTunnel reports that the stream is the response to CONNECT: once that is accepted, nothing but DATA
// may come (RFC 9114 4.4).
func (s *Stream) ExpectTunnel() { s.tunnel = true }

// beginPromise checks a PUSH_PROMISE frame.
func (m *Machine) beginPromise(s *Stream, length uint64) (Event, error) {
	switch {
	case m.role == RoleServer:
		return Event{}, connError(FrameUnexpected, "PUSH_PROMISE from a client") // RFC 9114 7.2.5
	case s.kind == push:
		return Event{}, connError(FrameUnexpected, "PUSH_PROMISE on a push stream")
	case m.permitted == 0:
		return Event{}, connError(IDError, "a push that was not permitted")
	}
	return m.beginSection(s, length)
}

// promised validates the request of a PUSH_PROMISE (RFC 9114 4.6): safe, cacheable and without content.
func (m *Machine) promised(s *Stream, id uint64) (Event, error) {
	err := invalid(s.Message.ReadRequest(s.Section.Fields, false))
	if err == nil && (s.Message.Method != "GET" && s.Message.Method != "HEAD" || s.Message.ContentLength > 0) {
		err = malformed("a push of a request that is not GET or HEAD")
	}
	return Event{Kind: PushPromise, ID: id}, err
}
