package http1

import (
	"strconv"

	"github.com/millrace/millrace/semantics"
)

// sending is a message whose header has been appended.
type sending struct {
	body Body
	left int64 // of Length
}

// AppendRequest appends the header of a request, at a client. end means that no content follows; otherwise it follows by the
// length that the message states, or chunked if it states none. A Protocol is offered as an upgrade.
//
// The message is one that a machine or package semantics has validated. Fields of the connection among its fields, Host and
// Content-Length are left out: the header has those that this connection needs. Cookies become one field, which RFC 9113
// 8.2.3 asks for where a request leaves HTTP/2.
func (m *Machine) AppendRequest(dst []byte, msg *semantics.Message, end bool) ([]byte, error) {
	if m.role != RoleClient || m.request.open || m.sending.body != NoBody {
		return dst, ErrInProgress
	}
	if end && msg.ContentLength > 0 {
		return dst, ErrLength
	}
	m.request = request{open: true, head: msg.Method == "HEAD", connect: msg.Method == "CONNECT", upgrade: msg.Protocol != ""}
	at := len(dst)
	dst = append(append(dst, msg.Method...), ' ')
	if m.request.connect {
		dst = append(dst, msg.Authority...)
	} else {
		dst = append(dst, msg.Path...)
	}
	dst = append(append(dst, " HTTP/1.1\r\nhost: "...), msg.Authority...)
	dst = append(dst, '\r', '\n')
	dst = appendFields(dst, msg.Fields)
	dst = m.appendFraming(dst, msg, end, end && bodyless(msg.Method))
	if dst = m.endHeader(dst, msg); m.options.KeepCase {
		spell(dst[at:], msg.Spellings)
	}
	return dst, nil
}

// bodyless reports whether a request without content states no length: RFC 9110 8.6 asks for it where the method has a use
// for content.
func bodyless(method string) bool { return method != "POST" && method != "PUT" && method != "PATCH" }

// AppendResponse appends the header of the response to the request that was received last, at a server. end means that no
// content follows; otherwise it follows by the length that the message states, or chunked, or to a client with HTTP/1.0 up to
// the end of the connection. After 101 and after a 2xx to CONNECT the bytes of the other protocol follow, and an interim
// response (1xx) is followed by another. For the message see AppendRequest.
func (m *Machine) AppendResponse(dst []byte, msg *semantics.Message, end bool) ([]byte, error) {
	if m.role != RoleServer || !m.request.open || m.sending.body != NoBody {
		return dst, ErrNoRequest
	}
	none := m.request.head || msg.Status == 204 || msg.Status == 304
	if end && !none && msg.ContentLength > 0 {
		return dst, ErrLength
	}
	dst = appendStatusLine(dst, msg.Status)
	dst = appendFields(dst, msg.Fields)
	switch {
	case msg.Status == 101 || m.request.connect && msg.Status >= 200 && msg.Status < 300:
		m.state, m.closing, m.request.open = tunnel, true, false
		return m.endHeader(dst, msg), nil
	case msg.Status < 200:
		return append(dst, '\r', '\n'), nil
	}
	if dst = m.appendFraming(dst, msg, end || none, msg.Status == 204 || none && msg.ContentLength < 0); m.sending.body == NoBody {
		m.answered()
	}
	return m.endHeader(dst, msg), nil
}

// answered is the end of a response.
func (m *Machine) answered() { m.request.open = m.role == RoleClient && m.request.open }

// appendFraming appends the field that delimits the content. unstated says that there is none, and none to say so.
func (m *Machine) appendFraming(dst []byte, msg *semantics.Message, end, unstated bool) []byte {
	m.sending = sending{}
	switch {
	case unstated:
		return dst
	case end && msg.ContentLength < 0:
		return append(dst, "content-length: 0\r\n"...)
	case msg.ContentLength >= 0:
		if !end && msg.ContentLength > 0 {
			m.sending = sending{body: Length, left: msg.ContentLength}
		}
		dst = strconv.AppendInt(append(dst, "content-length: "...), msg.ContentLength, 10)
		return append(dst, '\r', '\n')
	case m.request.old:
		m.sending.body, m.closing = UntilClose, true
		return dst
	}
	m.sending.body = Chunked
	return append(dst, "transfer-encoding: chunked\r\n"...)
}

