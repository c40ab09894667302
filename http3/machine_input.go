package http3

// Input takes bytes of a stream and returns the next event and how many of the bytes it consumed. It is called
// again with the rest until it returns NeedInput. fin means that the stream ends with in. It borrows in for the
// time that the event is used.
//
// After NeedInput there may be bytes left while Stream.Blocked, and then only.
//
// A *ConnError ends the connection: the driver closes it with the code, and every later call returns the same.
// A *StreamError ends the stream: the driver resets it and stops reading, with the code.
func (m *Machine) Input(s *Stream, in []byte, fin bool) (ev Event, n int, err error) {
	for m.err == nil && !s.isBlocked {
		if s.state == discarding {
			n = len(in)
		}
		if n == len(in) && !s.ready() {
			if !fin || s.ended {
				return Event{}, n, nil
			}
			ev, err = m.end(s)
			return ev, n, m.failure(s, err)
		}
		var used int
		ev, used, err = m.step(s, in[n:])
		n += used
		if err != nil {
			return Event{}, n, m.failure(s, err)
		}
		if ev.Kind != NeedInput {
			return ev, n, nil
		}
	}
	return Event{}, n, m.err
}

// failure keeps an error of the connection, and ends a stream with one.
func (m *Machine) failure(s *Stream, err error) error {
	switch err.(type) { //nolint:errorlint // they come as they are
	case nil:
		return nil
	case *StreamError:
		s.state, s.ended = discarding, true
		if more := m.countReset(s); more != nil { // a client that has its requests reset is like one that resets them
			return more
		}
		return err
	}
	return m.fail(err)
}

// countReset counts a request of a client that does not finish, once.
func (m *Machine) countReset(s *Stream) error {
	if m.role != RoleServer || s.cancelled || s.kind != request && s.kind != fresh {
		return nil
	}
	s.cancelled = true
	if m.resets++; m.resets > m.options.MaxResets {
		return m.fail(connError(ExcessiveLoad, "too many requests were cancelled"))
	}
	return nil
}

// ready reports whether a step needs no input: the payload of a frame is complete.
func (s *Stream) ready() bool {
	return s.state == decoding || (s.state == inSection || s.state == inControl) && s.left == 0
}

// step takes one element of a stream: a header, a piece of payload.
func (m *Machine) step(s *Stream, in []byte) (ev Event, used int, err error) {
	switch s.state {
	case atType:
		t, used, ok := s.varint(in)
		if !ok {
			return ev, used, nil
		}
		ev, err = m.uniType(s, t)
		return ev, used, err
	case atPushID, atSession:
		id, used, ok := s.varint(in)
		if !ok {
			return ev, used, nil
		}
		ev, err = m.streamID(s, id)
		return ev, used, err
	case atFrame:
		if s.kind == encoderStream || s.kind == decoderStream {
			ev, err = m.instructions(s, in)
			return ev, len(in), err
		}
		kind, length, used, ok := s.frameHeader(in)
		if !ok {
			return ev, used, nil
		}
		ev, err = m.begin(s, kind, length)
		return ev, used, err
	case inData:
		p := in[:min(uint64(len(in)), s.left)]
		s.Took(len(p))
		return Event{Kind: Data, Payload: p}, len(p), nil
	case inSection:
		return m.collectSection(s, in)
	case decoding:
		ev, err = m.fieldSection(s, s.buf)
		return ev, 0, err
	case inControl:
		return m.collectControl(s, in)
	case skipping:
		n := min(uint64(len(in)), s.left)
		if s.left -= n; s.left == 0 {
			s.state = atFrame
		}
		return ev, int(n), nil
	case raw:
		return Event{Kind: Data, Payload: in}, len(in), nil
	}
	return ev, len(in), nil
}

// varint takes an integer, which may be cut.
func (s *Stream) varint(in []byte) (v uint64, used int, ok bool) {
	if s.held == 0 {
		if v, used = varint(in); used > 0 {
			return v, used, true
		}
	}
	for used < len(in) {
		s.hdr[s.held] = in[used]
		s.held++
		used++
		if v, n := varint(s.hdr[:s.held]); n > 0 {
			s.held = 0
			return v, used, true
		}
	}
	return 0, used, false
}

// frameHeader takes type and length of a frame, which may be cut.
func (s *Stream) frameHeader(in []byte) (kind, length uint64, used int, ok bool) {
	if s.held == 0 {
		if kind, length, used = frameHeader(in); used > 0 {
			return kind, length, used, true
		}
	}
	for used < len(in) {
		s.hdr[s.held] = in[used]
		s.held++
		used++
		if kind, length, n := frameHeader(s.hdr[:s.held]); n > 0 {
			s.held = 0
			return kind, length, used, true
		}
	}
	return 0, 0, used, false
}

