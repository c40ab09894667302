package http2

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// find returns the stream of a frame: nil for one that this end has reset. A stream that was never opened, or that has ended
// otherwise, is an error of the connection (RFC 9113 5.1).
func (m *Machine) find(id uint32) (*Stream, error) {
	if s := m.streams[id]; s != nil {
		return s, nil
	}
	if m.isIdle(id) {
		return nil, errIdleStream
	}
	if m.wasReset(id) {
		return nil, nil
	}
	return nil, errClosedStream
}

// isIdle reports whether a stream is idle: neither end has opened it (RFC 9113 5.1).
func (m *Machine) isIdle(id uint32) bool {
	if m.own(id) {
		return id >= m.nextID
	}
	return id > m.lastID
}

// own reports whether a stream is one that this end opens: a client the odd ones (RFC 9113 5.1.1).
func (m *Machine) own(id uint32) bool { return (id%2 == 1) == (m.role == RoleClient) }

// headers takes HEADERS (RFC 9113 6.2):
//
//	[pad length(8)] [exclusive(1) depends on(31) weight(8)] field block [padding]
func (m *Machine) headers(p []byte) (Event, error) {
	f := &m.frame
	if f.stream == 0 {
		return Event{}, errStreamZero
	}
	p, err := unpad(p, f)
	if err != nil {
		return Event{}, err
	}
	selfish := false
	if f.has(flagPriority) {
		if len(p) < 5 {
			return Event{}, errFrameSize
		}
		selfish = binary.BigEndian.Uint32(p)&maxStreamID == f.stream
		p = p[5:]
	}
	s, refusal, err := m.streamOfHeaders(f.stream)
	if err != nil {
		return Event{}, err
	}
	if selfish && refusal == nil {
		refusal = errDependsOnItself
	}
	m.blockEnd, m.current, m.refusal = f.has(flagEndStream), s, refusal
	if f.has(flagEndHeaders) {
		return m.fieldBlock(p)
	}
	m.blockOf = f.stream
	m.block = append(m.block[:0], p...)
	return Event{}, m.idle()
}

// unpad removes the padding of a frame.
func unpad(p []byte, f *header) ([]byte, error) {
	if !f.has(flagPadded) {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, errPadding
	}
	return p[1 : len(p)-int(p[0])], nil
}

// streamOfHeaders returns the stream of HEADERS, which may be a new one; nil if its field block is decoded only for the table.
// A refusal ends the stream once that is done.
func (m *Machine) streamOfHeaders(id uint32) (s *Stream, refusal *StreamError, err error) {
	if m.role == RoleServer && !m.own(id) && id > m.lastID {
		return m.open(id)
	}
	if s, err = m.find(id); err != nil {
		if m.role == RoleServer && m.own(id) {
			err = errStreamID
		}
		return nil, nil, err
	}
	if s != nil && s.received {
		return s, errHalfClosed, nil
	}
	return s, nil, nil
}

// open opens the stream of a client.
func (m *Machine) open(id uint32) (*Stream, *StreamError, error) {
	m.lastID = id
	if m.goneAway && id > m.accepted {
		m.rememberReset(id) // RFC 9113 6.8: ignored
		return nil, nil, nil
	}
	s := m.newStream(id)
	if len(m.streams) > m.options.MaxStreams {
		return s, errRefused, nil
	}
	return s, nil, nil
}

// continuation takes CONTINUATION (RFC 9113 6.10).
func (m *Machine) continuation(p []byte) (Event, error) {
	if len(m.block)+len(p) > m.options.MaxFieldSection+minFrame {
		return Event{}, errBlockSize
	}
	m.block = append(m.block, p...)
	if !m.frame.has(flagEndHeaders) {
		return Event{}, m.idle()
	}
	m.blockOf = 0
	return m.fieldBlock(m.block)
}