// endHeader appends Connection and the empty line.
func (m *Machine) endHeader(dst []byte, msg *semantics.Message) []byte {
	switch {
	case msg.Protocol != "" && (m.role == RoleClient || msg.Status == 101):
		dst = append(append(dst, "connection: upgrade\r\nupgrade: "...), msg.Protocol...)
		dst = append(dst, '\r', '\n')
	case m.state == tunnel:
	case m.closing:
		dst = append(dst, "connection: close\r\n"...)
	case m.request.old:
		dst = append(dst, "connection: keep-alive\r\n"...) // RFC 9112 C.2.2
	}
	return append(dst, '\r', '\n')
}

// appendFields appends fields but those that the machine writes itself.
func appendFields(dst []byte, fields []semantics.Field) []byte {
	cookies := false
	for i := range fields {
		f := &fields[i]
		switch len(f.Name) {
		case 2, 4, 6, 7, 10, 14, 16, 17:
			if isOwn(f.Name) {
				continue
			}
			if f.Name == "cookie" {
				if !cookies {
					dst, cookies = appendCookies(dst, fields[i:]), true
				}
				continue
			}
		}
		dst = append(dst, f.Name...)
		dst = append(dst, ':', ' ')
		dst = append(dst, f.Value...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// isOwn reports whether the machine writes a field itself, or the field has no meaning on another connection. TE needs
// Connection beside it (RFC 9110 10.1.4), and says nothing that servers of HTTP/1.1 use.
func isOwn(name string) bool {
	switch name {
	case "te", "host", "upgrade", "connection", "keep-alive", "content-length", "proxy-connection", "transfer-encoding", "http2-settings":
		return true
	}
	return false
}

// appendCookies appends all cookies of fields as one field.
func appendCookies(dst []byte, fields []semantics.Field) []byte {
	separator := "cookie: "
	for i := range fields {
		if fields[i].Name == "cookie" {
			dst = append(append(dst, separator...), fields[i].Value...)
			separator = "; "
		}
	}
	return append(dst, '\r', '\n')
}

// AppendData appends content. It borrows p.
func (m *Machine) AppendData(dst, p []byte) ([]byte, error) {
	dst, err := m.AppendDataHeader(dst, len(p))
	if err != nil || len(p) == 0 {
		return dst, err
	}
	return m.AppendDataTail(append(dst, p...)), nil
}

// AppendDataHeader appends what stands before n bytes of content, which the driver sends by itself, and after them what
// AppendDataTail appends.
func (m *Machine) AppendDataHeader(dst []byte, n int) ([]byte, error) {
	switch m.sending.body {
	case NoBody:
		if n > 0 {
			return dst, ErrLength
		}
	case Length:
		if int64(n) > m.sending.left {
			return dst, ErrLength
		}
		m.sending.left -= int64(n)
	case Chunked:
		if n > 0 { // a chunk of size 0 is the last
			dst = strconv.AppendUint(dst, uint64(n), 16)
			dst = append(dst, '\r', '\n')
		}
	}
	return dst, nil
}

// AppendDataTail appends what stands after content.
func (m *Machine) AppendDataTail(dst []byte) []byte {
	if m.sending.body == Chunked {
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// AppendEnd ends the content, with trailers where it is chunked. After ErrLength the connection must be closed: its peer
// waits for the rest.
func (m *Machine) AppendEnd(dst []byte, trailers []semantics.Field) ([]byte, error) {
	switch body := m.sending.body; {
	case body == NoBody:
		return dst, nil // ended with its header
	case body == Length && m.sending.left > 0:
		m.closing = true
		return dst, ErrLength
	case body == Chunked:
		dst = append(dst, '0', '\r', '\n')
		for i := range trailers {
			if f := &trailers[i]; semantics.UseOfTrailer(f.Name) == semantics.TrailerKept {
				dst = append(append(dst, f.Name...), ':', ' ')
				dst = append(append(dst, f.Value...), '\r', '\n')
			}
		}
		dst = append(dst, '\r', '\n')
	}
	m.sending = sending{}
	m.answered()
	return dst, nil
}

// Sending returns the delimiting of the message whose header was appended last, NoBody when it is complete.
func (m *Machine) Sending() Body { return m.sending.body }

// appendStatusLine appends the status line of a response.
func appendStatusLine(dst []byte, status int) []byte {
	if status == 200 {
		return append(dst, "HTTP/1.1 200 OK\r\n"...)
	}
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	dst = append(append(dst, ' '), semantics.Reason(status)...)
	return append(dst, '\r', '\n')
}
