package http1

// Input takes bytes of the connection and returns the next event, and how many of the bytes it consumed. It is called again
// with the rest until it returns NeedInput. fin means that the input ends with in. It borrows in for the time that the event
// is used.
//
// After NeedInput bytes are left only at a server that has not answered the request yet: they belong to the next one, and
// are fed again when the response has been appended.
//
// An error is an *Error. It ends the connection, and every later call returns the same.
func (m *Machine) Input(in []byte, fin bool) (ev Event, n int, err error) {
	for m.err == nil {
		switch {
		case m.state == ending:
			m.finish()
			return Event{Kind: End}, n, nil
		case m.state == complete && !m.next():
			if m.role == RoleClient && len(in) > n { // not an answer to anything (RFC 9112 9.2)
				return Event{}, n, m.fail(errUnsolicited)
			}
			m.ended = m.ended || fin && len(in) == n
			return Event{}, n, nil
		case n == len(in):
			if !fin {
				return Event{}, n, nil
			}
			m.ended = true
			if again, err := m.endOfInput(); !again {
				return Event{}, n, m.fail(err)
			}
			continue
		}
		var used int
		ev, used, err = m.step(in[n:])
		n += used
		if err != nil {
			return Event{}, n, m.fail(err)
		}
		if ev.Kind != NeedInput {
			return ev, n, nil
		}
	}
	return Event{}, n, m.err
}

// fail keeps an error.
func (m *Machine) fail(err error) error {
	if err != nil {
		m.closing, m.err = true, err
	}
	return err
}

// next begins the next message if the one before is over in both directions, and reports whether it did.
func (m *Machine) next() bool {
	over := !m.request.open && m.sending.body == NoBody && !m.closing
	if m.role == RoleClient {
		over = m.request.open // AppendRequest has opened it
	}
	if over {
		m.state = inHead
		m.buf, m.lines, m.begins, m.scanned = m.buf[:0], m.lines[:0], 0, 0
	}
	return over
}

// finish is the end of a message that was received.
func (m *Machine) finish() {
	m.state = complete
	if m.role == RoleClient {
		m.request.open = false
	}
}

// endOfInput handles the end of the input, and reports whether that leads to an event.
func (m *Machine) endOfInput() (again bool, err error) {
	switch m.state {
	case untilClose, tunnel: // RFC 9112 6.3 rule 8
		m.state = ending
		return true, nil
	case inHead:
		if len(m.buf) > 0 || m.role == RoleClient {
			return false, errCutHead
		}
		return false, nil
	}
	return false, errCutContent // RFC 9112 8
}

// step takes one element of the input, which is not empty: a header, a piece of content.
func (m *Machine) step(in []byte) (ev Event, used int, err error) {
	switch m.state {
	case inHead:
		return m.collectHead(in)
	case inContent:
		ev, used = m.content(in, ending)
		return ev, used, nil
	case untilClose, tunnel:
		return Event{Kind: Data, Payload: in}, len(in), nil
	}
	return m.chunked(in)
}
