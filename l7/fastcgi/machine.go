package fastcgi

import "encoding/binary"

// Kind is the kind of an Event.
type Kind uint8

// Values of Kind.
const (
	NeedInput Kind = iota // all input was taken
	Stdout                // Payload is a part of the response
	Stderr                // Payload is text for the log
	End                   // the request has ended, with Status
)

// Status is the protocol status of FCGI_END_REQUEST (FastCGI 1.0, 5.5).
type Status uint8

// Values of Status.
const (
	Complete    Status = iota
	CannotShare        // the application takes one request at a time
	Overloaded         // it takes none for now
	UnknownRole
)

// Event is a part of the response. Payload is a part of the input.
type Event struct {
	Kind    Kind
	Status  Status
	Payload []byte
}

// Error is a violation of the protocol.
type Error uint8

// Values of Error.
const (
	_              Error = iota
	ErrVersion           // a record has another version
	ErrType              // a record has a type that no application sends
	ErrID                // a record is of a request that there is not
	ErrEnd               // FCGI_END_REQUEST has another length or an unknown status
	ErrAfterStdout       // the response goes on behind its end
	ErrEmpty             // records without content follow each other without end
)

var errorTexts = [...]string{
	ErrVersion: "a record has another version than 1", ErrType: "a record has a type that no application sends", ErrID: "a record is of another request",
	ErrEnd: "FCGI_END_REQUEST is malformed", ErrAfterStdout: "FCGI_STDOUT goes on behind its end", ErrEmpty: "too many records have no content",
}

// Error describes the violation.
func (e Error) Error() string { return "fastcgi: " + errorTexts[e] }

// maxEmpty bounds the records without content, and those that are skipped, of a response: a peer that sends nothing else must not keep a
// loop busy.
const maxEmpty = 1024

// place is the part of a record that comes next.
type place uint8

const (
	inHeader place = iota
	inContent
	inPadding
)

// Machine decodes the records of one response after the other. The zero value is ready.
type Machine struct {
	header  [headerLen]byte // of the record, or the content of FCGI_END_REQUEST
	have    int             // bytes in header
	at      place
	kind    recordType
	left    int // content that is still to come
	padding int
	empty   int
	closed  bool // FCGI_STDOUT has ended
}

// Next returns the next event, and how many bytes of p it takes: all of them with NeedInput. Content is returned as it comes, before its
// record is complete, so that a record needs no buffer.
func (m *Machine) Next(p []byte) (ev Event, n int, err error) {
	for {
		switch m.at {
		case inHeader:
			if n += m.fill(p[n:]); m.have < headerLen {
				return Event{}, n, nil
			}
			if err := m.begin(); err != nil {
				return Event{}, n, err
			}
		case inContent:
			ev, k, err := m.content(p[n:])
			n += k
			if err != nil || ev.Kind != NeedInput || m.at == inContent {
				return ev, n, err
			}
		case inPadding:
			k := min(m.padding, len(p)-n)
			n += k
			if m.padding -= k; m.padding > 0 {
				return Event{}, n, nil
			}
			m.at = inHeader
		}
	}
}

// fill collects bytes of a header or of FCGI_END_REQUEST, both of which have 8.
func (m *Machine) fill(p []byte) int {
	n := copy(m.header[m.have:], p)
	m.have += n
	return n
}

// begin reads the header of a record.
func (m *Machine) begin() error {
	h := &m.header
	m.kind, m.left, m.padding = recordType(h[1]), int(binary.BigEndian.Uint16(h[4:])), int(h[6])
	m.have, m.at = 0, inContent
	id := binary.BigEndian.Uint16(h[2:])
	switch {
	case h[0] != version:
		return ErrVersion
	case id == 0 && (m.kind == typeValues || m.kind == typeUnknown): // answers of management, which are skipped
		return m.countEmpty()
	case m.kind != typeStdout && m.kind != typeStderr && m.kind != typeEnd:
		return ErrType
	case id != ID:
		return ErrID
	case m.kind == typeEnd && m.left != headerLen:
		return ErrEnd
	case m.kind == typeStdout && m.closed:
		return ErrAfterStdout
	case m.left == 0:
		m.closed = m.closed || m.kind == typeStdout
		return m.countEmpty()
	}
	return nil
}

func (m *Machine) countEmpty() error {
	if m.empty++; m.empty > maxEmpty {
		return ErrEmpty
	}
	return nil
}

// content reads content of a record, and goes on to the padding behind the last of it.
func (m *Machine) content(p []byte) (ev Event, n int, err error) {
	if m.left == 0 {
		m.at = inPadding
		return Event{}, 0, nil
	}
	if len(p) == 0 {
		return Event{}, 0, nil
	}
	if m.kind == typeEnd {
		n = m.fill(p)
		if m.left -= n; m.left > 0 {
			return Event{}, n, nil
		}
		return m.end(n)
	}
	n = min(m.left, len(p))
	if m.left -= n; m.left == 0 {
		m.at = inPadding
	}
	if m.kind == typeStdout || m.kind == typeStderr {
		m.empty = 0
	}
	switch m.kind {
	case typeStdout:
		return Event{Kind: Stdout, Payload: p[:n]}, n, nil
	case typeStderr:
		return Event{Kind: Stderr, Payload: p[:n]}, n, nil
	}
	return Event{}, n, nil
}

// end reads FCGI_END_REQUEST. Its first four bytes are the exit status of a program, which means nothing here.
func (m *Machine) end(n int) (Event, int, error) {
	s := Status(m.header[4])
	if m.at, m.have = inPadding, 0; m.padding == 0 {
		m.at = inHeader
	}
	if s > UnknownRole {
		return Event{}, n, ErrEnd
	}
	m.closed, m.empty = false, 0
	return Event{Kind: End, Status: s}, n, nil
}

// Unread puts the last n bytes of the payload of Next's event back: they come again.
func (m *Machine) Unread(n int) {
	if n > 0 {
		m.left, m.at = m.left+n, inContent
	}
}

// Idle reports whether all of the last record was read.
func (m *Machine) Idle() bool { return m.at == inHeader && m.have == 0 }