// begin checks a frame's header and enters its payload.
func (m *Machine) begin(s *Stream, t, length uint64) (Event, error) {
	s.frame, s.left, s.sectionSize = t, length, length
	if reservedH2(t) {
		return Event{}, connError(FrameUnexpected, "a frame of HTTP/2") // RFC 9114 7.2.8
	}
	if s.kind == fresh {
		return m.beginServerStream(s, t, length)
	}
	if s.kind == control {
		return Event{}, m.beginControl(s, t, length)
	}
	switch t {
	case frameData:
		return Event{}, m.beginData(s, length)
	case frameHeaders:
		if s.phase == wantEnd || s.tunnel && s.phase == wantContent {
			return Event{}, connError(FrameUnexpected, "HEADERS after the end of the message")
		}
		return m.beginSection(s, length)
	case framePushPromise:
		return m.beginPromise(s, length)
	case frameCancelPush, frameSettings, frameGoAway, frameMaxPushID, framePriority, framePriorityPush:
		return Event{}, connError(FrameUnexpected, "a frame of the control stream on another")
	case frameWebTransport:
		if m.options.WebTransport > 0 && s.kind == request && s.phase == wantHeaders && m.role == RoleServer {
			return m.streamID(s, length)
		}
		return Event{}, connError(FrameError, "the signal of WebTransport where it has no meaning")
	}
	return Event{}, m.skip(s)
}

// beginServerStream is for a bidirectional stream of the server, which is one of WebTransport.
func (m *Machine) beginServerStream(s *Stream, t, length uint64) (Event, error) {
	if t != frameWebTransport {
		return Event{}, connError(StreamCreationError, "the server opened a bidirectional stream")
	}
	return m.streamID(s, length)
}

// skip passes over the payload of a frame without meaning here (RFC 9114 9).
func (m *Machine) skip(s *Stream) error {
	if s.state = skipping; s.left == 0 {
		s.state = atFrame
	}
	return m.idle()
}

// beginData checks the length of content as soon as it is announced.
func (m *Machine) beginData(s *Stream, length uint64) error {
	if s.phase != wantContent {
		return connError(FrameUnexpected, "DATA before HEADERS or after trailers") // RFC 9114 4.1
	}
	if length == 0 {
		s.state = atFrame
		return m.idle()
	}
	if s.received += int64(length); s.length >= 0 && s.received > s.length {
		return errLengthDiffers // RFC 9114 4.1.2
	}
	s.state = inData
	return nil
}

// beginSection enters the payload of HEADERS or PUSH_PROMISE. A section that exceeds the limit in its
// encoded form is not collected.
func (m *Machine) beginSection(s *Stream, length uint64) (Event, error) {
	m.message()
	// Whatever fits the limit has an encoded form that is shorter than its size of RFC 9114 4.2.2.
	if length > m.own.MaxFieldSection+1024 {
		m.decoder.Cancel(s.id)
		return m.tooLarge(s)
	}
	s.state = inSection
	s.buf = s.buf[:0]
	return Event{}, nil
}

// tooLarge ends the reading of a stream whose field section exceeds the limit.
func (m *Machine) tooLarge(s *Stream) (Event, error) {
	if m.role == RoleServer && s.phase == wantHeaders && s.frame == frameHeaders {
		s.state, s.ended = discarding, true
		return Event{Kind: TooLarge}, nil
	}
	return Event{}, &StreamError{Code: ExcessiveLoad, Text: "a field section exceeds the limit"}
}

// collectSection takes payload of HEADERS or PUSH_PROMISE. One that is there as a whole is not copied.
func (m *Machine) collectSection(s *Stream, in []byte) (ev Event, used int, err error) {
	if len(s.buf) == 0 && uint64(len(in)) >= s.left {
		used = int(s.left)
		s.left = 0
		ev, err = m.fieldSection(s, in[:used])
		return ev, used, err
	}
	used = int(min(uint64(len(in)), s.left))
	s.buf = append(s.buf, in[:used]...)
	if s.left -= uint64(used); s.left > 0 {
		return ev, used, nil
	}
	ev, err = m.fieldSection(s, s.buf)
	return ev, used, err
}

// end handles the end of a stream.
func (m *Machine) end(s *Stream) (Event, error) {
	s.ended = true
	switch s.kind {
	case control, encoderStream, decoderStream:
		return Event{}, connError(ClosedCriticalStream, "a critical stream was closed") // RFC 9114 6.2.1
	case request, push:
		if s.state == discarding {
			return Event{}, nil
		}
		if s.state != atFrame || s.held > 0 {
			if s.state == atPushID {
				return Event{}, connError(FrameError, "a push stream that is cut")
			}
			return Event{}, connError(FrameError, "the stream ends within a frame") // RFC 9114 7.1
		}
		return m.endMessage(s)
	}
	return Event{Kind: End}, nil
}

// endMessage checks that a message is complete.
func (m *Machine) endMessage(s *Stream) (Event, error) {
	switch {
	case s.phase == wantHeaders && m.role == RoleServer:
		return Event{}, errIncomplete // RFC 9114 4.1
	case s.phase == wantHeaders:
		return Event{}, errNoHeaders
	case s.length >= 0 && s.received != s.length && !(s.noContent && s.received == 0):
		return Event{}, errLengthDiffers
	}
	return Event{Kind: End}, nil
}
