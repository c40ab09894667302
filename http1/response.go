package http1

import (
	"github.com/millrace/millrace/semantics"
)

// readResponse reads a header that is complete, at a client (RFC 9112 4).
func (m *Machine) readResponse() error {
	msg := &m.message
	if err := m.statusLine(); err != nil {
		return err
	}
	var f framing
	if err := m.readFields(&f); err != nil {
		return err
	}
	if msg.Status < 200 && msg.Status != 101 {
		return m.interim(&f)
	}
	msg.Close = f.close || msg.Minor == 0 && !f.keepAlive
	if err := m.responseBody(&f); err != nil {
		return err
	}
	m.closing = m.closing || msg.Close
	return nil
}

// statusLine reads version, status and reason. The space before an empty reason is missing in many responses, against RFC
// 9112 4; nothing can be smuggled by that.
func (m *Machine) statusLine() error {
	line := m.line(0)
	if len(line) < 12 || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return errStatusLine
	}
	minor, err := version(line[:8])
	if err != nil {
		return errStatusLine
	}
	status, ok := semantics.ParseStatus(text(line[9:12]))
	if !ok {
		return errStatusLine
	}
	m.message.Minor, m.message.Status = minor, status
	if len(line) > 13 {
		m.message.Reason = text(line[13:])
		if !semantics.IsText(m.message.Reason) {
			return errStatusLine
		}
	}
	return nil
}

// interim is a response that another follows (RFC 9110 15.2). It has no content, whatever its fields say.
func (m *Machine) interim(f *framing) error {
	if f.hasCoding || f.hasLength && m.message.ContentLength != 0 {
		return errInterimBody
	}
	m.state = inHead
	m.buf, m.lines, m.begins, m.scanned = m.buf[:0], m.lines[:0], 0, 0
	return nil
}

// responseBody says how the content is delimited (RFC 9112 6.3).
func (m *Machine) responseBody(f *framing) error {
	msg := &m.message
	switch {
	case f.hasCoding && msg.Minor == 0:
		return errCodingOld
	case f.hasCoding && f.hasLength:
		return errLengthChunked
	case f.hasCoding && !f.chunked:
		return errCoding
	case msg.Status == 101:
		return m.switching(f)
	case m.request.connect && msg.Status < 300:
		m.state, m.closing = tunnel, true
		return nil
	case m.request.head || msg.Status == 304:
		// The fields say what a GET would have had.
	case msg.Status == 204:
		// A content that must not be is one that another recipient might read (RFC 9110 8.6).
		msg.Close = msg.Close || f.hasCoding || msg.ContentLength > 0
		msg.ContentLength = -1
	case f.hasCoding:
		msg.Body = Chunked
	case msg.ContentLength > 0:
		msg.Body = Length
	case !f.hasLength:
		msg.Body, msg.Close = UntilClose, true
	}
	m.beginContent(msg.Body)
	return nil
}

// switching is a 101 (RFC 9110 15.2.2).
func (m *Machine) switching(f *framing) error {
	if !m.request.upgrade || !f.upgrade || f.protocol == "" {
		return errNoUpgrade
	}
	m.message.Protocol = f.protocol
	m.state, m.closing = tunnel, true
	return nil
}
