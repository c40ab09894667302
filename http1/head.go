package http1

import (
	"bytes"
	"unsafe"

	"github.com/millrace/millrace/semantics"
)

// collectHead takes a part of a header.
func (m *Machine) collectHead(in []byte) (ev Event, used int, err error) {
	used, done, err := m.collect(in, m.options.MaxHead, errHeadLong)
	if !done {
		return Event{}, used, err
	}
	m.keep()
	m.message.reset()
	if n := len(m.lines); cap(m.fields) < n { // at once: it would grow by four allocations
		m.fields = make([]semantics.Field, 0, max(n, 8))
	}
	m.message.Fields = m.fields[:0]
	m.trailers = m.trailers[:0] // not those of the message before
	if m.role == RoleServer {
		err = m.readRequest()
	} else {
		err = m.readResponse()
	}
	m.fields = m.message.Fields
	if err != nil {
		return Event{}, used, err
	}
	return Event{Kind: Headers}, used, nil
}

// collect takes a part of a section: lines up to an empty one. It copies them to buf, once, so that strings live as long as
// the message. Of a section that is there as a whole nothing else is copied.
func (m *Machine) collect(in []byte, limit int, tooLong error) (used int, done bool, err error) {
	held := len(m.buf) - m.begins
	p := in[:min(len(in), limit+1-held)]
	whole := held == 0
	if !whole {
		m.buf = append(m.buf, p...)
	}
	section := m.buf[m.begins:]
	if whole {
		section = p
	}
	end, err := m.scan(section)
	switch {
	case err != nil:
		return len(p), false, err
	case end == 0 && len(section) > limit:
		return len(p), false, tooLong
	case end == 0 && whole:
		m.buf = append(m.buf, p...)
	case end > 0 && whole:
		m.buf = append(m.buf, p[:end]...)
	case end > 0:
		m.buf = m.buf[:m.begins+end]
	}
	if end == 0 {
		return len(p), false, nil
	}
	return end - held, true, nil
}

// firstLines is for how many lines the first section of a connection has room without another allocation.
const firstLines = 16

// scan looks for line ends in what is new of a section, and returns where the section ends, 0 while more is needed. Every
// line must end with CRLF: a recipient may take a bare LF for that (RFC 9112 2.2), and where only one of two recipients does,
// they see different messages.
func (m *Machine) scan(p []byte) (end int, err error) {
	if m.lines == nil {
		m.lines = make([]int, 0, firstLines)
	}
	for m.scanned < len(p) {
		i := bytes.IndexByte(p[m.scanned:], '\n')
		if lf := m.scanned + i; i >= 0 {
			m.scanned = lf + 1
			if lf == 0 || p[lf-1] != '\r' {
				return 0, errBareLF
			}
			if lf-1 == m.lineStart(len(m.lines)) && (m.state == inTrailers || len(m.lines) > 0) {
				return m.scanned, nil
			}
			if m.lines = append(m.lines, lf); len(m.lines) > m.options.MaxFields+2 { // exact bounds follow
				return 0, m.tooMany()
			}
		} else {
			m.scanned = len(p)
		}
		if m.role == RoleServer && m.state == inHead && len(m.lines) <= 1 && m.firstLine() > m.options.MaxTarget+2 {
			return 0, errTargetLong
		}
	}
	return 0, nil
}

// tooMany is the error of more field lines than the limit.
func (m *Machine) tooMany() error {
	if m.state == inTrailers {
		return errTrailersLong
	}
	return errFieldsMany
}

// firstLine returns the length of the first line, as far as it is there.
func (m *Machine) firstLine() int {
	if len(m.lines) > 0 {
		return m.lines[0] + 1
	}
	return m.scanned
}

// lineStart returns where line i begins in its section.
func (m *Machine) lineStart(i int) int {
	if i == 0 {
		return 0
	}
	return m.lines[i-1] + 1
}

// line returns line i without its CRLF.
func (m *Machine) line(i int) []byte {
	return m.buf[m.begins+m.lineStart(i) : m.begins+m.lines[i]-1]
}

// text returns bytes of buf as a string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
