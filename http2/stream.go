package http2

import (
	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/semantics"
)

// Stream is one request and its response. It belongs to the machine, which takes it back by Release.
type Stream struct {
	// Message is the message that the last event Headers reported. Its strings are valid until Release, and, at a client,
	// until the next event Headers of the stream.
	Message semantics.Message
	// Trailers are the fields of the event Trailers, as long.
	Trailers []semantics.Field
	// User is for the driver.
	User any

	id       uint32
	headers  hpack.Section
	trailers hpack.Section

	began      bool  // the header of the message has arrived
	asked      bool  // the header of the request has been sent, at a client
	received   bool  // the peer has ended its side
	sent       bool  // this end has
	gone       bool  // neither side is open
	released   bool  // the driver has no use for it
	noContent  bool  // of the response: to HEAD, or by its status
	tunnel     bool  // CONNECT
	isHead     bool  // the request is HEAD
	length     int64 // Content-Length of what is received, -1 for none
	content    int64 // bytes that have arrived
	sendWindow int64 // may be negative (RFC 9113 6.9.2)
	recvWindow int64
	// outstanding counts the bytes delivered to the driver and not consumed.
	outstanding int64
	credit      int64 // bytes that were consumed and the peer has not learned of
}

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.id }

// Ended reports whether nothing more can be sent on the stream.
func (s *Stream) Ended() bool { return s.sent || s.gone }

// reset makes s a new stream. It keeps buffers.
func (s *Stream) reset(id uint32, send, recv int64) {
	*s = Stream{
		id: id, headers: s.headers, trailers: s.trailers, length: -1, sendWindow: send, recvWindow: recv,
	}
}

// newStream opens a stream.
func (m *Machine) newStream(id uint32) *Stream {
	var s *Stream
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = &Stream{}
	}
	s.reset(id, int64(m.peer.Window), int64(m.options.Window))
	m.streams[id] = s
	return s
}

// Release reports that the driver has no use for the stream any more. One that is still open is reset with CANCEL.
func (m *Machine) Release(s *Stream) {
	if s.released {
		return
	}
	s.released = true
	if s.outstanding > 0 { // the driver will not consume it
		m.credit += s.outstanding
		s.outstanding = 0
		m.creditConnection()
	}
	if !s.gone {
		m.Reset(s, Cancel)
		return // which has recycled it
	}
	m.recycle(s)
}

// maxFree bounds the streams that are kept for use again.
const maxFree = 128

func (m *Machine) recycle(s *Stream) {
	s.User = nil
	if m.current == s {
		m.current = nil // within a DATA frame
	}
	if len(m.free) < maxFree {
		m.free = append(m.free, s)
	}
}

// Reset ends a stream in both directions (RFC 9113 6.4).
func (m *Machine) Reset(s *Stream, code ErrorCode) {
	if s.gone {
		return
	}
	if s.asked || !m.own(s.id) { // to the peer a stream without a request is idle, where RST_STREAM is an error (RFC 9113 6.4)
		m.control = appendWord(m.control, frameReset, s.id, uint32(code))
		m.rememberReset(s.id)
	}
	m.close(s)
}

// close takes a stream from those that are open. What it had not been credited for goes back to the window of the connection.
func (m *Machine) close(s *Stream) {
	s.gone = true
	delete(m.streams, s.id)
	if s.released {
		m.recycle(s)
	}
}

// closeIfDone closes a stream whose sides have both ended.
func (m *Machine) closeIfDone(s *Stream) {
	if s.received && s.sent && !s.gone {
		m.finished++
		m.close(s)
	}
}

// rememberReset notes a stream that this end has reset: the peer may not know of it yet, and its frames are ignored (RFC 9113
// 5.1). Of others that are closed they are errors.
func (m *Machine) rememberReset(id uint32) {
	m.resetIDs[m.resetNext] = id
	m.resetNext = (m.resetNext + 1) % len(m.resetIDs)
}

func (m *Machine) wasReset(id uint32) bool {
	for _, r := range m.resetIDs {
		if r == id {
			return true
		}
	}
	return false
}
