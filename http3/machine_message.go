package http3

import (
	"strconv"
	"unsafe"

	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/semantics"
)

// AppendRequest appends the HEADERS frame of a request, at a client. Host, Content-Length and the fields of a connection are
// those of the message's control data, or left out (RFC 9114 4.2). It borrows msg.
func (m *Machine) AppendRequest(dst []byte, stream uint64, msg *semantics.Message) []byte {
	b := append(m.fields[:0], qpack.Field{Name: ":method", Value: msg.Method})
	connect := msg.Method == "CONNECT"
	if msg.Protocol != "" && connect {
		b = append(b, qpack.Field{Name: ":protocol", Value: msg.Protocol})
	}
	if !connect || msg.Protocol != "" {
		b = append(b, qpack.Field{Name: ":scheme", Value: msg.Scheme}, qpack.Field{Name: ":path", Value: msg.Path})
	}
	return m.appendMessage(dst, stream, append(b, qpack.Field{Name: ":authority", Value: msg.Authority}), msg)
}

// AppendResponse appends the HEADERS frame of a response, or of an interim response, at a server. For the message see
// AppendRequest.
func (m *Machine) AppendResponse(dst []byte, stream uint64, msg *semantics.Message) []byte {
	status := "200"
	if msg.Status != 200 {
		status = m.number(int64(msg.Status))
	}
	return m.appendMessage(dst, stream, append(m.fields[:0], qpack.Field{Name: ":status", Value: status}), msg)
}

// AppendTrailers appends the HEADERS frame of trailers.
func (m *Machine) AppendTrailers(dst []byte, stream uint64, fields []semantics.Field) []byte {
	return m.appendFields(dst, stream, appendEndToEnd(m.fields[:0], fields))
}

// appendMessage appends a header whose pseudo-headers are in b.
func (m *Machine) appendMessage(dst []byte, stream uint64, b []qpack.Field, msg *semantics.Message) []byte {
	b = appendEndToEnd(b, msg.Fields)
	if msg.ContentLength >= 0 && msg.Status != 204 && (msg.Status == 0 || msg.Status >= 200) {
		at := len(m.digits)
		if msg.Status == 0 || msg.Status == 200 {
			at = 0 // otherwise the status is there
		}
		m.digits = strconv.AppendInt(m.digits[:at], msg.ContentLength, 10)
		b = append(b, qpack.Field{Name: "content-length", Value: viewOf(m.digits[at:])})
	}
	return m.appendFields(dst, stream, b)
}

// appendFields appends the HEADERS frame of fields that lie in scratch memory.
func (m *Machine) appendFields(dst []byte, stream uint64, b []qpack.Field) []byte {
	dst = m.AppendHeaders(dst, stream, b)
	clear(b)
	m.fields = b[:0]
	return dst
}

// number returns the digits of a number, which stay until the next.
func (m *Machine) number(n int64) string {
	m.digits = strconv.AppendInt(m.digits[:0], n, 10)
	return viewOf(m.digits)
}

func viewOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// appendEndToEnd appends fields but those of a connection, and those that the control data of a message stand for.
func appendEndToEnd(dst []qpack.Field, fields []semantics.Field) []qpack.Field {
	for i := range fields {
		f := &fields[i]
		switch len(f.Name) {
		case 4, 7, 10, 14, 16, 17:
			switch f.Name {
			case "host", "upgrade", "connection", "keep-alive", "content-length", "proxy-connection", "transfer-encoding":
				continue
			}
		}
		dst = append(dst, *f)
	}
	return dst
}