// fieldBlock takes a field block that is complete. It is decoded in any case: the table is that of the connection.
func (m *Machine) fieldBlock(p []byte) (Event, error) {
	s, section := m.current, &m.section
	trailers := s != nil && s.began
	switch {
	case s == nil || m.refusal != nil:
	case trailers:
		section = &s.trailers
	default:
		section = &s.headers
	}
	err := m.decoder.Decode(p, section)
	tooLarge := errors.Is(err, hpack.ErrTooLarge)
	switch {
	case err != nil && !tooLarge:
		return Event{}, errHPACK
	case s == nil:
		return Event{}, m.idle()
	case m.refusal != nil:
		return m.failStream(s, m.refusal)
	case tooLarge:
		return m.tooLarge(s)
	case trailers:
		return m.trailers(s)
	case m.role == RoleServer:
		return m.requestHeaders(s)
	}
	return m.responseHeaders(s)
}

// tooLarge is a field section above the limit.
func (m *Machine) tooLarge(s *Stream) (Event, error) {
	if m.role == RoleServer && !s.began {
		s.began, s.received = true, true // what may follow is passed over
		s.Message = semantics.Message{ContentLength: -1}
		return Event{Kind: TooLarge, Stream: s}, nil
	}
	return m.failStream(s, errSectionSize)
}

// requestHeaders takes the header of a request (RFC 9113 8.3.1).
func (m *Machine) requestHeaders(s *Stream) (Event, error) {
	if err := s.Message.ReadRequest(s.headers.Fields, m.options.ExtendedConnect); err != nil {
		return m.failStream(s, malformed(err))
	}
	s.began = true
	m.Allow(16)
	s.length, s.isHead, s.tunnel = s.Message.ContentLength, s.Message.Method == "HEAD", s.Message.Method == "CONNECT"
	if s.tunnel {
		s.length = -1
	}
	m.endOfBlock()
	return Event{Kind: Headers, Stream: s}, nil
}

// endOfBlock has the stream end after the event if its field block says so.
func (m *Machine) endOfBlock() {
	if m.blockEnd {
		m.state = atEnd
	}
}

// responseHeaders takes the header of a response (RFC 9113 8.3.2).
func (m *Machine) responseHeaders(s *Stream) (Event, error) {
	if err := s.Message.ReadResponse(s.headers.Fields); err != nil {
		return m.failStream(s, malformed(err))
	}
	status := s.Message.Status
	if status < 200 {
		if m.blockEnd {
			return m.failStream(s, errNoHeader) // RFC 9113 8.1
		}
		return Event{Kind: Headers, Stream: s}, m.idle()
	}
	s.began = true
	m.Allow(16)
	s.length = s.Message.ContentLength
	s.noContent = s.isHead || status == 204 || status == 304
	if s.tunnel = s.tunnel && status < 300; s.tunnel {
		s.length = -1
	}
	if s.noContent {
		s.length = max(s.length, 0) // RFC 9110 6.4.1: no content, whatever Content-Length says
	}
	m.endOfBlock()
	return Event{Kind: Headers, Stream: s}, nil
}

// trailers takes the fields after the content (RFC 9113 8.1).
func (m *Machine) trailers(s *Stream) (Event, error) {
	switch {
	case !m.blockEnd:
		return m.failStream(s, errTrailersNotLast)
	case s.tunnel:
		return m.failStream(s, errTunnel) // RFC 9113 8.5
	}
	read := semantics.ReadTrailers
	if m.role == RoleClient {
		read = semantics.ReadResponseTrailers
	}
	fields, err := read(s.trailers.Fields)
	if err != nil {
		return m.failStream(s, malformed(err))
	}
	s.Trailers = fields
	m.state = atEnd
	return Event{Kind: Trailers, Stream: s}, nil
}

// violations are the errors of what package semantics finds.
var violations = newViolations()

func newViolations() (e [semantics.Violations]*StreamError) {
	for v := range semantics.Violations {
		e[v] = streamError(ProtocolError, v.Error())
	}
	return e
}

func malformed(err error) *StreamError {
	v, _ := err.(semantics.Violation) //nolint:errorlint // it comes as it is
	return violations[v]
}
