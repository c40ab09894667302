package fastcgi

import (
	"errors"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Limits bound the header of a response.
type Limits struct {
	Bytes  int // 0 is DefaultBytes
	Fields int // lines; 0 is no bound beside Bytes
}

// DefaultBytes is the default of Limits.Bytes.
const DefaultBytes = 64 << 10

// Errors of Head.
var (
	ErrHeadSize = errors.New("fastcgi: the header of the response exceeds a limit")
	ErrHead     = errors.New("fastcgi: the header of the response is malformed")
)

// Head collects and reads the header of a response (RFC 3875 6.3): lines that end with LF or CR LF, up to an empty one.
type Head struct {
	text []byte
	line int // where the last line begins
}

// Reset prepares the head for another response.
func (h *Head) Reset() { h.text, h.line = h.text[:0], 0 }

// Take takes bytes of the header, and reports whether it is complete. Those behind it are not taken.
func (h *Head) Take(p []byte, l *Limits) (n int, complete bool, err error) {
	most := l.Bytes
	if most <= 0 {
		most = DefaultBytes
	}
	for n < len(p) {
		end := n
		for end < len(p) && p[end] != '\n' {
			end++
		}
		if end < len(p) {
			end++
		}
		if len(h.text)+end-n > most {
			return n, false, ErrHeadSize
		}
		h.text = append(h.text, p[n:end]...)
		if n = end; h.text[len(h.text)-1] != '\n' {
			return n, false, nil
		}
		if line := h.text[h.line:]; len(line) == 1 || len(line) == 2 && line[0] == '\r' {
			return n, true, nil
		}
		h.line = len(h.text)
	}
	return n, false, nil
}

// Message reads the header that was taken into a response with the given space for fields. Its strings are its own.
//
// Status is that of the field Status; without one it is 302 where there is Location, and 200 otherwise. A Location that is a path is no
// local redirect (RFC 3875 6.2.2): it goes to the client, as nginx has it, since the client's next request passes all rules. Fields of
// the connection are dropped: the framing is that of the client's version of HTTP.
func (h *Head) Message(fields []semantics.Field, l *Limits) (semantics.Message, error) {
	m := semantics.Message{ContentLength: -1, Fields: fields[:0]}
	location, lines := false, 0
	for line := range strings.SplitSeq(string(h.text[:h.line]), "\n") {
		if line == "" {
			continue // behind the last line
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		value = strings.Trim(value, " \t")
		if !ok || !semantics.IsToken(name) || !semantics.IsValue(value) {
			return m, ErrHead
		}
		if lines++; l.Fields > 0 && lines > l.Fields {
			return m, ErrHeadSize
		}
		switch name = strings.ToLower(name); name {
		case "status":
			if m.Status != 0 || !readStatus(&m, value) {
				return m, ErrHead
			}
			continue
		case "content-length":
			n, ok := semantics.ParseLength(value)
			if !ok || m.ContentLength >= 0 && m.ContentLength != n {
				return m, ErrHead
			}
			if again := m.ContentLength >= 0; again {
				continue
			}
			m.ContentLength = n
		case "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade":
			continue
		case "location":
			location = true
		}
		m.Fields = append(m.Fields, semantics.Field{Name: name, Value: value})
	}
	switch {
	case lines == 0:
		return m, ErrHead // RFC 3875 6.2 requires a field
	case m.Status == 0 && location:
		m.Status = 302
	case m.Status == 0:
		m.Status = 200
	}
	return m, nil
}

// readStatus reads the value of Status: a code and perhaps a reason. In CGI nothing distinguishes interim responses from final ones.
func readStatus(m *semantics.Message, value string) bool {
	code, _, _ := strings.Cut(value, " ")
	n, ok := semantics.ParseStatus(code)
	m.Status = n
	return ok && n >= 200
}
