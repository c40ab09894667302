package http2

import (
	"strconv"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// AppendControl appends the frames that are due by themselves: settings, acknowledgments, window updates, resets. The driver
// sends them before what it appends afterwards.
func (m *Machine) AppendControl(dst []byte) []byte {
	dst = append(dst, m.control...)
	m.control = m.control[:0]
	return dst
}

// Pending reports whether AppendControl has something to append.
func (m *Machine) Pending() bool { return len(m.control) > 0 }

// Open opens the stream of a request, at a client.
func (m *Machine) Open() (*Stream, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case m.peerGone || m.goneAway || m.nextID > maxStreamID:
		return nil, ErrGoingAway
	case uint32(len(m.streams)) >= m.peer.MaxStreams:
		return nil, ErrTooManyStreams
	}
	s := m.newStream(m.nextID)
	m.nextID += 2
	return s, nil
}

// AppendRequest appends the header of a request, at a client, on a stream from Open. end means that no content follows. Fields of
// the connection and Host are left out.
//
// The message is one that a machine or package semantics has validated.
func (m *Machine) AppendRequest(dst []byte, s *Stream, msg *semantics.Message, end bool) ([]byte, error) {
	if s.Ended() {
		return dst, ErrStreamEnded
	}
	s.asked, s.isHead, s.tunnel = true, msg.Method == "HEAD", msg.Method == "CONNECT"
	b := appendPseudo(m.fields[:0], ":method", msg.Method)
	if msg.Protocol != "" && s.tunnel {
		b = appendPseudo(b, ":protocol", msg.Protocol)
	}
	if !s.tunnel || msg.Protocol != "" {
		b = appendPseudo(appendPseudo(b, ":scheme", msg.Scheme), ":path", msg.Path)
	}
	b = appendHeaderFields(appendPseudo(b, ":authority", msg.Authority), msg)
	return m.appendBlock(dst, s, b, end), nil
}

// AppendResponse appends the header of a response, or an interim response, at a server. end means that no content follows. For
// the message see AppendRequest.
func (m *Machine) AppendResponse(dst []byte, s *Stream, msg *semantics.Message, end bool) ([]byte, error) {
	if s.Ended() {
		return dst, ErrStreamEnded
	}
	b := appendHeaderFields(appendStatus(m.fields[:0], msg.Status), msg)
	return m.appendBlock(dst, s, b, end && msg.Status >= 200), nil
}

// AppendTrailers appends trailers, which end the stream.
func (m *Machine) AppendTrailers(dst []byte, s *Stream, fields []semantics.Field) ([]byte, error) {
	if s.Ended() {
		return dst, ErrStreamEnded
	}
	return m.appendBlock(dst, s, appendFields(m.fields[:0], fields), true), nil
}

// appendBlock appends a field block as HEADERS and CONTINUATION (RFC 9113 6.2, 6.10).
func (m *Machine) appendBlock(dst []byte, s *Stream, block []byte, end bool) []byte {
	m.fields = block
	kind, flags := frameHeaders, uint8(0)
	if end {
		flags = flagEndStream
	}
	for {
		n := min(len(block), int(m.peer.MaxFrame))
		if n == len(block) {
			flags |= flagEndHeaders
		}
		dst = append(appendHeader(dst, n, kind, flags, s.id), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			break
		}
		kind, flags = frameContinuation, 0
	}
	if end {
		s.sent = true
		m.closeIfDone(s)
	}
	return dst
}

func appendPseudo(dst []byte, name, value string) []byte {
	f := semantics.Field{Name: name, Value: value}
	return hpack.AppendField(dst, &f)
}

// appendStatus appends :status.
func appendStatus(dst []byte, status int) []byte {
	if status == 200 {
		return append(dst, 0x88)
	}
	digits := [3]byte{byte('0' + status/100%10), byte('0' + status/10%10), byte('0' + status%10)}
	return hpack.AppendString(append(dst, 0x08), string(digits[:])) // a literal with the name of entry 8
}

// appendHeaderFields appends the fields of a header.
func appendHeaderFields(dst []byte, msg *semantics.Message) []byte {
	dst = appendFields(dst, msg.Fields)
	if msg.ContentLength < 0 || msg.Status == 204 || msg.Status > 0 && msg.Status < 200 {
		return dst
	}
	var digits [20]byte
	value := strconv.AppendInt(digits[:0], msg.ContentLength, 10)
	return hpack.AppendString(append(dst, 0x0F, 28-15), string(value)) // a literal with the name of entry 28
}

// appendFields appends fields but those of a connection, and those that the control data of the message stand for: Host and
// Content-Length.
func appendFields(dst []byte, fields []semantics.Field) []byte {
	for i := range fields {
		f := &fields[i]
		switch len(f.Name) {
		case 4, 7, 10, 14, 16, 17:
			switch f.Name {
			case "host", "upgrade", "connection", "keep-alive", "content-length", "proxy-connection", "transfer-encoding":
				continue
			}
		}
		dst = hpack.AppendField(dst, f)
	}
	return dst
}

// Window returns how many bytes of content can be sent on a stream now.
func (m *Machine) Window(s *Stream) int {
	return int(max(min(s.sendWindow, m.sendWindow), 0))
}

// AppendData appends content, as much of p as the windows permit, and returns how much that is. end means that the stream ends
// with p, which happens once all of it is appended. It borrows p.
func (m *Machine) AppendData(dst []byte, s *Stream, p []byte, end bool) (out []byte, n int, err error) {
	for {
		size := 0
		dst, size, err = m.AppendDataHeader(dst, s, len(p)-n, end)
		if err != nil || size == 0 && (len(p) > n || !end) {
			return dst, n, err
		}
		dst = append(dst, p[n:n+size]...)
		if n += size; n == len(p) {
			return dst, n, nil
		}
	}
}

// AppendDataHeader appends the header of one DATA frame for at most n bytes of content, and returns how many of them belong to
// it. The driver sends these after it. end means that the stream ends with the n bytes; with 0 the frame is empty.
func (m *Machine) AppendDataHeader(dst []byte, s *Stream, n int, end bool) (out []byte, size int, err error) {
	if s.Ended() {
		return dst, 0, ErrStreamEnded
	}
	size = min(n, m.Window(s), int(m.peer.MaxFrame))
	if size == 0 && (n > 0 || !end) {
		return dst, 0, nil
	}
	flags := uint8(0)
	if end && size == n {
		flags = flagEndStream
	}
	dst = appendHeader(dst, size, frameData, flags, s.id)
	s.sendWindow -= int64(size)
	m.sendWindow -= int64(size)
	m.Allow(2) // the peer updates windows for it
	if flags != 0 {
		s.sent = true
		m.closeIfDone(s)
	}
	return dst, size, nil
}

// Ping asks the peer for an answer, which is the event Pong (RFC 9113 6.7).
func (m *Machine) Ping(data [8]byte) {
	m.control = append(appendHeader(m.control, 8, framePing, 0, 0), data[:]...)
}

// Shutdown announces that no further streams will be accepted, without a last one: those that are on their way are (RFC 9113
// 6.8). A round trip later GoAway names the last.
func (m *Machine) Shutdown() { m.control = appendGoAway(m.control, maxStreamID, NoError) }

// GoAway reports that streams after those that have arrived are not accepted, and why. Those that are open go on.
func (m *Machine) GoAway(code ErrorCode) {
	if m.goneAway {
		return
	}
	m.goneAway, m.accepted = true, m.lastID
	m.control = appendGoAway(m.control, m.lastID, code)
}
