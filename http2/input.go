package http2

// Input takes bytes of the connection and returns the next event, and how many of the bytes it consumed. It is called again with
// the rest until it returns NeedInput. It borrows in for the time that the event is used.
//
// An error is a *ConnError. The driver sends what AppendControl returns, closes the connection, and every later call returns the
// same. The end of the input needs no call: the driver knows its streams.
func (m *Machine) Input(in []byte) (ev Event, n int, err error) {
	for m.err == nil {
		if m.state == atEnd {
			m.state = atHeader
			if ev, err = m.endStream(m.current); ev.Kind != NeedInput || err != nil {
				return ev, n, m.fail(err)
			}
			continue
		}
		if n == len(in) && !(m.state == inPayload && m.left == 0) {
			return Event{}, n, nil
		}
		var used int
		ev, used, err = m.step(in[n:])
		n += used
		if err != nil {
			return Event{}, n, m.fail(err)
		}
		if len(m.control) > maxUnread {
			return Event{}, n, m.fail(errUnread)
		}
		if ev.Kind != NeedInput {
			return ev, n, nil
		}
	}
	return Event{}, n, m.err
}

// fail keeps an error of the connection, and says it to the peer.
func (m *Machine) fail(err error) error {
	if ce, ok := err.(*ConnError); ok && m.err == nil { //nolint:errorlint // it comes as it is
		m.control = appendGoAway(m.control, m.lastID, ce.Code)
		m.err = err
	}
	return err
}

// countReset counts a request of a client that did not finish.
func (m *Machine) countReset() error {
	if m.resets++; m.resets > m.options.MaxResets+m.finished {
		return errResets
	}
	return nil
}

// failStream ends a stream with an error. The driver learns of one that it knows.
func (m *Machine) failStream(s *Stream, err *StreamError) (Event, error) {
	if m.role == RoleServer {
		if err := m.idle(); err != nil {
			return Event{}, err
		}
		if err := m.countReset(); err != nil { // a client that has its requests reset is like one that resets them
			return Event{}, err
		}
	}
	known := s.began
	m.Reset(s, err.Code)
	if !known && m.role == RoleServer {
		m.malformed++
		s.released = true
		m.recycle(s)
		return Event{}, nil
	}
	return Event{Kind: Failed, Stream: s, Code: err.Code, Err: err}, nil
}

// step takes one element of the input: a frame's header, its payload or a part of that.
func (m *Machine) step(in []byte) (ev Event, used int, err error) {
	switch m.state {
	case atPreface:
		used, err = m.preface(in)
		return ev, used, err
	case atHeader:
		return m.frameHeader(in)
	case inPayload:
		return m.payload(in)
	case atPadLength:
		m.pad = int(in[0])
		if m.left--; m.pad > m.left {
			return ev, 1, errPadding
		}
		return ev, 1, m.enterData()
	case inData:
		return m.data(in)
	}
	used = min(len(in), m.left)
	if m.left -= used; m.left == 0 {
		m.state = m.afterData()
	}
	return ev, used, nil
}

// preface compares the input with the preface, which may be cut.
func (m *Machine) preface(in []byte) (used int, err error) {
	used = min(len(in), len(Preface)-m.held)
	if string(in[:used]) != Preface[m.held:m.held+used] {
		return used, errPreface
	}
	if m.held += used; m.held == len(Preface) {
		m.held, m.state = 0, atHeader
	}
	return used, nil
}

// frameHeader takes the header of a frame, which may be cut.
func (m *Machine) frameHeader(in []byte) (ev Event, used int, err error) {
	if m.held == 0 && len(in) >= frameHeaderLen {
		m.frame, used = parseHeader(in), frameHeaderLen
	} else {
		used = copy(m.part[m.held:], in)
		if m.held += used; m.held < frameHeaderLen {
			return ev, used, nil
		}
		m.frame, m.held = parseHeader(m.part[:]), 0
	}
	m.left = m.frame.length
	ev, err = m.begin()
	return ev, used, err
}

// begin checks the header of a frame and enters its payload.
func (m *Machine) begin() (Event, error) {
	f := &m.frame
	switch {
	case f.length > minFrame:
		return Event{}, errFrameSize // RFC 9113 4.2: this end permits no more
	case !m.hasPeer && (f.kind != frameSettings || f.has(flagAck)):
		return Event{}, errFirstFrame // RFC 9113 3.4
	case m.blockOf != 0 && (f.kind != frameContinuation || f.stream != m.blockOf), m.blockOf == 0 && f.kind == frameContinuation:
		return Event{}, errContinuation // RFC 9113 6.10
	}
	if f.kind == frameData {
		return m.beginData()
	}
	m.state = inPayload
	m.buf = m.buf[:0]
	return Event{}, nil
}

// payload collects the payload of a frame. One that is there as a whole is not copied.
func (m *Machine) payload(in []byte) (ev Event, used int, err error) {
	p := in
	if len(m.buf) == 0 && len(in) >= m.left {
		used = m.left
		p = in[:used]
	} else {
		used = min(len(in), m.left-len(m.buf))
		m.buf = append(m.buf, in[:used]...)
		if len(m.buf) < m.left {
			return ev, used, nil
		}
		p = m.buf
	}
	m.state, m.left = atHeader, 0
	ev, err = m.handle(p)
	return ev, used, err
}

// handle takes a frame but DATA.
func (m *Machine) handle(p []byte) (Event, error) {
	switch m.frame.kind {
	case frameHeaders:
		return m.headers(p)
	case frameContinuation:
		return m.continuation(p)
	case framePriority:
		return m.priority(p)
	case frameReset:
		return m.resetFrame(p)
	case frameSettings:
		return m.settingsFrame(p)
	case framePushPromise:
		return Event{}, errPush // RFC 9113 8.4: disabled by a client's settings, and no frame of a client
	case framePing:
		return m.ping(p)
	case frameGoAway:
		return m.goAwayFrame(p)
	case frameWindowUpdate:
		return m.windowUpdate(p)
	}
	return Event{}, m.idle() // RFC 9113 4.1: ignored
}
