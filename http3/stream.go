package http3

import "github.com/millrace/millrace/http3/qpack"

// kind classifies a stream by what it carries.
type kind uint8

const (
	fresh         kind = iota // its type did not arrive yet
	request                   // a request and its response
	push                      // the response of a push
	control                   // the peer's control stream
	encoderStream             // the peer's instructions for our table
	decoderStream             // the peer's acknowledgments
	webTransport              // bytes of a session
	unknown                   // of an unknown type
)

// state is where in a stream a Machine is.
type state uint8

const (
	atType     state = iota // of a unidirectional stream
	atFrame                 // at a frame's header
	inData                  // inside the payload of DATA
	inSection               // inside the payload of HEADERS or PUSH_PROMISE, which is collected
	inControl               // inside the payload of a frame of the control stream, which is collected
	decoding                // a field section is complete in buf: it was blocked
	skipping                // inside the payload of a frame without meaning
	atPushID                // of a push stream
	atSession               // of a stream of WebTransport
	raw                     // bytes for the application
	discarding              // the rest has no meaning
)

// phase is where in a message a stream is (RFC 9114 4.1).
type phase uint8

const (
	wantHeaders phase = iota
	wantContent
	wantEnd
)

// Stream is the receiving half of one stream. Machine.Open returns it.
type Stream struct {
	// Message is the last header, of the events Headers and PushPromise; Section has all fields, and those
	// of the event Trailers. Both are valid until the next Input of the stream.
	Message Message
	Section qpack.Section
	// User is the driver's.
	User any

	id          uint64
	kind        kind
	state       state
	phase       phase
	ended       bool // the end was reported, or there is no reader for it
	cancelled   bool // by the peer, which was counted
	isBlocked   bool // the field section in buf waits for the dynamic table
	noContent   bool // the response to HEAD
	tunnel      bool // a CONNECT that was accepted: nothing but DATA
	frame       uint64
	left        uint64 // payload of the frame still to come
	length      int64  // of the content, by Content-Length, -1 for none
	received    int64
	buf         []byte
	held        int // bytes of hdr
	hdr         [maxFrameHeader]byte
	session     uint64 // of WebTransport
	sectionSize uint64 // payload of the frame that buf collects
}

// ID returns the stream's ID.
func (s *Stream) ID() uint64 { return s.id }

// Blocked reports whether the stream waits for the dynamic table. Until the event Unblocked nothing of it
// should be read.
func (s *Stream) Blocked() bool { return s.isBlocked }

// Ended reports whether the event End was reported.
func (s *Stream) Ended() bool { return s.ended }

// Needed returns how many bytes of content the current frame still has. A driver may read as many past the
// machine, and pass their number to Took.
func (s *Stream) Needed() uint64 {
	if s.state == inData {
		return s.left
	}
	return 0
}

// Took takes notice of content that the driver has read past the machine.
func (s *Stream) Took(n int) {
	if s.left -= uint64(n); s.left == 0 {
		s.state = atFrame
	}
}

// ExpectNoContent reports that the stream is the response to a HEAD request, whose Content-Length has no content
// (RFC 9110 8.6).
func (s *Stream) ExpectNoContent() { s.noContent = true }

// isUni, and isClient by its ID (RFC 9000 2.1).
func isUni(id uint64) bool         { return id&2 != 0 }
func isClientOwned(id uint64) bool { return id&1 == 0 }

// Open returns the receiving half of a stream: of a request at a client, or of any stream that the peer
// opened. It errs for one that the peer must not open.
func (m *Machine) Open(id uint64) (*Stream, error) {
	if m.err != nil {
		return nil, m.err
	}
	var s *Stream
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = &Stream{}
	}
	s.id, s.length = id, -1
	switch {
	case isUni(id):
		s.kind, s.state = fresh, atType
	case isClientOwned(id):
		s.kind, s.state = request, atFrame
	case m.options.WebTransport > 0:
		// RFC 9114 6.1: only an extension has the server open bidirectional streams.
		s.kind, s.state = fresh, atFrame
	default:
		return nil, m.fail(connError(StreamCreationError, "the server opened a bidirectional stream"))
	}
	return s, nil
}

// Release takes a stream back, for the next Open. Section and Message go with it.
func (m *Machine) Release(s *Stream) {
	m.forget(s)
	section, buf := s.Section, s.buf[:0]
	clear(section.Fields)
	section.Fields, section.Size = section.Fields[:0], 0
	*s = Stream{Section: section, buf: buf}
	if len(m.free) < 32 && cap(buf) <= 16<<10 {
		m.free = append(m.free, s)
	}
}
